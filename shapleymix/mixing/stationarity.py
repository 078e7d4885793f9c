"""Multipliers by non-negative least squares of the optimality conditions, for slopes that span too many digits.

A linear program's solver drops coefficients below 1e-9 of others, and a target whose slope is 1e23 at a ratio of
1e-15 has a multiplier that is next to nothing, and yet settles that ratio. Here every column has its own unit:

    slopes_i . targets + cost_i - price + (groups and ball)_i = over_i - under_i,   sum of targets = 1
    multiplier times slack = 0,  over_i (p_i - lower_i) = 0,  under_i (upper_i - p_i) = 0,  all >= 0

The first line counts much more than the second. What comes out bounds nothing by itself: `certificate` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.problem import divergence, divergence_gradient
from shapleymix.records import FloatArray

FIRST = 1e4
"""How much more a condition on slopes counts than one on slacks."""


@dataclass(frozen=True)
class Tangents:
    """The problem's tangents at one mixture p (M,).

    Attributes
    ----------
    bounds : Constraints
        The bounds.
    p : array (M,)
        The mixture, or a point next to it.
    cost : array (M,)
        Gradient of the mean objective, or of the penalty alone for the worst case.
    slopes : array (K, M)
        Gradients of the targets that may decide the worst case; none for the mean objective.
    below : array (K,)
        Their losses less the largest.
    """

    bounds: Constraints
    p: FloatArray
    cost: FloatArray
    slopes: FloatArray
    below: FloatArray

    def kl_slope(self) -> FloatArray:
        """The slope (M,) of the divergence from the centre of a KL ball."""
        assert self.bounds.near is not None
        slope = divergence_gradient(self.p, self.bounds.near.center)
        return np.where(np.isfinite(slope), slope, 0.0)

    def of_l1(self, ball: FloatArray) -> tuple[FloatArray, float]:
        """Multipliers (M,) of an L1 ball, and their limit: the most that they give within it."""
        assert self.bounds.near is not None
        near = self.bounds.near
        return ball, float(ball @ near.center + near.radius * np.abs(ball).max(initial=0.0))

    def of_kl(self, multiplier: float) -> tuple[FloatArray, float]:
        """The same for a KL ball, by its tangent."""
        assert self.bounds.near is not None
        near, slope = self.bounds.near, self.kl_slope()
        return multiplier * slope, multiplier * float(slope @ self.p + near.radius - divergence(self.p, near.center))


Duals = tuple[FloatArray, FloatArray, FloatArray, float]
"""Multipliers of targets, groups and ball, and the ball's limit."""


@dataclass
class _Conditions:
    """Columns of the optimality conditions: slopes (n, rows), totals (n,) and slacks (n,), all multipliers >= 0."""

    size: int
    slopes: list[FloatArray] = field(default_factory=list)
    totals: list[FloatArray] = field(default_factory=list)
    slacks: list[FloatArray] = field(default_factory=list)

    def add(self, slopes: FloatArray, slacks: FloatArray, total: float = 0.0) -> None:
        """Multipliers with these slopes (n, at most `size`) and slacks (n,)."""
        self.slopes.append(np.pad(slopes, ((0, 0), (0, self.size - slopes.shape[1]))))
        self.totals.append(np.full(len(slopes), total))
        self.slacks.append(np.maximum(slacks, 0.0))

    def solved(self, cost: FloatArray, total: float) -> list[FloatArray] | None:
        """The multipliers, in the parts in which they were added; None where least squares fail."""
        slopes, totals, slacks = (np.concatenate(parts) for parts in (self.slopes, self.totals, self.slacks))
        matrix = np.concatenate([FIRST * slopes.T, FIRST * totals[None], np.diag(slacks)])
        right = np.concatenate([-FIRST * cost, np.zeros(self.size - len(cost)), [FIRST * total], np.zeros(len(slacks))])
        sizes = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
        try:
            found, _ = nnls(matrix / sizes, right, maxiter=20 * matrix.shape[1])
        except RuntimeError:
            return None
        return np.split(found / sizes, np.cumsum([len(part) for part in self.slacks])[:-1])


def least_squares_duals(at: Tangents) -> Duals | None:
    """Multipliers by least squares; None where these fail.

    Parameters
    ----------
    at : Tangents
        In units in which the slopes that matter are about one.
    """
    bounds, p, M = at.bounds, at.p, len(at.p)
    near, moving = bounds.near, (bounds.upper > bounds.lower).astype(float)
    l1 = near is not None and near.kind == "l1"
    conditions = _Conditions(2 * M if l1 else M)
    conditions.add(at.slopes, -at.below, 1.0)
    conditions.add(np.stack([moving, -moving]), np.zeros(2))
    sums = bounds.members @ p
    conditions.add(-bounds.members * moving, sums - bounds.group_lower)
    conditions.add(bounds.members * moving, bounds.group_upper - sums)
    conditions.add(-np.diag(moving), p - bounds.lower)
    conditions.add(np.diag(moving), bounds.upper - p)
    _add_ball(conditions, at, moving)
    found = conditions.solved(at.cost * moving, float(len(at.slopes) > 0))
    if found is None:
        return None
    targets, _, at_floor, at_cap, _, _, *ball = found
    if near is None:
        return targets, at_floor - at_cap, np.zeros(M), 0.0
    return targets, at_floor - at_cap, *(at.of_l1(ball[0] - ball[1]) if l1 else at.of_kl(float(ball[0][0])))


def _add_ball(conditions: _Conditions, at: Tangents, moving: FloatArray) -> None:
    """The multipliers of a ball: of its one tangent for KL; for L1, of v_i >= +-(p_i - c_i), and of sum v <= radius."""
    near, M = at.bounds.near, len(at.p)
    if near is None:
        return
    if near.kind != "l1":
        conditions.add((at.kl_slope() * moving)[None], np.array([near.radius - divergence(at.p, near.center)]))
        return
    beyond = at.p - near.center
    conditions.add(np.concatenate([np.diag(moving), -np.eye(M)], axis=1), np.abs(beyond) - beyond)
    conditions.add(np.concatenate([-np.diag(moving), -np.eye(M)], axis=1), np.abs(beyond) + beyond)
    conditions.add(np.append(np.zeros(M), np.ones(M))[None], np.array([near.radius - np.abs(beyond).sum()]))
