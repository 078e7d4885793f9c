"""A primal-dual barrier method that stays inside, for one problem: groups, balls, and the worst-case objective.

Each step is Newton's on the perturbed optimality conditions (Boyd and Vandenberghe, "Convex Optimization", section
11.7), which is a descent direction of the barrier function; its length is accepted by the slope of that function
there, so that it cannot stall where values agree to rounding. The centring follows Vanderbei's LOQO. Linear rows are
met exactly by every iterate. `barrier` is the fast batched engine for the problem without further inequalities; this
one trades speed for generality.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, lu_solve

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.mixing.engine.program import Program
from shapleymix.mixing.engine.rows import Rows
from shapleymix.mixing.problem import MEAN, Problem, divergence
from shapleymix.records import FloatArray

MAX_ITERATIONS = 150
TOLERANCE = 1e-15
STATIONARY = 1e-9
TO_THE_WALL = 0.995
CURVED_WALL = 0.01
OVERSHOOT = 0.9
MAX_HALVINGS = 25
RIDGES = (1e-16, 1e-13, 1e-10)
(GETRF,) = get_lapack_funcs(("getrf",), dtype=np.float64)
TRUST = 1e8
ROUNDING = 1e-12
LAG, PATIENCE, SLOWLY = 1e3, 4, 0.01
# Where rounding lets the products fall no further for so many steps, the iteration ends.
SMALL, STALE = 1e-10, 10
WELL_WITHIN = 0.9
HALVES = 0.5 ** np.arange(1, 50)


def solve_interior(problem: Problem, rows: Rows | None = None, tolerance: float = TOLERANCE) -> FloatArray:
    """The optimal mixture (M,); whether it converged is for the certificate to say.

    Parameters
    ----------
    problem : Problem
        The problem.
    rows : Rows, optional
        The rows of the problem's bounds, where they are known from the same problem under another law.
    tolerance : float
        Mean product of slacks and multipliers at which the iteration ends.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture.
    SolveError
        If the objective is not finite inside the bounds.
    """
    problem = problem.supported
    with np.errstate(all="ignore"):
        rows = Rows.of(problem.constraints) if rows is None else rows
        return _solved(Program(problem, rows, _inside(problem, rows)), tolerance)


def _inside(problem: Problem, rows: Rows) -> FloatArray:
    """A start strictly within the rows, and within a KL ball: else near the mixture that is nearest to its centre.

    Raises
    ------
    InfeasibleError
        If no mixture within the rows is within the ball.
    """
    near, M = problem.constraints.near, len(problem.constraints.sources)
    start = rows.inside
    if near is None or near.kind != "kl" or divergence(start[:M], near.center) <= WELL_WITHIN * near.radius:
        return start
    pull = replace(problem, kl=1.0, anchor=near.center, objective=MEAN, w=np.zeros_like(problem.w))
    p = _solved(Program(replace(pull, constraints=replace(problem.constraints, near=None)), rows, start))
    least = divergence(p, near.center)
    if not least < near.radius:
        raise InfeasibleError(
            f"within the bounds the nearest mixture is {least:.4g} nats from the given one, beyond {near.radius:.4g}",
            hint=f"allow a little more than {least:.4g}",
        )
    # The nearest mixture is at the edge of its rows, where no interior method should begin.
    shares = (share for share in HALVES if divergence(p + share * (start - p), near.center) < (least + near.radius) / 2)
    return p + next(shares, 0.0) * (start - p)


@dataclass
class _Point:
    """An iterate x, slacks s > 0 and multipliers z > 0 of the rows."""

    x: FloatArray
    s: FloatArray
    z: FloatArray


def _solved(program: Program, tolerance: float = TOLERANCE) -> FloatArray:
    """The mixture (M,) at which the iteration stops, inside its bounds."""
    x = program.x
    s = program.slack(x)
    if not len(s) or not program.free.any():
        return x[: program.M]
    if not (s > 0).all():
        raise SolveError("the bounds leave too little room for a solver", hint="widen a group's bounds a little")
    point = _Point(x, s, np.clip(0.1 / len(s) / s, 1e-6, 1e6))
    center, waited = float(point.s @ point.z) / len(s), 0
    best, stale = center, 0
    for _ in range(MAX_ITERATIONS):
        left = _step(program, point, center)
        if left is None:
            break
        products = point.s * point.z
        mean = float(products.mean())
        if mean <= tolerance:
            break
        stale = 0 if mean < 0.5 * best else stale + 1
        best = min(best, mean)
        if stale >= STALE and best <= SMALL:
            break
        # Where stationarity lags behind, multipliers would vanish before they are right: wait for it, but not for ever,
        # and go slowly then.
        behind = left > max(LAG * mean, STATIONARY)
        waited = waited + 1 if behind and waited < PATIENCE else 0
        after = _center(mean, float(products.min()) / mean)
        center = min(center, mean) if waited else max(after, SLOWLY * mean) if behind and mean > SMALL else after
    return point.x[: program.M]


def _center(mean: float, even: float) -> float:
    """The next products of slacks and multipliers: LOQO's rule, by which the less even ones are centred more."""
    return max(0.1 * min(0.05 * (1 - even) / max(even, 1e-12), 2.0) ** 3 * mean, 0.1 * TOLERANCE)


