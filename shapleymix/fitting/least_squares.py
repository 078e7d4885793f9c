"""Robust nonlinear least squares for many small problems at once; knows no law.

Each problem minimises `sum_r w_r rho(e_r(x)) + 1/2 sum_p prior_p (x_p - center_p)^2` within a box, where `rho` is
Huber's function or the plain half square; a prior may pull on sums of unknowns, too. The step is Levenberg-Marquardt
with the exact gradient; the curvature is that of the residuals in Huber's quadratic zone, plus a damped share of the
reweighted curvature of all residuals, so that the last steps converge like Newton's even when most residuals lie in the
linear zone.

Legend: Q problems, R residuals each, P unknowns each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs

from shapleymix.records import BoolArray, FloatArray, IntArray

(POSV,) = get_lapack_funcs(("posv",), dtype=np.float64)  # twice as fast as a batch of LU
FIXED = 1e30  # on the diagonal holds an unknown where it is
PASSES = 12  # of the pivoting that keeps a step within its box


def apply(matrix: FloatArray, diagonal: FloatArray, x: FloatArray) -> FloatArray:
    """The curvature `matrix + diag(diagonal)`, (Q, P, P) and (Q, P), times x (Q, P)."""
    return _by(matrix, x) + diagonal * x


def solve_free(matrix: FloatArray, diagonal: FloatArray, right: FloatArray, fixed: BoolArray) -> FloatArray:
    """The x (Q, P), 0 where `fixed`, for which `apply(matrix, diagonal, x)` is `right` elsewhere; NaN if singular."""
    curvature = matrix.copy()
    np.einsum("qpp->qp", curvature)[:] += np.where(fixed, FIXED, diagonal)
    solved = [POSV(one.T, side, overwrite_a=True)[1:] for one, side in zip(curvature, right, strict=True)]
    found = np.array([x if info == 0 else np.full_like(x, np.nan) for x, info in solved])
    return np.where(fixed, 0.0, found)


def find_active(gradient: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    """Unknowns at an edge of the box around the present point (`low <= 0 <= high`) that it pushes further out."""
    return ((low >= 0) & (gradient > 0)) | ((high <= 0) & (gradient < 0))


def step_in_box(
    matrix: FloatArray, diagonal: FloatArray, gradient: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """The minimum of `step.(C step) / 2 + gradient.step` within a box, C the curvature, nearly always exactly.

    Unknowns that a free step takes out of the box are set to its edge, and let go where the slope there points inwards,
    all at once (block principal pivoting), until nothing changes; after `PASSES` the last step is taken as it is, and
    the search's own test of the objective judges it.

    Parameters
    ----------
    matrix, diagonal, gradient : array (Q, P, P), (Q, P) and (Q, P)
        The curvature, as `apply` takes it, and the gradient of every problem.
    low, high : array (Q, P)
        The box around the present point: `low <= 0 <= high`.
    """
    edge = np.where(find_active(gradient, low, high), 0.0, np.nan)  # where an unknown is at an edge, how far from here
    step = np.empty_like(gradient)
    rows = np.arange(len(gradient))
    for _ in range(PASSES):
        fixed = ~np.isnan(edge)
        there = np.where(fixed, edge, 0.0)
        pull = gradient + apply(matrix, diagonal, there) if there.any() else gradient
        step[rows] = moved = there - solve_free(matrix, diagonal, pull, fixed)
        slope = gradient + apply(matrix, diagonal, moved) if fixed.any() else np.zeros_like(moved)
        inwards = fixed & (((edge <= low) & (slope < 0)) | ((edge >= high) & (slope > 0)))
        beyond = np.clip(moved, low, high)
        out = ~fixed & (beyond != moved)
        if not (changed := (inwards | out).any(axis=1)).any():
            break
        edge = np.where(out, beyond, np.where(inwards, np.nan, edge))
        if not changed.all():
            parts, rows = (matrix, diagonal, gradient, edge, low, high), rows[changed]
            matrix, diagonal, gradient, edge, low, high = (part[changed] for part in parts)
    return step


def _by(matrix: FloatArray, x: FloatArray) -> FloatArray:
    return (matrix @ x[..., None])[..., 0]


Residuals = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]
"""Maps x (Q, P) and problem numbers (Q,) to residuals (Q, R) and their Jacobian (Q, R, P)."""
Values = Callable[[FloatArray, IntArray], FloatArray]
"""Maps x (Q, P) and problem numbers (Q,) to residuals (Q, R)."""


NOTHING = 1e-22  # a cost, or a change of one, below this is zero: an exact fit has no relative decrease
LONGEST_STEP = 2.0  # of any unknown; unknowns are logarithms or of order one, and far jumps only meet overflow
LEAST_DAMPING, EASY = 1e-6, 0.05  # at most so much damping, and what a step promises says how near the minimum is
AHEAD, BEND = 0.1, 0.75  # where along a step its curvature is asked; half of the step's length at most is added


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
        size = np.abs(residual)
        clipped = np.minimum(size, self.delta)
        return clipped * (size - 0.5 * clipped) + 0.5 * self.tail * (size - clipped) ** 2

    def score(self, residual: FloatArray) -> FloatArray:
        """`rho'(e)`, elementwise."""
        clipped = np.clip(residual, -self.delta, self.delta)
        return clipped + self.tail * (residual - clipped)


@dataclass(frozen=True)
class Prior:
    """A quadratic pull: `1/2 sum precision (x - center)^2 + 1/2 |ties (x - center)|^2`, (Q, P) both and (Q, G, P)."""

    center: FloatArray
    precision: FloatArray
    ties: FloatArray | None = None

    def __getitem__(self, number: IntArray) -> Prior:
        return Prior(self.center[number], self.precision[number], None if self.ties is None else self.ties[number])

    def cost(self, x: FloatArray) -> FloatArray:
        """The pull's share (Q,) of the objective."""
        away = x - self.center
        cost = 0.5 * np.einsum("qp,qp->q", away**2, self.precision)
        return cost if self.ties is None else cost + 0.5 * np.square(_by(self.ties, away)).sum(axis=1)

    def slope(self, x: FloatArray) -> FloatArray:
        """Its gradient, (Q, P)."""
        away = x - self.center
        slope = self.precision * away
        return slope if self.ties is None else slope + _by(self.ties.swapaxes(1, 2), _by(self.ties, away))

    def matrix(self, rows: FloatArray) -> FloatArray:
        """What the curvature of residuals and prior has besides the diagonal `precision`, (Q, P, P).

        `rows` (Q, R, P) are the residuals' Jacobian, each by the root of its weight.
        """
        rows = rows if self.ties is None else np.concatenate([rows, self.ties], axis=1)
        return rows.swapaxes(1, 2) @ rows


