"""Newton directions under the unit sum: factorise once, solve for several right-hand sides, batched.

Small matrices are inverted in one batched call. From `LARGE` on, or for one instance, LAPACK's Cholesky factors
are used an instance at a time: there the arithmetic, not the Python loop, is the cost.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from shapleymix.errors import SolveError
from shapleymix.mixing.engine.objective import Local, Smooth, add_to_diagonal, diagonals
from shapleymix.records import BoolArray, FloatArray

LARGE = 48
POTRF, POTRS = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)
RIDGE = 1e-14


class Factor:
    """The matrices (B, M, M), symmetric positive definite, and the rows of the equality, `free` (B, M)."""

    def __init__(self, matrix: FloatArray, free: FloatArray) -> None:
        size = matrix.shape[-1]
        self._free = free
        self._apply = _cholesky(matrix) if len(matrix) == 1 or size >= LARGE else _inverse(matrix)
        self._along = self._apply(free)
        self._total = np.add.reduce(self._along * free, axis=1, keepdims=True) + 1e-300

    def solve(self, pull: FloatArray, excess: FloatArray | float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Move (B, M) with matrix @ move = pull + shift * free and sum(move) = excess; and shift (B, 1)."""
        raw = self._apply(pull)
        shift = (excess - np.add.reduce(raw * self._free, axis=1, keepdims=True)) / self._total
        return raw + shift * self._along, shift


def _inverse(matrix: FloatArray):
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:  # one member is singular to rounding: the ridge of `_factor` mends it
        return _cholesky(matrix)
    return lambda pull: (inverse @ pull[:, :, None])[:, :, 0]


def _cholesky(matrix: FloatArray):
    factors = [_factor(member) for member in matrix]

    def apply(pull: FloatArray) -> FloatArray:
        if len(factors) == 1:
            return POTRS(factors[0], pull[0], lower=1)[0][None]
        return np.stack([POTRS(L, b, lower=1)[0] for L, b in zip(factors, pull, strict=True)])

    return apply


def _factor(matrix: FloatArray) -> FloatArray:
    """Cholesky factor; where rounding made the matrix indefinite, the ridge grows until it is not."""
    ridge = RIDGE * matrix.diagonal().max()
    for _ in range(12):
        factor, info = POTRF(matrix, lower=1, clean=0)
        if info == 0:
            return factor
        ridge *= 10
        matrix = matrix + ridge * np.eye(len(matrix))
    raise SolveError("the curvature is not finite or not positive", hint="check the law's parameters")


STEPS = 4
# Curvature that nothing can move; far above every other one, and far from overflow.
WALL = 1e200


def polished(
    smooth: Smooth,
    local: Local,
    p: FloatArray,
    price: FloatArray,
    gap: FloatArray,
    enough: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mixture (B, M), price (B, 1) and bound (B,), each member the better of iterate and polished iterate.

    `local` has the derivatives at the iterate p, whose bound is `gap`; no step is taken beyond bounds `enough` (B,).
    """
    trial, multiplier, own = p, price, gap
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            trial, multiplier = _newton_on_face(smooth, local, trial, multiplier, lower, upper)
            local = smooth.at(trial)
            own = face_bound(local.gradient - multiplier * smooth.free, trial, lower, upper)
            if (own <= enough).all():
                break
        size = np.add.reduce(np.abs(local.gradient * trial), axis=1)
        better = _feasible(trial) & (own <= np.maximum(gap, 1e-14 * size))
        if smooth.has_steep:
            better &= ~(smooth.steep() & (trial <= 0)).any(axis=1)
    if better.all():
        return _closed(trial, lower, upper), multiplier, own
    chosen = better[:, None]
    # Rounding may leave the iterate, which is strictly inside, an ulp outside.
    p = np.where(chosen, trial, np.minimum(np.maximum(p, lower), upper))
    return _closed(p, lower, upper), np.where(chosen, multiplier, price), np.where(better, own, gap)


def face_bound(tilt: FloatArray, p: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Excess over the minimum at most (B,), by weak duality of the linearised problem, whatever the price.

    `tilt` (B, M) is the gradient less the price where a source may move, else zero.
    """
    return np.add.reduce(np.maximum(tilt * (p - lower), tilt * (p - upper)), axis=1)


def _closed(p: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """The same mixtures with the rounding of their unit sum put on the source that has the most room."""
    excess = 1 - np.add.reduce(p, axis=1)
    if not np.count_nonzero(excess):
        return p
    rows, roomiest = np.arange(len(p)), np.minimum(p - lower, upper - p).argmax(axis=1)
    here = rows, roomiest
    p = p.copy()
    p[here] = np.minimum(np.maximum(p[here] + excess, lower[here]), upper[here])
    return p


def _feasible(p: FloatArray) -> BoolArray:
    return np.abs(np.add.reduce(p, axis=1) - 1) < 1e-14 * p.shape[1] + 1e-13


def _newton_on_face(
    smooth: Smooth, local: Local, p: FloatArray, price: FloatArray, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """One step: some sources go to the bounds that they are pushed over, the others where Newton sends them."""
    pull = price * smooth.free - local.gradient
    matrix = _finite(local.hessian())
    alone = p + pull / diagonals(matrix)
    target = np.minimum(np.maximum(alone, lower), upper)
    held = target != alone
    moving = np.where(held, 0.0, smooth.free)
    add_to_diagonal(matrix, WALL * held)
    excess = 1 - np.add.reduce(p, axis=1, keepdims=True)
    move, shift = Factor(matrix, moving).solve(np.where(held, WALL * (target - p), pull), excess)
    together = np.minimum(np.maximum(p + move, lower), upper)
    # Where every source is held, nothing tells the price.
    price = price + shift * np.maximum.reduce(moving, axis=1, keepdims=True)
    return np.where(held, target, together), price


def _finite(matrix: FloatArray) -> FloatArray:
    """A wrong guess of the face may have no finite curvature; its bound rejects it later."""
    if np.isfinite(np.add.reduce(matrix, axis=None)):
        return matrix
    return np.where(np.isfinite(matrix).all(axis=(1, 2), keepdims=True), matrix, np.eye(matrix.shape[-1]))
