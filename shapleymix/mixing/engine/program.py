"""One problem as a smooth convex program for the interior point: values and derivatives.

    minimise  F(p) + t   over x = (p, v, t)
    with      rows x <= limits,  equal x = totals          [bounds, groups, an L1 ball: see `rows`]
              w_j loss_j(p) <= t                            [worst case]
              KL(p || center) <= radius                     [KL ball]

F is the mean objective, or the KL penalty alone for the worst case; v >= |p - center| belongs to an L1 ball. Losses, F
and t are in `unit`s of what a unit of ratio changes.
"""

from __future__ import annotations

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.mixing.engine.rows import Rows
from shapleymix.mixing.problem import Problem, divergence, divergence_gradient
from shapleymix.records import FloatArray

_FINITE = "check the law's parameters, or give the targets that no source helps weight zero"


class Program:
    """Values and derivatives in x = (p, v, t) of one problem, from `inside`, strictly within its rows (see above)."""

    def __init__(self, problem: Problem, rows: Rows, inside: FloatArray) -> None:
        self.problem, self.M = problem, len(problem.constraints.sources)
        self.worst = problem.worst
        counted = np.flatnonzero(problem.w > 0)
        self.terms = problem.terms.select(counted) if self.worst else problem.terms
        self.w = problem.w[counted] if self.worst else problem.w
        near = problem.constraints.near
        self.ball = near if near is not None and near.kind == "kl" else None
        top = int(self.worst)
        self.rows = np.pad(rows.rows, ((0, 0), (0, top)))
        self.limits = rows.limits
        self.equal = np.pad(rows.equal, ((0, 0), (0, top)))
        self.totals = rows.totals
        self.free = np.append(rows.free, np.ones(top, dtype=bool))
        self.curved = (len(self.w) if self.worst else 0) + int(self.ball is not None)
        self.x, self.unit = self._start(inside)

    def _start(self, inside: FloatArray) -> tuple[FloatArray, float]:
        """A strictly feasible x, and the unit of the objective: what a unit of ratio changes of it there."""
        p = inside[: self.M]
        losses = self.w * self.terms.losses(p)
        slopes = (self.terms.jacobian(p) * self.w).T
        pull = slopes[[int(np.argmax(losses))]] if self.worst else slopes.sum(axis=0, keepdims=True)
        pull = (pull + self.problem.penalty_gradient(p))[:, self.free[: self.M]]
        if not (np.isfinite(losses[self.w > 0]).all() and np.isfinite(pull).all()):
            raise SolveError("the objective is not finite inside the bounds", hint=_FINITE)
        spread = float(np.ptp(pull)) if pull.size else 0.0
        size = float(np.max(np.abs(losses), initial=0.0)) if self.worst else abs(float(losses.sum()))
        unit = max(spread, 1e-10 * size, 1e-200)
        return (np.append(inside, losses.max() / unit + 1.0) if self.worst else inside), unit

    def slack(self, x: FloatArray) -> FloatArray:
        """Slacks of the linear, then of the curved rows; all positive strictly inside."""
        return np.concatenate([self.limits - self.rows @ x, -self.curved_rows(x)])

    def curved_rows(self, x: FloatArray) -> FloatArray:
        """Left sides of the curved rows, <= 0 where they hold: targets in `unit`s, then the KL ball."""
        p, parts = x[: self.M], []
        if self.worst:
            parts.append(self.w * self.terms.losses(p) / self.unit - x[-1])
        if self.ball is not None:
            parts.append(np.array([divergence(p, self.ball.center) - self.ball.radius]))
        return np.concatenate(parts) if parts else np.zeros(0)

    def jacobian(self, x: FloatArray) -> FloatArray:
        """Rows (rows, x) of the derivatives of all left sides."""
        p, parts = x[: self.M], [self.rows]
        if self.worst:
            slopes = np.zeros((len(self.w), len(x)))
            slopes[:, : self.M] = (self.terms.jacobian(p) * self.w).T / self.unit
            slopes[:, -1] = -1.0
            parts.append(slopes)
        if self.ball is not None:
            slope = np.zeros((1, len(x)))
            slope[0, : self.M] = divergence_gradient(p, self.ball.center)
            parts.append(slope)
        return np.where(self.free, np.concatenate(parts), 0.0)

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient of the objective, in units."""
        p, full = x[: self.M], np.zeros(len(x))
        slope = self.problem.penalty_gradient(p) if self.worst else self.problem.gradient(p, self.w)
        full[: self.M] = slope / self.unit
        if self.worst:
            full[-1] = 1.0
        return np.where(self.free, full, 0.0)

    def hessian(self, x: FloatArray, z: FloatArray) -> FloatArray:
        """Curvature of objective and curved rows at multipliers z (rows), in units."""
        p, curved = x[: self.M], z[len(self.rows) :]
        H = np.zeros((len(x), len(x)))
        inner = H[: self.M, : self.M]
        w = self.w * curved[: len(self.w)] if self.worst else self.w
        inner += self.terms.hessian(p, w) / self.unit
        diagonal = np.zeros(self.M)
        if self.problem.penalised:
            diagonal += self.problem.kl / p / self.unit
        if self.ball is not None:
            diagonal += np.where(self.ball.center > 0, curved[-1] / p, 0.0)
        inner[np.diag_indices(self.M)] += np.where(self.free[: self.M], diagonal, 0.0)
        return H