@dataclass(frozen=True)
class Solution:
    """What the search found: unknowns (Q, P), objective (Q,), and whether it ended (Q,) where no step lowers that."""

    x: FloatArray
    cost: FloatArray
    converged: BoolArray


@dataclass
class _State:
    """Everything that the search carries for the problems still open, one row each."""

    number: IntArray  # (q,) which problem this row is
    x: FloatArray
    cost: FloatArray
    residual: FloatArray  # (q, R)
    root: FloatArray  # (q, R), of each residual's weight in the curvature
    rows: FloatArray  # (q, R, P), the Jacobian, each residual by that root
    gradient: FloatArray  # (q, P)
    matrix: FloatArray  # (q, P, P), of the curvature
    scale: FloatArray  # (q, P), largest curvature met so far
    damping: FloatArray  # (q,)
    quiet: IntArray  # (q,) steps in a row that changed next to nothing

    def keep(self, rows: BoolArray) -> _State:
        return self if rows.all() else _State(**{name: value[rows] for name, value in vars(self).items()})

    def put(self, rows: BoolArray, other: _State) -> _State:
        if rows.all():
            return other
        for name, value in vars(self).items():
            value[rows] = getattr(other, name)[rows]
        return self


@dataclass(frozen=True)
class Regression:
    """What is minimised: residuals, weights (Q, R), loss, box ((P,) each side), and a prior.

    `values` gives the residuals alone, which takes less.
    """

    residuals: Residuals
    values: Values
    weight: FloatArray
    loss: Loss
    low: FloatArray
    high: FloatArray
    prior: Prior

    def expand(self, number: IntArray, x: FloatArray, damping: FloatArray) -> _State:
        """Cost, gradient and curvature at x."""
        residual, jacobian = self.residuals(x, number)
        weight = self.weight[number]
        score = weight * self.loss.score(residual)
        prior = self.prior[number]
        gradient = (score[:, None, :] @ jacobian)[:, 0, :] + prior.slope(x)
        root = np.sqrt(self._stiffness(residual, weight, damping))
        jacobian *= root[..., None]
        matrix = prior.matrix(jacobian)
        scale = np.einsum("qpp->qp", matrix) + prior.precision
        cost = np.einsum("qr,qr->q", weight, self.loss.value(residual)) + prior.cost(x)
        quiet = np.zeros(len(x), dtype=np.int64)
        return _State(number, x, cost, residual, root, jacobian, gradient, matrix, scale, damping, quiet)

    def _stiffness(self, residual: FloatArray, weight: FloatArray, damping: FloatArray) -> FloatArray:
        """Curvature weight of each residual: full in the quadratic zone, damped outside of it."""
        if np.isinf(self.loss.delta):
            return weight
        size = np.abs(residual)
        outside = np.minimum(1.0, damping)[:, None] * self.loss.delta / np.maximum(size, self.loss.delta)
        return weight * np.where(size <= self.loss.delta, 1.0, np.minimum(outside + self.loss.tail, 1.0))

    def find_active(self, x: FloatArray, gradient: FloatArray) -> BoolArray:
        """Unknowns at a bound that the gradient pushes further out."""
        return find_active(gradient, self.low - x, self.high - x)


