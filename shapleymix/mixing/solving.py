"""Goals in, proved answers out: which engine takes a goal, and a search where a law is not convex.

Axes: S goals, B replicates, R mixtures, M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.barrier import minimise
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, Polytope, linear_minimiser
from shapleymix.mixing.proof import Proof, prove, unproved
from shapleymix.mixing.quadratic_programs import descended
from shapleymix.random_streams import RandomStream
from shapleymix.records import FloatArray

POOL, ROUNDS, SHRINK = 1024, 8, 0.5
KEPT_STARTS = 4
CORNERS = 64


def search(goal: Goal, seed: int) -> FloatArray:
    """The best mixture (M,) that a seeded search finds: rounds of draws, each nearer to the best so far, then downhill.

    Raises
    ------
    UsageError
        If there are constraints of the user's own that are not affine.
    """
    if goal.cones is not None:
        raise UsageError("a law without convexity takes no cvxpy constraints that are not affine")
    rng, bounds = np.random.default_rng([seed, RandomStream.SEARCH]), goal.within
    vertices = corners(bounds, rng, CORNERS)

    def ranked(pool: FloatArray) -> FloatArray:
        inside = pool if bounds.ball is None else pool[[bounds.violation(p) <= FEASIBLE for p in pool]]
        values = goal.value(inside) + (np.array([goal.penalty(p) for p in inside]) if goal.kl > 0 else 0.0)
        return inside[np.argsort(values, kind="stable")[:KEPT_STARTS]]

    best = ranked(_mixed(rng, vertices))
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=POOL)] + share * _mixed(rng, vertices)
        best = ranked(np.concatenate([best, near]))
    lower = [descended(goal, p)[0][0] if isinstance(goal.law, Pieces) else _refined(goal, p) for p in best]
    return min([*best, *lower], key=goal.total)


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
    found = [bounds.minimise_linear(cost) for cost in costs]
    vertices = np.array([one[0] for one in found if one is not None]).reshape(-1, M)
    if not len(vertices):
        raise bounds.explain() or InfeasibleError("no mixture meets the bounds", hint="widen them")
    return vertices


def _mixed(rng: np.random.Generator, vertices: FloatArray) -> FloatArray:
    """Random mixtures of the corners (C, M), of which each draw mixes a few: else all would be central."""
    return rng.dirichlet(np.full(len(vertices), min(1.0, vertices.shape[1] / len(vertices))), POOL) @ vertices


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


ENOUGH = 1e-11
SNAPS = (1e-9, 1e-12)
"""Ratios so near to a bound are moved onto it where that costs nothing: a ratio of 1e-15 is meant to be 0."""
COST_OF_SNAP = 1e-11
OWN = 1e-6
"""By how much a mixture may break constraints of the user's own: what a cone solver leaves open."""
OF_REPLICATES = 1e-10
"""Where the search for a replicate's optimum ends: what is left is far below the spread of the replicates."""


def solve(goal: Goal, seed: int = 0) -> Proof:
    """The optimum of one goal."""
    return solve_all((goal,), seed)[0]


def solve_all(goals: Sequence[Goal], seed: int = 0) -> list[Proof]:
    """The optima of several goals of one kind, those for the batched engine in one batch.

    Raises
    ------
    SolveError
        If no engine finds a mixture within the bounds.
    """
    if not all(goal.is_convex for goal in goals):
        return [unproved(goal, _snapped(goal, search(goal, seed))) for goal in goals]
    if all(goal.is_boxed for goal in goals):
        return [_best(goal, [p]) for goal, p in zip(goals, _batch(goals), strict=True)]
    return [_apart(goal) for goal in goals]


