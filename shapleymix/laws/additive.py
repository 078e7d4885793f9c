"""The additive mixing law (Shukor et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.slopes import relative_worth
from shapleymix.laws.symbols import fitted
from shapleymix.laws.terms import PowerTerms
from shapleymix.laws.transfer import concave_powers, log_ratios, over_sources
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Additive(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j + 1 / sum_i C_ij p_i^g_ij`, an exponent for every pair."""

    kind = "law/additive"
    name = "additive"
    reference = "Shukor et al. 2025, additive law"
    assumption = "the mixture adds to the loss, whatever N and D"
    needs = ("mixture",)
    beside = True

    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-8, high=1e8, typical=(0.4, 4.0))
    g: FloatArray = fitted("MK", low=0.05, high=1.0, typical=(0.4, 0.8))

    def pieces(self, p: FloatArray) -> FloatArray:
        """`C_ij p_i^g_ij`, shape (..., R, M, K)."""
        return concave_powers(p, self.g) * self.coefficients[..., None, :, :]

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        total = over_sources(self.pieces(p))
        return np.where(total > 0, self.core(N, D) + 1.0 / np.where(total > 0, total, 1.0), np.nan)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        pieces = self.pieces(p)
        total = over_sources(pieces)
        total = np.where(total > 0, total, 1.0)
        loss, slopes = self.core_expansion(N, D, 1.0 / total)
        by_piece = -pieces * (1.0 / (total**2 * loss))[..., None, :]
        by_g = by_piece * (log_ratios(p)[:, :, None] * self.g[..., None, :, :])
        return np.log(loss), slopes | {"coefficients": by_piece, "g": by_g}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        relative = relative_worth(observed, widths=(0.3, 1.0), least=1e-2)
        scales, exponents = np.array([0.5, 1.5, 5.0]), np.array([0.3, 0.7])
        coefficients = relative[:, None] * scales[None, :, None, None]
        flat = coefficients.reshape(-1, *relative.shape[1:])
        return {
            "coefficients": np.concatenate([flat] * len(exponents)),
            "g": np.concatenate([np.full_like(flat, exponent) for exponent in exponents]),
        }

    def terms(self, N: float, D: float) -> PowerTerms:
        floor = self.core_at(N, D)
        ones = np.ones_like(floor)
        return PowerTerms(floor, ones, ones, self.coefficients, self.g)
