"""Laws whose transfer coefficients are normalised Shapley values (ShapleyLaw paper, section 3.3).

`exp(SV - max)` has an arbitrary temperature, so that two of the three laws fit it: `phi_ij = NSV_ij^kappa_j`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.base import Inputs, require_transfer
from shapleymix.laws.symbols import fitted, given, over_runs
from shapleymix.laws.transfer import Aggregate, TransferLaw, concavity, safe_log, strength
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class ShapleyTransfer(TransferLaw):
    """What the laws that are given Shapley values share."""

    needs = ("mixture", "transfer")

    nsv: FloatArray = given("MK")

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"nsv": require_transfer(inputs, cls.name).nsv}


@dataclass(frozen=True)
class Shapley(ShapleyTransfer):
    """`L_j = C_j(N, D) Theta_j^-gamma_j` with `Theta_j = sum_i p_i NSV_ij`."""

    kind = "law/shapley"
    name = "shapley"
    reference = "ShapleyLaw paper, section 3.3"
    assumption = "normalised Shapley values are the transfer coefficients"

    gamma: FloatArray = strength(0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0)

    def phi(self) -> FloatArray:
        return self.nsv

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return self.transfer_expansion(N, D, safe_log(self.theta(p, N, D)))


@dataclass(frozen=True)
class TemperedTransfer(ShapleyTransfer):
    """What the laws with `phi_ij = NSV_ij^kappa_j` share."""

    kappa: FloatArray = fitted(low=1e-2, high=50.0, start=(0.5, 1.0, 2.0, 4.0, 8.0), typical=(1.5, 3.0))

    def phi(self) -> FloatArray:
        return np.exp(self.kappa[..., None, :] * np.log(self.nsv))

    def kappa_slope(self, found: Aggregate) -> FloatArray:
        """Derivative of log L by log kappa."""
        mean_log = np.einsum("...rmk,...mk->...rk", found.shares, np.log(self.nsv))
        return -over_runs(self.gamma * self.kappa) * mean_log


@dataclass(frozen=True)
class ShapleyTempered(TemperedTransfer):
    """`Theta_j = sum_i p_i NSV_ij^kappa_j`, kappa fitted; kappa = 1 is the paper's law."""

    kind = "law/shapley-tempered"
    name = "shapley-tempered"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa"
    assumption = "Shapley values rank the transfer; its strength is fitted"

    gamma: FloatArray = strength(0.03, 0.1, 0.3, 1.0)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"kappa": self.kappa_slope(found)}


@dataclass(frozen=True)
class ShapleyConcave(TemperedTransfer):
    """`Theta_j = sum_i NSV_ij^kappa_j p_i^a_j` with `0 < a <= 1`, still convex to optimise."""

    kind = "law/shapley-concave"
    name = "shapley-concave"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa and p^a"
    assumption = "Shapley values rank the transfer; its strength and its diminishing returns are fitted"

    gamma: FloatArray = strength(0.05, 0.2, 0.6)
    a: FloatArray = concavity(0.4, 0.7, 0.95)

    def exponent(self) -> FloatArray:
        return over_runs(self.a)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"kappa": self.kappa_slope(found), "a": self.a_slope(p, found)}
