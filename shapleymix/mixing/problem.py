"""What is to be minimised, under which bounds: the problem that every engine takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shapleymix.laws.products import dot
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.room import without_room
from shapleymix.records import FloatArray

MEAN, WORST = "mean", "worst"
ROUNDING = 1e-13

Constraint = Callable[[Any], object]
"""A function from the cvxpy variable p (M,) to one cvxpy constraint, or a list of them."""


@dataclass(frozen=True)
class Problem:
    """min of sum_j w_j loss_j(p), or of max_j w_j loss_j(p), plus kl KL(p || anchor), under constraints.

    Attributes
    ----------
    terms : Terms
        The law at the budget; a law without convexity is an object that has `losses` and `objective` only.
    w : array (K,)
        Weights of the targets.
    constraints : Constraints
        Bounds of the mixture at the budget.
    objective : str
        `MEAN` or `WORST`.
    kl, anchor : float and array (M,), optional
        Weight of the penalty in nats, and its mixture.
    further : tuple of Constraint
        Constraints that only cvxpy understands.
    """

    terms: Terms
    w: FloatArray
    constraints: Constraints
    objective: str = MEAN
    kl: float = 0.0
    anchor: FloatArray | None = None
    further: tuple[Constraint, ...] = ()

    @property
    def standard(self) -> bool:
        """Whether the batched engine solves it: bounds on single sources, a smooth objective."""
        bounded = self.constraints.grouped or self.constraints.near is not None
        return self.objective == MEAN and not self.further and not bounded

    @property
    def worst(self) -> bool:
        """Whether the largest weighted loss is minimised."""
        return self.objective != MEAN

    @property
    def penalised(self) -> bool:
        """Whether there is a KL penalty."""
        return self.kl > 0 and self.anchor is not None

    @cached_property
    def supported(self) -> Problem:
        """The same problem without the sources that nothing can use: those outside of the support of the anchor, or
        of the centre of a KL ball, where they cost infinitely much, those that the groups hold at ratio zero, and
        those that the others' floors leave a rounding only."""
        bounds = self.constraints
        left = 1 - bounds.lower.sum()
        cramped = (bounds.upper > bounds.lower) & (np.minimum(left, bounds.upper - bounds.lower) <= ROUNDING)
        held = cramped | without_room(bounds) if bounds.grouped else cramped
        upper = np.where(held, bounds.lower, bounds.upper) if held.any() else bounds.upper
        if self.penalised and self.anchor is not None:
            upper = np.where(self.anchor > 0, upper, bounds.lower)
        if bounds.near is not None and bounds.near.kind == "kl":
            upper = np.where(bounds.near.center > 0, upper, bounds.lower)
        return self if upper is bounds.upper else replace(self, constraints=replace(bounds, upper=upper))

    def value(self, p: FloatArray, terms: Terms | None = None) -> FloatArray:
        """The mean or worst loss at mixtures p, without the penalty; `terms` may have replicate axes."""
        return self.of_losses((self.terms if terms is None else terms).losses(p))

    def of_losses(self, losses: FloatArray) -> FloatArray:
        """The mean or worst of losses (..., K); a target of weight 0 never counts, even at infinity."""
        if not self.worst:
            return dot(losses, self.w)
        with np.errstate(invalid="ignore"):
            return np.max(np.where(self.w > 0, self.w * losses, -np.inf), axis=-1)

    def penalty(self, p: FloatArray) -> float:
        """kl KL(p || anchor) of one mixture, nats; infinite outside of the anchor's support."""
        return self.kl * divergence(p, self.anchor) if self.penalised and self.anchor is not None else 0.0

    def total(self, p: FloatArray) -> float:
        """What is minimised, at one mixture: loss and penalty."""
        return float(self.value(p)) + self.penalty(p)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient (M,) of the weighted sum of losses and of the penalty; -inf where a slope at ratio zero is."""
        return self.terms.gradient(p, w) + self.penalty_gradient(p)

    def penalty_gradient(self, p: FloatArray) -> FloatArray:
        """Gradient (M,) of the penalty."""
        if not self.penalised or self.anchor is None:
            return np.zeros_like(p)
        return self.kl * divergence_gradient(p, self.anchor)

    def with_terms(self, terms: Terms) -> Problem:
        """The same problem under another law, for instance a bootstrap replicate."""
        return replace(self, terms=terms)


def divergence(p: FloatArray, center: FloatArray | None) -> float:
    """KL(p || center) = sum_i p_i log(p_i / center_i) in nats; infinite outside of the centre's support."""
    if center is None:
        return 0.0
    inside = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[inside] * np.log(p[inside] / center[inside])))


def divergence_gradient(p: FloatArray, center: FloatArray) -> FloatArray:
    """log(p / center) + 1 (M,), -inf at ratio zero, and 0 outside of the centre's support."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(center > 0, np.log(p / center) + 1, 0.0)
