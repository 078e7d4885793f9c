"""A dense primal-dual interior point for one problem with further inequalities: groups, and the worst-case objective.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor)      [mean]
    or        t with w_j loss_j(p) <= t for every target    [worst]
    over      sum p = 1,  lower <= p <= upper,  group_lower <= members p <= group_upper.

The textbook method (Boyd and Vandenberghe, "Convex Optimization", section 11.7) with slacks, Mehrotra's centring and
a backtracking line search on the residual. `barrier` is the fast batched engine for the problem without further
inequalities; this one trades speed for generality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.certificate import objective_gradient
from shapleymix.mixing.problem import MEAN, Task
from shapleymix.records import FloatArray

MAX_ITERATIONS = 150
TOLERANCE = 1e-13
TO_THE_WALL = 0.995
RIDGE = 1e-14


class Point(NamedTuple):
    """x = (p, t); slacks s > 0 and multipliers z > 0 of the inequalities; y of the equalities."""

    x: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray


@dataclass(frozen=True)
class Linear:
    """Rows G x <= h and A x = b over the p part of x."""

    G: FloatArray
    h: FloatArray
    A: FloatArray
    b: FloatArray

    @classmethod
    def of(cls, bounds: Constraints) -> Linear:
        """Bounds and groups; a group whose bounds agree, and a source whose bounds agree, are equalities."""
        M = len(bounds.sources)
        rows = np.concatenate([np.eye(M), bounds.members])
        low = np.concatenate([bounds.lower, bounds.group_lower])
        high = np.concatenate([bounds.upper, bounds.group_upper])
        tied = high - low <= 1e-12
        above, below = ~tied & (high < 1), ~tied & (low > -np.inf)
        return cls(
            np.concatenate([rows[above], -rows[below]]),
            np.concatenate([high[above], -low[below]]),
            np.concatenate([np.ones((1, M)), rows[tied]]),
            np.concatenate([[1.0], low[tied]]),
        )


def solve_interior(task: Task) -> tuple[FloatArray, FloatArray]:
    """The optimal mixture (M,), and the weights (K,) of the targets whose mean objective it minimises too.

    For the mean objective these are the task's own weights; for the worst case w_j times the multiplier of target j.

    Whether it converged is for the certificate to say.
    """
    with np.errstate(all="ignore"):
        problem = _Problem(task, Linear.of(task.constraints))
        point = problem.start()
        for _ in range(MAX_ITERATIONS):
            if np.max(np.abs(problem.residual(point, 0.0))) <= TOLERANCE * problem.unit:
                break
            moved = problem.step(point)
            if moved is None:
                break
            point = moved
        return problem.mixture(point), problem.target_weights(point)


class _Problem:
    """Values and derivatives of one task in x = (p, t), or x = p for the mean objective."""

    def __init__(self, task: Task, linear: Linear) -> None:
        self.task, self.linear = task, linear
        self.M = len(task.constraints.sources)
        self.worst = task.objective != MEAN
        self.counted = np.flatnonzero(task.w > 0) if self.worst else np.zeros(0, dtype=int)
        self.terms = task.terms.select(self.counted) if self.worst else task.terms
        self.w = task.w[self.counted] if self.worst else task.w
        self.pad = np.zeros((len(linear.G), 1)) if self.worst else np.zeros((len(linear.G), 0))
        self.A = np.pad(linear.A, ((0, 0), (0, int(self.worst))))
        self.unit = 1.0

    def start(self) -> Point:
        """Inside the box in proportion to its widths; slacks of rows that do not hold yet are pretended."""
        lower, upper = self.task.constraints.lower, self.task.constraints.upper
        width = np.minimum(upper, 1 - lower.sum() + lower) - lower
        p = lower + (1 - lower.sum()) / max(width.sum(), 1e-300) * width
        self.unit = max(float(np.abs(self._plain_gradient(p)).max()), 1e-12)
        x = np.append(p, 1.1 * np.max(self._scaled_losses(p))) if self.worst else p
        slack = np.maximum(-self._inequalities(x), 1e-2)
        center = self.unit * 0.1 / len(slack)
        return Point(x, slack, np.minimum(center / slack, 10 * self.unit), np.zeros(len(self.A)))

    def mixture(self, point: Point) -> FloatArray:
        """p inside its bounds."""
        return np.clip(point.x[: self.M], self.task.constraints.lower, self.task.constraints.upper)

    def target_weights(self, point: Point) -> FloatArray:
        """(K,) see `solve_interior`."""
        if not self.worst:
            return self.task.w
        share = np.zeros(len(self.task.w))
        share[self.counted] = point.z[: len(self.counted)]
        return self.task.w * share / max(share.sum(), 1e-300)

    def residual(self, point: Point, center: float) -> FloatArray:
        """Stationarity, inequalities, equalities and complementarity, stacked."""
        return np.concatenate(self._residuals(point, center))

    def step(self, point: Point) -> Point | None:
        """A Mehrotra step; None where no step lowers the residual any more."""
        factor = self._factor(point)
        gap = float(point.s @ point.z) / len(point.s)
        trial = self._direction(point, factor, point.s * point.z)
        reach = _reach(point.s, trial.s, 1.0), _reach(point.z, trial.z, 1.0)
        after = float((point.s + reach[0] * trial.s) @ (point.z + reach[1] * trial.z)) / len(point.s)
        center = gap * min(1.0, after / gap) ** 3
        move = self._direction(point, factor, point.s * point.z + trial.s * trial.z - center)
        for direction in (move, self._direction(point, factor, point.s * point.z - 0.1 * gap)):
            found = self._backtracked(point, direction)
            if found is not None:
                return found
        return None

    def _backtracked(self, point: Point, move: Point) -> Point | None:
        step = min(_reach(point.s, move.s, TO_THE_WALL), _reach(point.z, move.z, TO_THE_WALL))
        now = float(np.linalg.norm(self.residual(point, 0.0)))
        for _ in range(30):
            new = Point(*(here + step * change for here, change in zip(point, move, strict=True)))
            then = float(np.linalg.norm(self.residual(new, 0.0)))
            if then <= (1 - 1e-3 * step) * now:
                return new
            step *= 0.6
        return None

    def _residuals(self, point: Point, center: float) -> tuple[FloatArray, ...]:
        gradient = self._gradient(point.x) + self._jacobian(point.x).T @ point.z + self.A.T @ point.y
        return (
            gradient,
            (self._inequalities(point.x) + point.s) * self.unit,
            (self.A @ point.x - self.linear.b) * self.unit,
            point.s * point.z - center,
        )

    def _factor(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """The matrix of the reduced Newton system, and the Jacobian of the inequalities."""
        J = self._jacobian(point.x)
        H = self._hessian(point) + J.T @ ((point.z / point.s)[:, None] * J)
        H[np.diag_indices(len(H))] += RIDGE * self.unit
        none = np.zeros((len(self.A), len(self.A)))
        return np.block([[H, self.A.T], [self.A, none]]), J

    def _direction(self, point: Point, factor: tuple[FloatArray, FloatArray], excess: FloatArray) -> Point:
        """Newton's direction that aims at s z = s z - excess."""
        matrix, J = factor
        stationary, unmet, unequal, _ = self._residuals(point, 0.0)
        unmet, unequal = unmet / self.unit, unequal / self.unit
        pull = -stationary + J.T @ ((excess - point.z * unmet) / point.s)
        right = np.concatenate([pull, -unequal])
        try:
            found = np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
        except np.linalg.LinAlgError:
            found = np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0], dtype=np.float64)
        dx, dy = found[: len(point.x)], found[len(point.x) :]
        ds = -unmet - J @ dx
        return Point(dx, ds, (-excess - point.z * ds) / point.s, dy)

    def _scaled_losses(self, p: FloatArray) -> FloatArray:
        return self.w * self.terms.losses(p)

    def _plain_gradient(self, p: FloatArray) -> FloatArray:
        return objective_gradient(self.terms, self.w, p, self.task.kl, self.task.anchor)

    def _inequalities(self, x: FloatArray) -> FloatArray:
        linear = self.linear.G @ x[: self.M] - self.linear.h
        return np.concatenate([self._scaled_losses(x[: self.M]) - x[-1], linear]) if self.worst else linear

    def _jacobian(self, x: FloatArray) -> FloatArray:
        linear = np.concatenate([self.linear.G, self.pad], axis=1)
        if not self.worst:
            return linear
        slopes = (self.terms.jacobian(x[: self.M]) * self.w).T
        return np.concatenate([np.concatenate([slopes, -np.ones((len(slopes), 1))], axis=1), linear])

    def _gradient(self, x: FloatArray) -> FloatArray:
        if not self.worst:
            return self._plain_gradient(x)
        pull = objective_gradient(self.terms, np.zeros_like(self.w), x[: self.M], self.task.kl, self.task.anchor)
        return np.append(pull, 1.0)

    def _hessian(self, point: Point) -> FloatArray:
        p = point.x[: self.M]
        w = self.w * point.z[: len(self.counted)] if self.worst else self.w
        H = np.zeros((len(point.x), len(point.x)))
        H[: self.M, : self.M] = self.terms.hessian(p, w)
        if self.task.kl > 0:
            H[np.arange(self.M), np.arange(self.M)] += self.task.kl / p
        return H


def _reach(value: FloatArray, change: FloatArray, limit: float) -> float:
    return limit / max(limit, -float(np.min(change / value)))
