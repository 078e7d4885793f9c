"""Sequential quadratic programs: for goals with rows, a ball or the worst case, which the batched engine does not take.

At a mixture p the objective is replaced by its gradient and curvature, the curved bounds by their tangents:

    minimise  g . (s - p) + (s - p)' H (s - p) / 2 + t   over mixtures s within the bounds
    with      w_j (loss_j + slope_j . (s - p)) <= t              [worst case; H weighs targets by their multipliers]
              KL(p || c) + log-ratios . (s - p) <= radius        [KL ball]
              v >= |s - c|,  sum v <= radius                     [L1 ball]
              (s, y) in cones                                    [the user's own constraints]

Clarabel solves each program; a step is shortened until the objective falls. A concave power is steep at a tiny ratio,
where its quadratic model reaches no further than the ratio itself: no ratio falls to less than a tenth at once, unless
the way into the bounds asks for it.

Axes: M sources, K targets.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from shapleymix.mixing.constraints import Cones
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, Polytope, Tangents
from shapleymix.records import FloatArray

STEPS = 80
SHRINK = (0.1, 1e-3, 1e-6)
"""To what part a ratio may fall at once; outside of the bounds the first that lets a program in."""
TINY, LEAST = 1e-12, 1e-6
IDLE, STILL = 6, 1e-10
"""Steps without a fall of the objective after which the search ends, or sooner where no ratio changes by more."""
KEPT = 8
"""Mixtures to which steps in turn went too far, whose tangents bound the worst case until one is taken wholly."""
NEAR = 1e-4
"""Weight, relative to the objective, of the term sum_i (s_i - p_i)^2 / 2 p_i in every program. Of equally good mixtures
the nearest is then the next, so that the steps along a flat objective do not leap across a KL ball and out of it."""
TOLERANCES = (1e-12, 1e-10, 1e-9, 1e-8)
"""Of the solver: the first that it reaches."""
ENOUGH = 1e-4
"""Of what the model promises, that a step must keep."""


class _Model(NamedTuple):
    """The program's answer: a mixture (M,), multipliers of the targets (K,) and the ball, and the fall it promises."""

    p: FloatArray
    w: FloatArray
    pull: float
    fall: float


def descended(goal: Goal, start: FloatArray) -> tuple[list[FloatArray], bool]:
    """Where the programs lead from a mixture (M,), which need not be within the bounds; and whether they got there.

    The last mixtures, the newest first: the objective cannot tell these apart, but a proof at a ratio that is nearly
    none can, and a program that the solver left less exact may have led away from it again. `start` where they fail.
    """
    bounds = goal.within
    inside = np.clip(start, np.maximum(bounds.lower, LEAST), np.maximum(bounds.upper, LEAST))
    p = np.where(bounds.movable, inside, bounds.lower)
    w, pull, idle, least, cuts, last, ended = goal.active(p), 0.0, 0, np.inf, [], [p], False
    for _ in range(STEPS):
        inside = goal.violation(p) <= 1e2 * FEASIBLE
        tried = (_model(goal, [p, *cuts], w, pull, part) for part in SHRINK[: 1 if inside else None])
        model = next((one for one in tried if one is not None), None)
        if model is None:
            break
        step, w, pull, share = model.p - p, model.w, max(model.pull, 0.0), 1.0
        value, found = _merit(goal, p, pull), _merit(goal, model.p, pull)
        rounding = TINY * abs(value)
        while inside and model.fall > rounding and not found <= value - ENOUGH * share * model.fall and share > LEAST:
            share /= 2
            found = _merit(goal, p + share * step, pull)
        cuts = [*cuts, model.p][-KEPT:] if goal.worst and share < 1 else []
        p = p + share * step
        last = [p, *last[:IDLE]]
        # A ratio that is nearly none needs a few more steps than the objective can tell.
        better = not inside or found < least - rounding
        idle, least = (0, found) if better else (idle + 1, least)
        if ended := idle == IDLE or bool(idle and np.all(np.abs(share * step) <= STILL * p)):
            break
    return (last, ended) if bounds.violation(p) <= FEASIBLE else ([start], False)


def _merit(goal: Goal, p: FloatArray, pull: float) -> float:
    """The objective, and what a mixture outside of a KL ball is charged."""
    ball = goal.within.ball
    outside = 0.0 if ball is None or ball.kind == "l1" else max(ball.distance(p) - ball.radius, 0.0)
    return goal.total(p) + 2 * pull * outside


