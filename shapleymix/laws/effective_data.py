"""Effective data: the mixture acts only through how many tokens count for the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.slopes import relative_worth
from shapleymix.laws.symbols import fitted, over_runs
from shapleymix.laws.terms import PowerTerms
from shapleymix.laws.transfer import mix, safe_log
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class EffectiveData(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / (D Theta_j)^beta_j`, `Theta_j = sum_i phi_ij p_i`, `max_i phi_ij = 1`.

    Worst in range and least biased far outside of it: a cross-check for extrapolation.
    """

    kind = "law/effective-data"
    name = "effective-data"
    reference = "Hoffmann et al. 2022, eq. 2, with D Theta in place of D"
    assumption = "a token of another language is worth a fixed share of a token of the target's own"
    needs = ("mixture",)
    beside = True

    B: FloatArray = fitted(role="linear", typical=(1000.0, 2000.0))
    beta: FloatArray = fitted(role="exponent", low=0.02, high=3.0, typical=(0.3, 0.4))
    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-10, high=1e10, gauge=True, typical=(0.1, 1.0))

    def theta(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Theta, shape (..., R, K); the same at every budget."""
        return mix(p, self.coefficients)

    def parts(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Theta, the loss, and the data term, each (..., R, K)."""
        theta = self.theta(p, N, D)
        constant, by_size, by_data = self.core_pieces(N, D)
        by_data = by_data * np.exp(-over_runs(self.beta) * safe_log(theta))
        return theta, constant + by_size + by_data, by_data

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        theta, loss, _ = self.parts(p, N, D)
        return np.where(theta > 0, loss, np.nan)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        theta, loss, by_data = self.parts(p, N, D)
        share, beta = by_data / loss, over_runs(self.beta)
        _, slopes = self.core_expansion(N, D, loss - self.core(N, D))
        log_data = np.log(D)[:, None] + safe_log(theta)
        inverse = 1.0 / np.where(theta > 0, theta, 1.0)
        by_source = p[:, :, None] * (self.coefficients[..., None, :, :] * (-share * beta * inverse)[..., None, :])
        return np.log(loss), slopes | {"B": share, "beta": -share * beta * log_data, "coefficients": by_source}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return {"coefficients": relative_worth(observed, widths=(0.1, 0.3, 1.0), least=1e-3)}

    def in_gauge(self) -> Self:
        """The same law with `max_i phi_ij = 1`; the scale goes into B exactly."""
        top = self.coefficients.max(axis=-2)
        scaled = self.coefficients / top[..., None, :]
        return self.replaced(coefficients=scaled, B=self.B * np.exp(-self.beta * np.log(top)))

    def terms(self, N: float, D: float) -> PowerTerms:
        constant, by_size, by_data = self.pieces_at(N, D)
        return PowerTerms(constant + by_size, by_data, self.beta, self.coefficients, None)