def _step(program: Program, point: _Point, center: float) -> float | None:
    """One step, in place; returns the size of the stationarity that is left, or None where no step can be taken."""
    J = program.jacobian(point.x)
    system = _System.of(program, point, J)
    gradient = program.gradient(point.x)
    slope = gradient + J.T @ (center / point.s)
    for bend in (None, 0.0):
        target = np.full(len(point.s), center)
        if bend is None:
            target = target + point.z * _bend(program, point, J, system.direction(gradient, target, point.x))
        move = system.direction(gradient, target, point.x)
        way = J @ move
        length = _search(program, point, move, way, float(slope @ move), center) if np.isfinite(way).all() else 0.0
        if length > 0:
            return _taken(program, point, move, way, target, center, length)
    return None


def _bend(program: Program, point: _Point, J: FloatArray, move: FloatArray) -> FloatArray:
    """What the curved rows' left sides rise by beyond their tangents along a full step, by its part that stays inside.

    The second-order correction: without it a step along a curved wall leaves the rows and is cut short.
    """
    linear = len(program.rows)
    bend, way = np.zeros(len(point.s)), J @ move
    if not program.curved or not np.isfinite(way).all():
        return bend
    length = _to_the_wall(way[:linear] / point.s[:linear])
    rise = program.curved_rows(point.x + length * move) + point.s[linear:] - length * way[linear:]
    bend[linear:] = np.where(np.isfinite(rise), np.clip(rise, 0.0, 10 * point.s[linear:]), 0.0)
    return bend


def _taken(
    program: Program,
    point: _Point,
    move: FloatArray,
    way: FloatArray,
    target: FloatArray,
    center: float,
    length: float,
) -> float:
    """Go `length` along `move`; the multipliers go as far as they stay positive. Returns the stationarity left."""
    z_move = (target + point.z * way) / point.s - point.z
    point.x, point.s = _moved(program, point, move, way, length)
    point.z = point.z + _to_the_wall(-z_move / point.z) * z_move
    point.z = np.clip(point.z, center / point.s / TRUST, TRUST * np.maximum(center, 1e-16) / point.s)
    left = program.gradient(point.x) + program.jacobian(point.x).T @ point.z
    return _off_the_equalities(program, left)


def _to_the_wall(fall: FloatArray) -> float:
    """The step, at most 1, that goes `TO_THE_WALL` of the way to where a positive value, falling by shares, is 0."""
    return TO_THE_WALL / max(TO_THE_WALL, float(np.max(fall, initial=0.0)))


def _off_the_equalities(program: Program, gradient: FloatArray) -> float:
    """The largest entry of a gradient that the equalities' multipliers cannot take up."""
    # The equalities' rows are orthonormal.
    A, left = program.equal[:, program.free], gradient[program.free]
    left = left - A.T @ (A @ left)
    return float(np.abs(left).max()) if np.isfinite(left).all() else np.inf


