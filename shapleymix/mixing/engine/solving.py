"""Problems in, certified answers out: which engine takes a problem, and a second opinion where the proof is loose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.terms import MATRICES, SOURCES, Terms
from shapleymix.mixing.certificate import Answer, certified
from shapleymix.mixing.engine.barrier import minimise
from shapleymix.mixing.engine.branching import branch_and_bound
from shapleymix.mixing.engine.envelopes import unproved
from shapleymix.mixing.engine.interior_point import solve_interior
from shapleymix.mixing.engine.rows import Rows
from shapleymix.mixing.problem import Problem
from shapleymix.records import BoolArray, FloatArray

BARRIER, INTERIOR_POINT, CONE = "barrier Newton", "primal-dual interior point", "cvxpy (Clarabel)"
ENOUGH = 1e-8
SNAP = 1e-11
MENDED = 1e-6
THIN = 1e-6
OF_REPLICATES = 1e-10
"""Where the search for a replicate's optimum ends: what is left is far below the spread of the replicates."""


def solve(problem: Problem) -> Answer:
    """The optimum of one problem."""
    return solve_all((problem,))[0]


def solve_all(problems: tuple[Problem, ...]) -> tuple[Answer, ...]:
    """The optima of several problems of one kind, those for the batched engine in one batch.

    Raises
    ------
    SolveError
        If no engine finds a mixture within the bounds.
    """
    bent = [bool(unproved(problem).any()) for problem in problems]
    if any(bent):
        return tuple(_global(problem) if one else solve(problem) for problem, one in zip(problems, bent, strict=True))
    if all(problem.standard for problem in problems):
        found = [
            (certified(problem, p, BARRIER), problem) for problem, p in zip(problems, _batch(problems), strict=True)
        ]
        return tuple(answer if _proven(answer) else _first_proven(problem, answer) for answer, problem in found)
    return tuple(_first_proven(problem, None) for problem in problems)


def _global(problem: Problem) -> Answer:
    """The optimum of scores that are not convex in the mixture, from those that are found downhill."""
    if problem.further:
        raise SolveError("constraints of one's own are for objectives that are convex", hint="write them as bounds")
    starts = []
    for engine in (lambda: _batch((problem,))[0] if problem.standard else None, lambda: solve_interior(problem)):
        try:
            starts.append(engine())
        except SolveError:
            continue
    return branch_and_bound(problem, tuple(p for p in starts if p is not None))


def solve_replicates(problems: tuple[Problem, ...], replicates: tuple[Terms, ...]) -> FloatArray:
    """Optima (S, B, M) of every problem under each of its law's replicates, without certificates.

    The cost grows as B M^2 (M + K) for every step: some six for the batched engine; 15 to 40 for the others, each of
    them an instance at a time.
    """
    if all(problem.standard for problem in problems):
        lower, upper, w = (values[:, None] for values in _bounds(problems))
        return minimise(
            stacked(replicates), w, lower, upper, kl=problems[0].kl, anchor=problems[0].anchor, tolerance=OF_REPLICATES
        ).p
    return np.stack([_one_by_one(problem, terms) for problem, terms in zip(problems, replicates, strict=True)])


def _one_by_one(problem: Problem, replicates: Terms) -> FloatArray:
    flat = replicates.flat()
    members = [problem.with_terms(flat.take(b)) for b in range(len(flat.floor))]
    if problem.further:
        return np.stack([_cone(member) for member in members])
    rows = Rows.of(problem.supported.constraints)
    return np.stack([solve_interior(member, rows, OF_REPLICATES) for member in members])


def _batch(problems: tuple[Problem, ...]) -> FloatArray:
    lower, upper, w = _bounds(problems)
    terms = stacked([problem.terms for problem in problems])
    return minimise(terms, w, lower, upper, kl=problems[0].kl, anchor=problems[0].anchor).p


