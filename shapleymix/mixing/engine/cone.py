"""cvxpy, for constraints that a user writes; the only importer of cvxpy.

Powers are written as exp(-gamma log Theta), vectorised over targets, and concave powers as three-dimensional power
cones, vectorised over pairs: `cp.power` a language is a hundred times slower and less exact. A cone solver's
"optimal" mixture may still be 1e-5 off, so every answer carries its own bound.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.mixing.certificate import (
    FEASIBLE,
    certificate_of,
    linear_minimiser,
    not_negative,
    objective_gradient,
    violation,
)
from shapleymix.mixing.problem import MEAN, Answer, Task, objective_at
from shapleymix.records import FloatArray

NEARLY_ZERO = 1e-9
ENGINE = "cvxpy (Clarabel)"
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-10}


def solve_cone(task: Task) -> tuple[FloatArray, FloatArray]:
    """The optimal mixture (M,) and the weights (K,) of the targets (see `interior_point.solve_interior`).

    Raises
    ------
    InfeasibleError
        If the constraints leave no mixture.
    SolveError
        If the solver fails.
    """
    import cvxpy as cp

    p = cp.Variable(len(task.constraints.sources))
    demands = _demands(cp, task, p)
    losses, cones = losses_expression(cp, task.terms, p)
    counted = np.flatnonzero(task.w > 0)
    scaled = cp.multiply(task.w[counted], losses[counted])
    top = cp.Variable()
    below = scaled <= top
    goal = cp.sum(scaled) if task.objective == MEAN else top
    if task.kl > 0 and task.anchor is not None:
        live = np.flatnonzero(task.anchor > 0)
        goal = goal + task.kl * cp.sum(cp.rel_entr(p[live], task.anchor[live]))
    demands += cones if task.objective == MEAN else [*cones, below]
    _run(cp, cp.Problem(cp.Minimize(goal), demands))
    w = task.w.copy()
    if task.objective != MEAN:
        share = np.zeros_like(w)
        share[counted] = np.maximum(np.asarray(below.dual_value), 0.0)
        w = w * share / max(share.sum(), 1e-300)
    return _tidied(task, np.asarray(p.value, dtype=float)), w


def certified_by_cone(task: Task, p: FloatArray, w: FloatArray) -> Answer:
    """The Frank-Wolfe bound over the user's constraints, whose linear program cvxpy solves, too."""
    import cvxpy as cp

    gradient = objective_gradient(task.terms, w, p, task.kl, task.anchor)
    if not np.isfinite(gradient).all():
        raise SolveError("the objective has no finite slope at the solver's mixture", hint="add small floors")
    s = cp.Variable(len(p))
    unit = max(float(np.abs(gradient).max()), 1e-300)
    program = cp.Problem(cp.Minimize((gradient / unit) @ s), _demands(cp, task, s))
    _run(cp, program)
    objective = objective_at(task, p)
    mean = objective_at(task, p) if task.objective == MEAN else float(task.terms.objective(p, w))
    least = mean + float(np.asarray(program.value)) * unit - float(gradient @ p)
    broken = violation(p, task.constraints) > FEASIBLE
    # The program's value is a solver's, good to about 1e-9 of the slopes.
    gap = np.inf if broken else not_negative(objective - least, 1e-7 * (unit + abs(objective)))
    _, price = linear_minimiser(gradient, task.constraints.lower, task.constraints.upper)
    certificate = certificate_of(objective, gap, float(price))
    return Answer(p, certificate, np.full(len(p), float(price)), gradient, ENGINE)


def losses_expression(cp: Any, terms: Terms, p: Any) -> tuple[Any, list[Any]]:
    """Losses (K,) as a convex expression in the cvxpy variable p, and the cones that it needs."""
    if isinstance(terms, ExponentialTerms):
        return terms.floor + cp.multiply(terms.k, cp.exp(terms.t.T @ p)), []
    if not isinstance(terms, PowerTerms):
        raise SolveError(f"no convex form is known for terms of type {type(terms).__name__}")
    if terms.s is None or np.all(terms.s == 1):
        theta, cones = terms.phi.T @ p, []
    else:
        theta, cones = _concave(cp, terms.phi, np.broadcast_to(terms.s, terms.phi.shape), p)
    power = cp.exp(cp.multiply(-np.asarray(terms.gamma), cp.log(theta)))
    return terms.floor + cp.multiply(terms.a, power), cones


def _concave(cp: Any, phi: FloatArray, s: FloatArray, p: Any) -> tuple[Any, list[Any]]:
    """Theta_j = sum_i phi_ij u_ij with u_ij <= p_i^s_ij as cones u <= p^s 1^(1 - s)."""
    K = phi.shape[1]
    i, j = np.nonzero(phi)
    u = cp.Variable(len(i))
    total = np.zeros((K, len(i)))
    total[j, np.arange(len(i))] = phi[i, j]
    linear = s[i, j] >= 1
    cones = [u[linear] <= p[i[linear]]] if linear.any() else []
    if (~linear).any():
        rows = np.flatnonzero(~linear)
        cones.append(cp.PowCone3D(p[i[rows]], np.ones(len(rows)), u[rows], s[i[rows], j[rows]]))
    return total @ u, cones


def _demands(cp: Any, task: Task, p: Any) -> list[Any]:
    bounds = task.constraints
    rows: list[Any] = [cp.sum(p) == 1, p >= bounds.lower, p <= bounds.upper]
    if bounds.grouped:
        rows += [bounds.members @ p >= bounds.group_lower, bounds.members @ p <= bounds.group_upper]
    for write in task.further:
        made = write(p)
        rows += list(made) if isinstance(made, (list, tuple)) else [made]
    return rows


def _run(cp: Any, problem: Any) -> None:
    try:
        with warnings.catch_warnings():
            # An inaccurate answer is reported by its certificate, in numbers.
            warnings.simplefilter("ignore")
            problem.solve(solver=cp.CLARABEL, **TIGHT)
    except cp.error.DCPError as error:
        raise SolveError(f"a constraint is not convex: {str(error).splitlines()[0]}") from error
    except cp.error.SolverError as error:
        raise SolveError(f"the cone solver failed: {error}", hint="check the scale of the constraints") from error
    if problem.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise InfeasibleError("the constraints leave no mixture", hint="relax one of the further constraints")
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise SolveError(f"the cone solver stopped: {problem.status}")


def _tidied(task: Task, p: FloatArray) -> FloatArray:
    """The solver's mixture inside its bounds, with the unit sum."""
    bounds = task.constraints
    p = np.clip(np.where(p < NEARLY_ZERO, 0.0, p), bounds.lower, bounds.upper)
    room = np.where(p.sum() > 1, p - bounds.lower, bounds.upper - p)
    return p + (1 - p.sum()) * room / max(float(room.sum()), 1e-300)
