"""The law's form with transfer learned from the log itself: no Shapley values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.aggregate import Aggregate, TransferLaw
from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.parameters import fitted
from shapleymix.laws.slopes import mixture_slopes
from shapleymix.records import FloatArray

GAMMAS = (0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class LearnedTransfer(TransferLaw):
    """What the learned laws share: coefficients `phi_ij`, known up to a scale that E, A and B absorb."""

    gauge = 1

    coefficients: FloatArray = fitted("MK", low=1e-10, high=1e10)

    def phi(self) -> FloatArray:
        return self.coefficients

    def learned_expansion(
        self, found: Aggregate, N: FloatArray, D: FloatArray
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """log L, and its derivatives by the core's symbols, log gamma and the logarithms of the coefficients."""
        log_loss, slopes = self.transfer_expansion(N, D, found.log_theta)
        return log_loss, slopes | {"coefficients": -self.gamma[..., None, None, :] * found.shares}

    def in_gauge(self):
        """The same law with `max_i phi_ij = 1`; the scale goes into E, A and B exactly."""
        top = self.coefficients.max(axis=-2)
        factor = np.exp(-self.gamma * np.log(top))
        scaled = {name: getattr(self, name) * factor for name in ("E", "A", "B")}
        return self.replaced(coefficients=self.coefficients / top[..., None, :], **scaled)


@dataclass(frozen=True)
class Learned(LearnedTransfer):
    """`Theta_j = sum_i phi_ij p_i` with phi fitted, `max_i phi_ij = 1`."""

    kind = "law/learned"
    name = "learned"
    reference = "ShapleyLaw paper, section 3.3, with fitted coefficients"
    assumption = "transfer is linear in the ratios and can be told from the log alone"
    needs = ("mixture",)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return self.learned_expansion(self.aggregate(p), N, D)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return learned_starts(observed, GAMMAS)


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