def _model(goal: Goal, points: list[FloatArray], w: FloatArray, pull: float, shrink: float) -> _Model | None:
    """The quadratic program at the first of the points (M,), solved, with tangents of the worst case at all of them;
    None where a number is not finite or the solver fails."""
    p, ball, movable, counted = points[0], goal.within.ball, goal.within.movable, goal.w > 0
    gradient, tangents = goal.linearised(points)
    unit = max(float((np.abs(tangents.slopes) @ p).max(initial=1e-300)), float(np.abs(gradient) @ p))
    curved = ball is not None and ball.kind == "kl"
    H = goal.pieces.hessian(p, w) + np.diag((goal.kl + (pull if curved else 0.0) + NEAR * unit) / np.maximum(p, TINY))
    H = np.where(movable & movable[:, None], H, 0.0)
    if not np.isfinite(H).all():
        return None
    A, b, equalities = _rows(goal.within, p, shrink, tangents.over(unit, p))
    M, K, (rows, columns) = len(p), len(tangents.limits), A.shape
    if goal.cones is not None:
        A, b = _joined(A, b, goal.cones, p)
    more = A.shape[1] - M
    # Variables of like curvature: a step of a tiny ratio is tiny, and must be as exact as the others.
    scale = np.append(1 / np.sqrt(np.maximum(H.diagonal() / unit, 1.0)), np.ones(more))
    quadratic = np.pad(H / unit, (0, more)) * scale * scale[:, None]
    cost = np.append(gradient / unit, np.zeros(more)) * scale
    if goal.worst:
        cost[columns - 1] = 1.0
    kinds = [] if goal.cones is None else goal.cones.kinds
    solved = _solved(quadratic, cost, A * scale, b, (equalities, rows - equalities), kinds)
    if solved is None:
        return None
    x, duals = solved[0], solved[1][:rows]
    if goal.worst:
        w = np.zeros_like(goal.w)
        shares = np.maximum(duals[-K:], 0.0).reshape(len(points), -1).sum(axis=0)
        w[counted] = goal.w[counted] * shares
    fall = -unit * float(cost @ x + x @ quadratic @ x / 2)
    reached = np.where(movable, p + (scale * x)[:M], goal.within.lower)  # a trace of a ratio that is none has effects
    return _Model(reached, w, unit * float(duals[-K - 1]) if curved else 0.0, fall)


def _rows(bounds: Polytope, p: FloatArray, shrink: float, tangents: Tangents) -> tuple[FloatArray, FloatArray, int]:
    """Rows and limits over x = (s - p, v, t), and how many, the first, are equalities; those of the ball and then of
    the targets are the last."""
    rows, limits, equal = bounds.written(p, tangents)
    limits = limits - rows[:, : len(p)] @ p
    least = np.where(bounds.movable, np.maximum(bounds.lower - p, (shrink - 1) * p), 0.0)
    most = np.where(bounds.movable, bounds.upper - p, 0.0)
    box = np.eye(len(p), rows.shape[1])
    return (
        np.concatenate([rows[:equal], -box, box, rows[equal:]]),
        np.concatenate([limits[:equal], -least, most, limits[equal:]]),
        equal,
    )


def _joined(rows: FloatArray, limits: FloatArray, cones: Cones, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows and limits over (s - p, v, t, y), those of the user's own constraints last."""
    theirs = np.zeros((len(cones.limits), rows.shape[1]))
    theirs[:, : len(p)] = cones.of_p
    matrix = np.block([[rows, np.zeros((len(rows), cones.of_more.shape[1]))], [theirs, cones.of_more]])
    return matrix, np.append(limits, cones.limits - cones.of_p @ p)


def _solved(
    quadratic: FloatArray,
    cost: FloatArray,
    rows: FloatArray,
    limits: FloatArray,
    sizes: tuple[int, int],
    kinds: Sequence[object],
) -> tuple[FloatArray, FloatArray] | None:
    """min cost x + x' quadratic x / 2 under rows, and the multipliers of the rows; None where Clarabel fails.

    `sizes` says how many rows are equalities and how many inequalities; the others lie in cones of these `kinds`.
    """
    engine: Any = importlib.import_module("clarabel")
    cones = [engine.ZeroConeT(sizes[0]), engine.NonnegativeConeT(sizes[1]), *kinds]
    upper, wide = sparse.triu(sparse.csc_matrix(quadratic)).tocsc(), sparse.csc_matrix(rows)
    for tolerance in TOLERANCES:
        settings = engine.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        found = engine.DefaultSolver(upper, cost, wide, limits, cones, settings).solve()
        if str(found.status) == "Solved" and np.isfinite(found.x).all():
            return np.array(found.x), np.array(found.z)
    return None
