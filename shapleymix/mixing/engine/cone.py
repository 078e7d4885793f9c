"""cvxpy, for constraints that a user writes; the only importer of cvxpy.

Powers are written as exp(-gamma log Theta), vectorised over targets, and concave powers as three-dimensional power
cones, vectorised over pairs: `cp.power` a language is a hundred times slower and less exact. A cone solver's
"optimal" mixture may still be 1e-5 off, so every answer carries its own bound.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from shapleymix.downstream.pieces import Scored
from shapleymix.errors import InfeasibleError, SolveError, UsageError, described
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

if TYPE_CHECKING:
    from cvxpy import Constraint, Expression
    from cvxpy import Problem as Program

NEARLY_ZERO = 1e-9
TINY_SUPPLY = 1e-12
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-10}


def solve_cone(problem: Problem) -> FloatArray:
    """The optimal mixture (M,).

    Raises
    ------
    InfeasibleError
        If the constraints leave no mixture.
    SolveError
        If the solver fails.
    """
    import cvxpy as cp

    problem = problem.supported
    p = cp.Variable(len(problem.constraints.sources))
    demands = _demands(cp, problem, p)
    counted = np.flatnonzero(problem.w > 0)
    losses, cones = losses_expression(cp, problem.terms.select(counted), p)
    unit = max(float(problem.w.max()), 1e-300)
    scaled = cp.multiply(problem.w[counted] / unit, losses)
    goal = cp.max(scaled) if problem.worst else cp.sum(scaled)
    if problem.penalised and problem.anchor is not None:
        live = np.flatnonzero(problem.anchor > 0)
        goal = goal + problem.kl / unit * cp.sum(cp.rel_entr(p[live], problem.anchor[live]))
    _run(cp, cp.Problem(cp.Minimize(goal), [*demands, *cones]))
    return _tidied(problem, np.asarray(p.value, dtype=float))


def least_tangent(problem: Problem, p: FloatArray) -> tuple[float, float]:
    """The least value of the objective's tangents at p over all constraints, further ones too: a lower bound.

    The second number is how far off a solver's value of it may be.
    """
    import cvxpy as cp

    counted = np.flatnonzero(problem.w > 0)
    cost = problem.penalty_gradient(p) if problem.worst else problem.gradient(p, problem.w)
    tangents = (problem.terms.jacobian(p)[:, counted] * problem.w[counted]).T
    if not (np.isfinite(cost).all() and (np.isfinite(tangents).all() or not problem.worst)):
        raise SolveError("the objective has no finite slope at the solver's mixture", hint="add small floors")
    unit = max(float(np.abs(tangents).max() if problem.worst else np.abs(cost).max()), 1e-300)
    s = cp.Variable(len(p))
    here = problem.penalty(p) if problem.worst else problem.total(p)
    goal = (cost / unit) @ (s - p)
    if problem.worst:
        heights = problem.w[counted] * problem.terms.losses(p)[counted] / unit
        goal = goal + cp.max(heights + (tangents / unit) @ (s - p))
    program = cp.Problem(cp.Minimize(goal), _demands(cp, problem, s))
    _run(cp, program)
    return here + unit * float(np.asarray(program.value)), 1e-7 * (unit + abs(problem.total(p)))


_NO_SCORES = "write them as caps, floors, groups or near, or minimise losses"


def losses_expression(cp: ModuleType, terms: Terms, p: Expression) -> tuple[Expression, list[Constraint]]:
    """Losses (K,) as a convex expression in the cvxpy variable p, and the cones that it needs."""
    if isinstance(terms, Scored):
        raise SolveError("cvxpy is not told of scores: constraints of one's own are for losses", hint=_NO_SCORES)
    if isinstance(terms, ExponentialTerms):
        return terms.floor + cp.multiply(terms.k, cp.exp(terms.t.T @ p)), []
    if not isinstance(terms, PowerTerms):
        raise SolveError(f"no convex form is known for terms of type {type(terms).__name__}")
    q, worths = _effective(cp, terms, p)
    if terms.s is None or np.all(terms.s == 1):
        theta, cones = terms.phi.T @ q, worths
    else:
        theta, cones = _concave(cp, terms.phi, np.broadcast_to(terms.s, terms.phi.shape), q)
        cones += worths
    theta = theta if terms.base is None else terms.base + theta
    power = cp.exp(cp.multiply(-np.asarray(terms.gamma), cp.log(theta)))
    return terms.floor + cp.multiply(terms.a, power), cones


def _effective(cp: ModuleType, terms: PowerTerms, p: Expression) -> tuple[Expression, list[Constraint]]:
    """Effective ratios q (M,), and the cones that they need.

    A source gives fresh tokens and repeated ones, p = a + b: q <= a + (u / lambda) (1 - exp(-lambda b / u)), a <= u.
    The fresh ones are worth more, so that an optimum takes them first, as training does.
    """
    if terms.unique is None or terms.rate is None:
        return p, []
    rates = np.broadcast_to(terms.rate, terms.unique.shape)
    costs = (terms.unique < 1) & (rates > 0)  # at rate 0 repeated tokens are worth what fresh ones are
    limited = np.flatnonzero(costs)
    u, rate = np.maximum(terms.unique[limited], TINY_SUPPLY), rates[limited]
    q, fresh, again = (
        cp.Variable(p.shape[0]),
        cp.Variable(len(limited), nonneg=True),
        cp.Variable(len(limited), nonneg=True),
    )
    worth = cp.multiply(u / rate, 1 - cp.exp(-cp.multiply(rate / u, again)))
    others = np.flatnonzero(~costs)
    cones = [fresh + again == p[limited], fresh <= u, q[limited] <= fresh + worth]
    return q, [*cones, *([q[others] == p[others]] if len(others) else [])]


def _concave(cp: ModuleType, phi: FloatArray, s: FloatArray, p: Expression) -> tuple[Expression, list[Constraint]]:
    """Theta_j = sum_i phi_ij u_ij with u_ij <= p_i^s_ij as cones u <= p^s 1^(1 - s)."""
    K = phi.shape[1]
    i, j = np.nonzero(phi)
    if not len(i):
        return cp.Constant(np.zeros(K)), []
    u = cp.Variable(len(i))
    total = np.zeros((K, len(i)))
    total[j, np.arange(len(i))] = phi[i, j]
    linear = s[i, j] >= 1
    cones = [u[linear] <= p[i[linear]]] if linear.any() else []
    if (~linear).any():
        rows = np.flatnonzero(~linear)
        cones.append(cp.PowCone3D(p[i[rows]], np.ones(len(rows)), u[rows], s[i[rows], j[rows]]))
    return total @ u, cones


def _demands(cp: ModuleType, problem: Problem, p: Expression) -> list[Constraint]:
    bounds = problem.constraints
    rows: list[Constraint] = [cp.sum(p) == 1, p >= bounds.lower, p <= bounds.upper]
    if bounds.grouped:
        rows += [bounds.members @ p >= bounds.group_lower, bounds.members @ p <= bounds.group_upper]
    near = bounds.near
    if near is not None and near.kind == "l1":
        rows.append(cp.norm1(p - near.center) <= near.radius)
    elif near is not None:
        live = np.flatnonzero(near.center > 0)
        rows.append(cp.sum(cp.rel_entr(p[live], near.center[live])) <= near.radius)
    for write in problem.further:
        made = write(p)
        listed: list[object] = list(made) if isinstance(made, (list, tuple)) else [made]
        if not _are_constraints(listed, cp):
            hint = "return one constraint or a list, such as p[0] <= 0.5"
            raise UsageError(f"a function of constraints returned {described(made)}", hint=hint)
        rows += listed
    return rows


def _are_constraints(listed: list[object], cp: ModuleType) -> TypeGuard[list[Constraint]]:
    return all(isinstance(one, cp.Constraint) for one in listed)


def _run(cp: ModuleType, program: Program) -> None:
    try:
        with warnings.catch_warnings():
            # An inaccurate answer is reported by its certificate, in numbers.
            warnings.simplefilter("ignore")
            program.solve(solver=cp.CLARABEL, **TIGHT)
    except cp.error.DCPError as error:
        raise SolveError(f"a constraint is not convex: {str(error).splitlines()[0]}") from error
    except cp.error.SolverError as error:
        raise SolveError(f"the cone solver failed: {error}", hint="check the scale of the constraints") from error
    if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise InfeasibleError("the constraints leave no mixture", hint="relax one of the further constraints")
    if program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise SolveError(f"the cone solver stopped: {program.status}")


def _tidied(problem: Problem, p: FloatArray) -> FloatArray:
    """The solver's mixture inside its bounds, with the unit sum."""
    bounds = problem.constraints
    p = np.clip(np.where(p < NEARLY_ZERO, 0.0, p), bounds.lower, bounds.upper)
    room = np.where(p.sum() > 1, p - bounds.lower, bounds.upper - p)
    return np.clip(p + (1 - p.sum()) * room / max(float(room.sum()), 1e-300), bounds.lower, bounds.upper)
