"""What relaxing one bound saves at first, where several bounds meet and multipliers are not unique.

Where a cap coincides with the centre of a ball, or two bounds meet, the optimum has a kink in the bound: it costs more
to tighten than relaxing saves, and a multiplier may be any number between the two slopes. The slope in the direction
in which the bound gives way is the value of a linear program over directions d at the optimum p: the objective's
derivative along d is minimised, subject to the derivatives of all bounds that hold at p, of which one gives way by 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from shapleymix.mixing.bounds import KL, Constraints
from shapleymix.mixing.problem import Problem, divergence, divergence_gradient
from shapleymix.records import BoolArray, FloatArray

NEAR = 1e-7  # of a bound, in units of ratio (of nats for a KL ball): a mixture is at it
FIXED = 1e-13
REACH = 100.0  # of any ratio when one bound gives way by 1: beyond it there is only rounding to be found
CAP, FLOOR, GROUP_CAP, GROUP_FLOOR = "cap", "floor", "cap of the group", "floor of the group"
"""Which bound of a source or a group."""


@dataclass(frozen=True)
class Kinks:
    """The derivatives at an optimum of all bounds that hold there, and of the objective.

    Attributes
    ----------
    slopes : array (T, M)
        Gradients of the objective, of which the largest counts: several only for the worst case.
    low, high, still : array (M,)
        Sources at their floor, at their cap, and at the centre of an L1 ball whose radius binds.
    group_low, group_high : array (G,)
        Groups at their floor and at their cap.
    ball : array (1, M) or (0, M)
        The derivative of the ball's radius, apart from the sources at its centre, where it binds.
    """

    bounds: Constraints
    slopes: FloatArray
    low: BoolArray
    high: BoolArray
    still: BoolArray
    group_low: BoolArray
    group_high: BoolArray
    ball: FloatArray

    @classmethod
    def of(cls, problem: Problem, p: FloatArray) -> Kinks:
        """The kinks of a problem at its optimum p (M,)."""
        bounds = problem.supported.constraints
        sums = bounds.members @ p
        ball, still = _ball(bounds, p)
        return cls(
            bounds=bounds,
            slopes=_slopes(problem, p),
            low=p <= bounds.lower + NEAR,
            high=p >= bounds.upper - NEAR,
            still=still,
            group_low=sums <= bounds.group_lower + NEAR,
            group_high=sums >= bounds.group_upper - NEAR,
            ball=ball,
        )

    @property
    def determined(self) -> bool:
        """Whether only one set of multipliers belongs to the optimum: the bounds that hold are independent there.

        A source at one bound of its own has one multiplier that no other equation knows; what is left must determine
        those of the unit sum, the groups, the ball and the targets.
        """
        free = ~(self.low | self.high | self.still)
        own = self.low.astype(int) + self.high + self.still
        members = self.bounds.members[self.group_low | self.group_high]
        shared = [np.ones((1, len(free))), members, self.ball, self.slopes[1:] - self.slopes[:1]]
        rows = np.concatenate(shared)[:, free]
        size = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
        alone = bool((own[~self._fixed] <= 1).all())
        return alone and np.linalg.matrix_rank(rows / np.maximum(size, 1e-300), tol=1e-9) == len(rows)

    def savings(self, places: Sequence[tuple[str, int]]) -> FloatArray:
        """Nats that each bound (side and index) saves per unit by which it gives way at first; NaN where unknown."""
        if not np.isfinite(self.slopes[:, ~self._fixed]).all():
            return np.full(len(places), np.nan)
        base = self._least()  # of rounding only
        found = [base - self._least(*place) for place in places]
        return self._unit * np.maximum(np.array(found).reshape(-1), 0.0)

    @property
    def _fixed(self) -> BoolArray:
        return self.bounds.upper - self.bounds.lower <= FIXED

    @cached_property
    def _unit(self) -> float:
        return max(float(np.abs(self.slopes[:, ~self._fixed]).max(initial=0.0)), 1e-300)

    @cached_property
    def _rows(self) -> FloatArray:
        """Inequalities over (d, v, t): groups at their caps, and at their floors, v >= |d| at the ball's centre, the
        ball, and t, which is at least each slope."""
        members = self.bounds.members
        away = np.eye(len(self.low))[self.still]
        slopes = np.where(self._fixed, 0.0, self.slopes) / self._unit
        parts = (
            (members[self.group_high], 0.0, 0.0),
            (-members[self.group_low], 0.0, 0.0),
            (away, -np.eye(len(away)), 0.0),
            (-away, -np.eye(len(away)), 0.0),
            (self.ball, 1.0, 0.0),
            (slopes, 0.0, -1.0),
        )
        return np.concatenate(
            [
                np.concatenate([d, np.ones((len(d), len(away))) * v, np.full((len(d), 1), t)], axis=1)
                for d, v, t in parts
            ]
        )

    def _least(self, side: str = "", index: int = 0) -> float:
        """The steepest descent, in units, where the bound of that side and index gives way by 1; NaN where unknown."""
        given = {name: np.zeros(len(self.low)) for name in (CAP, FLOOR)}
        given |= {name: np.zeros(len(self.group_low)) for name in (GROUP_CAP, GROUP_FLOOR)}
        if side:
            given[side][index] = 1.0
        below = np.where(self.low | self._fixed, -given[FLOOR], -REACH)
        above = np.where(self.high | self._fixed, given[CAP], REACH)
        limits = np.concatenate([given[GROUP_CAP][self.group_high], given[GROUP_FLOOR][self.group_low]])
        rows, others = self._rows, self._rows.shape[1] - len(below)
        found = linprog(
            np.append(np.zeros(rows.shape[1] - 1), 1.0),
            A_ub=rows,
            b_ub=np.pad(limits, (0, len(rows) - len(limits))),
            A_eq=np.append(np.ones(len(below)), np.zeros(others))[None],
            b_eq=[0.0],
            bounds=np.concatenate([np.stack([below, above], axis=1), np.tile([-np.inf, np.inf], (others, 1))]),
            method="highs",
        )
        return float(found.fun) if found.success else np.nan


def _slopes(problem: Problem, p: FloatArray) -> FloatArray:
    """Gradients (T, M) of the objective at p: of the mean, or of every target that is the worst one, with penalty."""
    if not problem.worst:
        return problem.gradient(p, problem.w)[None]
    heights = np.where(problem.w > 0, problem.w * problem.terms.losses(p), -np.inf)
    top = np.flatnonzero(heights >= heights.max() - NEAR * abs(heights.max()))
    return (problem.terms.jacobian(p)[:, top] * problem.w[top]).T + problem.penalty_gradient(p)


def _ball(bounds: Constraints, p: FloatArray) -> tuple[FloatArray, BoolArray]:
    """The derivative (1, M) of the distance from the centre, and which sources are at it; (0, M) where it is slack."""
    near, nowhere = bounds.near, np.zeros(len(p), dtype=bool)
    none = np.zeros((0, len(p)))
    if near is None:
        return none, nowhere
    if near.kind == KL:
        slope = divergence_gradient(p, near.center)
        held = divergence(p, near.center) >= near.radius - NEAR
        return (np.where(np.isfinite(slope), slope, 0.0)[None] if held else none), nowhere
    if np.abs(p - near.center).sum() < near.radius - NEAR:
        return none, nowhere
    still = np.abs(p - near.center) <= NEAR
    return np.where(still, 0.0, np.sign(p - near.center))[None], still
