"""What is true of a problem, found without the library: objective, slopes, bounds, and two other solvers.

HiGHS minimises the linearised problem over the polytope, which bounds a convex optimum from below at any mixture
and meets it at the best one. Clarabel minimises the problem itself, written with power cones. Neither shares a line
with `shapleymix.mixing`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from problems import Problem
from scipy.optimize import linprog

from shapleymix.laws.terms import ExponentialTerms
from shapleymix.records import FloatArray

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def losses(problem: Problem, p: FloatArray) -> FloatArray:
    """(K,) losses by the printed equations."""
    law = problem.terms
    if isinstance(law, ExponentialTerms):
        return law.floor + law.k * np.exp(law.t.T @ p)
    powers = p[:, None] ** (1.0 if law.s is None else law.s)
    with np.errstate(divide="ignore"):
        return law.floor + law.a * np.sum(law.phi * powers, axis=0) ** -law.gamma


def slopes(problem: Problem, p: FloatArray) -> FloatArray:
    """(M, K) derivatives of the losses."""
    law = problem.terms
    if isinstance(law, ExponentialTerms):
        return law.t * (law.k * np.exp(law.t.T @ p))
    s = np.ones_like(law.phi) if law.s is None else law.s
    with np.errstate(all="ignore"):
        theta = np.sum(law.phi * p[:, None] ** s, axis=0)
        inner = np.where(law.phi > 0, law.phi * s * p[:, None] ** (s - 1), 0.0)
        return np.where(inner == 0, 0.0, -law.a * law.gamma * theta ** (-law.gamma - 1) * inner)


def weights(problem: Problem) -> FloatArray:
    """(K,) what multiplies the losses: a mean divides by the sum of the weights, a worst case does not."""
    return problem.w / problem.w.sum() if problem.case.objective == "mean" else problem.w


def penalty(problem: Problem, p: FloatArray) -> float:
    """kl KL(p || anchor)."""
    if problem.anchor is None:
        return 0.0
    inside = p > 0
    with np.errstate(divide="ignore"):
        return problem.kl * float(np.sum(p[inside] * np.log(p[inside] / problem.anchor[inside])))


def objective(problem: Problem, p: FloatArray) -> float:
    """What is minimised."""
    weighed = weighed_losses(problem, p)
    return float(weighed.sum() if problem.case.objective == "mean" else weighed.max()) + penalty(problem, p)


def weighed_losses(problem: Problem, p: FloatArray) -> FloatArray:
    """The losses of the targets that count, times their weights; others may be infinite."""
    counted = weights(problem) > 0
    return weights(problem)[counted] * losses(problem, p)[counted] if counted.any() else np.zeros(1)


def distance(problem: Problem, p: FloatArray) -> float:
    """How far p is from the centre of the ball, in its own measure."""
    assert problem.center is not None
    if problem.case.near == "l1":
        return float(np.abs(p - problem.center).sum())
    inside = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[inside] * np.log(p[inside] / problem.center[inside])))


def violation(problem: Problem, p: FloatArray) -> float:
    """The largest amount by which p breaks any bound."""
    if p.shape != problem.lower.shape or not np.isfinite(p).all():
        return np.inf
    sums = problem.members @ p
    found = [abs(float(p.sum()) - 1), float(np.max(problem.lower - p)), float(np.max(p - problem.upper)), 0.0]
    if len(sums):
        found += [float(np.max(problem.group_lower - sums)), float(np.max(sums - problem.group_upper))]
    if problem.center is not None:
        found.append(distance(problem, p) - problem.radius)
    return max(found)


@dataclass(frozen=True)
class Polytope:
    """A x <= b, C x = d, low <= x <= high, where the first M entries of x are the mixture."""

    A: FloatArray
    b: FloatArray
    C: FloatArray
    d: FloatArray
    low: FloatArray
    high: FloatArray

    def minimise(self, cost: FloatArray, more: tuple[FloatArray, FloatArray] | None = None) -> Any:
        """HiGHS's answer; `more` has further rows on the mixture and the columns that `cost` adds."""
        extra = len(cost) - self.A.shape[1]
        A, C = (np.pad(rows, ((0, 0), (0, extra))) for rows in (self.A, self.C))
        b = self.b
        if more is not None:
            rows = np.zeros((len(more[0]), len(cost)))
            rows[:, : more[0].shape[1] - extra] = more[0][:, : more[0].shape[1] - extra]
            rows[:, len(cost) - extra :] = more[0][:, more[0].shape[1] - extra :]
            A, b = np.concatenate([A, rows]), np.concatenate([b, more[1]])
        bounds = [*zip(self.low, self.high, strict=True), *[(None, None)] * extra]
        return linprog(cost, A_ub=A, b_ub=b, A_eq=C, b_eq=self.d, bounds=bounds, method="highs", options=EXACT)