def minimize(
    objective: Regression, start: FloatArray, iterations: int = 100, tolerance: float = 1e-9, damping: float = 1.0
) -> Solution:
    """Minimise every problem from its start, all at once.

    Parameters
    ----------
    objective : Regression
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
    best = Solution(x.copy(), state.cost.copy(), np.zeros(len(x), dtype=bool))
    for _ in range(iterations):
        step, damped = _step(objective, state)
        bent = apply(state.matrix, objective.prior.precision[state.number], step)
        promised = -np.einsum("qp,qp->q", state.gradient + 0.5 * bent, step)
        # even a nearly undamped step promises next to nothing
        near = (state.damping <= EASY) & (np.abs(step).max(axis=1) < LONGEST_STEP)
        idle = near & (np.abs(promised) <= tolerance * np.abs(state.cost) + NOTHING)
        best.converged[state.number[idle]] = True
        if not (go := ~idle).any():
            break
        state, step, damped, promised = state.keep(go), step[go], damped[go], promised[go]
        state = _advance(objective, state, _bend(objective, state, step, damped), promised, tolerance)
        best.x[state.number], best.cost[state.number] = state.x, state.cost
        best.converged[state.number] = state.quiet >= 1
        if not (go := (state.quiet < 2) & (state.damping <= 1e9)).any():
            break
        state = state.keep(go)
    return best


def _step(objective: Regression, state: _State) -> tuple[FloatArray, FloatArray]:
    """The damped step (q, P) of every open problem, and the damped diagonal of the curvature that gave it."""
    told = np.einsum("qpp->qp", state.matrix).max(axis=1, keepdims=True)  # a firm belief about one holds no other
    ridge = 0.1 * state.damping[:, None] * state.scale + 1e-12 * told + 1e-300
    damped = objective.prior.precision[state.number] + ridge
    step = step_in_box(state.matrix, damped, state.gradient, objective.low - state.x, objective.high - state.x)
    return np.clip(step, -LONGEST_STEP, LONGEST_STEP).astype(np.float64, copy=False), damped


def _bend(objective: Regression, state: _State, step: FloatArray, damped: FloatArray) -> FloatArray:
    """The steps, bent to follow a curved valley: half the acceleration along each is added.

    It takes one more evaluation of the residuals (Transtrum & Sethna 2012, "Improvements to the Levenberg-Marquardt
    algorithm", section 4), and on the laws of this library saves three steps of four.
    """
    low, high = objective.low, objective.high
    ahead = objective.values(np.clip(state.x + AHEAD * step, low, high), state.number)
    change = (ahead - state.residual) / AHEAD * state.root - _by(state.rows, step)
    pull = ((2.0 / AHEAD * change)[:, None, :] @ state.rows)[:, 0, :]
    end = state.x + step
    second = -solve_free(state.matrix, damped, pull, (end <= low) | (end >= high))
    size, longer = (np.linalg.norm(part * np.sqrt(state.scale), axis=1) for part in (step, second))
    share = 0.5 * np.minimum(1.0, BEND * size / np.maximum(2.0 * longer, 1e-300))
    return step + np.where(np.isfinite(longer), share, 0.0)[:, None] * np.nan_to_num(second)


def _advance(objective: Regression, state: _State, step: FloatArray, promised: FloatArray, tolerance: float) -> _State:
    """One step of every open problem; a step that does not lower the cost is not taken."""
    x = np.clip(state.x + step, objective.low, objective.high)
    trial = objective.expand(state.number, x, np.maximum(state.damping / 5.0, LEAST_DAMPING))
    met = state.cost - trial.cost
    share = met / np.maximum(promised, 1e-300)
    small = np.abs(met) <= tolerance * np.abs(state.cost) + NOTHING
    trial.scale = np.maximum(trial.scale, state.scale * 0.3)
    trial.quiet = np.where(small, state.quiet + 1, 0)
    # A smooth rule (Nielsen 1999) keeps too much of it where residuals cross Huber's threshold: fits of equal logs then
    # parted by 1e-4 along plateaus, where this rule leaves 1e-11.
    eased = np.where(share > 0.75, 0.2, np.where(share > 0.25, 0.6, 1.5))  # by how much of its promise a step met
    trial.damping = np.maximum(state.damping * eased, LEAST_DAMPING)
    state.damping = state.damping * 4.0
    return state.put(met > 0, trial)
