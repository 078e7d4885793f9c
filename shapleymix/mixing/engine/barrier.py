"""The engine: a batched primal-dual barrier Newton method on the capped simplex.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor)   over  sum_i p_i = 1,  lower_i <= p_i <= upper_i

for a whole batch of replicates, budgets and weights at once. Each iteration factorises one positive definite
matrix an instance (Hessian plus barrier) and uses it twice, for Mehrotra's predictor and for his corrector; the
equality is eliminated. Trial steps are accepted by their slope, not by differences of values, so that rounding
never stops the descent. Iterates stay strictly inside, hence concave powers (infinite slope at zero) need no
special care. `polish` then moves the iterate onto the face of active bounds. Three or four iterations are usual.

The bound that stops the iteration is the engine's own; `certificate` recomputes it from nothing but the terms.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.engine.newton import Factor, polished
from shapleymix.mixing.engine.objective import Local, Smooth, add_to_diagonal, smooth_of
from shapleymix.records import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-11
EARLY = 1e-3
LATER = 0.03
MAX_ITERATIONS = 100
TO_THE_WALL = 0.995
OVERSHOOT = 0.9
MAX_HALVINGS = 12
CHUNK = 2_000_000
NARROW = 1e-13
NONE = 1e-300


@dataclass(frozen=True)
class Optimum:
    """Where the engine stopped, on any leading axes: p (..., M), the multiplier `price` (...) of the unit sum
    (d objective / d p_i of every source between its bounds), the engine's own bound `gap` (...) on the excess
    over the minimum, and the iterations used (...)."""

    p: FloatArray
    price: FloatArray
    gap: FloatArray
    iterations: IntArray


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
    terms: Terms,
    w: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    kl: float = 0.0,
    anchor: FloatArray | None = None,
    tolerance: float = TOLERANCE,
) -> Optimum:
    """The optimal mixture under bounds, for every member of the broadcast leading axes.

    Parameters
    ----------
    terms : Terms
        Law at a budget, with any leading axes; M sources, K targets.
    w : array (..., K)
        Weights of the targets, >= 0.
    lower, upper : array (..., M)
        Bounds of the ratios; they must leave a mixture (see `constraints`).
    kl, anchor : float or array, optional
        Weight >= 0, and mixture (..., M), of the term kl * sum_i p_i log(p_i / anchor_i), in nats.
    tolerance : float
        Relative to what the mixture can change of the objective, where the iteration may stop.

    Raises
    ------
    SolveError
        If no mixture has a finite objective, or a number is not finite.
    """
    anchored = lower if anchor is None else anchor
    own = terms.batch
    batch = np.broadcast_shapes(own, w.shape[:-1], lower.shape[:-1], upper.shape[:-1], anchored.shape[:-1])
    size = int(np.prod(batch))
    vectors = [_flat(value, batch) for value in (w, lower, upper, anchored)]
    step = max(1, CHUNK // (terms.n_sources * max(terms.n_sources, terms.n_targets)))
    flat = terms.flat(batch) if own else terms
    strength = kl if anchor is not None else 0.0
    parts = []
    for start in range(0, size, step):
        rows = slice(start, start + step)
        part = flat.take(rows) if own else flat
        w_part, low, high, toward = (vector[rows] for vector in vectors)
        parts.append(_minimise_flat(part, w_part, low, high, toward, strength, tolerance))
    return _joined(parts, batch)


def _joined(parts: list[Optimum], batch: tuple[int, ...]) -> Optimum:
    columns = zip(*((part.p, part.price, part.gap, part.iterations) for part in parts), strict=True)
    whole = [column[0] if len(column) == 1 else np.concatenate(column) for column in columns]
    return Optimum(*(value.reshape(batch + value.shape[1:]) for value in whole))


def _flat(value: FloatArray, batch: tuple[int, ...]) -> FloatArray:
    if value.shape[:-1] == batch:
        return np.asarray(value, dtype=float).reshape(-1, value.shape[-1])
    whole = np.broadcast_to(np.asarray(value, dtype=float), (*batch, value.shape[-1]))
    return whole.reshape(-1, value.shape[-1])


def _minimise_flat(
    terms: Terms,
    w: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    anchor: FloatArray,
    kl: float,
    tolerance: float,
) -> Optimum:
    """The same on one leading axis, in memory at once; sources that nobody may use are left out."""
    if kl > 0:
        upper = np.where(anchor > 0, upper, lower)
    usable = (upper > NARROW).any(axis=0)
    if not usable.all():
        used = np.flatnonzero(usable)
        part = _minimise_flat(
            terms.select_sources(used), w, lower[:, used], upper[:, used], anchor[:, used], kl, tolerance
        )
        p = np.zeros_like(lower)
        p[:, used] = part.p
        return Optimum(p, part.price, part.gap, part.iterations)
    inside, free = _interior(lower, upper)
    absent = ~free & (inside[-1] <= NARROW)
    smooth = smooth_of(terms, w, free, absent, kl, anchor if kl > 0 else None)
    return _iterate(smooth, *inside, tolerance)


def _interior(lower: FloatArray, upper: FloatArray) -> tuple[tuple[FloatArray, FloatArray, FloatArray], BoolArray]:
    """A strictly feasible start with its bounds, (B, M) each, and which sources can move at all."""
    rest = 1 - _sums(lower)
    upper = np.minimum(upper, lower + rest)
    width = np.maximum(upper - lower, 0.0)
    share = np.minimum(np.maximum(rest / np.maximum(_sums(width), 1e-300), 0.0), 1.0)
    movable = (share > NARROW) & (share < 1 - NARROW)
    return (lower + share * width, lower, upper), (width > NARROW) & movable


def _iterate(smooth: Smooth, p: FloatArray, lower: FloatArray, upper: FloatArray, tolerance: float) -> Optimum:
    """Newton steps until every member of the batch has its bound; finished members leave the batch."""
    size = len(p)
    final = Optimum(p.copy(), np.zeros(size), np.full(size, np.inf), np.zeros(size, dtype=np.int64))
    bounds, index = (lower, upper), np.arange(size)
    local = smooth.at(p)
    state = _start(smooth, local, p, lower, upper)
    goal = EARLY
    for iteration in range(MAX_ITERATIONS + 1):
        gap, scale = _bound(state), _sum(local.level)
        near = gap <= goal * scale
        if 2 * np.count_nonzero(near) >= len(near) or iteration == MAX_ITERATIONS:
            _check_finite(gap)
            enough = 0.01 * tolerance * scale
            p, price, bound = polished(smooth, local, state.p, state.price, gap, enough, *bounds)
            done = (bound <= tolerance * scale) | (iteration == MAX_ITERATIONS)
            _record(final, index[done], p[done], price[done, 0], bound[done], iteration)
            if done.all():
                break
            index, state, smooth = index[~done], state.take(~done), smooth.take(~done)
            bounds = (bounds[0][~done], bounds[1][~done])
            local = smooth.at(state.p)
            goal *= LATER
        state, local = _step(smooth, local, state)
    return final


def _record(final: Optimum, rows: IntArray, p: FloatArray, price: FloatArray, gap: FloatArray, iteration: int) -> None:
    final.p[rows], final.price[rows], final.gap[rows] = p, price, gap
    final.iterations[rows] = iteration


def _check_finite(gap: FloatArray) -> None:
    if not np.isfinite(gap).all():
        raise SolveError("the objective is not finite inside the bounds", hint="check the law's parameters")


def _start(smooth: Smooth, local: Local, p: FloatArray, lower: FloatArray, upper: FloatArray) -> _State:
    """Multipliers on the central path of the spread of the gradient; bounds that cannot bind get none."""
    free, size = smooth.free, p.shape[1]
    gradient = local.gradient
    fixed = 1 - free
    room = np.concatenate((p - lower + fixed, upper - p + fixed), axis=1)
    # Where the other sources' floors cap a source already, its own cap says nothing.
    idle = upper >= 1 - (_sums(lower) - lower) - NARROW
    movable = np.concatenate((free, free * ~idle), axis=1)
    total = np.maximum(_sums(free), 1.0)
    price = _sums(gradient) / total
    pull = price * free - gradient
    spread = _sums(np.abs(pull) * room[:, :size])
    center = np.maximum(spread, 1e-6 * np.maximum(_sums(local.level), 1e-190)) / total
    dual = np.where(movable > 0, center / room, NONE)
    return _State(p, room, dual, price, pull, movable, np.maximum(_sums(movable), 1.0))


def _bound(state: _State) -> FloatArray:
    """Excess over the minimum, at most: the linearised objective against its dual at the current price."""
    size = state.p.shape[1]
    return _sum(np.maximum(-state.pull * state.room[:, :size], state.pull * state.room[:, size:]))


def _step(smooth: Smooth, local: Local, state: _State) -> tuple[_State, Local]:
    """One predictor-corrector iteration."""
    size = state.p.shape[1]
    ratio = state.dual / state.room
    matrix = local.hessian()
    add_to_diagonal(matrix, ratio[:, :size] + ratio[:, size:])
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
    smooth: Smooth, state: _State, move: FloatArray, shift: FloatArray, start: FloatArray, step: FloatArray
) -> tuple[FloatArray, Local]:
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


def _sum(values: FloatArray) -> FloatArray:
    """Sums over the last axis; the bare reduction halves the cost of small problems."""
    return np.add.reduce(values, axis=-1)


def _sums(values: FloatArray) -> FloatArray:
    """The same as a column."""
    return np.add.reduce(values, axis=-1, keepdims=True)
