"""Scores that are not convex in the mixture: branch and bound over boxes of ratios.

In a box every error rate is replaced by its convex envelope there (`envelopes`); the optimum of that, with its own
Frank-Wolfe bound, says how low the error can be in the box. The box of the lowest bound is cut in two, at the source
whose ratio leaves the envelope most room, until the best mixture found is as good as any box allows, or the boxes are
too many: the gap that is left then is reported, and holds all the same (Horst and Tuy, "Global Optimization", 1996).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from shapleymix.downstream.pieces import Scored
from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.certificate import Answer, certificate_of, certified, violation
from shapleymix.mixing.engine.envelopes import Enveloped, unproved
from shapleymix.mixing.engine.interior_point import solve_interior
from shapleymix.mixing.feasibility import require_feasible
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

NAME = "branch and bound"
ENOUGH = 1e-5
"""Of an error rate: a gap below that is none."""
MOST_BOXES, FEWEST_BOXES, USUAL = 300, 8, 12
"""Boxes that are cut: so many with `USUAL` sources, and fewer with more, of which each costs more."""
NARROWEST = 1e-6
"""Of a ratio: no box is cut finer."""
OUTSIDE = 1e-9
AROUND = 0.05
"""Of a ratio: how far around the best mixture a last search goes downhill."""

Solver = Callable[[Problem], FloatArray]


@dataclass(frozen=True)
class _Box:
    """A box of ratios: the bounds, the least error that any mixture there can have, and its envelopes' optimum."""

    bounds: Constraints
    least: float
    p: FloatArray | None


def branch_and_bound(problem: Problem, starts: tuple[FloatArray, ...]) -> Answer:
    """The best mixture found, with the bound that was proved; multipliers are those of its neighbourhood.

    Parameters
    ----------
    starts : tuple of array (M,)
        Mixtures to begin with, such as local optima.

    Raises
    ------
    SolveError
        If no mixture within the bounds has a finite error.
    """
    inside = [p for p in starts if violation(p, problem.constraints) <= OUTSIDE]
    best = min(inside, key=problem.total, default=None)
    order = count()
    root = _bounded(problem, problem.constraints, -np.inf)
    heap = [(root.least, next(order), root)] if root is not None else []
    done = np.inf  # the least error of boxes that are not cut further
    for _ in range(_boxes(len(problem.constraints.sources))):
        if not heap or (best is not None and problem.total(best) - min(heap[0][0], done) <= ENOUGH):
            break
        _, _, box = heapq.heappop(heap)
        best = _better(problem, best, box.p)
        cut = _cut(problem, box)
        if cut is None:
            done = min(done, box.least)
            continue
        parts = [part for half in _halves(box.bounds, *cut) if (part := _bounded(problem, half, box.least)) is not None]
        for part in parts:
            best = _better(problem, best, part.p)
            heapq.heappush(heap, (part.least, next(order), part))
        if not parts:
            done = min(done, box.least)
    if best is None:
        raise SolveError("no mixture within the bounds was found that has a finite error", hint="widen the bounds")
    better = _better(problem, best, _nearby(problem, best))
    best = best if better is None else better
    least = min([done, *(one[0] for one in heap)])
    return _answer(problem, best, least)


def _boxes(sources: int) -> int:
    return int(np.clip(MOST_BOXES * (USUAL / sources) ** 2, FEWEST_BOXES, MOST_BOXES))


def _answer(problem: Problem, p: FloatArray, least: float) -> Answer:
    """The mixture with the proof of all boxes, and the multipliers that its own slopes give."""
    local = certified(problem, p, NAME)
    value = problem.total(p)
    return replace(local, certificate=certificate_of(value, max(value - least, 0.0), local.certificate.price))


def _better(problem: Problem, best: FloatArray | None, p: FloatArray | None) -> FloatArray | None:
    if p is None or violation(p, problem.constraints) > OUTSIDE or not np.isfinite(problem.total(p)):
        return best
    return p if best is None or problem.total(p) < problem.total(best) else best


def _nearby(problem: Problem, p: FloatArray) -> FloatArray | None:
    """The local optimum around a mixture, where an envelope's optimum is as near as boxes are narrow."""
    bounds = problem.constraints
    lower, upper = np.maximum(bounds.lower, p - AROUND), np.minimum(bounds.upper, p + AROUND)
    try:
        return solve_interior(replace(problem, constraints=replace(bounds, lower=lower, upper=upper)))
    except SolveError:
        return None


def _bounded(problem: Problem, bounds: Constraints, known: float) -> _Box | None:
    """A box with its bound, at least that of the box it was cut from; None where it holds no mixture."""
    try:
        require_feasible(bounds)
    except InfeasibleError:
        return None
    terms = problem.terms
    assert isinstance(terms, Scored)
    part = replace(problem, constraints=bounds)
    bent = unproved(part)
    relaxed = replace(part, terms=Enveloped.of(terms, bounds, bent)) if bent.any() else part
    try:
        answer = certified(relaxed, solve_interior(relaxed), NAME)
    except InfeasibleError:
        return None
    except SolveError:  # too little room for a solver: the bound of the whole box holds here, too
        return _Box(bounds, known, None)
    least = answer.certificate.lower_bound
    return _Box(bounds, max(known, least) if np.isfinite(least) else known, answer.p)


def _cut(problem: Problem, box: _Box) -> tuple[int, float] | None:
    """The source and the ratio at which to cut a box; None where no ratio has room."""
    bounds, terms = box.bounds, problem.terms
    assert isinstance(terms, Scored)
    upper = np.minimum(bounds.upper, 1 - bounds.lower.sum() + bounds.lower)
    width = np.where(upper - bounds.lower > NARROWEST, upper - bounds.lower, 0.0)
    if not width.any():
        return None
    bent = unproved(replace(problem, constraints=bounds))
    if not bent.any():
        return None
    room = np.abs(terms.parts(upper) - terms.parts(bounds.lower)) * (problem.w * bent)
    source = int(np.argmax(np.where(width > 0, room.sum(axis=1) + 1e-12 * width, -1.0)))
    middle = bounds.lower[source] + 0.5 * width[source]
    here = middle if box.p is None else 0.5 * (middle + box.p[source])
    low, high = bounds.lower[source] + 0.1 * width[source], upper[source] - 0.1 * width[source]
    return source, float(np.clip(here, low, high))


def _halves(bounds: Constraints, source: int, at: float) -> Iterator[Constraints]:
    for side in ("upper", "lower"):
        values = getattr(bounds, side).copy()
        values[source] = at
        yield replace(bounds, **{side: values})
