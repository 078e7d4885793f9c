"""Goals in, proved answers out: what the engine is given, and a search where a law is not convex.

Axes: S goals, B replicates, R mixtures, M sources, K targets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.laws.pieces import SOURCES, Pieces
from shapleymix.mixing.engine import TOLERANCE, Optima, Program, minimise
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, Polytope, linear_minimiser
from shapleymix.mixing.proof import Certificate, Multipliers, Proof, prove
from shapleymix.records import FloatArray
from shapleymix.statistics import RandomStream

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
    if goal.curved.names:
        raise UsageError("a law without convexity takes no cvxpy constraints that are not affine")
    rng, bounds = np.random.default_rng([seed, RandomStream.SEARCH]), goal.within
    vertices = corners(bounds, rng, CORNERS)

    def rank(pool: FloatArray) -> FloatArray:
        inside = pool if bounds.ball is None else pool[[bounds.violation(p) <= FEASIBLE for p in pool]]
        values = goal.value(inside) + (np.array([goal.penalty(p) for p in inside]) if goal.kl > 0 else 0.0)
        return inside[np.argsort(values, kind="stable")[:KEPT_STARTS]]

    best = rank(_draw_mixtures(rng, vertices))
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=POOL)] + share * _draw_mixtures(rng, vertices)
        best = rank(np.concatenate([best, near]))
    lower = [refine(goal, p) for p in best]
    if isinstance(goal.law, Pieces):  # of which the engine knows slopes
        program = _program([goal], goal.law)
        found = [minimise(program._replace(start=p)).p[0] for p in best]
        lower += [p for p in found if goal.violation(p) <= FEASIBLE and np.isfinite(goal.total(p))]
    return min([*best, *lower], key=goal.total)


def corners(bounds: Polytope, rng: np.random.Generator, count: int) -> FloatArray:
    """Corners (C, M) of the bounds but for a KL ball: optima of linear programs, along sources and at random."""
    M = len(bounds.sources)
    costs = np.concatenate([np.eye(M), -np.eye(M), rng.normal(size=(count, M))])
    if bounds.is_box:
        return linear_minimiser(costs, bounds.lower, bounds.upper)[0]
    return np.array([p for cost in costs if (p := bounds.minimise_linear(cost)) is not None])


def _draw_mixtures(rng: np.random.Generator, vertices: FloatArray) -> FloatArray:
    """Random mixtures of the corners (C, M), of which each draw mixes a few: else all would be central."""
    return rng.dirichlet(np.full(len(vertices), min(1.0, vertices.shape[1] / len(vertices))), POOL) @ vertices


def refine(goal: Goal, start: FloatArray) -> FloatArray:
    """Where SLSQP leads from a mixture (M,); the start where that leaves the bounds, as a law of steps may make it."""
    bounds = goal.within
    rows, limits, equal = bounds.sums()
    sums: Any = limits[:equal]
    sides: list[Any] = [LinearConstraint(rows[:equal], sums, sums)]  # SLSQP wants equalities apart
    if len(rows) > equal:
        sides.append(LinearConstraint(rows[equal:], ub=limits[equal:]))  # pyright: ignore[reportArgumentType]
    if bounds.ball is not None:
        sides.append(NonlinearConstraint(bounds.ball.distance, -np.inf, bounds.ball.radius))

    def total(p: FloatArray) -> float:
        inside = np.clip(p, bounds.lower, bounds.upper)
        return goal.total(inside / inside.sum())

    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
    p = np.clip(minimize(total, start, method="SLSQP", bounds=box, constraints=sides).x, bounds.lower, bounds.upper)
    p = p / p.sum()
    return p if bounds.violation(p) <= FEASIBLE else start


SNAPS = (1e-9, 1e-12)
"""Ratios so near to a bound are moved onto it where that costs nothing: a ratio of 1e-15 is meant to be 0."""
SOLVED = 1e-6
"""A gap beyond which a search has failed, relative to what the mixture can change of the objective."""
OF_REPLICATES = 1e-10
"""Where the search for a replicate's optimum ends: what is left is far below the spread of the replicates."""
CUTS, LOOSELY = 200, 1e-6
"""Rounds of tangents for a user's own constraints, and by how much the ratios of replicates may break these at last."""


