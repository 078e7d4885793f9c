"""ShapleyLaw with fitted temperature and diminishing returns in each language's own data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.aggregate import grid
from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.parameters import fitted, over_runs
from shapleymix.laws.shapley_tempered import TemperedTransfer
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class ShapleyConcave(TemperedTransfer):
    """`Theta_j = sum_i NSV_ij^kappa_j p_i^a_j` with `0 < a <= 1`, still convex to optimise."""

    kind = "law/shapley-concave"
    name = "shapley-concave"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa and p^a"
    assumption = "Shapley values rank the transfer; its strength and its diminishing returns are fitted"
    needs = ("mixture", "transfer")

    a: FloatArray = fitted(low=0.05, high=1.0)

    def exponent(self) -> FloatArray:
        return over_runs(self.a)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"kappa": self.kappa_slope(found), "a": self.a_slope(p, found)}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        gamma, kappa = np.array([0.05, 0.2, 0.6]), np.array([0.5, 1.0, 2.0, 5.0])
        return grid(len(inputs.targets), gamma=gamma, kappa=kappa, a=np.array([0.4, 0.7, 0.95]))