def solve_replicates(goal: Goal, draws: Pieces, start: FloatArray, tilts: FloatArray | None = None) -> FloatArray:
    """Optima (B, M) under each replicate of the law, without proofs; without those whose search does not end.

    `tilts` (B, M) say by how much losses lean otherwise than the law of each.

    The batched engine's cost grows as B M^2 (M + K) for each of some six steps; elsewhere quadratic programs
    lead down from `start` (M,), the optimum of the law.
    """
    flat = draws.flat()
    if goal.is_boxed:
        within, count = goal.within, len(flat.floor)
        lower, upper, w = (np.broadcast_to(side, (count, len(side))) for side in (within.lower, within.upper, goal.w))
        return minimise(flat, w, lower, upper, kl=goal.kl, anchor=goal.anchor, tilt=tilts, tolerance=OF_REPLICATES)
    leaning = [None] * len(flat.floor) if tilts is None else tilts
    members = [replace(goal, law=flat.take(member), tilt=tilt) for member, tilt in enumerate(leaning)]
    found = [descended(one, start) for one in members]
    return np.array([points[0] for points, ended in found if ended]).reshape(-1, len(start))


def stacked(members: Sequence[Pieces]) -> Pieces:
    """Pieces of several budgets with one more leading axis."""
    first, none = members[0], np.zeros_like(members[0].phi)
    if all(member is first for member in members) and not first.batch:
        return first
    missing = {"unique": np.full(first.n_sources, np.inf), "rate": none[..., 0], "harm": none, "worth": none}
    names = [field.name for field in fields(first) if field.name not in ("form", "twins", "curves")]
    stacks = {}
    for name in names:
        values = [getattr(member, name) for member in members]
        if any(value is not None for value in values):
            stacks[name] = np.stack([missing[name] if value is None else value for value in values])
    return replace(first, **stacks)


def _batch(goals: Sequence[Goal]) -> FloatArray:
    lower, upper = (np.stack([getattr(goal.within, side) for goal in goals]) for side in ("lower", "upper"))
    w, pieces = np.stack([goal.w for goal in goals]), stacked([goal.pieces for goal in goals])
    if pieces.curves is not None and len(goals) > 1:
        return np.stack([_batch([goal])[0] for goal in goals])
    anchors = [goal.anchor for goal in goals if goal.anchor is not None]
    return minimise(pieces, w, lower, upper, kl=goals[0].kl, anchor=np.stack(anchors) if anchors else None)


def _apart(goal: Goal) -> Proof:
    """The optimum where bounds are more than a box, or the worst case is asked for."""
    found, _ = descended(goal, np.full(len(goal.within.lower), 1 / len(goal.within.lower)))
    if goal.cones is not None and goal.cones.violation(found[0]) > OWN:
        raise InfeasibleError("no mixture within the bounds meets the constraints", hint="relax one of them")
    return _best(goal, found if goal.cones is None else found[:1])  # a proof of cones takes tangents for each source


def _best(goal: Goal, found: Sequence[FloatArray]) -> Proof:
    """Of what an engine found, the first with exact zeros tried before it, the first tight proof, else the tightest.

    Raises
    ------
    SolveError
        If none is within the bounds at a finite loss.
    """
    best = None
    for p in (_snapped(goal, found[0]), *found):
        if goal.within.violation(p) > FEASIBLE or not np.isfinite(goal.total(p)):
            continue
        proof = prove(goal, p)
        best = proof if best is None or proof.certificate.gap < best.certificate.gap else best
        if best.gap <= ENOUGH:
            break
    if best is None:
        hint = "widen the bounds a little, add small floors, or give targets that no source helps weight zero"
        raise SolveError("no mixture within the bounds has a finite loss", hint=hint)
    return best


def _snapped(goal: Goal, p: FloatArray) -> FloatArray:
    """p with ratios next to a bound on it exactly, where that costs nothing; the largest ratio makes up for it."""
    bounds, total = goal.within, goal.total(p)
    for reach in SNAPS:
        low, high = p - bounds.lower < reach, bounds.upper - p < reach
        moved = np.where(low, bounds.lower, np.where(high, bounds.upper, p))
        roomy = int(np.where(low | high, -1.0, np.minimum(p - bounds.lower, bounds.upper - p)).argmax())
        moved[roomy] += 1 - moved.sum()
        if goal.violation(moved) <= FEASIBLE / 10 and goal.total(moved) <= total + COST_OF_SNAP * abs(total):
            return moved
    return p
