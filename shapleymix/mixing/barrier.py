"""The engine: a batched primal-dual barrier Newton method on the capped simplex.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor)   over  sum_i p_i = 1,  lower_i <= p_i <= upper_i

for a whole batch of replicates, budgets and weights at once. Each iteration factorises one positive definite
matrix an instance (Hessian plus barrier) and uses it twice, for Mehrotra's predictor and for his corrector; the
equality is eliminated. Trial steps are accepted by their slope, not by differences of values, so that rounding
never stops the descent. Iterates stay strictly inside, hence concave powers (infinite slope at zero) need no
special care. `_polished` then moves the iterate onto the face of active bounds. Three or four iterations are usual.

The bound that stops the iteration is the engine's own; `proof` recomputes it from nothing but the pieces.

Axes: B members of the batch, M sources, K targets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from shapleymix.errors import SolveError
from shapleymix.laws.pieces import Pieces
from shapleymix.records import BoolArray, FloatArray

TOLERANCE = 1e-11
FIRST_GAP = 1e-3
GAP_FACTOR = 0.03
MAX_ITERATIONS = 100
TO_THE_WALL = 0.995
OVERSHOOT = 0.9
MAX_HALVINGS = 12
CHUNK = 2_000_000
NARROW = 1e-13
NONE = 1e-300
TINY = 1e-150
"""Stands for ratio zero where a slope is infinite there, so that it is merely huge."""
LARGE = 48
POTRF, POTRS = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)
RIDGE = 1e-14
SMALLEST = 1e-200
STEPS = 4
WALL = 1e200
"""Curvature that nothing can move; far above every other one, and far from overflow."""


@dataclass
class _State:
    """One iterate of a batch. `room` (B, 2M) is the distance to the lower, then to the upper bounds; `dual` the
    multipliers of these (`NONE` where a bound cannot bind); `movable` is 1 where a bound matters, `count` (B, 1)
    how many do."""

    p: FloatArray
    room: FloatArray
    dual: FloatArray
    price: FloatArray
    pull: FloatArray
    movable: FloatArray
    count: FloatArray

    def take(self, rows: BoolArray) -> _State:
        return _State(*(getattr(self, field.name)[rows] for field in fields(self)))


def minimise(
    pieces: Pieces,
    w: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    kl: float = 0.0,
    anchor: FloatArray | None = None,
    tilt: FloatArray | None = None,
    tolerance: float = TOLERANCE,
) -> FloatArray:
    """The optimal mixtures (..., M) under bounds, for every member of the broadcast leading axes.

    Parameters
    ----------
    pieces : Pieces
        Law at a budget, with any leading axes; M sources, K targets.
    w : array (..., K)
        Weights of the targets, >= 0.
    lower, upper : array (..., M)
        Bounds of the ratios; they must leave a mixture (see `polytope`).
    kl, anchor : float or array, optional
        Weight >= 0, and mixture (..., M), of the term kl * sum_i p_i log(p_i / anchor_i), in nats.
    tilt : array (..., M), optional
        Slopes of a further term, which is linear in the ratios.
    tolerance : float
        Relative to what the mixture can change of the objective, where the iteration may stop.

    Raises
    ------
    SolveError
        If no mixture has a finite objective, or a number is not finite.
    """
    sides = (w, lower, upper, lower if anchor is None else anchor, np.zeros_like(lower) if tilt is None else tilt)
    own = pieces.batch
    batch = np.broadcast_shapes(own, *(side.shape[:-1] for side in sides))
    vectors = [np.broadcast_to(side, (*batch, side.shape[-1])).reshape(-1, side.shape[-1]) for side in sides]
    step = max(1, CHUNK // (pieces.n_sources * max(pieces.n_sources, pieces.n_targets)))
    flat, strength = pieces.flat(batch) if own else pieces, kl if anchor is not None else 0.0
    parts = []
    for start in range(0, len(vectors[0]), step):
        rows = slice(start, start + step)
        part = flat.take(rows) if own else flat
        w_part, low, high, toward, leaning = (vector[rows] for vector in vectors)
        parts.append(_minimise_flat(part, w_part, low, high, toward, leaning, strength, tolerance))
    return np.concatenate(parts).reshape(*batch, -1)


def _minimise_flat(
    pieces: Pieces,
    w: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    anchor: FloatArray,
    tilt: FloatArray,
    kl: float,
    tolerance: float,
) -> FloatArray:
    """The same on one leading axis, in memory at once; sources that nobody may use are left out."""
    upper = np.where(anchor > 0, upper, lower) if kl > 0 else upper
    p, usable, counted = np.zeros_like(lower), np.any(upper > NARROW, axis=0), np.any(w > 0, axis=0)
    usable[[other for one, other in pieces.twins if usable[one]]] = True
    if not usable.all():
        pieces = pieces.select_sources(usable)
        lower, upper, anchor, tilt = (side[:, usable] for side in (lower, upper, anchor, tilt))
    if not counted.all():
        pieces, w = pieces.select(counted), w[:, counted]
    inside, box, free = _interior(lower, upper)
    if not np.isfinite(pieces.losses(inside)).all():
        hint = "give targets that no source helps weight zero, or allow a source that helps them"
        raise SolveError("no mixture within the bounds has a finite loss", hint=hint)
    log_anchor = np.log(np.where(anchor > 0, anchor, 1.0)) if kl > 0 else anchor
    smooth = Objective(pieces, w, free.astype(float), kl, log_anchor, tilt * free, *box)
    p[:, usable] = _iterate(smooth, inside, tolerance)
    return p


def _interior(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray], BoolArray]:
    """A strictly feasible start with its bounds, (B, M) each, and which sources can move at all."""
    rest = 1 - _sums(lower)
    upper = np.minimum(upper, lower + rest)
    width = np.maximum(upper - lower, 0.0)
    share = np.minimum(np.maximum(rest / np.maximum(_sums(width), 1e-300), 0.0), 1.0)
    movable = (share > NARROW) & (share < 1 - NARROW)
    return lower + share * width, (lower, upper), (width > NARROW) & movable


def _iterate(smooth: Objective, p: FloatArray, tolerance: float) -> FloatArray:
    """Newton steps until every member of the batch has its bound; finished members leave the batch."""
    final, index = p.copy(), np.arange(len(p))
    local = smooth.at(p)
    state = _start(smooth, local, p)
    goal = FIRST_GAP
    for iteration in range(MAX_ITERATIONS + 1):
        gap, scale = _bound(state), local.level
        near = gap <= goal * scale
        if 2 * np.count_nonzero(near) >= len(near) or iteration == MAX_ITERATIONS:
            if not np.isfinite(gap).all():
                raise SolveError("the objective is not finite inside the bounds", hint="check the law's parameters")
            p, bound = _polished(smooth, local, state.p, state.price, gap, 0.01 * tolerance * scale)
            done = (bound <= tolerance * scale) | (iteration == MAX_ITERATIONS)
            final[index[done]] = p[done]
            if done.all():
                break
            index, state, smooth = index[~done], state.take(~done), smooth.take(~done)
            local = smooth.at(state.p)
            goal *= GAP_FACTOR
        state, local = _step(smooth, local, state)
    return final


def _start(smooth: Objective, local: Derivatives, p: FloatArray) -> _State:
    """Multipliers on the central path of the spread of the gradient; bounds that cannot bind get none."""
    free, lower, upper, gradient, size = smooth.free, smooth.lower, smooth.upper, local.gradient, p.shape[1]
    fixed = 1 - free
    room = np.concatenate((p - lower + fixed, upper - p + fixed), axis=1)
    # Where the other sources' floors cap a source already, its own cap says nothing.
    idle = upper >= 1 - (_sums(lower) - lower) - NARROW
    movable = np.concatenate((free, free * ~idle), axis=1)
    total = np.maximum(_sums(free), 1.0)
    price = _sums(gradient) / total
    pull = price * free - gradient
    spread = _sums(np.abs(pull) * room[:, :size])
    center = np.maximum(spread, 1e-6 * np.maximum(local.level[:, None], 1e-190)) / total
    dual = np.where(movable > 0, center / room, NONE)
    return _State(p, room, dual, price, pull, movable, np.maximum(_sums(movable), 1.0))


def _bound(state: _State) -> FloatArray:
    """Excess over the minimum, at most: the linearised objective against its dual at the current price."""
    size = state.p.shape[1]
    return _sum(np.maximum(-state.pull * state.room[:, :size], state.pull * state.room[:, size:]))


def _step(smooth: Objective, local: Derivatives, state: _State) -> tuple[_State, Derivatives]:
    """One predictor-corrector iteration."""
    size = state.p.shape[1]
    ratio = state.dual / state.room
    matrix = local.hessian()
    _diagonals(matrix)[...] += ratio[:, :size] + ratio[:, size:]
    factor = Factor(matrix, smooth.free)
    push = _corrector_push(state, factor.solve(state.pull)[0])
    pull = state.pull + push[:, :size]
    pull -= push[:, size:]
    move, shift = factor.solve(pull)
    way = np.concatenate((move, -move), axis=1)
    turn = (push - state.dual - ratio * way) * state.movable
    step, local = _search(smooth, state, move, shift, _sum(pull * move), _reach(state.room, way))
    state.dual = state.dual + _reach(state.dual, turn) * turn
    state.room = state.room + step * way
    return state, local


def _corrector_push(state: _State, move: FloatArray) -> FloatArray:
    """Mehrotra's target for the multipliers: the centre that the predictor allows, less its second-order error.

    The predictor changes a distance by the factor 1 + q and its multiplier by -q, hence at a common step r their
    products shrink to 1 - r, less r^2 q (1 + q).
    """
    weight = state.movable / state.room
    q = np.concatenate((move, -move), axis=1) * weight
    product = state.room * state.dual
    error = product * q * (1 + q)
    now = _sums(product)
    reach = 1 / np.maximum(np.maximum.reduce(np.abs(q + 0.5), axis=1, keepdims=True) + 0.5, 1.0)
    left = np.maximum(1 - reach - reach * reach * (_sums(error) / now), 0.0)
    return (now * left * left * left / state.count + error) * weight


def _reach(value: FloatArray, change: FloatArray) -> FloatArray:
    """The step (B, 1), at most 1, that goes `TO_THE_WALL` of the way to where a positive value would reach zero."""
    fall = np.minimum.reduce(change / value, axis=1, keepdims=True)
    return TO_THE_WALL / np.maximum(-fall, TO_THE_WALL)


def _search(
    smooth: Objective, state: _State, move: FloatArray, shift: FloatArray, start: FloatArray, step: FloatArray
) -> tuple[FloatArray, Derivatives]:
    """Move the mixture and its price; members whose slope there says too far go less far.

    `start` (B,) is the fall of the barrier problem along `move`; returns the steps (B, 1) taken.
    """
    p, price, tries = state.p, state.price, 1
    while True:
        state.p, state.price = p + step * move, price + step * shift
        local = smooth.at(state.p)
        state.pull = state.price * smooth.free - local.gradient
        end = -_sum(state.pull * move)
        far = end > OVERSHOOT * start
        if not np.count_nonzero(far) or tries == MAX_HALVINGS:
            return step, local
        shorter = np.clip(start / np.where(far, start + end, 1.0), 0.1, 0.7)
        step = np.where(far, shorter, 1.0)[:, None] * step
        tries += 1


class Derivatives(NamedTuple):
    """Derivatives at one point: gradient (B, M), and U, h, diagonal with Hessian = U diag(h) U' + diagonal.

    `level` (B,) is the size of what the mixture can change, the unit in which a bound is small.
    """

    gradient: FloatArray
    inner: FloatArray
    second: FloatArray
    diagonal: FloatArray | None
    level: FloatArray
    crossed: tuple[tuple[int, int, FloatArray], ...] = ()  # (B,) of the sources of each pair that share a power

    def hessian(self) -> FloatArray:
        """(B, M, M), a fresh array."""
        root = self.inner * np.sqrt(self.second)[:, None, :]
        matrix = root @ root.transpose(0, 2, 1)
        diagonal = _diagonals(matrix)
        # Sources that do the same for every target leave it singular; the ridge changes the path only.
        diagonal *= 1 + RIDGE
        diagonal += SMALLEST
        if self.diagonal is not None:
            diagonal += self.diagonal
        for one, other, value in self.crossed:
            matrix[:, [one, other], [other, one]] += value[:, None]
        return matrix


class Objective(NamedTuple):
    """sum_j w_j loss_j(p) + kl sum_i p_i log(p_i / anchor_i) + sum_i tilt_i p_i, without its constants.

    `w` (B, K) are the weights; `free` (B, M) is 1 where a source may move, else 0; `lower` and `upper` (B, M) bound p.
    """

    pieces: Pieces
    w: FloatArray
    free: FloatArray
    kl: float
    log_anchor: FloatArray
    tilt: FloatArray
    lower: FloatArray
    upper: FloatArray

    def at(self, p: FloatArray) -> Derivatives:
        """Derivatives at the interior mixtures p (B, M)."""
        inside = np.maximum(p, TINY)
        at = self.pieces.slopes(inside)
        first, inner = self.w * at.first, at.inner
        if not self.free.all():
            inner = inner * self.free[:, :, None]
        gradient = _weigh(inner, first) + self.tilt
        diagonal = None if at.bend is None else _weigh(at.bend, first) * self.free
        level = _sum(np.abs(gradient) * inside)
        if at.push is not None and at.bow is not None:  # where harm and worth cancel, the level is still that of both
            push = _weigh(at.push, self.w) * self.free
            gradient, level = gradient + push, level + _sum(push * inside)
            diagonal = (0.0 if diagonal is None else diagonal) + _weigh(at.bow, self.w) * self.free
        if self.kl > 0:
            gradient = gradient + self.free * self.kl * (np.log(inside) + 1 - self.log_anchor)
            bend = self.free * self.kl / inside
            diagonal, level = bend if diagonal is None else diagonal + bend, level + self.kl
        crossed = tuple(
            (one, other, _sum(first * bend) * self.free[:, one] * self.free[:, other])
            for one, other, bend in at.crossed
        )
        return Derivatives(gradient, inner, self.w * at.second, diagonal, level, crossed)

    def take(self, rows: BoolArray) -> Objective:
        """The members of the batch where `rows` holds."""
        pieces = self.pieces.take(rows) if self.pieces.batch else self.pieces
        sides = (side[rows] for side in (self.log_anchor, self.tilt, self.lower, self.upper))
        return Objective(pieces, self.w[rows], self.free[rows], self.kl, *sides)


def _weigh(matrix: FloatArray, weights: FloatArray) -> FloatArray:
    return weights @ matrix.T if matrix.ndim == 2 else (matrix @ weights[:, :, None])[:, :, 0]


def _diagonals(matrix: FloatArray) -> FloatArray:
    """The diagonals (B, M) of contiguous matrices (B, M, M), as a view to write to."""
    size = matrix.shape[-1]
    return matrix.reshape(len(matrix), size * size)[:, :: size + 1]


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


def _polished(
    smooth: Objective, local: Derivatives, p: FloatArray, price: FloatArray, gap: FloatArray, enough: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mixture (B, M) and bound (B,), each member the better of iterate and polished iterate.

    `local` has the derivatives at the iterate p, whose bound is `gap`; no step is taken beyond bounds `enough` (B,).
    """
    trial, multiplier, own, lower, upper = p, price, gap, smooth.lower, smooth.upper
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            trial, multiplier = _newton_on_face(smooth, local, trial, multiplier)
            local = smooth.at(trial)
            tilt = local.gradient - multiplier * smooth.free
            # excess over the minimum at most, by weak duality of the linearised problem, whatever the price
            own = _sum(np.maximum(tilt * (trial - lower), tilt * (trial - upper)))
            if (own <= enough).all():
                break
        size = np.add.reduce(np.abs(local.gradient * trial), axis=1)
        whole = np.abs(_sum(trial) - 1) < 1e-14 * trial.shape[1] + 1e-13
        better = whole & (own <= np.maximum(gap, 1e-14 * size))
    if better.all():
        return _closed(trial, lower, upper), own
    chosen = better[:, None]
    # Rounding may leave the iterate, which is strictly inside, an ulp outside.
    p = np.where(chosen, trial, np.minimum(np.maximum(p, lower), upper))
    return _closed(p, lower, upper), np.where(better, own, gap)


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