def polytope(problem: Problem) -> Polytope:
    """The linear bounds. An L1 ball adds M columns above |p - centre|; an anchor's zeros are caps."""
    M = problem.case.M
    upper = problem.upper
    for absent in (problem.anchor, problem.center if problem.case.near == "kl" else None):
        upper = upper if absent is None else np.where(absent > 0, upper, np.minimum(upper, 0.0))
    A, b = np.concatenate([problem.members, -problem.members]), [*problem.group_upper, *-problem.group_lower]
    low, high, total = problem.lower, upper, np.ones((1, M))
    if problem.center is not None and problem.case.near == "l1":
        eye, ball = np.eye(M), np.concatenate([np.zeros(M), np.ones(M)])[None]
        A = np.concatenate([np.pad(A, ((0, 0), (0, M))), np.block([[eye, -eye], [-eye, -eye]]), ball])
        b = [*b, *problem.center, *-problem.center, problem.radius]
        low, high = np.concatenate([low, np.zeros(M)]), np.concatenate([high, np.full(M, 2.0)])
        total = np.pad(total, ((0, 0), (0, M)))
    return Polytope(A, np.array(b, dtype=float), total, np.ones(1), low, np.maximum(high, low))


def least_violation(problem: Problem) -> float:
    """The smallest sum of violations of the linear bounds (0 = some mixture obeys them); crossed boxes count."""
    shape = polytope(problem)
    crossed = float(np.maximum(problem.lower - np.maximum(shape.high[: problem.case.M], 0), 0).sum())
    gap = float(np.max(problem.lower - problem.upper, initial=0.0))
    n, m = shape.A.shape[1], len(shape.A)
    cost = np.concatenate([np.zeros(n), np.ones(m + 2)])
    A = np.concatenate([shape.A, -np.eye(m), np.zeros((m, 2))], axis=1)
    C = np.concatenate([shape.C, np.zeros((1, m)), [[1.0, -1.0]]], axis=1)
    bounds = [*zip(shape.low, shape.high, strict=True), *[(0, None)] * (m + 2)]
    if _excluded(problem):
        return np.inf
    found = linprog(cost, A_ub=A, b_ub=shape.b, A_eq=C, b_eq=shape.d, bounds=bounds, method="highs", options=EXACT)
    return max(float(found.fun), crossed, gap) if found.success else np.inf


def _excluded(problem: Problem) -> bool:
    """Whether a floor lies on a source that the anchor (or the centre of a KL ball) lacks."""
    lacking = [problem.anchor, problem.center if problem.case.near == "kl" else None]
    return any(absent is not None and bool((problem.lower[absent == 0] > 1e-9).any()) for absent in lacking)


def unreachable(problem: Problem) -> bool:
    """Whether a target that counts has an infinite loss at every mixture within the bounds."""
    if isinstance(problem.terms, ExponentialTerms):
        return False
    shape = polytope(problem)
    for j in np.flatnonzero(problem.w > 0):
        cost = np.zeros(shape.A.shape[1])
        cost[: problem.case.M] = -1.0 * (problem.terms.phi[:, j] > 0)
        found = shape.minimise(cost)
        if found.success and -found.fun < 1e-9:
            return True
    return False


EDGES = (0.0, 1e-12, 1e-10)


def lower_bound(problem: Problem, p: FloatArray) -> float:
    """A bound from below on the objective of every mixture within the bounds; -inf if none.

    By tangents at p, or where ratios below an edge are raised to it: there a concave law's slopes are not beyond what
    HiGHS takes, and tangents at any point, mixture or not, bound a convex function.
    """
    return max(_bound_at(problem, np.where((p < edge) & (problem.upper > edge), edge, p)) for edge in EDGES)


def _bound_at(problem: Problem, p: FloatArray) -> float:
    w = weights(problem)
    counted = w > 0
    value, slope = weighed_losses(problem, p), slopes(problem, p)[:, counted] * w[counted]
    if problem.anchor is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.where(problem.anchor > 0, np.log(p / problem.anchor) + 1, 0.0)
        if problem.case.objective == "mean":
            value, slope = np.append(value, penalty(problem, p)), np.column_stack([slope, problem.kl * pull])
        else:
            value, slope = value + penalty(problem, p), slope + (problem.kl * pull)[:, None]
    fixed = problem.lower >= problem.upper
    if problem.anchor is not None:
        fixed = fixed | (problem.anchor == 0)
    slope = np.where(fixed[:, None], 0.0, slope)
    if not (np.isfinite(slope).all() and np.isfinite(value).all()):
        return -np.inf
    if problem.case.objective == "mean":
        value, slope = value.sum()[None], slope.sum(axis=1, keepdims=True)
    return _tangent_program(problem, p, value, slope)


