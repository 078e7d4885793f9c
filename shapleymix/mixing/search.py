"""Laws and scores without convexity: random mixtures, and downhill from the best of them. No proof, and answers say so.

Axes: M sources, K targets, R mixtures.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from shapleymix.errors import InfeasibleError, UsageError
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.descent import descended
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, Polytope, linear_minimiser
from shapleymix.records import FloatArray
from shapleymix.streams import Stream

DRAWS, ROUNDS, SHRINK = 1024, 8, 0.5
LOCAL = 4
CORNERS = 64
NAME = "random search, then downhill"


def search(goal: Goal, seed: int) -> FloatArray:
    """The best mixture (M,) that a seeded search finds: rounds of draws, each nearer to the best so far, then downhill.

    Raises
    ------
    UsageError
        If a constraint is known to cvxpy alone.
    """
    if goal.further:
        raise UsageError("a law without convexity takes no cvxpy constraints that are not affine")
    rng, bounds = np.random.default_rng([seed, Stream.SEARCH]), goal.within
    vertices = corners(bounds, rng, CORNERS)

    def ranked(pool: FloatArray) -> FloatArray:
        inside = pool if bounds.ball is None else pool[[bounds.violation(p) <= FEASIBLE for p in pool]]
        values = goal.value(inside) + (np.array([goal.penalty(p) for p in inside]) if goal.kl > 0 else 0.0)
        return inside[np.argsort(values, kind="stable")[:LOCAL]]

    best = ranked(_mixed(rng, vertices))
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=DRAWS)] + share * _mixed(rng, vertices)
        best = ranked(np.concatenate([best, near]))
    downhill = descended if isinstance(goal.law, Pieces) else _refined
    return min([*best, *(downhill(goal, p) for p in best)], key=goal.total)


def corners(bounds: Polytope, rng: np.random.Generator, count: int) -> FloatArray:
    """Corners (C, M) of the bounds but for a KL ball: the optima of linear programs, along each source and at random.

    Raises
    ------
    InfeasibleError
        If no mixture meets the bounds.
    """
    M = len(bounds.sources)
    costs = np.concatenate([np.eye(M), -np.eye(M), rng.normal(size=(count, M))])
    if bounds.is_box:
        return linear_minimiser(costs, bounds.lower, bounds.upper)[0]
    found = [bounds.least(cost) for cost in costs]
    vertices = np.array([one[0] for one in found if one is not None]).reshape(-1, M)
    if not len(vertices):
        raise bounds.explain() or InfeasibleError("no mixture meets the bounds", hint="widen them")
    return vertices


def _mixed(rng: np.random.Generator, vertices: FloatArray) -> FloatArray:
    """Random mixtures of the corners (C, M), of which each draw mixes a few: else all would be central."""
    return rng.dirichlet(np.full(len(vertices), min(1.0, vertices.shape[1] / len(vertices))), DRAWS) @ vertices


def _refined(goal: Goal, start: FloatArray) -> FloatArray:
    """Where SLSQP leads from a mixture (M,); the start where that leaves the bounds, as a law of steps may make it."""
    bounds, sides = goal.within, []
    equal = bounds.row_low == bounds.row_high
    for kind in filter(np.any, (equal, ~equal)):  # SLSQP wants equalities apart
        low, high = bounds.row_low[kind], bounds.row_high[kind]
        sides.append(LinearConstraint(bounds.rows[kind], low, high))  # pyright: ignore[reportArgumentType]

    def total(p: FloatArray) -> float:
        inside = np.clip(p, bounds.lower, bounds.upper)
        return goal.total(inside / inside.sum())

    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
    sides.append(LinearConstraint(np.ones((1, len(start))), 1.0, 1.0))
    p = np.clip(minimize(total, start, method="SLSQP", bounds=box, constraints=sides).x, bounds.lower, bounds.upper)
    p = p / p.sum()
    return p if bounds.violation(p) <= FEASIBLE else start
