"""cvxpy, for constraints that a user writes: affine ones become rows of the bounds, others need a cone solver.

A cone solver's "optimal" mixture may still be 1e-6 off, so that `proof` says how far each answer can be from the best,
with the tangents of the constraints as rows.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError, UsageError, described
from shapleymix.mixing.goal import Constraint, Goal
from shapleymix.mixing.polytope import Ball, Polytope
from shapleymix.records import FloatArray

if TYPE_CHECKING:
    from cvxpy import Problem as Program

SETTINGS = ({"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-10}, {})


def solve_cone(goal: Goal) -> FloatArray:
    """The optimal mixture (M,), within its bounds.

    Raises
    ------
    InfeasibleError
        If the constraints leave no mixture.
    SolveError
        If the solver fails.
    """
    import cvxpy as cp

    p = cp.Variable(len(goal.within.sources))
    counted = np.flatnonzero(goal.w > 0)
    losses, cones = goal.pieces.select(counted).to_cvxpy(p)
    unit = max(float(goal.w.max()), 1e-300)
    weighed = cp.multiply(goal.w[counted] / unit, losses)
    cost: Any = cp.max(weighed) if goal.worst else cp.sum(weighed)
    if goal.kl > 0 and goal.anchor is not None:
        cost = cost + goal.kl / unit * _distance(p, goal.anchor, "kl")
    _run(cp.Problem(cp.Minimize(cost), [*_rows(goal.within, p), *_user_constraints(goal.cone_constraints, p), *cones]))
    return _tidied(goal.within, np.asarray(p.value, dtype=float))


def violation(goal: Goal, p: FloatArray) -> float:
    """By how much a mixture (M,) is outside of all bounds, the user's constraints among them; 0 within."""
    made = _user_constraints(goal.cone_constraints, p)
    return max(goal.within.violation(p), *(float(np.max(one.violation())) for one in made), 0.0)


def nearest(bounds: Polytope, ball: Ball) -> float:
    """The least distance of a mixture within the other bounds from the centre; infinite where there is none."""
    import cvxpy as cp

    p, outside = cp.Variable(len(ball.center)), np.flatnonzero(ball.center == 0)
    rows = _rows(replace(bounds, ball=None), p)
    rows += [p[outside] == 0] if ball.kind == "kl" and len(outside) else []
    program = cp.Problem(cp.Minimize(_distance(p, ball.center, ball.kind)), rows)
    try:
        _run(program)
    except InfeasibleError:
        return np.inf
    return float(np.asarray(program.value))


def affine_rows(bounds: Polytope, further: tuple[Constraint, ...]) -> tuple[Polytope, tuple[Constraint, ...]]:
    """The bounds with every affine constraint of the user's own written as rows, and the constraints that are not."""
    left, origin = [], np.zeros(len(bounds.sources))
    for number, write in enumerate(further, 1):
        if all(hasattr(one, "expr") and one.expr.is_affine() for one in _user_constraints((write,), origin)):
            bounds = with_tangents(bounds, (write,), origin, f"constraint {number}")
        else:
            left.append(write)
    return bounds, tuple(left)


def with_tangents(
    bounds: Polytope, further: tuple[Constraint, ...], at: FloatArray, name: str = "constraint"
) -> Polytope:
    """The bounds with the tangents at a mixture (M,) of the user's own constraints as rows; mixtures within these are
    within the rows, too."""
    for one in _user_constraints(further, at):
        slopes = next(iter(one.expr.grad.values()), None) if hasattr(one, "expr") else None
        if slopes is None:  # no tangent there
            continue
        rows = slopes.T.toarray()
        for weights, limit in zip(rows, rows @ at - np.ravel(one.expr.value, order="F"), strict=True):
            low = limit if type(one).__name__ == "Equality" else -np.inf
            bounds = bounds.with_row(name, weights, low, limit)
    return bounds


def _rows(bounds: Polytope, p: Any) -> list[Any]:
    """The bounds as cvxpy writes them."""

    matrix, limits, equal = replace(bounds, ball=None).written()
    rows = [matrix[:equal] @ p == limits[:equal], p >= bounds.lower, p <= bounds.upper]
    rows += [matrix[equal:] @ p <= limits[equal:]] if len(matrix) > equal else []
    ball = bounds.ball
    return rows if ball is None else [*rows, _distance(p, ball.center, ball.kind) <= ball.radius]


def _distance(p: Any, center: FloatArray, kind: str) -> Any:
    """The L1 distance, or KL(p || center) where p is nothing outside of the centre's support, as cvxpy writes it."""
    import cvxpy as cp

    live = np.flatnonzero(center > 0)
    return cp.norm1(p - center) if kind == "l1" else cp.sum(cp.rel_entr(p[live], center[live]))


def _user_constraints(further: tuple[Constraint, ...], p: Any) -> list[Any]:
    """The constraints of the user's own on a cvxpy variable, or on one that has the value of a mixture (M,)."""
    if not further:
        return []
    import cvxpy as cp

    rows: list[Any] = []
    p = cp.Variable(len(p), value=p) if isinstance(p, np.ndarray) else p
    for write in further:
        made = write(p)
        listed = list(made) if isinstance(made, (list, tuple)) else [made]
        if not all(isinstance(one, cp.Constraint) for one in listed):
            hint = "return one constraint or a list, such as p[0] <= 0.5"
            raise UsageError(f"a function of constraints returned {described(made)}", hint=hint)
        rows += listed
    return rows


def _run(program: Program) -> None:
    """Solve, tightly if that works: what is left open is told by the proof."""
    import cvxpy as cp
    from cvxpy.error import DCPError, SolverError

    for settings in SETTINGS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program.solve(solver=cp.CLARABEL, **settings)
        except DCPError as error:
            raise SolveError(f"a constraint is not convex: {str(error).splitlines()[0]}") from error
        except SolverError:
            continue
        if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            raise InfeasibleError("the constraints leave no mixture", hint="relax one of them")
        if program.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return
    raise SolveError(f"the cone solver stopped: {program.status}", hint="check the scale of the constraints")


def _tidied(bounds: Polytope, p: FloatArray) -> FloatArray:
    """The solver's mixture inside its bounds on single ratios, with the unit sum."""
    p = np.clip(p, bounds.lower, bounds.upper)
    room = np.where(p.sum() > 1, p - bounds.lower, bounds.upper - p)
    return np.clip(p + (1 - p.sum()) * room / max(float(room.sum()), 1e-300), bounds.lower, bounds.upper)
