"""Published laws without a transfer matrix: effective data, the exponential data mixing law, the additive law.

Where the log must tell coefficients, searches begin at log-linear slopes of the losses in the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.core import CoreLaw, power
from shapleymix.laws.pieces import Pieces
from shapleymix.laws.symbols import Belief, Knobs, fitted
from shapleymix.records import FloatArray

RIDGE = 1e-4


@dataclass(frozen=True)
class EffectiveData(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / (D Theta_j)^beta_j`, `Theta_j = sum_i phi_ij p_i`, `max_i phi_ij = 1`.

    The mixture acts only through how many tokens count for the target. Worst in range and least biased far outside of
    it: a cross-check for extrapolation.
    """

    kind = "law/effective-data"
    name = "effective-data"
    reference = "Hoffmann et al. 2022, eq. 2, with D Theta in place of D"
    assumption = "a token of another language is worth a fixed share of a token of the target's own"
    needs = ("mixture",)

    B: FloatArray = fitted(role="linear", typical=(1000.0, 2000.0))
    beta: FloatArray = fitted(role="exponent", low=0.02, high=3.0, typical=(0.3, 0.4))
    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-10, high=1e10, gauge=True, typical=(0.1, 1.0))

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        constant, by_size, by_data = law.parts(N, D)
        return Pieces("power", constant + by_size, by_data, law.beta, law.coefficients)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return {"coefficients": relative_worth(observed, widths=(0.1, 0.3, 1.0), least=1e-3)}

    def in_gauge(self) -> Self:
        """The same law with `max_i phi_ij = 1`; the scale goes into B exactly."""
        top = self.coefficients.max(axis=-2)
        return self.replaced(coefficients=self.coefficients / top[..., None, :], B=self.B * power(top, -self.beta))


@dataclass(frozen=True)
class Exponential(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j + k_j exp(sum_i t_ij p_i)`, `max_i t_ij = 0`.

    Ratios sum to one, so that a shift of all t_ij by a constant is a factor of k_j: only differences of t are known.
    """

    kind = "law/exponential"
    name = "exponential"
    reference = "Ye et al. 2025, eq. 6, with Chinchilla's terms added"
    assumption = "log of the reducible loss is linear in the ratios"
    needs = ("mixture",)
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {"t": (30.0, 10.0, 3.0)}
    takes_repetition = False  # t is known up to a shift because ratios sum to one

    k: FloatArray = fitted(role="linear", typical=(0.5, 1.0))
    t: FloatArray = fitted("MK", low=-60.0, high=60.0, positive=False, gauge=True, typical=(-2.0, 0.0))

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        return Pieces("exponential", law.fall(N, D), law.k, np.ones_like(law.k), law.t)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        slopes = mixture_slopes(observed)
        slopes = slopes - slopes.mean(axis=0)
        return {"t": np.stack([scale * slopes for scale in (1.0, 2.0, 4.0, 8.0)])}

    @classmethod
    def beliefs(cls, knobs: Knobs, givens: Mapping[str, FloatArray]) -> dict[str, Belief]:
        """A source that few runs hold, and these at small ratios, could have any t: `exp(60 p)` fits one run well."""
        return {"t": Belief(0.0, knobs["t"])}

    def in_gauge(self) -> Self:
        """The same law with `max_i t_ij = 0`; the shift goes into k exactly."""
        top = self.t.max(axis=-2)
        return self.replaced(t=self.t - top[..., None, :], k=self.k * np.exp(top))


@dataclass(frozen=True)
class Additive(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j + 1 / sum_i C_ij p_i^g_ij`, an exponent for every pair."""

    kind = "law/additive"
    name = "additive"
    reference = "Shukor et al. 2025, additive law"
    assumption = "the mixture adds to the loss, whatever N and D"
    needs = ("mixture",)

    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-8, high=1e8, typical=(0.4, 4.0))
    g: FloatArray = fitted("MK", low=0.05, high=1.0, typical=(0.4, 0.8))

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        one = np.ones(np.shape(law.E))
        return Pieces("power", law.fall(N, D), one, one, law.coefficients, law.g)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        relative = relative_worth(observed, widths=(0.3, 1.0), least=1e-2)
        scales, exponents = np.array([0.5, 1.5, 5.0]), np.array([0.3, 0.7])
        flat = (relative[:, None] * scales[None, :, None, None]).reshape(-1, *relative.shape[1:])
        return {
            "coefficients": np.concatenate([flat] * len(exponents)),
            "g": np.concatenate([np.full_like(flat, exponent) for exponent in exponents]),
        }


def mixture_slopes(observed: Observations) -> FloatArray:
    """Slopes t (M, K) of `log L_j ~ c + t . p - n log N - d log D`, by weighted ridge regression; up to a constant."""
    budget = np.stack([np.log(observed.N), np.log(observed.D)], axis=1)
    columns = np.concatenate([observed.p, budget], axis=1)
    weight = observed.weight / np.maximum(observed.weight.sum(axis=0), 1e-300)
    center = weight.T @ columns  # (K, M + 2)
    level = (weight * observed.log_loss).sum(axis=0)
    gram = np.einsum("rk,rm,rn->kmn", weight, columns, columns, optimize=True)
    gram -= center[:, :, None] * center[:, None, :]
    right = (weight * observed.log_loss).T @ columns - level[:, None] * center
    ridge = RIDGE * np.maximum(np.einsum("kmm->k", gram), 1e-12) / columns.shape[1]
    solved = np.linalg.solve(gram + ridge[:, None, None] * np.eye(columns.shape[1]), right[..., None])[..., 0]
    return solved[:, : observed.p.shape[1]].T


def relative_worth(observed: Observations, widths: tuple[float, ...], least: float) -> FloatArray:
    """Coefficients (S, M, K) of 1 for the best source and less for others, by how much worse their slopes are.

    `exp(-slope / width)`, for each width S, and no less than `least`.
    """
    slopes = mixture_slopes(observed)
    slopes = slopes - slopes.min(axis=0)
    return np.maximum(np.exp(-slopes / np.array(widths)[:, None, None]), least)