def solve(goal: Goal, seed: int = 0) -> Proof:
    """The optimum of one goal."""
    return solve_all((goal,), seed)[0]


def solve_all(goals: Sequence[Goal], seed: int = 0) -> list[Proof]:
    """The optima of several goals of one kind, in one batch where their bounds are on single ratios alone.

    Raises
    ------
    SolveError
        If there is no mixture within the bounds with a finite loss.
    """
    if not all(goal.is_convex for goal in goals):
        found = [_snap(goal, search(goal, seed)) for goal in goals]
        return [Proof(p, Certificate(goal.total(p))) for goal, p in zip(goals, found, strict=True)]
    first = goals[0]
    alike = all(goal.within.is_box and goal.worst == first.worst and not goal.curved.names for goal in goals)
    if not alike or any(goal.pieces.curves is not None for goal in goals):
        return [_prove_optimum(goal, *_solve_with_tangents(goal, goal.pieces)) for goal in goals]
    same = all(goal.law is first.law for goal in goals)
    found = minimise(_program(goals, first.pieces if same else join_pieces([goal.pieces for goal in goals], np.stack)))
    return [_prove_optimum(goal, goal, found, place) for place, goal in enumerate(goals)]


def solve_replicates(goal: Goal, draws: Pieces, tilts: FloatArray | float = 0.0) -> FloatArray:
    """Optima (B, M) under each replicate of the law, without proofs; without those whose search fails.

    `tilts` (B, M) say by how much losses lean otherwise than the law of each. The cost grows as B M^2 (M + K) for each
    of some ten iterations.
    """
    found = _solve_with_tangents(replace(goal, tilt=tilts), draws.flat(), OF_REPLICATES, LOOSELY)[1]
    return found.p[found.gap <= SOLVED]


def _solve_with_tangents(
    goal: Goal, pieces: Pieces, tolerance: float = TOLERANCE, met: float = TOLERANCE
) -> tuple[Goal, Optima]:
    """The goal with tangents that its optima need to meet the user's own constraints, and these optima.

    Raises
    ------
    InfeasibleError
        If no mixture meets the constraints.
    """
    program, curved = _program([goal], pieces), goal.curved
    found = minimise(program, tolerance)
    for _ in range(CUTS if curved.names else 0):
        outside = np.array([curved.violation(p) > met for p in found.p])
        if not outside.any():
            break
        count, M = len(curved.names), len(found.p[0])
        idle = np.zeros((count, M)), np.ones(count)
        cuts = [curved.cuts(p) if out else idle for p, out in zip(found.p, outside, strict=True)]
        rows, limits = map(np.stack, zip(*cuts, strict=True))
        program = program._replace(rows=_append_rows(program.rows, rows), limits=_append_rows(program.limits, limits))
        changed = minimise(program.take(outside), tolerance)
        if not (changed.gap <= SOLVED).any() and _with_rows(goal, program).within.minimise_linear(np.zeros(M)) is None:
            raise InfeasibleError("no mixture within the bounds meets the constraints", hint="relax one of them")
        found.p[outside], found.gap[outside] = changed.p, changed.gap
        found = changed if outside.all() else found
    return _with_rows(goal, program), found


def _append_rows(old: FloatArray, new: FloatArray) -> FloatArray:
    """Rows or limits of all members, with more of each."""
    return np.concatenate([np.broadcast_to(old, (len(new), *old.shape[1:])), new], axis=1)


def _with_rows(goal: Goal, program: Program) -> Goal:
    """The goal with the tangents of the first member as rows, named as their constraints are."""
    count, within = len(goal.within.sums()[0]) - len(program.equal), goal.within
    cuts = zip(itertools.cycle(goal.curved.names), program.rows[0, count:], program.limits[0, count:].tolist())
    for name, weights, limit in cuts:
        within = within.with_row(name, weights, -np.inf, limit)
    return replace(goal, within=within)


