"""What an engine minimises: pieces of a law, weights of the targets, bounds, and a pull towards a mixture.

Axes: M sources, K targets; any leading axes of mixtures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.polytope import Polytope, divergence, divergence_gradient
from shapleymix.records import FloatArray

MEAN, WORST = "mean", "worst"
Constraint = Callable[[Any], object]
"""A function from the cvxpy variable p (M,) to one cvxpy constraint, or a list of them."""


class Losses(Protocol):
    """What predicts the losses (..., K) of mixtures (..., M): `Pieces`, or a law without convex ones."""

    def losses(self, p: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class Goal:
    """min of sum_j w_j loss_j(p), or of max_j w_j loss_j(p), plus kl KL(p || anchor), within bounds.

    Attributes
    ----------
    law : Losses
        The law at the budget; engines that need slopes take its `pieces`.
    w : array (K,)
        Weights of the targets.
    within : Polytope
        The bounds.
    worst : bool
        Whether the largest weighted loss is minimised.
    kl, anchor : float and array (M,), optional
        Weight of the penalty in nats, and its mixture.
    further : tuple of Constraint
        Constraints that only cvxpy understands.
    """

    law: Losses
    w: FloatArray
    within: Polytope
    worst: bool = False
    kl: float = 0.0
    anchor: FloatArray | None = None
    further: tuple[Constraint, ...] = ()

    @property
    def pieces(self) -> Pieces:
        """The convex pieces of the law."""
        assert isinstance(self.law, Pieces)
        return self.law

    @property
    def is_boxed(self) -> bool:
        """Whether the batched engine solves it: bounds on single ratios, a smooth objective."""
        return self.within.is_box and not self.worst and not self.further

    def of(self, losses: FloatArray) -> FloatArray:
        """The mean or worst of losses (..., K); a target of weight 0 never counts, even without a prediction."""
        counted = self.w > 0
        weighed = self.w[counted] * losses[..., counted]
        return weighed.max(axis=-1) if self.worst else weighed.sum(axis=-1)

    def value(self, p: FloatArray) -> FloatArray:
        """The mean or worst loss at mixtures p (..., M), without the penalty."""
        return self.of(self.law.losses(p))

    def penalty(self, p: FloatArray) -> float:
        """kl KL(p || anchor) of one mixture, nats; infinite outside of the anchor's support."""
        return self.kl * divergence(p, self.anchor) if self.kl > 0 and self.anchor is not None else 0.0

    def total(self, p: FloatArray) -> float:
        """What is minimised, at one mixture: loss and penalty."""
        return float(self.value(p)) + self.penalty(p)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient (M,) of the weighted sum of losses and of the penalty; -inf where a slope at ratio zero is."""
        return self.pieces.gradient(p, w) + self.penalty_gradient(p)

    def penalty_gradient(self, p: FloatArray) -> FloatArray:
        """Gradient (M,) of the penalty."""
        if self.kl == 0 or self.anchor is None:
            return np.zeros_like(p)
        return self.kl * divergence_gradient(p, self.anchor)
