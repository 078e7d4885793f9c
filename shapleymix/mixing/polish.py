"""From the barrier's iterate onto the face of active bounds: ratios exactly at their bounds, the rest by Newton.

A primal-dual active set: a source sits at a bound when Newton's step on that source alone would pass it, the others
take a joint step under the unit sum; the set is guessed anew at each step, hence a rough iterate is enough to begin
with. Without this, a language that deserves nothing keeps 1e-12 of the data. A polished mixture is kept only where
its own bound on the excess is no worse.
"""

from __future__ import annotations

import numpy as np

from shapleymix.mixing.newton import Factor
from shapleymix.mixing.smooth import Local, Smooth, add_to_diagonal, diagonals
from shapleymix.records import BoolArray, FloatArray

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