def _tangent_program(problem: Problem, p: FloatArray, value: FloatArray, slope: FloatArray) -> float:
    """min t over the polytope with t >= value_j + slope_j . (s - p), and the tangent of a KL ball at p."""
    shape = polytope(problem)
    unit = float(np.abs(slope).max()) or 1.0
    n = shape.A.shape[1]
    rows = np.zeros((len(value), n + 1))
    rows[:, : len(p)], rows[:, -1] = (slope / unit).T, -1.0
    right = (slope.T @ p) / unit
    if problem.center is not None and problem.case.near == "kl":
        inside = (p > 0) & (problem.center > 0)
        pull = np.zeros(len(p))
        pull[inside] = np.log(p[inside] / problem.center[inside]) + 1
        rows = np.concatenate([rows, np.pad(pull, (0, n + 1 - len(p)))[None]])
        right = np.append(right, problem.radius - distance(problem, p) + pull @ p)
        rows[:-1] = rows[:-1] if len(value) else rows
    shift = (value - value.max()) / unit
    right[: len(value)] -= shift
    cost = np.zeros(n + 1)
    cost[-1] = 1.0
    found = shape.minimise(cost, (rows, right))
    return float(value.max() + found.fun * unit) if found.success else -np.inf


def clarabel(problem: Problem) -> FloatArray | None:
    """Clarabel's mixture, moved into the linear bounds by HiGHS; None where it fails."""
    M, w, law = problem.case.M, weights(problem), problem.terms
    p, counted = cp.Variable(M), np.flatnonzero(weights(problem) > 0)
    rows = [cp.sum(p) == 1, p >= problem.lower, p <= np.maximum(problem.upper, problem.lower)]
    if len(problem.members):
        rows += [problem.members @ p >= problem.group_lower, problem.members @ p <= problem.group_upper]
    if isinstance(law, ExponentialTerms):
        parts = cp.multiply(w * law.k, cp.exp(law.t.T @ p))[counted]
    else:
        parts, more = _powers(law, w, p, counted)
        rows += more
    offset = (w * law.floor)[counted]
    unit = max(float(np.median(np.abs(weighed_losses(problem, np.full(M, 1 / M))))), 1e-300)
    unit = unit if np.isfinite(unit) else 1.0
    goal = cp.sum(parts) / unit if problem.case.objective == "mean" else cp.max(parts / unit + offset / unit)
    if problem.anchor is not None:
        live = np.flatnonzero(problem.anchor > 0)
        goal = goal + problem.kl / unit * cp.sum(cp.rel_entr(p[live], problem.anchor[live]))
        rows.append(p[np.flatnonzero(problem.anchor == 0)] == 0) if (problem.anchor == 0).any() else None
    if problem.center is not None:
        far = cp.norm1(p - problem.center) if problem.case.near == "l1" else cp.sum(cp.rel_entr(p, problem.center))
        rows.append(far <= problem.radius)
    program = cp.Problem(cp.Minimize(goal), rows)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.solve(solver=cp.CLARABEL)
    except cp.error.SolverError:
        return None
    return None if p.value is None else _moved_inside(problem, np.asarray(p.value, dtype=float))


def _powers(law: Any, w: FloatArray, p: Any, counted: Any) -> tuple[Any, list[Any]]:
    """top_j >= Theta_j^(-gamma_j) as power cones top^alpha Theta^(1 - alpha) >= 1, alpha = 1 / (1 + gamma)."""
    K, rows = law.phi.shape[1], []
    top, theta = cp.Variable(K), law.phi.T @ p
    if law.s is not None:
        u = cp.Variable(law.phi.shape)
        for i in range(law.phi.shape[0]):
            rows.append(cp.PowCone3D(cp.sum(p[i]) * np.ones(K), np.ones(K), u[i], np.clip(law.s[i], 1e-6, 1 - 1e-9)))
        theta = cp.sum(cp.multiply(law.phi, u), axis=0)
    rows.append(cp.PowCone3D(top[counted], theta[counted], np.ones(len(counted)), 1 / (1 + law.gamma[counted])))
    return cp.multiply((w * law.a)[counted], top[counted]), rows


def _moved_inside(problem: Problem, p: FloatArray) -> FloatArray | None:
    """The nearest mixture (L1) that obeys every linear bound."""
    shape, M = polytope(problem), len(p)
    n = shape.A.shape[1]
    eye = np.eye(M)
    rows = np.zeros((2 * M, n + M))
    rows[:M, :M], rows[M:, :M] = eye, -eye
    rows[:M, n:], rows[M:, n:] = -eye, -eye
    found = shape.minimise(np.concatenate([np.zeros(n), np.ones(M)]), (rows, np.concatenate([p, -p])))
    return np.clip(found.x[:M], 0.0, 1.0) if found.success else None
