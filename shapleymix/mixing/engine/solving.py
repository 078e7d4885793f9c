"""Problems in, certified answers out: the batched engine for bounds and KL, `general` for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.terms import MATRICES, Terms
from shapleymix.mixing.certificate import ROUNDING, certificate_of, certify, not_negative, objective_gradient
from shapleymix.mixing.engine.barrier import minimise
from shapleymix.mixing.engine.interior_point import solve_interior
from shapleymix.mixing.problem import WORST, Answer, Task, certified, objective_at
from shapleymix.records import BoolArray, FloatArray

ENGINE = "barrier Newton"


def solve(task: Task) -> Answer:
    """The optimum of one problem."""
    return solve_all((task,))[0]


def solve_all(tasks: tuple[Task, ...]) -> tuple[Answer, ...]:
    """The optima of several problems of one kind, those for the engine in one batch."""
    if all(task.standard for task in tasks):
        return tuple(certified(task, p, ENGINE) for task, p in zip(tasks, _batch(tasks), strict=True))
    return tuple(solve_general(task) for task in tasks)


def solve_replicates(tasks: tuple[Task, ...], replicates: tuple[Terms, ...]) -> FloatArray:
    """Optima (S, B, M) of every task under each of its law's replicates, without certificates."""
    if all(task.standard for task in tasks):
        lower, upper, w = (values[:, None] for values in _bounds(tasks))
        return minimise(stacked(replicates), w, lower, upper, kl=tasks[0].kl, anchor=tasks[0].anchor).p
    return np.stack([_one_by_one(task, terms) for task, terms in zip(tasks, replicates, strict=True)])


def _one_by_one(task: Task, replicates: Terms) -> FloatArray:
    """cvxpy solves one problem at a time."""
    flat = replicates.flat()
    return np.stack([solve_general(task.with_terms(flat.take(b))).p for b in range(len(flat.floor))])


def _batch(tasks: tuple[Task, ...]) -> FloatArray:
    lower, upper, w = _bounds(tasks)
    terms = stacked([task.terms for task in tasks])
    return minimise(terms, w, lower, upper, kl=tasks[0].kl, anchor=tasks[0].anchor).p


def _bounds(tasks: tuple[Task, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    lower = np.stack([task.constraints.lower for task in tasks])
    upper = np.stack([task.constraints.upper for task in tasks])
    return lower, upper, np.stack([task.w for task in tasks])


INTERIOR_POINT, CONE = "primal-dual interior point", "cvxpy (Clarabel)"
ENOUGH = 1e-8
SNAP = 1e-11


def solve_general(task: Task) -> Answer:
    """The optimum under groups, with the worst-case objective, or under the user's own cvxpy constraints."""
    if task.kl > 0 and task.anchor is not None and (task.anchor == 0).any():
        task = _without_absent(task)
    if task.further:
        return _within_bounds(_by_cone(task))
    return _within_bounds(_without_further(task))


def _within_bounds(answer: Answer) -> Answer:
    if np.isinf(answer.certificate.gap):
        raise SolveError(
            "the solver found no mixture within the bounds (its best breaks one, or has no finite slope)",
            hint="widen the bounds a little, or add small floors",
        )
    return answer


def _without_further(task: Task) -> Answer:
    p, w = solve_interior(task)
    # At its bounds exactly, unless a concave law needs what is less than the snap.
    first = min(
        (certified_general(task, candidate, w, INTERIOR_POINT) for candidate in (_snapped(p, task), p)),
        key=lambda answer: answer.certificate.gap,
    )
    return first if first.certificate.relative_gap <= ENOUGH else _better(first, task)


def _better(first: Answer, task: Task) -> Answer:
    """A second opinion where the interior point stalled; the smaller gap decides."""
    try:
        second = _by_cone(task)
    except SolveError:
        return first
    return first if first.certificate.gap <= second.certificate.gap else second


def _snapped(p: FloatArray, task: Task) -> FloatArray:
    """Ratios next to their bounds moved onto them; the largest other one keeps the unit sum."""
    lower, upper = task.constraints.lower, task.constraints.upper
    moved = np.where(p - lower < SNAP, lower, np.where(upper - p < SNAP, upper, p))
    inner = np.where((moved > lower) & (moved < upper), moved, -1.0)
    if inner.max() > 0:
        moved[np.argmax(inner)] += 1 - moved.sum()
    return moved


def certified_general(task: Task, p: FloatArray, w: FloatArray, engine: str) -> Answer:
    """For any weights u of the targets that sum to one, max_j w_j loss_j >= sum_j u_j w_j loss_j: the mean problem
    under the saddle point's weights bounds the worst case from below."""
    certificate, prices = certify(task.terms, w, p, task.constraints, kl=task.kl, anchor=task.anchor)
    gradient = objective_gradient(task.terms, w, p, task.kl, task.anchor)
    if task.objective == WORST:
        gap = objective_at(task, p) - certificate.lower_bound
        objective = objective_at(task, p)
        gap = gap if np.isinf(gap) else not_negative(gap, ROUNDING * abs(objective))
        certificate = certificate_of(objective, gap, certificate.price)
    return Answer(p, certificate, prices, gradient, engine)


def _by_cone(task: Task) -> Answer:
    from shapleymix.mixing.engine.cone import certified_by_cone, solve_cone

    p, w = solve_cone(task)
    if task.further:
        return certified_by_cone(task, p, w)
    return certified_general(task, p, w, CONE)


def _without_absent(task: Task) -> Task:
    """KL keeps sources that the anchor lacks at their floor."""
    assert task.anchor is not None
    bounds = task.constraints
    return replace(task, constraints=replace(bounds, upper=np.where(task.anchor > 0, bounds.upper, bounds.lower)))


def stacked(members: Sequence[Terms]) -> Terms:
    """Terms of several budgets with one more leading axis; fields that all members share are stored once."""
    if len(members) == 1:
        return _map(members[0], lambda value: np.asarray(value)[None])
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
        if value is not None:
            sane &= np.isfinite(value).reshape(len(sane), -1).all(axis=1)
    return sane


def _stack(values: list[Any], batch: tuple[int, ...], matrix: bool) -> Any:
    tail = 2 if matrix else 1
    arrays = [np.asarray(value, dtype=float) for value in values]
    shared = arrays[0].ndim == tail and all(array is values[0] for array in values)
    if shared:
        return arrays[0]
    whole = [np.broadcast_to(array, batch + array.shape[-tail:]) for array in arrays]
    return np.stack(whole)


def _map(terms: Terms, change: Any) -> Terms:
    present = {field.name: getattr(terms, field.name) for field in fields(terms)}
    return replace(terms, **{name: change(value) for name, value in present.items() if value is not None})
