"""ShapleyLaw with the temperature of the normalisation fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.aggregate import Aggregate, TransferLaw, grid
from shapleymix.laws.base import Inputs, Observations, require_transfer
from shapleymix.laws.parameters import fitted, given, over_runs
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class TemperedTransfer(TransferLaw):
    """What the laws with `phi_ij = NSV_ij^kappa_j` share: `exp(SV - max)` has an arbitrary temperature."""

    kappa: FloatArray = fitted(low=1e-2, high=50.0)
    nsv: FloatArray = given("MK")

    def phi(self) -> FloatArray:
        return np.exp(self.kappa[..., None, :] * np.log(self.nsv))

    def kappa_slope(self, found: Aggregate) -> FloatArray:
        """Derivative of log L by log kappa."""
        mean_log = np.einsum("...rmk,...mk->...rk", found.shares, np.log(self.nsv))
        return -over_runs(self.gamma * self.kappa) * mean_log

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"nsv": require_transfer(inputs, cls.name).nsv}


@dataclass(frozen=True)
class ShapleyTempered(TemperedTransfer):
    """`Theta_j = sum_i p_i NSV_ij^kappa_j`, kappa fitted; kappa = 1 is the paper's law."""

    kind = "law/shapley-tempered"
    name = "shapley-tempered"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa"
    assumption = "Shapley values rank the transfer; its strength is fitted"
    needs = ("mixture", "transfer")

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"kappa": self.kappa_slope(found)}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        gamma, kappa = np.array([0.03, 0.1, 0.3, 1.0]), np.array([0.5, 1.0, 2.0, 4.0, 8.0])
        return grid(len(inputs.targets), gamma=gamma, kappa=kappa)
