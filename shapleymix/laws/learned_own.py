"""Learned transfer in which a language's own data and the others' diminish at different rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.aggregate import log_ratios
from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.learned import LearnedTransfer
from shapleymix.laws.learned_concave import LearnedConcave
from shapleymix.laws.parameters import fitted, given
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class LearnedOwn(LearnedTransfer):
    """`Theta_j = phi_jj p_j^a_j + sum_(i != j) phi_ij p_i^c_j`, `0 < a, c <= 1`, `max_i phi_ij = 1`.

    A target that is no source has no own data, and its `a` is set to its `c`.
    """

    kind = "law/learned-own"
    name = "learned-own"
    reference = "this library; ShapleyLaw paper, section 3.3, with fitted coefficients, p_j^a and p_i^c"
    assumption = "as learned-concave, with other diminishing returns for the target's own data than for the rest"
    needs = ("mixture",)

    a: FloatArray = fitted(low=0.05, high=1.0)
    c: FloatArray = fitted(low=0.05, high=1.0)
    own: FloatArray = given("MK")

    def exponent(self) -> FloatArray:
        return np.where(self.own > 0, self.a[..., None, :], self.c[..., None, :])

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.learned_expansion(found, N, D)
        by_pair = slopes["coefficients"] * (log_ratios(p)[:, :, None] * self.exponent()[..., None, :, :])
        of_own = np.einsum("...rmk,...mk->...rk", by_pair, self.own)
        return log_loss, slopes | {"a": of_own, "c": np.einsum("...rmk->...rk", by_pair) - of_own}

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        same = [[source == target for target in inputs.targets] for source in inputs.sources]
        return {"own": np.array(same, dtype=np.float64).reshape(len(inputs.sources), len(inputs.targets))}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        shared = LearnedConcave.starts(observed, inputs, givens)
        return shared | {"c": shared["a"]}

    def in_gauge(self) -> Self:
        scaled = super().in_gauge()
        return scaled.replaced(a=np.where(self.own.any(axis=-2), self.a, self.c))