def _newton_on_face(
    smooth: Objective, local: Derivatives, p: FloatArray, price: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """One step: some sources go to the bounds that they are pushed over, the others where Newton sends them."""
    pull = price * smooth.free - local.gradient
    matrix = _finite(local.hessian())
    alone = p + pull / _diagonals(matrix)
    target = np.minimum(np.maximum(alone, smooth.lower), smooth.upper)
    held = target != alone
    moving = np.where(held, 0.0, smooth.free)
    _diagonals(matrix)[...] += WALL * held
    excess = 1 - np.add.reduce(p, axis=1, keepdims=True)
    move, shift = Factor(matrix, moving).solve(np.where(held, WALL * (target - p), pull), excess)
    together = np.minimum(np.maximum(p + move, smooth.lower), smooth.upper)
    # Where every source is held, nothing tells the price.
    price = price + shift * np.maximum.reduce(moving, axis=1, keepdims=True)
    return np.where(held, target, together), price


def _finite(matrix: FloatArray) -> FloatArray:
    """A wrong guess of the face may have no finite curvature; its bound rejects it later."""
    if np.isfinite(np.add.reduce(matrix, axis=None)):
        return matrix
    return np.where(np.isfinite(matrix).all(axis=(1, 2), keepdims=True), matrix, np.eye(matrix.shape[-1]))


def _sum(values: FloatArray) -> FloatArray:
    """Sums over the last axis; the bare reduction halves the cost of small problems."""
    return np.add.reduce(values, axis=-1)


def _sums(values: FloatArray) -> FloatArray:
    """The same as a column."""
    return np.add.reduce(values, axis=-1, keepdims=True)
