"""Robust nonlinear least squares for many small problems at once; knows no law.

Legend: Q problems, R residuals each, P unknowns each.

Each problem minimises `sum_r w_r rho(e_r(x)) + 1/2 sum_p prior_p (x_p - center_p)^2` within a box, where `rho` is
Huber's function or the plain half square. The step is Levenberg-Marquardt with the exact gradient; the curvature is
that of the residuals in Huber's quadratic zone, plus a damped share of the reweighted curvature of all residuals, so
that the last steps converge like Newton's even when most residuals lie in the linear zone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray

Residuals = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]
"""Maps x (Q, P) and problem numbers (Q,) to residuals (Q, R) and their Jacobian (Q, R, P)."""

CONVERGED, ITERATIONS, STALLED = 0, 1, 2
NOTHING = 1e-22  # a cost, or a change of one, below this is zero: an exact fit has no relative decrease
PASSES = 12  # of the pivoting that keeps a step within its box
LONGEST_STEP = 2.0  # of any unknown; unknowns are logarithms or of order one, and far jumps only meet overflow


@dataclass(frozen=True)
class Loss:
    """Huber's loss with threshold `delta`, in units of the residual; `delta = inf` is plain least squares.

    Where most residuals lie beyond `delta` the loss is nearly the absolute value, and like a median between two points
    its minimum is then no single point. `tail` is the curvature beyond `delta`: a small one chooses, of all minima, the
    one of least squares.
    """

    delta: float = 1e-3
    tail: float = 0.0

    def value(self, residual: FloatArray) -> FloatArray:
        """`rho(e)`, elementwise."""
        if np.isinf(self.delta):
            return 0.5 * residual**2
        size = np.abs(residual)
        clipped = np.minimum(size, self.delta)
        return clipped * (size - 0.5 * clipped) + 0.5 * self.tail * (size - clipped) ** 2

    def score(self, residual: FloatArray) -> FloatArray:
        """`rho'(e)`, elementwise."""
        clipped = np.clip(residual, -self.delta, self.delta)
        return clipped + self.tail * (residual - clipped)


@dataclass(frozen=True)
class Prior:
    """A quadratic pull of each unknown: `1/2 precision (x - center)^2`, both of shape (Q, P)."""

    center: FloatArray
    precision: FloatArray


@dataclass(frozen=True)
class Solution:
    """What the search found: unknowns (Q, P), objective (Q,), status (Q,), iterations (Q,), at-bound mask (Q, P)."""

    x: FloatArray
    cost: FloatArray
    status: IntArray
    iterations: IntArray
    at_bound: BoolArray


@dataclass
class _State:
    """Everything that the search carries for the problems still open, one row each."""

    number: IntArray  # (q,) which problem this row is
    x: FloatArray
    cost: FloatArray
    gradient: FloatArray  # (q, P)
    curvature: FloatArray  # (q, P, P)
    scale: FloatArray  # (q, P), largest curvature met so far
    damping: FloatArray  # (q,)
    quiet: IntArray  # (q,) steps in a row that changed next to nothing

    def keep(self, rows: BoolArray) -> _State:
        return _State(**{name: value[rows] for name, value in vars(self).items()})

    def replace(self, rows: BoolArray, other: _State) -> None:
        for name, value in vars(self).items():
            value[rows] = getattr(other, name)[rows]


@dataclass(frozen=True)
class Objective:
    """What is minimised: residuals, weights (Q, R), loss, box (P,) each side, and optionally a prior.

    `tilt` (Q, P) adds a linear term, which asks how firmly the minimum is held.
    """

    residuals: Residuals
    weight: FloatArray
    loss: Loss
    low: FloatArray
    high: FloatArray
    prior: Prior | None = None
    tilt: FloatArray | None = None

    def cost_of(self, number: IntArray, x: FloatArray, residual: FloatArray) -> FloatArray:
        """The objective of each problem, shape (q,)."""
        cost = np.einsum("qr,qr->q", self.weight[number], self.loss.value(residual))
        if self.tilt is not None:
            cost = cost + np.einsum("qp,qp->q", self.tilt[number], x)
        if self.prior is None:
            return cost
        center, precision = self.prior.center[number], self.prior.precision[number]
        return cost + 0.5 * np.einsum("qp,qp->q", (x - center) ** 2, precision)

    def expand(self, number: IntArray, x: FloatArray, damping: FloatArray) -> _State:
        """Cost, gradient and curvature at x."""
        residual, jacobian = self.residuals(x, number)
        weight = self.weight[number]
        score = weight * self.loss.score(residual)
        gradient = (score[:, None, :] @ jacobian)[:, 0, :]
        curvature = (jacobian * self._stiffness(residual, weight, damping)[..., None]).swapaxes(1, 2) @ jacobian
        if self.tilt is not None:
            gradient = gradient + self.tilt[number]
        if self.prior is not None:
            precision = self.prior.precision[number]
            gradient = gradient + precision * (x - self.prior.center[number])
            np.einsum("qpp->qp", curvature)[:] += precision
        cost = self.cost_of(number, x, residual)
        scale = np.einsum("qpp->qp", curvature).copy()
        return _State(number, x, cost, gradient, curvature, scale, damping, np.zeros(len(x), dtype=np.int64))

    def _stiffness(self, residual: FloatArray, weight: FloatArray, damping: FloatArray) -> FloatArray:
        """Curvature weight of each residual: full in the quadratic zone, damped outside of it."""
        if np.isinf(self.loss.delta):
            return weight
        size = np.abs(residual)
        outside = np.minimum(1.0, damping)[:, None] * self.loss.delta / np.maximum(size, self.loss.delta)
        return weight * np.where(size <= self.loss.delta, 1.0, np.minimum(outside + self.loss.tail, 1.0))

    def held(self, x: FloatArray, gradient: FloatArray) -> BoolArray:
        """Unknowns at a bound that the gradient pushes further out."""
        return ((x <= self.low) & (gradient > 0)) | ((x >= self.high) & (gradient < 0))


def minimize(
    objective: Objective, start: FloatArray, *, iterations: int = 100, tolerance: float = 1e-9, damping: float = 1.0
) -> Solution:
    """Minimise every problem from its start, all at once.

    Parameters
    ----------
    objective : Objective
        Residuals, weights, loss, box and prior.
    start : array
        First unknowns, shape (Q, P); clipped into the box.
    iterations : int
        At most so many steps a problem.
    tolerance : float
        A problem has converged when two steps in a row lower its cost by less than this share.
    damping : float
        Of the first step: 1 far from the minimum, next to nothing near it, where the steps are Newton's.
    """
    x = np.clip(start, objective.low, objective.high)
    number = np.arange(len(x))
    state = objective.expand(number, x, np.full(len(x), damping))
    best = Solution(
        x=x.copy(),
        cost=state.cost.copy(),
        status=np.full(len(x), ITERATIONS),
        iterations=np.zeros(len(x), dtype=np.int64),
        at_bound=np.zeros(x.shape, dtype=bool),
    )
    for _ in range(iterations):
        state = _advance(objective, state, tolerance)
        done = _record(best, state)
        state = state.keep(~done)
        if not len(state.number):
            break
    best.at_bound[:] = (best.x <= objective.low) | (best.x >= objective.high)
    return best


def _advance(objective: Objective, state: _State, tolerance: float) -> _State:
    """One damped step of every open problem; a step that does not lower the cost is not taken."""
    step = _step(objective, state)
    trial_x = np.clip(state.x + step, objective.low, objective.high)
    trial = objective.expand(state.number, trial_x, np.maximum(state.damping / 5.0, 1e-6))
    better = trial.cost < state.cost
    small = np.abs(state.cost - trial.cost) <= tolerance * np.abs(state.cost) + NOTHING
    trial.scale = np.maximum(trial.scale, state.scale * 0.3)
    trial.quiet = np.where(small, state.quiet + 1, 0)
    state.damping = state.damping * 6.0
    state.replace(better, trial)
    return state


def _step(objective: Objective, state: _State) -> FloatArray:
    ridge = 0.1 * state.damping[:, None] * state.scale + 1e-12 * state.scale.max(axis=1, keepdims=True) + 1e-300
    curvature = state.curvature.copy()
    np.einsum("qpp->qp", curvature)[:] += ridge
    held = objective.held(state.x, state.gradient)
    step = boxed_step(curvature, state.gradient, held, objective.low - state.x, objective.high - state.x)
    return np.clip(step, -LONGEST_STEP, LONGEST_STEP).astype(np.float64, copy=False)


def boxed_step(
    curvature: FloatArray, gradient: FloatArray, held: BoolArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """The minimum of `step.curvature.step / 2 + gradient.step` within a box, nearly always exactly.

    Unknowns that a free step takes out of the box are set to its edge, and let go where the slope there points inwards,
    all at once (block principal pivoting), until nothing changes; after `PASSES` the last step is taken as it is, and
    the search's own test of the objective judges it.

    Parameters
    ----------
    curvature, gradient : array (Q, P, P) and (Q, P)
        Of every problem.
    held : bool array (Q, P)
        Unknowns that are at the edge to begin with.
    low, high : array (Q, P)
        The box around the present point: `low <= 0 <= high`.
    """
    edge = np.where(held, 0.0, np.nan)  # where an unknown is held, how far from here
    step = np.empty_like(gradient)
    rows = np.arange(len(gradient))
    for _ in range(PASSES):
        moved, slope = _held_step(curvature[rows], gradient[rows], edge[rows])
        step[rows] = moved
        fixed = ~np.isnan(edge[rows])
        inwards = fixed & (((edge[rows] <= low[rows]) & (slope < 0)) | ((edge[rows] >= high[rows]) & (slope > 0)))
        beyond = np.clip(moved, low[rows], high[rows])
        out = ~fixed & (beyond != moved)
        if not (changed := (inwards | out).any(axis=1)).any():
            break
        edge[rows] = np.where(out, beyond, np.where(inwards, np.nan, edge[rows]))
        rows = rows[changed]
    return step


def _held_step(curvature: FloatArray, gradient: FloatArray, edge: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The step with some unknowns held at `edge` (NaN where free), and the slope of the quadratic there."""
    held = ~np.isnan(edge)
    if not held.any():
        step = -np.linalg.solve(curvature, gradient[..., None])[..., 0].astype(np.float64, copy=False)
        return step, np.zeros_like(step)
    fixed = np.where(held, edge, 0.0)
    slope = gradient + (curvature @ fixed[..., None])[..., 0]
    matrix = np.where(held[:, :, None] | held[:, None, :], 0.0, curvature)
    diagonal = np.einsum("qpp->qp", matrix)
    diagonal[:] = np.where(held, 1.0, diagonal)
    free = np.linalg.solve(matrix, np.where(held, 0.0, slope)[..., None])[..., 0]
    step = (fixed - free).astype(np.float64, copy=False)
    return step, gradient + (curvature @ step[..., None])[..., 0]


def _record(best: Solution, state: _State) -> BoolArray:
    """Copy the open problems' standing into the result; say which of them are finished."""
    stalled = state.damping > 1e9
    done = (state.quiet >= 2) | stalled
    best.x[state.number] = state.x
    best.cost[state.number] = state.cost
    best.iterations[state.number] += 1
    best.status[state.number] = np.where(state.quiet >= 1, CONVERGED, np.where(stalled, STALLED, ITERATIONS))
    return done
