"""The exponential data mixing law (Ye et al. 2025) with size and data terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.slopes import mixture_slopes
from shapleymix.laws.symbols import Belief, Knobs, fitted, over_runs
from shapleymix.laws.terms import ExponentialTerms
from shapleymix.laws.transfer import mix
from shapleymix.records import FloatArray


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
    beside = True
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {"t": (30.0, 10.0, 3.0)}
    takes_repetition = False  # t is known up to a shift because ratios sum to one

    k: FloatArray = fitted(role="linear", typical=(0.5, 1.0))
    t: FloatArray = fitted("MK", low=-60.0, high=60.0, positive=False, gauge=True, typical=(-2.0, 0.0))

    def bump(self, p: FloatArray) -> FloatArray:
        """The mixture's term, shape (..., R, K)."""
        return over_runs(self.k) * np.exp(np.minimum(mix(p, self.t), 60.0))

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return self.core(N, D) + self.bump(p)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        bump = self.bump(p)
        loss, slopes = self.core_expansion(N, D, bump)
        share = bump / loss
        return np.log(loss), slopes | {"k": share, "t": share[..., None, :] * p[:, :, None]}

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

    def terms(self, N: float, D: float) -> ExponentialTerms:
        return ExponentialTerms(self.core_at(N, D), self.k, self.t)
