"""One goal under bounds on single ratios alone, the plainest question: the engine's iterations, bare.

    minimise  sum_j w_j loss_j(p) + tilt . p   over   lower <= p <= upper,  sum p = 1

The same method, with all that batches, other bounds and repeated tokens need left out, in a third of the time, which
with few sources goes to calls and not to arithmetic. Where it finds no proof the engine is asked.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from shapleymix.laws.pieces import Pieces
from shapleymix.records import FloatArray

POTRF, POTRS = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)
ITERATIONS, TO_THE_WALL, CENTRAL = 30, 0.9995, 1.5
"""At most; how far a step goes of the way to a bound; and the power of what a predictor leaves that is gone for."""


@np.errstate(all="ignore")
def minimise_in_box(
    pieces: Pieces, w: FloatArray, lower: FloatArray, upper: FloatArray, tilt: FloatArray, tolerance: float
) -> tuple[FloatArray, float, float] | None:
    """The optimum (M,) for weights w (K,), the multiplier of the unit sum, and the gap that they leave, relative to
    what the mixture can change; None where that is above the tolerance, as where a ratio has no room."""
    M, total, rest = len(lower), np.add.reduce, 1 - np.add.reduce(lower)
    upper = np.minimum(upper, lower + rest)
    p = lower + rest / total(upper - lower) * (upper - lower)
    slope, hessian = pieces.derivatives(p, w)
    slope = slope + tilt
    price = -float(slope @ p)
    slack = np.concatenate([p - lower, upper - p])
    dual = np.abs(slope + price) @ p / M / slack
    right, gap = np.ones((M, 2)), np.inf
    for _ in range(ITERATIONS):
        steep, ratio = slope + price, dual / slack
        gap = float(total(np.maximum(steep * slack[:M], -steep * slack[M:])) / (np.abs(slope) @ p))
        if not gap > tolerance:  # or it is not a number
            break
        hessian.ravel()[:: M + 1] += ratio[:M] + ratio[M:]
        factor, failed = POTRF(hessian, lower=1, clean=0)
        if failed:
            break
        right[:, 0] = -steep
        free, along = POTRS(factor, right, lower=1)[0].T
        move = free - along * (total(free) / total(along))
        way = np.concatenate([move, -move])
        turn = -dual - ratio * way
        reach = min(_reach(slack, way), _reach(dual, turn))
        # A product of each slack and its multiplier that is as much smaller as the predictor could make them.
        target = ((1 - reach) ** CENTRAL * (dual @ slack) / (2 * M) - reach * reach * way * turn) / slack
        free = POTRS(factor, target[:M] - target[M:] - steep, lower=1)[0]
        shift = total(free) / total(along)
        move = free - along * shift
        way = np.concatenate([move, -move])
        turn = target - dual - ratio * way
        step = _reach(dual, turn)
        p, dual, price = p + _reach(slack, way) * move, dual + step * turn, price + step * shift
        slack = np.concatenate([p - lower, upper - p])
        slope, hessian = pieces.derivatives(p, w)
        slope = slope + tilt
    return (p, price, gap) if gap <= tolerance and abs(1 - total(p)) <= tolerance else None


def _reach(value: FloatArray, change: FloatArray) -> float:
    """The step, at most 1, that goes `TO_THE_WALL` of the way to where a positive value would reach zero."""
    return TO_THE_WALL / max(-np.minimum.reduce(change / value), TO_THE_WALL)
