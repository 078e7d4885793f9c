"""Laws whose transfer coefficients are learned from the log itself: no Shapley values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.symbols import fitted, given, over_runs
from shapleymix.laws.transfer import Aggregate, TransferLaw, concavity, log_ratios
from shapleymix.records import FloatArray

GAMMAS = (0.05, 0.1, 0.2, 0.5)
CONCAVE_GAMMAS = (0.1, 0.3, 0.8)
CONCAVITIES = (0.35, 0.6, 0.9)
RIDGE = 1e-4


@dataclass(frozen=True)
class LearnedTransfer(TransferLaw):
    """What the learned laws share: coefficients `phi_ij`, known up to a scale that E, A and B absorb."""

    needs = ("mixture",)
    superseded = True  # by `learned-base`

    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-10, high=1e10, gauge=True, typical=(0.1, 1.0))

    def phi(self) -> FloatArray:
        return self.coefficients

    def learned_expansion(
        self, found: Aggregate, N: FloatArray, D: FloatArray
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """log L, and its derivatives by the core's symbols, log gamma and the logarithms of the coefficients."""
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"coefficients": -self.gamma[..., None, None, :] * found.shares}

    def in_gauge(self) -> Self:
        """The same law with `max_i phi_ij = 1`; the scale goes into E, A and B exactly."""
        top = self.coefficients.max(axis=-2)
        factor = np.exp(-self.gamma * np.log(top))
        return self.replaced(
            coefficients=self.coefficients / top[..., None, :], E=self.E * factor, A=self.A * factor, B=self.B * factor
        )


@dataclass(frozen=True)
class Learned(LearnedTransfer):
    """`Theta_j = sum_i phi_ij p_i` with phi fitted, `max_i phi_ij = 1`."""

    kind = "law/learned"
    name = "learned"
    reference = "ShapleyLaw paper, section 3.3, with fitted coefficients"
    assumption = "transfer is linear in the ratios and can be told from the log alone"

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return self.learned_expansion(self.aggregate(p), N, D)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return learned_starts(observed, GAMMAS)


@dataclass(frozen=True)
class LearnedConcave(LearnedTransfer):
    """`Theta_j = sum_i phi_ij p_i^a_j` with phi and `0 < a <= 1` fitted, `max_i phi_ij = 1`."""

    kind = "law/learned-concave"
    name = "learned-concave"
    reference = "ShapleyLaw paper, section 3.3, with fitted coefficients and p^a"
    assumption = "transfer can be told from the log alone, with diminishing returns in each ratio"

    a: FloatArray = concavity(*CONCAVITIES)

    def exponent(self) -> FloatArray:
        return over_runs(self.a)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        found = self.aggregate(p)
        log_loss, slopes = self.learned_expansion(found, N, D)
        return log_loss, slopes | {"a": self.a_slope(p, found)}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return learned_starts(observed, CONCAVE_GAMMAS)


@dataclass(frozen=True)
class LearnedOwn(LearnedTransfer):
    """`Theta_j = phi_jj p_j^a_j + sum_(i != j) phi_ij p_i^c_j`, `0 < a, c <= 1`, `max_i phi_ij = 1`.

    A target that is no source has no own data, and its `a` is set to its `c`.
    """

    kind = "law/learned-own"
    name = "learned-own"
    reference = "this library; ShapleyLaw paper, section 3.3, with fitted coefficients, p_j^a and p_i^c"
    assumption = "as learned-concave, with other diminishing returns for the target's own data than for the rest"

    a: FloatArray = concavity()
    c: FloatArray = concavity()
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
        """Both exponents begin at one value: crossed, they would be three times as many starts."""
        one = learned_starts(observed, CONCAVE_GAMMAS)
        joined = {name: np.concatenate([value] * len(CONCAVITIES)) for name, value in one.items()}
        exponent = np.repeat(CONCAVITIES, len(CONCAVE_GAMMAS))[:, None] * np.ones_like(joined["gamma"])
        return joined | {"a": exponent, "c": exponent}

    def in_gauge(self) -> Self:
        scaled = super().in_gauge()
        return scaled.replaced(a=np.where(self.own.any(axis=-2), self.a, self.c))


def learned_starts(observed: Observations, gammas: tuple[float, ...]) -> dict[str, FloatArray]:
    """Coefficients that reproduce the log-linear slopes of the losses, for each gamma.

    For a large gamma `phi = exp(-slope / gamma)` is exact (the exponential law); for a small one its first order is.
    """
    slopes = mixture_slopes(observed)
    slopes = slopes - slopes.min(axis=0)
    gamma = np.array(gammas)[:, None, None]
    coefficients = np.maximum(np.exp(-slopes / gamma), 1e-3)
    return {
        "gamma": np.broadcast_to(gamma[:, 0], (len(gammas), slopes.shape[1])),
        "coefficients": coefficients,
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
