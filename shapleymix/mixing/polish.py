"""From the barrier's last iterate onto the face of active bounds: ratios exactly at their bounds, the rest by Newton.

Without this, a language that deserves nothing keeps 1e-12 of the data. A polished mixture is kept only where its own
bound on the excess is no worse.
"""

from __future__ import annotations

import numpy as np

from shapleymix.mixing.newton import Factor
from shapleymix.mixing.smooth import Smooth, add_to_diagonal
from shapleymix.records import BoolArray, FloatArray

STEPS = 2


def polished(
    smooth: Smooth,
    p: FloatArray,
    price: FloatArray,
    gap: FloatArray,
    dual: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mixture (B, M), price (B,) and bound (B,), each member the better of iterate and polished iterate."""
    free = smooth.free > 0
    guess, moving = _active(p, dual, lower, upper, free)
    anything = moving.any(axis=1, keepdims=True)
    guess, moving = np.where(anything, guess, p), np.where(anything, moving, free)
    with np.errstate(all="ignore"):
        trial, multiplier, sound = _newton_on_face(smooth, guess, moving, lower, upper)
        gradient = smooth.at(trial).gradient
        own = face_bound(gradient * smooth.free, multiplier, trial, lower, upper, smooth.free)
        better = sound & (own <= np.maximum(gap, 1e-14 * np.abs(gradient * trial).sum(axis=1)))
    chosen = np.where(better[:, None], trial, p)
    return chosen, np.where(better, multiplier, price), np.where(better, own, gap)


def face_bound(
    gradient: FloatArray,
    price: FloatArray,
    p: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    free: FloatArray,
) -> FloatArray:
    """Excess over the minimum at most (B,), for any price: weak duality of the linearised problem."""
    tilt = (gradient - price[:, None]) * free
    return np.sum(np.where(tilt > 0, tilt * (p - lower), -tilt * (upper - p)), axis=1)


def _active(
    p: FloatArray, dual: FloatArray, lower: FloatArray, upper: FloatArray, free: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """The mixture with active bounds met exactly, and which sources stay free."""
    size = p.shape[1]
    unit = np.maximum(dual.max(axis=1, keepdims=True), 1e-300)
    low = free & (dual[:, :size] / unit > p - lower)
    high = free & (dual[:, size:] / unit > upper - p) & ~low
    return np.where(low, lower, np.where(high, upper, p)), free & ~low & ~high


def _newton_on_face(
    smooth: Smooth,
    p: FloatArray,
    moving: BoolArray,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Newton steps among the moving sources: mixture, price, and whether no step left the bounds."""
    sound = np.ones(len(p), dtype=bool)
    mask = moving.astype(float)
    face = smooth.masked(mask)
    count = np.maximum(mask.sum(axis=1), 1.0)
    price = np.zeros(len(p))
    for _ in range(STEPS):
        local = face.at(p)
        matrix = local.hessian()
        add_to_diagonal(matrix, 1 - mask)
        price = (local.gradient * mask).sum(axis=1) / count
        pull = (price[:, None] - local.gradient) * mask
        move, shift = Factor(_finite(matrix), mask).solve(pull, 1 - p.sum(axis=1, keepdims=True))
        price = price + shift[:, 0]
        p = p + move * mask
        sound &= np.all(((p >= lower) & (p <= upper)) | ~moving, axis=1)
        p = np.clip(p, lower, upper)
    return p, price, sound & (np.abs(p.sum(axis=1) - 1) < 1e-14 * p.shape[1] + 1e-13)


def _finite(matrix: FloatArray) -> FloatArray:
    """A wrong guess of the face may have no finite curvature; its bound rejects it later."""
    sane = np.isfinite(matrix).all(axis=(1, 2), keepdims=True)
    return matrix if sane.all() else np.where(sane, matrix, np.eye(matrix.shape[-1]))