def _moved(
    program: Program, point: _Point, move: FloatArray, way: FloatArray, length: float
) -> tuple[FloatArray, FloatArray]:
    """The iterate and its slacks `length` further on. Those of linear rows are carried along, not computed anew: near
    a row they have more digits than the difference of its two sides."""
    x, linear = point.x + length * move, len(program.rows)
    return x, np.concatenate([point.s[:linear] - length * way[:linear], -program.curved_rows(x)])


def _search(program: Program, point: _Point, move: FloatArray, way: FloatArray, start: float, center: float) -> float:
    """The step along `move`: inside all rows, and not beyond where the barrier function rises. `start` < 0."""
    linear = len(program.rows)
    length = _to_the_wall(way[:linear] / point.s[:linear])
    for _ in range(MAX_HALVINGS):
        x, s = _moved(program, point, move, way, length)
        if (s[linear:] > CURVED_WALL * point.s[linear:]).all() and (s > 0).all():
            slope = float(program.gradient(x) @ move + (program.jacobian(x) @ move) @ (center / s))
            if start >= 0 or slope <= -OVERSHOOT * start:
                return length
            length *= min(max(start / (start - slope), 0.1), 0.7)
        else:
            length *= 0.5
    return 0.0


def _factor(matrix: FloatArray, signs: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.int32]] | None:
    """LU factors; the ridge on the diagonal grows while the matrix is singular. None where it is not finite."""
    if not np.isfinite(matrix).all():
        return None
    for ridge in RIDGES:
        factor, pivots, _ = GETRF(matrix + np.diag(ridge * signs))
        if factor.diagonal().all():
            return factor, pivots
    return None


def _correction(equal: FloatArray, short: FloatArray, x: FloatArray) -> FloatArray:
    """What puts a move on the equalities, which an ill-conditioned matrix meets to some digits only: most of it where x
    is large, since a rounding is much beside a tiny ratio."""
    if np.abs(short).max(initial=0.0) <= ROUNDING or not np.isfinite(short).all():
        return np.zeros(len(x))
    return x * np.asarray(np.linalg.lstsq(equal * x, short, rcond=1e-12)[0], dtype=np.float64)


@dataclass
class _System:
    """Newton's matrix at one iterate, factorised once.

    Rows with one entry (bounds) add to the diagonal; the others, and the equalities, stay rows of their own, so that
    a tight group does not drown the curvature of its members.
    """

    program: Program
    point: _Point
    J: FloatArray
    own: FloatArray
    size: FloatArray
    factor: tuple[NDArray[np.float64], NDArray[np.int32]] | None

    @classmethod
    def of(cls, program: Program, point: _Point, J: FloatArray) -> _System:
        free = program.free
        single = np.count_nonzero(J[:, free], axis=1) <= 1
        single[len(program.rows) :] = False
        H = program.hessian(point.x, point.z)[np.ix_(free, free)]
        stiff = point.z / point.s
        H[np.diag_indices(len(H))] += (J[single][:, free] ** 2 * stiff[single, None]).sum(axis=0)
        size = np.sqrt(np.maximum(H.diagonal(), 1e-12))
        own = np.concatenate([J[~single], program.equal])[:, free] / size
        H = H / size / size[:, None]
        soft = np.append(-1 / stiff[~single], np.zeros(len(program.equal)))
        matrix = np.block([[H, own.T], [own, np.diag(soft)]])
        signs = np.append(np.ones(len(H)), -np.ones(len(soft)))
        return cls(program, point, J, ~single, size, _factor(matrix, signs))

    def direction(self, gradient: FloatArray, target: FloatArray, x: FloatArray) -> FloatArray:
        """The move (x) at which slacks times multipliers would be `target`; NaN where the matrix is not finite.

        (H + J' diag(z / s) J) move + equal' y = -(gradient + J' (target / s)), equal (x + move) = totals.
        """
        move, free = np.zeros(len(x)), self.program.free
        if self.factor is None:
            return np.full(len(x), np.nan)
        equal, missing = self.program.equal, self.program.totals - self.program.equal @ x
        pull = -(gradient + self.J.T @ (target / self.point.s))[free] / self.size
        right = np.concatenate([pull, np.zeros(np.count_nonzero(self.own)), missing])
        move[free] = lu_solve(self.factor, right, check_finite=False)[: len(pull)] / self.size
        return move + _correction(equal, missing - equal @ move, x)