NOTHING = {"s": 1.0, "base": 0.0, "unique": np.inf, "rate": 0.0, "harm": 0.0, "worth": 0.0}
"""What fields of pieces are where there are none."""
OF_TARGETS = tuple(one.name for one in fields(Pieces) if one.name not in SOURCES | {"form", "twins", "curves"})
"""The fields that have a column for each target."""


def join_pieces(
    members: Sequence[Pieces], join: Callable[..., FloatArray], names: Sequence[str] = (*OF_TARGETS, *NOTHING)
) -> Pieces:
    """The last of some pieces, with fields that are joined out of those of all members, where any has them."""
    values = {name: [getattr(member, name) for member in members] for name in names}
    there = {name: known for name, known in values.items() if any(one is not None for one in known)}
    filled = {name: [NOTHING[name] if one is None else one for one in known] for name, known in there.items()}
    return replace(members[-1], **{name: join(np.broadcast_arrays(*known)) for name, known in filled.items()})


def _program(goals: Sequence[Goal], pieces: Pieces) -> Program:
    """What the engine takes: goals of one kind, each with its bounds on single ratios, or one goal under replicates."""
    first, count = goals[0], max(len(goals), *pieces.batch, 1)
    (rows, limits, equal), none = first.within.sums(), np.zeros(len(first.within.lower))

    def each(values: Sequence[FloatArray]) -> FloatArray:
        return np.broadcast_to(np.vstack(values), (count, values[0].shape[-1]))

    return Program(
        pieces=pieces,
        w=each([goal.w for goal in goals]),
        lower=each([goal.within.lower for goal in goals]),
        upper=each([goal.within.upper for goal in goals]),
        anchor=each([none + 1 if goal.anchor is None else goal.anchor for goal in goals]),
        tilt=each([none + goal.tilt for goal in goals]),
        equal=rows[:equal],
        values=limits[:equal],
        rows=rows[None, equal:],
        limits=limits[None, equal:],
        kl=0.0 if first.anchor is None else first.kl,
        worst=first.worst,
        ball=first.within.ball,
    )


def _prove_optimum(goal: Goal, met: Goal, found: Optima, place: int = 0) -> Proof:
    """The proof of one of the optima that the engine found for a goal with such rows; exact zeros are tried first.

    Raises
    ------
    SolveError
        If it is not within the bounds at a finite loss.
    """
    w = goal.w * found.targets[place] if goal.worst else goal.w
    by, proofs = Multipliers(met.within.multipliers_of_rows(found.rows[place]), w, found.ball[place]), []
    for p in (_snap(goal, found.p[place]), found.p[place]):
        proofs.append(prove(met, p, by))
        if proofs[-1].certificate.relative_gap <= TOLERANCE:
            break
    best = min(proofs, key=lambda proof: proof.certificate.gap)
    if goal.violation(best.p) > FEASIBLE or not np.isfinite(best.certificate.objective):
        hint = "widen the bounds a little, add small floors, or give targets that no source helps weight zero"
        raise SolveError("no mixture within the bounds has a finite loss", hint=hint)
    own, count = np.array(met.within.row_names), len(goal.within.rows)
    curved = {name: -float(by.rows[count:][own[count:] == name].sum()) for name in goal.curved.names}
    return replace(best, rows=by.rows[:count], curved=curved)


def _snap(goal: Goal, p: FloatArray) -> FloatArray:
    """p with ratios next to a bound on it exactly, where that costs nothing; the largest ratio makes up for it."""
    bounds, total = goal.within, goal.total(p)
    for reach in SNAPS:
        low, high = p - bounds.lower < reach, bounds.upper - p < reach
        moved = np.where(low, bounds.lower, np.where(high, bounds.upper, p))
        roomy = int(np.where(low | high, moved - 2, np.minimum(p - bounds.lower, bounds.upper - p)).argmax())
        moved[roomy] += 1 - moved.sum()
        if goal.violation(moved) <= FEASIBLE / 10 and goal.total(moved) <= total + TOLERANCE * abs(total):
            return moved
    return p
