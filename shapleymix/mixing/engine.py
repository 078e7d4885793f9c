"""The engine: one batched primal-dual interior-point method for goals and bounds of every kind, with multipliers.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor) + tilt . p,  or t of the worst case,  over  x = (p, v, t)
    with      lower <= p <= upper,  equal x = values,  rows x <= limits,
              w_j loss_j(p) <= t                 [worst case]
              KL(p || center) <= radius          [KL ball; one of L1 is rows over p and v >= |p - center|]

for a whole batch of replicates, budgets and weights at once (Mehrotra 1992). Each iteration makes one positive
definite matrix a member and uses it twice, for the predictor and for the corrector. Ratios stay strictly inside of
their own bounds, hence concave powers (infinite slope at zero) need no special care; rows, balls and the worst case are
met at the end. A member is done when its multipliers prove it, by weak duality; `proof` computes that anew from nothing
but the pieces.

Axes: B members of the batch, M sources, K targets, n unknowns, E equalities, G rows, L = M of v (else 0), T ties: the K
targets of the worst case, L of p - v, rows, and the ball; C = 2 M + L + T sides: floors, caps, floors of v, ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from shapleymix.laws.pieces import Pieces, log_ratios, weigh
from shapleymix.mixing.polytope import Ball
from shapleymix.records import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-11
"""Of the proof and of what rows leave open, relative to what the mixture can change of the objective."""
ITERATIONS, STALE, NEARLY = 100, 8, 1e-4
"""At most, and how many without a better proof than one so good that rounding may be what is left."""
TO_THE_WALL = 0.995
LEAST_TARGET = 0.3
"""Of the tolerance, below which no product of a slack and its multiplier is sent."""
UNSETTLED = 0.1, 1e-3
"""Of what slopes lack, the least products; of boxes, which converge without, a smaller part."""
HALVINGS, PATIENT, CAREFUL = 8, 3, 0.05
"""Of a step along which slopes rise more, by the curvature here, than it tells; and by this share of it, once so many
steps in turn have brought nothing: where tokens begin to repeat curvature jumps, and steps may go to and fro."""
START, SPREAD, ROOM, NEAR = 0.1, 1e-6, 1e-2, 0.9
CHUNK = 2_000_000
NARROW, NONE, TINY, SMALLEST = 1e-13, 1e-300, 1e-150, 1e-200
FLAT = 1e-60
"""What a mixture can change, at least, where it changes nothing."""
RIDGE, MEND = 1e-14, 1e-11


class Optima(NamedTuple):
    """Mixtures (B, M) with what proves each: multipliers of equalities and rows (B, E + G), of targets (B, K) in the
    worst case, and of a KL ball (B, 1); and the gap (B,) that these leave, relative to what the mixture can change."""

    p: FloatArray
    rows: FloatArray
    targets: FloatArray
    ball: FloatArray
    gap: FloatArray


class Program(NamedTuple):
    """A batch of goals: w (B, K), lower, upper, anchor and tilt (B, M), rows (B, G, M) and their limits (B, G), or
    (1, G, M) and (1, G) for all members alike; equalities (E, M) and the ball are alike for all."""

    pieces: Pieces
    w: FloatArray
    lower: FloatArray
    upper: FloatArray
    anchor: FloatArray
    tilt: FloatArray
    equal: FloatArray
    values: FloatArray
    rows: FloatArray
    limits: FloatArray
    kl: float = 0.0
    worst: bool = False
    ball: Ball | None = None
    start: FloatArray | None = None  # (M,), where a search is to begin; the middle of the bounds otherwise

    def take(self, members: BoolArray | slice) -> Program:
        """Some members of the batch."""
        pieces = self.pieces.take(members) if self.pieces.batch else self.pieces
        names = ["w", "lower", "upper", "anchor", "tilt", *(["rows", "limits"] if len(self.rows) > 1 else [])]
        sides = {name: getattr(self, name)[members] for name in names}
        return self._replace(pieces=pieces, **sides)


def minimise(program: Program, tolerance: float = TOLERANCE) -> Optima:
    """The optima of every member."""
    (B, M), K = program.lower.shape, program.w.shape[1]
    step = max(1, CHUNK // (M * max(M, K)))
    with np.errstate(all="ignore"):  # a member without a finite loss is left as it is
        parts = [_Search(program.take(slice(start, start + step)), tolerance).solve() for start in range(0, B, step)]
    return Optima(*map(np.concatenate, zip(*parts, strict=True)))


def _independent(equal: FloatArray) -> IntArray:
    """Places of equalities (E, M) that do not follow from others; the first, of the unit sum, where all do."""
    if len(equal) == 1:
        return np.arange(1)
    found: Any = qr(equal.T, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(found[1]))
    return np.sort(found[2][: len(size)][size > 1e-10 * size[0]]) if size[0] > 0 else np.arange(1)


class _Iterate(NamedTuple):
    """Ratios, v of an L1 ball and t of the worst case (B, n); slacks and multipliers (B, C) of all sides: floors and
    caps of ratios, floors of v, then ties: targets, p - v <= center, rows, the ball; multipliers of equalities (B, E).
    """

    x: FloatArray
    slack: FloatArray
    dual: FloatArray
    price: FloatArray


class _Place(NamedTuple):
    """What an iterate knows of its surroundings.

    Of what is minimised plus ties and equalities times their multipliers: `tilt` (B, n), its slope, and `hessian`
    (B, M, M) in the ratios. `ties` (B, E + T, n) are the slopes of equalities and ties; `beyond` (B, T) the ties, at
    most 0 within; `lacking` (B, E) what equalities lack; `level` (B, 1) the size of what the mixture can change.
    """

    tilt: FloatArray
    hessian: FloatArray
    ties: FloatArray
    beyond: FloatArray
    lacking: FloatArray
    level: FloatArray


class _Search:
    """The iterations of one batch that is in memory at once; members that are done leave it."""

    def __init__(self, program: Program, tolerance: float) -> None:
        ball = None if program.ball is None else program.ball.kind
        movable = np.any(program.upper - program.lower > NARROW, axis=0)
        self.tolerance, self.equalities = tolerance, len(program.equal)
        self.independent = _independent(program.equal * movable)
        program = program._replace(equal=program.equal[self.independent], values=program.values[self.independent])
        (B, M), G = program.lower.shape, program.rows.shape[1]
        self.M, self.K, self.L = M, program.w.shape[1] * program.worst, M * (ball == "l1")
        self.E, self.T = len(program.equal), self.K + self.L + G + int(ball is not None)
        rest = 1 - _sums(program.lower)
        upper = np.minimum(program.upper, program.lower + rest)
        width = np.maximum(upper - program.lower, 0.0)
        share = np.minimum(np.maximum(rest / np.maximum(_sums(width), NONE), 0.0), 1.0)
        self.program, self.inside = program._replace(upper=upper), program.lower + share * width
        free = (width > NARROW) & (share > NARROW) & (share < 1 - NARROW)
        # Where the other sources' floors cap a source already, its own cap says nothing.
        idle = upper >= 1 - (_sums(program.lower) - program.lower) - NARROW
        on = np.concatenate([free, free & ~idle, np.ones((B, self.L + self.T))], axis=1)
        self.free, self.on, self.all_free = free.astype(float), on, bool(free.all())
        self.stale = np.zeros(B, dtype=int)
        self.count = np.maximum(on.sum(axis=1, keepdims=True), 1.0)
        self.is_bent = ball == "kl" or program.kl > 0
        ends = np.cumsum([0, M, M, self.L, self.K, self.L, G]).tolist()
        _, self.caps, self.above, self.tops, self.over, self.sums = map(slice, ends[:-1], ends[1:])
        self.simple, self.loose = slice(ends[3]), slice(ends[3], None)

    def solve(self) -> Optima:
        """Iterations until every member is proved, or gets no better; the gap is infinite where no loss is finite."""
        here, place = self._start()
        index, left = np.arange(len(self.free)), np.full(len(self.free), np.inf)
        best, gaps, final = here, left, _Iterate(*map(np.copy, here))
        for iteration in range(ITERATIONS + 1):
            gap = self._gap(here, place)
            better = gap < gaps
            pick = better[:, None]
            best = here if better.all() else _Iterate(*(np.where(pick, *two) for two in zip(here, best, strict=True)))
            gaps, self.stale = np.where(better, gap, gaps), np.where(better, 0, self.stale + 1)
            stuck = (self.stale >= STALE) & (gaps < NEARLY) | ~np.isfinite(gap) | (iteration == ITERATIONS)
            done = stuck | (gaps <= self.tolerance)
            if np.count_nonzero(done):
                left[index[done]] = gaps[done]
                for whole, part in zip(final, best, strict=True):
                    whole[index[done]] = part[done]
                if done.all():
                    break
                kept = ~done
                self.program, self.free, self.on = self.program.take(kept), self.free[kept], self.on[kept]
                self.count, self.stale = self.count[kept], self.stale[kept]
                here, best = (_Iterate(*(part[kept] for part in one)) for one in (here, best))
                place = _Place(*(part[kept] for part in place))
                index, gaps = index[kept], gaps[kept]
            here, place = self._step(here, place)
        targets, sums = final.dual[:, self.tops], final.dual[:, self.sums]
        rows = np.concatenate([np.zeros((len(sums), self.equalities)), sums], axis=1)
        rows[:, self.independent] = final.price
        ball = final.dual[:, self.over if self.L else slice(self.sums.stop, None)]
        return Optima(final.x[:, : self.M], rows, targets / np.maximum(_sums(targets), NONE), ball, left)

    def _start(self) -> tuple[_Iterate, _Place]:
        """The middle of the box, and multipliers on the central path of the spread of the slopes there."""
        program, M, K, ball = self.program, self.M, self.K, self.program.ball
        p, B = self.inside, len(self.free)
        x = np.zeros((B, M + self.L + program.worst))
        near = program.start if ball is None or program.start is not None else ball.center
        if near is not None:
            p = p + NEAR * self.free * (np.clip(near, program.lower, program.upper) - p)
        if ball is not None:
            x[:, M : M + self.L] = np.maximum(p - ball.center, 0.0)[:, : self.L] + START / M
        x[:, :M] = p
        duals = np.full((B, self.on.shape[1]), NONE)
        duals[:, self.tops] = 1 / max(K, 1)
        here = _Iterate(x, np.ones_like(duals), duals, np.zeros((B, self.E)))
        place = self._place(here)
        if K:
            x[:, -1:] = place.beyond[:, :K].max(axis=1, keepdims=True) + START * place.level
            place = self._place(here)
        slope, total = place.tilt[:, :M] * self.free, np.maximum(_sums(self.free), 1.0)
        spread = _sums(np.abs(slope - self.free * _sums(slope) / total) * p)
        center = START * place.level / K if K else np.maximum(spread, SPREAD * place.level) / total
        far = np.maximum(np.abs(place.beyond).max(axis=1, keepdims=True, initial=0.0), ROOM)
        slack = np.concatenate([self._room(x), np.maximum(-place.beyond, ROOM * far)], axis=1)
        here = here._replace(slack=slack, dual=np.where(self.on > 0, center / slack, NONE))
        return here, self._place(here) if self.T else place

    def _room(self, x: FloatArray) -> FloatArray:
        """The distances (B, 2 M + L) of ratios from floors and caps, and of v from 0."""
        p, v = x[:, : self.M], x[:, self.M : self.M + self.L]
        return np.maximum(np.concatenate([p - self.program.lower, self.program.upper - p, v], axis=1), NONE)

    def _place(self, here: _Iterate) -> _Place:
        """The surroundings of an iterate."""
        program, ball, M, K, E, x, dual = self.program, self.program.ball, self.M, self.K, self.E, here.x, here.dual
        p, B = np.maximum(x[:, :M], TINY), len(x)
        at = program.pieces.slopes(p)
        w = program.w * dual[:, self.tops] if K else program.w
        slope, hessian = at.gradient(w), at.hessian(w)
        level = np.maximum(_sums(np.abs(slope + program.tilt) * p) + program.kl, FLAT)
        if at.push is not None:  # where harm and worth cancel, the level is still that of both
            level = level + 2 * _sums(weigh(at.push, w) * p)
        tilt, ties, beyond = np.zeros(x.shape), np.zeros((B, E + self.T, x.shape[1])), np.zeros((B, self.T))
        bend, start = program.kl, self.loose.start
        tilt[:, :M] = program.tilt if K else program.tilt + slope
        ties[:, :E, :M] = program.equal
        if program.kl > 0:
            tilt[:, :M] += program.kl * (np.log(p) + 1 - log_ratios(program.anchor))
        if K:
            tilt[:, -1], beyond[:, :K] = 1.0, program.w * program.pieces.losses(p) - x[:, -1:]
            ties[:, E : E + K, :M] = at.jacobian().swapaxes(-1, -2) * program.w[:, :, None]
            ties[:, E : E + K, -1] = -1.0
        if program.rows.shape[1]:
            rows = slice(self.sums.start - start, self.sums.stop - start)
            beyond[:, rows] = _along(program.rows, x[:, :M]) - program.limits
            ties[:, E:][:, rows, :M] = program.rows
        if self.L and ball is not None:
            v = x[:, M : 2 * M]
            over, each = E + self.over.start - start + np.arange(M), np.arange(M)
            ties[:, over, each], ties[:, over, M + each], ties[:, -1, M : 2 * M] = 1.0, -1.0, 1.0
            beyond[:, over - E], beyond[:, -1] = x[:, :M] - v - ball.center, _sum(v) - ball.radius / 2
        elif ball is not None:
            logs = np.log(p) - log_ratios(ball.center)
            ties[:, -1, :M], beyond[:, -1], bend = logs + 1, _sum(p * logs) - ball.radius, bend + dual[:, -1:]
        if self.is_bent:
            _diagonals(hessian)[...] += bend / p
        if not self.all_free:
            tilt[:, :M] *= self.free
            ties[:, :, :M] *= self.free[:, None]
        tilt += (np.concatenate([here.price, dual[:, self.loose]], axis=1)[:, None] @ ties)[:, 0]
        return _Place(tilt, hessian, ties, beyond, x[:, :M] @ program.equal.T - program.values, level)

    def _gap(self, here: _Iterate, place: _Place) -> FloatArray:
        """What weak duality leaves open (B,), or what ties and equalities do where that is more; relative."""
        M, K, slope = self.M, self.K, place.tilt[:, : self.M]
        gap = _sum(np.maximum(slope * here.slack[:, :M], -slope * here.slack[:, M : 2 * M]))
        outside = np.maximum.reduce(np.abs(place.lacking), axis=1)
        if self.T:
            beyond, size = place.beyond.copy(), np.abs(here.x[:, M:])
            if K:  # the objective is that of the largest, not t
                beyond[:, :K] -= beyond[:, :K].max(axis=1, keepdims=True)
                size[:, -1:] = place.level
            ties = here.dual[:, self.loose] * np.maximum(-beyond, 0.0)
            gap = gap + _sum(ties) + _sum(np.abs(place.tilt[:, M:]) * size)
            outside = np.maximum(outside, beyond.max(axis=1))
        return np.maximum(gap / np.maximum(place.level[:, 0], NONE), outside)

    def _step(self, here: _Iterate, place: _Place) -> tuple[_Iterate, _Place]:
        """One predictor and corrector."""
        newton = _Newton(self, here, place)
        now = _sums(newton.product)
        _, way, turn, _ = newton.direction(newton.product)
        reach, error = np.minimum(_reach(here.slack, way), _reach(here.dual, turn)), way * turn
        # Products of slacks and multipliers fall to 1 - reach, but for what is of second order.
        left = np.minimum(np.maximum(1 - reach + reach * reach * _sums(error) / np.maximum(now, NONE), 0.0), 1.0)
        unsettled = UNSETTLED[not self.T] * _sums(np.abs(newton.residual * here.x))
        least = np.maximum(LEAST_TARGET * self.tolerance * place.level, unsettled)
        target = np.minimum(np.maximum(left * left * left * now, least), now) / self.count
        change = newton.direction((newton.product + error * (reach * reach) - target) * self.on)
        primal, dual = _reach(here.slack, change[1]), _reach(here.dual, change[2])
        if self.T or self.is_bent:  # steps of one length, since slopes hang on ratios and multipliers at once
            primal = dual = np.minimum(primal, dual)
        there, found = self._move(here, change, primal, dual)
        move = change[0][:, : self.M]
        bent = (newton.curved @ move[:, :, None])[:, :, 0]
        whole = _sum(bent * move)
        for _ in range(HALVINGS):
            expected = (1 - dual) * newton.residual[:, : self.M] + (primal - dual) * (bent - newton.walls * move)
            beyond = _sum((self._residual(there, found)[:, : self.M] - expected) * move)
            far = (beyond > np.where(self.stale < PATIENT, 1.0, CAREFUL) * whole) & (
                whole > self.tolerance * place.level[:, 0]
            )
            if not np.count_nonzero(far):
                break
            primal, dual = (np.where(far[:, None], one / 2, one) for one in (primal, dual))
            there, found = self._move(here, change, primal, dual)
        if self.T:  # a tie may have more room than its slack says
            ties = there.slack[:, self.loose]
            np.copyto(ties, -found.beyond, where=-found.beyond > 0.1 * ties)
        return there, found

    def _residual(self, here: _Iterate, place: _Place) -> FloatArray:
        """What all slopes, those of floors and caps too, lack of zero (B, n)."""
        found = place.tilt.copy()
        found[:, : self.M] += here.dual[:, self.caps] - here.dual[:, : self.M]
        if self.L:
            found[:, self.M : self.M + self.L] -= here.dual[:, self.above]
        return found

    def _move(
        self, here: _Iterate, change: Sequence[FloatArray], primal: FloatArray, dual: FloatArray
    ) -> tuple[_Iterate, _Place]:
        """An iterate and its surroundings, after steps (B, 1) of the ratios and slacks, and of the multipliers."""
        x, slack = here.x + primal * change[0], here.slack + primal * change[1]
        slack[:, self.simple] = self._room(x)
        there = _Iterate(x, slack, here.dual + dual * change[2], here.price + dual * change[3])
        return there, self._place(there)


class _Newton:
    """The linear system of one iteration, for two right sides.

    Floors and caps are taken into the matrix (B, n, n) of the unknowns. Ties stay beside it, where they may be as stiff
    as they like: they lend it some stiffness (B, E + T) of its own size, so that directions which they alone determine
    are as well determined in it, and keep the rest.
    """

    def __init__(self, search: _Search, here: _Iterate, place: _Place) -> None:
        self.search, self.here, self.place, M, L = search, here, place, search.M, search.L
        self.product, self.ratio = here.slack * here.dual, here.dual / here.slack * search.on
        self.residual, self.walls = search._residual(here, place), self.ratio[:, :M] + self.ratio[:, search.caps]
        curved = place.hessian
        if not search.all_free:
            curved = curved * search.free[:, :, None] * search.free[:, None]
        diagonal = _diagonals(curved)
        diagonal *= 1 + RIDGE
        diagonal += self.walls + SMALLEST + (1 - search.free)
        self.curved = self.matrix = curved
        if search.T:
            spare = self.spare = np.zeros(place.ties.shape[:2])
            self.open = here.slack[:, search.loose] + place.beyond
            spare[:, search.E :] = 1 / self.ratio[:, search.loose]
            lent = place.level * np.ones_like(spare)
            lent[:, search.E : search.E + search.K] **= -1  # losses, not ratios
            self.lent = np.minimum(lent, 0.5 / np.maximum(spare, NONE))
            self.kept = 1 - self.lent * spare
            self.matrix = (place.ties * self.lent[:, :, None]).swapaxes(1, 2) @ place.ties
            self.matrix[:, :M, :M] += curved
            _diagonals(self.matrix)[:, M : M + L] += self.ratio[:, search.above]
        try:
            self.along = np.linalg.solve(self.matrix, place.ties.swapaxes(1, 2))
        except np.linalg.LinAlgError:  # a member is singular to rounding
            _diagonals(self.matrix)[...] *= 1 + MEND
            self.along = np.linalg.solve(self.matrix, place.ties.swapaxes(1, 2))
        self.total = place.ties @ self.along
        diagonal = _diagonals(self.total)
        diagonal += RIDGE * diagonal + NONE
        if search.T:
            diagonal += self.spare / self.kept

    def direction(self, target: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Changes of the iterate that make products of slacks and multipliers less by `target` (B, C)."""
        search, place, M, L, E = self.search, self.place, self.search.M, self.search.L, self.search.E
        back, right, lack, loose = -target / self.here.slack, -self.residual, -place.lacking, search.loose
        right[:, :M] += back[:, :M] - back[:, search.caps]
        if L:
            right[:, M : M + L] += back[:, search.above]
        if not search.all_free:
            right[:, :M] *= search.free
        if search.T:
            lack = np.concatenate([lack, (target / self.here.dual)[:, loose] - self.open], axis=1)
        move, shift = self._solve(right, lack)
        p = move[:, :M]
        ways = [p, -p, move[:, M : M + L]]
        if search.T:
            ways.append(-self.open - _along(place.ties[:, E:], move))
        way = np.concatenate(ways, axis=1) * search.on
        turn = back - self.ratio * way
        turn[:, loose] = shift[:, E:]
        return move, way, turn, shift[:, :E]

    def _solve(self, right: FloatArray, lack: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Move (B, n) and shift (B, E + T): matrix @ move + ties' shift = right, ties @ move - spare shift = lack."""
        ties = self.place.ties
        if self.search.T:
            right = right + ((self.lent * lack)[:, None] @ ties)[:, 0]
        raw = np.linalg.solve(self.matrix, right[:, :, None])
        excess = ties @ raw - lack[:, :, None]
        alone = excess.shape[1] == 1
        shift = excess / self.total if alone else np.asarray(np.linalg.solve(self.total, excess), dtype=np.float64)
        move, found = (raw - self.along @ shift)[:, :, 0], shift[:, :, 0]
        return move, found / self.kept if self.search.T else found


def _reach(value: FloatArray, change: FloatArray) -> FloatArray:
    """The step (B, 1), at most 1, that goes `TO_THE_WALL` of the way to where a positive value would reach zero."""
    fall = np.minimum.reduce(change / value, axis=1, keepdims=True)
    return TO_THE_WALL / np.maximum(-fall, TO_THE_WALL)


def _along(slopes: FloatArray, p: FloatArray) -> FloatArray:
    """Products (B, Q) of slopes (B, Q, M) with moves of the ratios (B, M)."""
    return (slopes @ p[:, :, None])[:, :, 0]


def _diagonals(matrix: FloatArray) -> FloatArray:
    """The diagonals (B, n) of contiguous matrices (B, n, n), as a view to write to."""
    size = matrix.shape[-1]
    return matrix.reshape(len(matrix), size * size)[:, :: size + 1]


def _sum(values: FloatArray) -> FloatArray:
    """Sums over the last axis; the bare reduction halves the cost of small problems."""
    return np.add.reduce(values, axis=-1)


def _sums(values: FloatArray) -> FloatArray:
    """The same as a column."""
    return np.add.reduce(values, axis=-1, keepdims=True)
