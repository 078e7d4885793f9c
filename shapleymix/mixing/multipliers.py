"""Multipliers of the bounds that a sort does not know, and of the targets in the worst case.

They come from a linear program, or where that is not exact enough from least squares (`stationarity`).

At a mixture p the objective is replaced by its tangents and the bounds on groups, and on the distance from a
mixture, are kept:

    minimise  t + g0 . s   (or g . s for the mean objective)
    over      w_j (loss_j(p) + grad loss_j(p) . (s - p)) <= t,  lower <= s <= upper,  sum s = 1,
              group_lower <= members s <= group_upper,  |s - center|_1 <= radius.

A KL ball is replaced by its tangent at p, too: KL(s) >= KL(p) + grad KL(p) . (s - p). Whatever multipliers come out,
the bound that `certificate` computes from them holds; at the optimum these make it tight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.optimize import linprog

from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.stationarity import Duals, Tangents, least_squares_duals
from shapleymix.records import FloatArray, IntArray

NEXT_TO_NOTHING = 1e-9  # of the largest slope
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
REACHES = (np.inf, 1e-2, 1e-6)
"""How far below the largest loss, relative to it, a target may be to have a say. Steep slopes of targets that do not
matter can be beyond what a linear program's solver takes; then only those near the top are asked."""


@dataclass(frozen=True)
class Multipliers:
    """Multipliers at one mixture.

    Attributes
    ----------
    w : array (K,)
        Weights of the mean objective that bounds the problem's: the problem's own, or those of the saddle point.
    groups : array (G,)
        Multipliers of the groups: positive at a floor, negative at a cap.
    ball : array (M,)
        And `ball_limit`: ball . s <= ball_limit for every mixture s within the ball.
    """

    w: FloatArray
    groups: FloatArray
    ball: FloatArray
    ball_limit: float

    def tilt(self, bounds: Constraints) -> FloatArray:
        """(M,) what the multipliers take off the gradient."""
        return self.groups @ bounds.members - self.ball

    def slack(self, p: FloatArray, bounds: Constraints) -> float:
        """What multipliers of bounds that p does not meet exactly add to the gap (their complementarity)."""
        bound = np.where(self.groups > 0, bounds.group_lower, bounds.group_upper)
        return float(self.groups @ (bounds.members @ p - bound)) + self.ball_limit - float(self.ball @ p)


def multipliers_of(problem: Problem, p: FloatArray) -> Iterator[Multipliers]:
    """Multipliers for the certificate of the mixture p (M,), the likeliest first; at the least zeros, a loose bound."""
    bounds = problem.constraints
    none = Multipliers(_of_the_top(problem, p), np.zeros(len(bounds.group_names)), np.zeros_like(p), 0.0)
    if not (problem.worst or bounds.grouped or bounds.near is not None):
        yield none
        return
    counted = np.flatnonzero(problem.w > 0) if problem.worst else np.zeros(0, dtype=int)
    # A source that cannot move has no slope: at ratio zero a concave law's would be infinite.
    moving = bounds.upper > bounds.lower
    cost = np.where(moving, problem.penalty_gradient(p) if problem.worst else problem.gradient(p, problem.w), 0.0)
    tangents = np.where(moving, (problem.terms.jacobian(p)[:, counted] * problem.w[counted]).T, 0.0)
    heights = problem.w[counted] * problem.terms.losses(p)[counted]
    finite = np.isfinite(cost).all() and np.isfinite(tangents).all() and np.isfinite(heights).all()
    if not finite or not (cost.any() or tangents.any()):
        yield none
        return
    whole = Tangents(bounds, p, cost, tangents, heights - heights.max(initial=-np.inf))
    yield _by_program(problem, counted, whole) or none
    unit = _units(whole)[0]
    duals = least_squares_duals(_in_units(whole, unit))
    yield none if duals is None else _multipliers(problem, counted, duals, unit)


def _by_program(problem: Problem, counted: IntArray, whole: Tangents) -> Multipliers | None:
    """By the linear program, in one unit or the other, with all targets or those near the top; None if none works."""
    top = float(np.abs(problem.w[counted] * problem.terms.losses(whole.p)[counted]).max(initial=1e-300))
    for reach, unit in product(REACHES, _units(whole)):
        near = whole.below >= -reach * top
        part = replace(whole, slopes=whole.slopes[near], below=whole.below[near])
        duals = _Program(_in_units(part, unit)).duals()
        if duals is not None:
            return _multipliers(problem, counted[near], duals, unit)
    return None


def _in_units(at: Tangents, unit: float) -> Tangents:
    """The same tangents, divided by the unit."""
    return replace(at, cost=at.cost / unit, slopes=at.slopes / unit, below=at.below / unit)


