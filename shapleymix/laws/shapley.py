"""ShapleyLaw as printed (ShapleyLaw paper, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.aggregate import TransferLaw, grid, safe_log
from shapleymix.laws.base import Inputs, Observations, require_transfer
from shapleymix.laws.parameters import given
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Shapley(TransferLaw):
    """`L_j = C_j(N, D) Theta_j^-gamma_j` with `Theta_j = sum_i p_i NSV_ij`."""

    kind = "law/shapley"
    name = "shapley"
    reference = "ShapleyLaw paper, section 3.3"
    assumption = "normalised Shapley values are the transfer coefficients"
    needs = ("mixture", "transfer")

    nsv: FloatArray = given("MK")

    def phi(self) -> FloatArray:
        return self.nsv

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return self.transfer_expansion(N, D, safe_log(self.theta(p)))

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"nsv": require_transfer(inputs, cls.name).nsv}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return grid(len(inputs.targets), gamma=np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0]))
