"""Learned transfer with diminishing returns in each language's own data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.learned import LearnedTransfer, learned_starts
from shapleymix.laws.parameters import fitted, over_runs
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class LearnedConcave(LearnedTransfer):
    """`Theta_j = sum_i phi_ij p_i^a_j` with phi and `0 < a <= 1` fitted, `max_i phi_ij = 1`."""

    kind = "law/learned-concave"
    name = "learned-concave"
    reference = "ShapleyLaw paper, section 3.3, with fitted coefficients and p^a"
    assumption = "transfer can be told from the log alone, with diminishing returns in each ratio"
    needs = ("mixture",)

    a: FloatArray = fitted(low=0.05, high=1.0)

    def exponent(self) -> FloatArray:
        return over_runs(self.a)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.learned_expansion(found, N, D)
        return log_loss, slopes | {"a": self.a_slope(p, found)}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        parts = [learned_starts(observed, (0.1, 0.3, 0.8)) for _ in A_STARTS]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        each = len(parts[0]["gamma"])
        return joined | {"a": np.repeat(A_STARTS, each)[:, None] * np.ones_like(joined["gamma"])}


A_STARTS = (0.35, 0.6, 0.9)
