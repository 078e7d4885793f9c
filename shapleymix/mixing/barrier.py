"""The engine: a batched primal-dual barrier Newton method on the capped simplex.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor)   over  sum_i p_i = 1,  lower_i <= p_i <= upper_i

for a whole batch of replicates, budgets and weights at once. Each iteration factorises one positive definite
matrix an instance (Hessian plus barrier) and uses it twice, for Mehrotra's predictor and for his corrector; the
equality is eliminated. Trial steps are accepted by their slope, not by differences of values, so that rounding
never stops the descent. Iterates stay strictly inside, hence concave powers (infinite slope at zero) need no
special care. `polish` then moves the iterate onto the face of active bounds. Seven to ten iterations are usual.

The bound that stops the iteration is the engine's own; `certificate` recomputes it from nothing but the terms.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.newton import Factor
from shapleymix.mixing.polish import polished
from shapleymix.mixing.smooth import Local, Smooth, add_to_diagonal, smooth_of
from shapleymix.records import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-11
MAX_ITERATIONS = 100
TO_THE_WALL = 0.995
OVERSHOOT = 0.9
MAX_HALVINGS = 12
CHUNK = 2_000_000
NARROW = 1e-13


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
    multipliers of these; `movable` is 1 where a bound matters."""

    p: FloatArray
    room: FloatArray
    dual: FloatArray
    price: FloatArray
    movable: FloatArray
    scale: FloatArray

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
    terms : law at a budget, with any leading axes; M sources, K targets.
    w : (..., K) weights of the targets, >= 0.
    lower, upper : (..., M) bounds of the ratios; they must leave a mixture (see `constraints`).
    kl, anchor : weight >= 0, and mixture (..., M), of the term kl * sum_i p_i log(p_i / anchor_i), in nats.
    tolerance : relative to the objective at the start, where the iteration may stop.

    Raises
    ------
    SolveError
        If no mixture has a finite objective, or a number is not finite.
    """
    anchored = np.broadcast_to(lower, lower.shape) if anchor is None else anchor
    batch = np.broadcast_shapes(terms.batch, w.shape[:-1], lower.shape[:-1], upper.shape[:-1], anchored.shape[:-1])
    size = int(np.prod(batch))
    vectors = [_flat(value, batch) for value in (w, lower, upper, anchored)]
    step = max(1, CHUNK // (terms.n_sources * max(terms.n_sources, terms.n_targets)))
    flat = terms.flat(batch) if terms.batch else terms
    strength = kl if anchor is not None else 0.0
    parts = []
    for start in range(0, size, step):
        rows = slice(start, start + step)
        part = flat.take(rows) if terms.batch else flat
        w_part, low, high, toward = (vector[rows] for vector in vectors)
        parts.append(_minimise_flat(part, w_part, low, high, toward, strength, tolerance))
    joined = [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Optimum)]
    return Optimum(*(value.reshape(batch + value.shape[1:]) for value in joined))


def _flat(value: FloatArray, batch: tuple[int, ...]) -> FloatArray:
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
    used = np.flatnonzero((upper > NARROW).any(axis=0))
    if len(used) < lower.shape[-1]:
        part = _minimise_flat(
            terms.select_sources(used), w, lower[:, used], upper[:, used], anchor[:, used], kl, tolerance
        )
        p = np.zeros_like(lower)
        p[:, used] = part.p
        return Optimum(p, part.price, part.gap, part.iterations)
    inside, free = _interior(lower, upper)
    absent = ~free & (upper <= NARROW)
    smooth = smooth_of(terms, w, free, absent, kl, anchor if kl > 0 else None)
    return _iterate(smooth, *inside, tolerance)


def _interior(lower: FloatArray, upper: FloatArray) -> tuple[tuple[FloatArray, FloatArray, FloatArray], BoolArray]:
    """A strictly feasible start with its bounds, (B, M) each, and which sources can move at all."""
    rest = 1 - lower.sum(axis=1, keepdims=True)
    upper = np.minimum(upper, lower + rest)
    width = np.maximum(upper - lower, 0.0)
    share = np.clip(rest / np.maximum(width.sum(axis=1, keepdims=True), 1e-300), 0.0, 1.0)
    movable = (share > NARROW) & (share < 1 - NARROW)
    return (lower + share * width, lower, upper), (width > NARROW) & movable


def _iterate(smooth: Smooth, p: FloatArray, lower: FloatArray, upper: FloatArray, tolerance: float) -> Optimum:
    """Newton steps until every member of the batch has its bound; finished members leave the batch."""
    size = len(p)
    whole = smooth
    best = np.zeros((size, 2))
    found, iterations = p.copy(), np.zeros(size, dtype=np.int64)
    duals = np.zeros((size, 2 * p.shape[1]))
    index = np.arange(size)
    local = smooth.at(p)
    state = _start(smooth, local, p, lower, upper)
    for iteration in range(MAX_ITERATIONS + 1):
        gap = _bound(local.gradient * smooth.free, state)
        if not np.isfinite(gap).all():
            raise SolveError("the objective is not finite inside the bounds", hint="check the law's parameters")
        done = (gap <= tolerance * state.scale) | (iteration == MAX_ITERATIONS)
        if done.any():
            at = index[done]
            found[at], duals[at], iterations[at] = state.p[done], state.dual[done], iteration
            best[at, 0], best[at, 1] = state.price[done, 0], gap[done]
            if done.all():
                break
            keep = ~done
            index, state, smooth = index[keep], state.take(keep), smooth.take(keep)
            local = smooth.at(state.p)
        state, local = _step(smooth, local, state)
    p, price, gap = polished(whole, found, best[:, 0], best[:, 1], duals, lower, upper)
    return Optimum(p, price, gap, iterations)


def _start(smooth: Smooth, local: Local, p: FloatArray, lower: FloatArray, upper: FloatArray) -> _State:
    """Multipliers on the central path of the spread of the gradient; bounds that cannot bind get none."""
    free = smooth.free
    fixed = 1 - free
    room = np.concatenate([p - lower + fixed, upper - p + fixed], axis=1)
    slack_cap = (upper >= 1 - (lower.sum(axis=1, keepdims=True) - lower) - NARROW).astype(float)
    movable = np.concatenate([free, free * (1 - slack_cap)], axis=1)
    count = np.maximum(free.sum(axis=1, keepdims=True), 1.0)
    price = (local.gradient * free).sum(axis=1, keepdims=True) / count
    spread = np.abs(local.gradient * free - price * free) * np.minimum(room[:, : p.shape[1]], 1.0)
    size = np.abs(local.gradient * p).sum(axis=1)
    center = np.maximum(spread.sum(axis=1), 1e-6 * size) / count[:, 0]
    dual = np.maximum(center, 1e-300)[:, None] * movable / room
    return _State(p, room, dual, price, movable, np.maximum(size, 1e-300))


def _bound(gradient: FloatArray, state: _State) -> FloatArray:
    """Excess over the minimum, at most: the linearised objective against its dual at the current price."""
    size = gradient.shape[1]
    tilt = (gradient - state.price) * state.movable[:, :size]
    return np.sum(np.where(tilt > 0, tilt * state.room[:, :size], -tilt * state.room[:, size:]), axis=1)


def _step(smooth: Smooth, local: Local, state: _State) -> tuple[_State, Local]:
    """One predictor-corrector iteration."""
    size = state.p.shape[1]
    ratio = state.dual / state.room
    matrix = local.hessian()
    add_to_diagonal(matrix, ratio[:, :size] + ratio[:, size:] + (1 - smooth.free))
    factor = Factor(matrix, smooth.free)
    pull = (state.price - local.gradient) * smooth.free
    predictor, _ = factor.solve(pull)
    center = _corrector_target(state, predictor, ratio)
    push = center / state.room
    pull = pull + push[:, :size] - push[:, size:]
    move, shift = factor.solve(pull)
    way = np.concatenate([move, -move], axis=1)
    turn = push - state.dual - ratio * way
    reach = np.minimum(1.0, TO_THE_WALL * _to_wall(state.room, way))
    step, local = _search(smooth, state, move, way, center, pull, reach[:, None])
    dual_step = np.minimum(1.0, TO_THE_WALL * _to_wall(state.dual, turn))[:, None]
    state.p = state.p + step * move
    state.room = state.room + step * way
    state.dual = state.dual + dual_step * turn
    state.price = state.price + step * shift
    return state, local


def _corrector_target(state: _State, move: FloatArray, ratio: FloatArray) -> FloatArray:
    """Mehrotra's complementarity target: the centre that the predictor allows, less its second-order error."""
    way = np.concatenate([move, -move], axis=1)
    turn = -state.dual - ratio * way
    count = np.maximum(state.movable.sum(axis=1), 1.0)
    now = np.sum(state.room * state.dual, axis=1) / count
    forward = np.minimum(1.0, _to_wall(state.room, way))[:, None]
    dual_forward = np.minimum(1.0, _to_wall(state.dual, turn))[:, None]
    after = np.sum((state.room + forward * way) * (state.dual + dual_forward * turn), axis=1) / count
    aim = now * (after / np.maximum(now, 1e-300)) ** 3
    return (aim[:, None] - way * turn) * state.movable


def _to_wall(value: FloatArray, change: FloatArray) -> FloatArray:
    """The longest step (B,) that keeps `value` >= 0; members that are zero and stay zero do not count."""
    fastest = np.max(-change / np.maximum(value, 1e-300), axis=1)
    return 1 / np.maximum(fastest, 1e-9)


def _search(
    smooth: Smooth,
    state: _State,
    move: FloatArray,
    way: FloatArray,
    center: FloatArray,
    pull: FloatArray,
    step: FloatArray,
) -> tuple[FloatArray, Local]:
    """Shorten the steps of those members whose slope past the step says they went too far."""
    start = np.sum(pull * move, axis=1)
    for _ in range(MAX_HALVINGS):
        local = smooth.at(state.p + step * move)
        barrier = np.sum(center / (state.room + step * way) * way, axis=1)
        end = np.sum((local.gradient - state.price) * move, axis=1) - barrier
        far = end > OVERSHOOT * start
        if not far.any():
            return step, local
        shorter = np.clip(start / np.where(far, start + end, 1.0), 0.1, 0.7)
        step = np.where(far, shorter, 1.0)[:, None] * step
    return step, smooth.at(state.p + step * move)