def _multipliers(problem: Problem, counted: IntArray, duals: Duals, unit: float) -> Multipliers:
    """Multipliers from the duals in units, of the targets that were counted."""
    targets, groups, ball, limit = duals
    w = problem.w
    if problem.worst:
        w = np.zeros_like(problem.w)
        shares = targets / targets.sum() if targets.sum() > 0 else np.full(len(counted), 1 / len(counted))
        w[counted] = problem.w[counted] * shares
    return Multipliers(w, groups * unit, ball * unit, limit * unit)


def _of_the_top(problem: Problem, p: FloatArray) -> FloatArray:
    """Weights of a valid, loose bound: for the worst case the target that decides it at p is below the largest."""
    if not problem.worst:
        return problem.w
    with np.errstate(invalid="ignore"):
        top = int(np.argmax(np.where(problem.w > 0, problem.w * problem.terms.losses(p), -np.inf)))
    return np.where(np.arange(len(problem.w)) == top, problem.w, 0.0)


def _units(at: Tangents) -> tuple[float, float]:
    """A typical slope, and the largest: scales for the program, which has a solution but may fail for its scale.

    The largest drowns all others where a concave law is steep at a tiny ratio; slopes that are next to nothing beside
    it, such as those of languages that teach nothing, do not count for what is typical.
    """
    slopes = np.abs(at.cost)
    if len(at.below):
        slopes = slopes + np.abs(at.slopes[int(np.argmax(at.below))])
    largest = max(float(slopes.max(initial=0.0)), float(np.abs(at.slopes).max(initial=0.0)), 1e-300)
    typical = slopes[slopes > NEXT_TO_NOTHING * largest]
    return (float(np.median(typical)) if len(typical) else largest), largest


@dataclass(frozen=True)
class _Program:
    """The linear program in (s, v, t); v (M) only for an L1 ball, t only for the worst case."""

    at: Tangents

    def duals(self) -> Duals | None:
        """None where the program fails."""
        at, bounds = self.at, self.at.bounds
        M, K, G = len(at.p), len(at.below), len(bounds.group_names)
        ball, limits = self._ball()
        extra = ball.shape[1] - M
        top = int(K > 0)
        rows = np.concatenate(
            [
                np.concatenate([at.slopes, np.zeros((K, extra)), -np.ones((K, top))], axis=1),
                np.pad(-bounds.members, ((0, 0), (0, extra + top))),
                np.pad(bounds.members, ((0, 0), (0, extra + top))),
                np.pad(ball, ((0, 0), (0, top))),
            ]
        )
        sides = [at.slopes @ at.p - at.below, -bounds.group_lower, bounds.group_upper, limits]
        box = np.concatenate(
            [
                np.stack([bounds.lower, bounds.upper], axis=1),
                np.tile([0.0, np.inf], (extra, 1)),
                np.tile([-np.inf, np.inf], (top, 1)),
            ]
        )
        goal = np.concatenate([at.cost, np.zeros(extra), np.ones(top)])
        total = np.concatenate([np.ones(M), np.zeros(extra + top)])[None]
        # Columns of like size: s in units in which no slope is above one.
        steepest = np.maximum(np.abs(goal), np.abs(rows).max(axis=0, initial=0.0))
        scale = np.append(1 / np.maximum(steepest[:M], 1.0), np.ones(extra + top))
        found = linprog(
            goal * scale,
            A_ub=rows * scale,
            b_ub=np.concatenate(sides),
            A_eq=total * scale,
            b_eq=[1.0],
            bounds=box / scale[:, None],
            method="highs",
            options=EXACT,
        )
        if not found.success:
            return None
        duals = np.maximum(-np.asarray(found.ineqlin.marginals, dtype=float), 0.0)
        targets, at_floor, at_cap, ball_duals = np.split(duals, np.cumsum([K, G, G]))
        return targets, at_floor - at_cap, *self._of_ball(ball_duals)

    def _ball(self) -> tuple[FloatArray, FloatArray]:
        """Rows and their limits of the ball over (s, v): of L1 exactly, of KL its tangent at p."""
        near, M = self.at.bounds.near, len(self.at.p)
        if near is None:
            return np.zeros((0, M)), np.zeros(0)
        if near.kind == "l1":
            eye = np.eye(M)
            rows = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, M)), np.ones((1, M))]])
            return rows, np.concatenate([near.center, -near.center, [near.radius]])
        slope, limit = self.at.of_kl(1.0)
        return slope[None], np.array([limit])

    def _of_ball(self, duals: FloatArray) -> tuple[FloatArray, float]:
        near, M = self.at.bounds.near, len(self.at.p)
        if near is None:
            return np.zeros(M), 0.0
        if near.kind == "l1":
            return self.at.of_l1(duals[:M] - duals[M : 2 * M])
        return self.at.of_kl(float(duals[0]))