def _bounds(problems: tuple[Problem, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    lower = np.stack([problem.constraints.lower for problem in problems])
    upper = np.stack([problem.constraints.upper for problem in problems])
    return lower, upper, np.stack([problem.w for problem in problems])


def _proven(answer: Answer) -> bool:
    return answer.certificate.relative_gap <= ENOUGH


def _first_proven(problem: Problem, best: Answer | None) -> Answer:
    """The first engine's answer whose proof is tight, else the one with the smallest gap."""
    refusal: SolveError | None = None
    for engine, run in _engines(problem):
        try:
            found = run(problem)
        except SolveError as error:
            refusal = refusal or error
            continue
        # At its bounds exactly, unless a concave law needs what is less than the snap.
        for p in (_snapped(found, problem), found):
            answer = certified(problem, p, engine)
            best = answer if best is None or answer.certificate.gap < best.certificate.gap else best
        if best is not None and _proven(best):
            return best
    if best is None or not np.isfinite(best.certificate.gap):
        raise refusal or SolveError(
            "the solver found no mixture within the bounds (its best breaks one, or has no finite slope)",
            hint="widen the bounds a little, or add small floors",
        )
    return best


def _engines(problem: Problem) -> list[tuple[str, Callable[[Problem], FloatArray]]]:
    if problem.further:
        return [(CONE, _cone)]
    return [(INTERIOR_POINT, solve_interior), *_along_thin_groups(problem), (CONE, _cone)]


def _along_thin_groups(problem: Problem) -> list[tuple[str, Callable[[Problem], FloatArray]]]:
    """Searches that keep groups with next to no room in its middle, or at one end: steps across it are cut short."""
    bounds = problem.constraints
    room = bounds.group_upper - bounds.group_lower
    thin = (room > 0) & (room < THIN)
    if not thin.any():
        return []

    def search(place: float, problem: Problem) -> FloatArray:
        at = bounds.group_lower + place * room
        lower, upper = (np.where(thin, at, side) for side in (bounds.group_lower, bounds.group_upper))
        return solve_interior(replace(problem, constraints=replace(bounds, group_lower=lower, group_upper=upper)))

    return [(INTERIOR_POINT, partial(search, place)) for place in (0.5, 0.0, 1.0)]


def _cone(problem: Problem) -> FloatArray:
    from shapleymix.mixing.engine.cone import solve_cone

    return solve_cone(problem)


def _snapped(p: FloatArray, problem: Problem) -> FloatArray:
    """Ratios and groups next to their bounds moved onto them; the other ratios make up for it, the large ones more.

    What a cone solver leaves beyond a group's bound is mended so, too.
    """
    bounds = problem.constraints
    lower, upper, members = bounds.lower, bounds.upper, bounds.members
    moved = _onto(p, lower, upper)
    sums = members @ p
    goals = _onto(sums, bounds.group_lower, bounds.group_upper)
    bound = ((goals == bounds.group_lower) | (goals == bounds.group_upper)) & (np.abs(goals - sums) <= MENDED)
    rows, totals = np.concatenate([np.ones((1, len(p))), members[bound]]), np.append(1.0, goals[bound])
    share = np.where((moved > lower) & (moved < upper), moved, 0.0)
    if not share.any():
        return moved
    weighed = rows * share
    sizes = np.maximum(np.linalg.norm(weighed, axis=1), 1e-300)
    change = np.linalg.lstsq(weighed / sizes[:, None], (totals - rows @ moved) / sizes, rcond=1e-9)[0]
    return moved + share * np.asarray(change, dtype=np.float64)


def _onto(values: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The values, those next to a bound, or beyond it, on it."""
    return np.where(values - low < SNAP, low, np.where(high - values < SNAP, high, values))


def stacked(members: Sequence[Terms]) -> Terms:
    """Terms of several budgets with one more leading axis; fields that all members share are stored once."""
    if len(members) == 1:
        return _map(members[0], lambda value: np.asarray(value)[None])
    if any(member.unique is not None for member in members):
        members = [member.with_supply() for member in members]
    first = members[0]
    changes = {}
    for field in fields(first):
        values = [getattr(member, field.name) for member in members]
        if values[0] is not None:
            changes[field.name] = _stack(values, first.batch, field.name in MATRICES)
    return replace(first, **changes)


def finite_members(terms: Terms) -> BoolArray:
    """Which members of the one leading axis have finite numbers only."""
    flat = terms.flat()
    sane = np.ones(terms.batch, dtype=bool).reshape(-1)
    for field in fields(flat):
        value = getattr(flat, field.name)
        if value is not None and field.name not in SOURCES:  # tokens without limit are no fault
            sane &= np.isfinite(value).reshape(len(sane), -1).all(axis=1)
    return sane


def _stack(values: list[FloatArray], batch: tuple[int, ...], matrix: bool) -> FloatArray:
    tail = 2 if matrix else 1
    arrays = [np.asarray(value, dtype=float) for value in values]
    shared = arrays[0].ndim == tail and all(array is values[0] for array in values)
    if shared:
        return arrays[0]
    whole = [np.broadcast_to(array, batch + array.shape[-tail:]) for array in arrays]
    return np.stack(whole)


def _map(terms: Terms, change: Callable[[FloatArray], FloatArray]) -> Terms:
    present = {field.name: getattr(terms, field.name) for field in fields(terms)}
    return replace(terms, **{name: change(value) for name, value in present.items() if value is not None})


def usable_replicates(terms: Terms | None) -> tuple[Terms | None, tuple[str, ...]]:
    """Replicates whose parameters are finite, and how many were not."""
    if terms is None:
        return None, ()
    sane = finite_members(terms)
    if sane.all():
        return terms, ()
    notice = f"{int((~sane).sum())} of {len(sane)} bootstrap replicates are not finite and were left out"
    return (terms.flat().take(sane), (notice,)) if sane.any() else (None, (notice,))
