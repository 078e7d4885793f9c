"""Problems beyond the engine: which solver takes them, and the certificate that fits them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.mixing.certificate import Certificate, certify, objective_gradient
from shapleymix.mixing.interior_point import solve_interior
from shapleymix.mixing.solving import WORST, Answer, Task, objective_at
from shapleymix.records import FloatArray

INTERIOR_POINT, CONE = "primal-dual interior point", "cvxpy (Clarabel)"
ENOUGH = 1e-8
SNAP = 1e-11


def solve_general(task: Task) -> Answer:
    """The optimum under groups, with the worst-case objective, or under the user's own cvxpy constraints."""
    if task.kl > 0 and task.anchor is not None and (task.anchor == 0).any():
        task = _without_absent(task)
    if task.further:
        return _by_cone(task)
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
        certificate = _against(objective_at(task, p), certificate.lower_bound, certificate.price)
    return Answer(p, certificate, prices, gradient, engine)


def _by_cone(task: Task) -> Answer:
    from shapleymix.mixing.convex import certified_by_cone, solve_cone

    p, w = solve_cone(task)
    if task.further:
        return certified_by_cone(task, p, w)
    return certified_general(task, p, w, CONE)


def _against(objective: float, lower_bound: float, price: float) -> Certificate:
    gap = max(objective - lower_bound, 0.0)
    return Certificate(objective, gap, gap / max(abs(objective), 1e-300), objective - gap, price)


def _without_absent(task: Task) -> Task:
    """KL keeps sources that the anchor lacks at their floor."""
    assert task.anchor is not None
    bounds = task.constraints
    return replace(task, constraints=replace(bounds, upper=np.where(task.anchor > 0, bounds.upper, bounds.lower)))
