"""The engine: one batched primal-dual interior-point method for goals and bounds of every kind, with multipliers.

    minimise  sum_j w_j loss_j(p) + kl KL(p || anchor) + tilt . p,  or t of the worst case,  over  x = (p, v, t)
    with      lower <= p <= upper,  equal x = values,  rows x <= limits,
              w_j loss_j(p) <= t                 [worst case]
              KL(p || center) <= radius          [KL ball; one of L1 is rows over p and v >= |p - center|]

for a whole batch of replicates, budgets and weights at once (Mehrotra 1992). Each iteration factorises one positive
definite matrix a member and uses it twice, for the predictor and for the corrector. Ratios stay strictly inside of
their own bounds, hence concave powers (infinite slope at zero) need no special care; rows, balls and the worst case are
met at the end. A member is done when its multipliers prove it, by weak duality; `proof` computes that anew from nothing
but the pieces.

Axes: B members of the batch, M sources, K targets, n unknowns, E equalities, G rows, Q curved sides (K of the worst
case, 1 of a KL ball), C = 2 M + G + Q sides in all: floors, caps, rows, curved ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs, qr

from shapleymix.errors import SolveError
from shapleymix.laws.pieces import Pieces, log_ratios, weigh
from shapleymix.mixing.boxes import minimise_in_box
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
LARGE, RIDGE = 48, 1e-14
POTRF, POTRS = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


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

    @property
    def is_plain(self) -> bool:
        """Whether it is one goal under bounds on single ratios alone, of fresh tokens."""
        bare = self.ball is None and self.start is None and not self.worst and self.kl == 0
        return bare and len(self.lower) == len(self.equal) == 1 and not self.rows.shape[1] and self.pieces.is_plain

    def take(self, members: BoolArray | slice) -> Program:
        """Some members of the batch."""
        pieces = self.pieces.take(members) if self.pieces.batch else self.pieces
        names = ["w", "lower", "upper", "anchor", "tilt", *(["rows", "limits"] if len(self.rows) > 1 else [])]
        sides = {name: getattr(self, name)[members] for name in names}
        return self._replace(pieces=pieces, **sides)


def minimise(program: Program, tolerance: float = TOLERANCE) -> Optima:
    """The optima of every member.

    Raises
    ------
    SolveError
        If no mixture has a finite objective, or a number is not finite.
    """
    B, M = program.lower.shape
    K, E, G = program.w.shape[1], len(program.equal), program.rows.shape[1]
    if program.is_plain:
        w, lower, upper = program.w[0], program.lower[0], program.upper[0]
        one = minimise_in_box(program.pieces, w, lower, upper, program.tilt[0], tolerance)
        if one is not None:
            p, price, gap = map(np.atleast_2d, one)
            return Optima(p, price, p[:, :0], p[:, :0], gap[0])
    upper = np.where(program.anchor > 0, program.upper, program.lower) if program.kl > 0 else program.upper
    usable, weighted = np.any(upper > NARROW, axis=0), np.any(program.w > 0, axis=0)
    usable[[other for one, other in program.pieces.twins if usable[one]]] = True
    pieces = program.pieces if weighted.all() else program.pieces.select(weighted)
    if not usable.all():  # a small power of the least ratio is not small
        pieces = replace(pieces, phi=np.where(usable[:, None], pieces.phi, 0.0))
    places = _independent(program.equal * np.any(upper - program.lower > NARROW, axis=0))
    equal, values = program.equal[places], program.values[places]
    whole = program._replace(pieces=pieces, w=program.w[:, weighted], upper=upper, equal=equal, values=values)
    step = max(1, CHUNK // (M * max(M, K)))
    parts = [_Search(whole.take(slice(at, at + step)), tolerance).solve() for at in range(0, B, step)]
    found = Optima(*map(np.concatenate, zip(*parts, strict=True)))
    rows, targets = np.zeros((B, E + G)), np.zeros((B, K * program.worst))
    rows[:, np.append(places, np.arange(E, E + G))] = found.rows
    if program.worst:
        targets[:, weighted] = found.targets
    return found._replace(rows=rows, targets=targets)


def _independent(equal: FloatArray) -> IntArray:
    """Places of equalities (E, M) that do not follow from others; the first, of the unit sum, where all do."""
    if len(equal) == 1:
        return np.arange(1)
    found: Any = qr(equal.T, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(found[1]))
    return np.sort(found[2][: len(size)][size > 1e-10 * size[0]]) if size[0] > 0 else np.arange(1)


class _Iterate(NamedTuple):
    """Ratios, v of an L1 ball and t of the worst case (B, n); slacks and multipliers (B, C) of all sides: floors, caps,
    targets, p - v <= center, v >= 0, then what ties ratios together; multipliers of equalities (B, E)."""

    x: FloatArray
    slack: FloatArray
    dual: FloatArray
    price: FloatArray


class _Place(NamedTuple):
    """What an iterate knows of its surroundings.

    Of what is minimised plus the sides but floors and caps, and equalities, times their multipliers: `tilt` (B, n), its
    slope, and `hessian` (B, M, M) in the ratios. `targets` (B, K, M) are the slopes of the worst case, and `ties`
    (B, E + T, M) those of equalities, rows and the ball; `beyond` (B, C - 2 M) the sides, at most 0 within; `lacking`
    (B, E) what equalities lack; `level` (B, 1) the size of what the mixture can change.
    """

    tilt: FloatArray
    hessian: FloatArray
    targets: FloatArray
    ties: FloatArray
    beyond: FloatArray
    lacking: FloatArray
    level: FloatArray


class _Search:
    """The iterations of one batch that is in memory at once; members that are done leave it."""

    def __init__(self, program: Program, tolerance: float) -> None:
        ball = None if program.ball is None else program.ball.kind
        self.tolerance = tolerance
        B, M = program.lower.shape
        self.M, self.K, self.L = M, program.w.shape[1] * program.worst, M * (ball == "l1")
        self.E, self.T = len(program.equal), program.rows.shape[1] + int(ball is not None)
        rest = 1 - _sums(program.lower)
        upper = np.minimum(program.upper, program.lower + rest)
        width = np.maximum(upper - program.lower, 0.0)
        share = np.minimum(np.maximum(rest / np.maximum(_sums(width), NONE), 0.0), 1.0)
        self.program, self.inside = program._replace(upper=upper), program.lower + share * width
        free = (width > NARROW) & (share > NARROW) & (share < 1 - NARROW)
        # Where the other sources' floors cap a source already, its own cap says nothing.
        idle = upper >= 1 - (_sums(program.lower) - program.lower) - NARROW
        on = np.concatenate([free, free & ~idle, np.ones((B, self.K + 2 * self.L + self.T))], axis=1)
        self.free, self.on, self.all_free = free.astype(float), on, bool(free.all())
        self.stale = np.zeros(B, dtype=int)
        self.count = np.maximum(on.sum(axis=1, keepdims=True), 1.0)
        self.is_bent = ball == "kl" or program.kl > 0
        self.is_box = self.K + self.T == 0 and not self.is_bent
        ends = np.cumsum([0, M, M, self.K, self.L, self.L, self.T]).tolist()
        _, self.caps, self.tops, self.over, self.above, self.loose = map(slice, ends[:-1], ends[1:])

    def solve(self) -> Optima:
        """Iterations until every member is proved, or gets no better."""
        alive = np.isfinite(self.program.pieces.losses(self.inside)).all(axis=-1) & np.ones(len(self.free), dtype=bool)
        if not alive.any():
            hint = "give targets that no source helps weight zero, or allow a source that helps them"
            raise SolveError("no mixture within the bounds has a finite loss", hint=hint)
        index, left, inside = np.flatnonzero(alive), np.full(len(alive), np.inf), self.inside
        if not alive.all():  # members without hope have no proof
            self._keep(alive)
            self.inside = inside[alive]
        here, place = self._start()
        best, gaps = here, np.full(len(index), np.inf)
        final = _Iterate(*(np.zeros((len(alive), part.shape[1])) for part in here))
        final.x[:, : self.M] = inside
        for iteration in range(ITERATIONS + 1):
            gap = self._gap(here, place)
            better = gap < gaps
            pick = better[:, None]
            best = here if better.all() else _Iterate(*(np.where(pick, *two) for two in zip(here, best, strict=True)))
            gaps, self.stale = np.where(better, gap, gaps), np.where(better, 0, self.stale + 1)
            done = (gaps <= self.tolerance) | ((self.stale >= STALE) & (gaps < NEARLY)) | (iteration == ITERATIONS)
            if np.count_nonzero(done):
                left[index[done]] = gaps[done]
                for whole, part in zip(final, best, strict=True):
                    whole[index[done]] = part[done]
                if done.all():
                    break
                kept = ~done
                self._keep(kept)
                here, best = (_Iterate(*(part[kept] for part in one)) for one in (here, best))
                place = _Place(*(part[kept] for part in place))
                index, gaps = index[kept], gaps[kept]
            here, place = self._step(here, place)
        if not np.isfinite(left).any():
            raise SolveError("the objective is not finite inside the bounds", hint="check the law's parameters")
        targets, ties, G = final.dual[:, self.tops], final.dual[:, self.loose], self.program.rows.shape[1]
        rows = np.concatenate([final.price, ties[:, :G]], axis=1)
        ball = final.dual[:, self.over] if self.L else ties[:, G:]
        return Optima(final.x[:, : self.M], rows, targets / np.maximum(_sums(targets), NONE), ball, left)

    def _keep(self, kept: BoolArray) -> None:
        """Go on with some members of the batch alone."""
        self.program, self.free, self.on = self.program.take(kept), self.free[kept], self.on[kept]
        self.count, self.stale = self.count[kept], self.stale[kept]

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
        duals[:, 2 * M : 2 * M + K] = 1 / max(K, 1)
        here = _Iterate(x, np.ones_like(duals), duals, np.zeros((B, self.E)))
        place = self._place(here)
        if K:
            x[:, -1:] = place.beyond[:, :K].max(axis=1, keepdims=True) + START * place.level
            place = self._place(here)
        slope, total = place.tilt[:, :M] * self.free, np.maximum(_sums(self.free), 1.0)
        spread = _sums(np.abs(slope - self.free * _sums(slope) / total) * p)
        center = START * place.level / K if K else np.maximum(spread, SPREAD * place.level) / total
        far = np.maximum(np.abs(place.beyond).max(axis=1, keepdims=True, initial=0.0), ROOM)
        slack = np.concatenate([*self._room(x), np.maximum(-place.beyond, ROOM * far)], axis=1)
        here = here._replace(slack=slack, dual=np.where(self.on > 0, center / slack, NONE))
        return here, self._place(here)

    def _room(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The distances (B, M) from floors and from caps; 1 where a ratio cannot move."""
        low, high = x[:, : self.M] - self.program.lower, self.program.upper - x[:, : self.M]
        low, high = np.maximum(low, NONE), np.maximum(high, NONE)
        return (low, high) if self.all_free else (low + (1 - self.free), high + (1 - self.free))

    def _place(self, here: _Iterate) -> _Place:
        """The surroundings of an iterate."""
        program, ball, M, x, dual = self.program, self.program.ball, self.M, here.x, here.dual
        p, targets, ties = np.maximum(x[:, :M], TINY), dual[:, self.tops], dual[:, self.loose]
        lacking = x[:, :M] @ program.equal.T - program.values
        at = program.pieces.slopes(p)
        w = program.w * targets if self.K else program.w
        slope, hessian = at.gradient(w) + program.tilt, at.hessian(w)
        level = np.maximum(_sums(np.abs(slope) * p) + program.kl, FLAT)
        if at.push is not None:  # where harm and worth cancel, the level is still that of both
            level = level + 2 * _sums(weigh(at.push, w) * p)
        bend, more, beyond, sums, none = program.kl, [], [], [], x[:, :0]
        wide = np.repeat(program.equal[None], len(x), axis=0)
        if program.rows.shape[1]:
            sums = [_along(program.rows, x[:, :M]) - program.limits]
            wide = np.concatenate([wide, np.broadcast_to(program.rows, (len(x), *program.rows.shape[1:]))], axis=1)
        if program.kl > 0:
            slope = slope + program.kl * (np.log(p) + 1 - log_ratios(program.anchor))
        if self.K:
            beyond, more = [*beyond, program.w * program.pieces.losses(p) - x[:, -1:]], [1 - _sums(targets)]
        if self.L and ball is not None:
            v, over = x[:, M : 2 * M], dual[:, self.over]
            beyond, more = [*beyond, x[:, :M] - v - ball.center, -v], [ties[:, -1:] - over - dual[:, self.above], *more]
            sums, slope = [*sums, _sums(v) - ball.radius / 2], slope + over
            wide = np.concatenate([wide, np.zeros((len(x), 1, M))], axis=1)
        elif ball is not None:
            logs = np.log(p) - log_ratios(ball.center)
            sums, bend = [*sums, _sums(p * logs) - ball.radius], bend + ties[:, -1:]
            wide = np.concatenate([wide, (logs + 1)[:, None]], axis=1)
        if self.is_bent:
            _diagonals(hessian)[...] += bend / p
        slope = slope + here.price @ program.equal
        if self.T:
            slope = slope + (ties[:, None] @ wide[:, self.E :])[:, 0]
        steep = at.jacobian().swapaxes(-1, -2) * program.w[:, :, None] if self.K else none
        if not self.all_free:
            slope, wide = slope * self.free, wide * self.free[:, None]
            steep = steep * self.free[:, None] if self.K else none
        tilt, beyond = np.concatenate([slope, *more], axis=1), np.concatenate([none, *beyond, *sums], axis=1)
        return _Place(tilt, hessian, steep, wide, beyond, lacking, level)

    def _gap(self, here: _Iterate, place: _Place) -> FloatArray:
        """What weak duality leaves open (B,), or what rows and equalities do where that is more; relative."""
        M, K, slope = self.M, self.K, place.tilt[:, : self.M]
        gap = _sum(np.maximum(slope * here.slack[:, :M], -slope * here.slack[:, M : 2 * M]))
        beyond, size = place.beyond.copy(), np.abs(here.x[:, M:])
        if K:  # the objective is that of the largest, not t
            beyond[:, :K] -= beyond[:, :K].max(axis=1, keepdims=True)
            size[:, -1:] = place.level
        gap = gap + _sum(here.dual[:, 2 * M :] * np.maximum(-beyond, 0.0)) + _sum(np.abs(place.tilt[:, M:]) * size)
        outside = np.abs(np.concatenate([place.lacking, np.maximum(beyond, 0.0)], axis=1))
        return np.maximum(gap / np.maximum(place.level[:, 0], NONE), np.maximum.reduce(outside, axis=1))

    def _step(self, here: _Iterate, place: _Place) -> tuple[_Iterate, _Place]:
        """One predictor and corrector."""
        newton = _Newton(self, here, place)
        now = _sums(newton.product)
        _, way, turn, _ = newton.direction(newton.product)
        reach, error = np.minimum(_reach(here.slack, way), _reach(here.dual, turn)), way * turn
        # Products of slacks and multipliers fall to 1 - reach, but for what is of second order.
        left = np.minimum(np.maximum(1 - reach + reach * reach * _sums(error) / np.maximum(now, NONE), 0.0), 1.0)
        unsettled = UNSETTLED[self.is_box] * _sums(np.abs(newton.residual * here.x))
        least = np.maximum(LEAST_TARGET * self.tolerance * place.level, unsettled)
        target = np.minimum(np.maximum(left * left * left * now, least), now) / self.count
        change = newton.direction((newton.product + error * (reach * reach) - target) * self.on)
        primal, dual = _reach(here.slack, change[1]), _reach(here.dual, change[2])
        if not self.is_box:  # steps of one length, since slopes hang on ratios and multipliers at once
            primal = dual = np.minimum(primal, dual)
        there, found = self._move(here, change, primal, dual)
        move = change[0][:, : self.M]
        bent = (newton.matrix @ move[:, :, None])[:, :, 0]
        whole = _sum(bent * move)
        most, counts = np.where(self.stale < PATIENT, 1.0, CAREFUL) * whole, whole > self.tolerance * place.level[:, 0]
        for _ in range(HALVINGS):
            expected = (1 - dual) * newton.residual[:, : self.M] + (primal - dual) * (bent - newton.walls * move)
            beyond = _sum((self._residual(there, found)[:, : self.M] - expected) * move)
            far = (beyond > most) & counts
            if not np.count_nonzero(far):
                break
            primal, dual = (np.where(far[:, None], one / 2, one) for one in (primal, dual))
            there, found = self._move(here, change, primal, dual)
        if self.K + self.T:
            wide = there.slack[:, 2 * self.M :]  # a side may have more room than its slack says
            np.copyto(wide, -found.beyond, where=-found.beyond > 0.1 * wide)
        return there, found

    def _residual(self, here: _Iterate, place: _Place) -> FloatArray:
        """What all slopes, those of floors and caps too, lack of zero (B, n)."""
        found = place.tilt.copy()
        found[:, : self.M] += here.dual[:, self.caps] - here.dual[:, : self.M]
        return found

    def _move(
        self, here: _Iterate, change: Sequence[FloatArray], primal: FloatArray, dual: FloatArray
    ) -> tuple[_Iterate, _Place]:
        """An iterate and its surroundings, after steps (B, 1) of the ratios and slacks, and of the multipliers."""
        x, slack = here.x + primal * change[0], here.slack + primal * change[1]
        slack[:, : self.M], slack[:, self.caps] = self._room(x)
        there = _Iterate(x, slack, here.dual + dual * change[2], here.price + dual * change[3])
        return there, self._place(there)


class _Newton:
    """The linear system of one iteration, for two right sides.

    Floors, caps and targets are taken into the matrix of the ratios and t, as is v, whose own matrix is diagonal:
    with stiffness a of p - v <= center and b of v >= 0 it adds a b / (a + b). Ties stay beside it, where they may be as
    stiff as they like.
    """

    def __init__(self, search: _Search, here: _Iterate, place: _Place) -> None:
        self.search, self.here, self.place, M = search, here, place, search.M
        self.product, self.ratio = here.slack * here.dual, here.dual / here.slack * search.on
        self.residual, self.walls = search._residual(here, place), self.ratio[:, :M] + self.ratio[:, search.caps]
        matrix, ties = place.hessian, place.ties
        if not search.all_free:
            matrix = matrix * search.free[:, :, None] * search.free[:, None]
        diagonal = _diagonals(matrix)
        diagonal *= 1 + RIDGE
        diagonal += self.walls
        diagonal += SMALLEST + (1 - search.free)
        self.matrix = matrix
        self.open = np.zeros_like(here.slack)
        self.open[:, 2 * M :] = here.slack[:, 2 * M :] + place.beyond
        spare = np.zeros(place.ties.shape[:2])
        spare[:, search.E :] = 1 / self.ratio[:, search.loose]
        over = self.ratio[:, search.over]
        self.both = over + self.ratio[:, search.above]
        if search.L:
            diagonal += over * self.ratio[:, search.above] / self.both
            ties[:, -1], spare[:, -1] = over / self.both * search.free, spare[:, -1] + _sum(1 / self.both)
        if search.K:
            steep = self.ratio[:, search.tops]
            steeper = place.targets * steep[:, :, None]
            edge, corner = -steeper.sum(axis=1), _sums(steep)[:, None]
            matrix = matrix + steeper.swapaxes(1, 2) @ place.targets
            matrix = np.block([[matrix, edge[:, :, None]], [edge[:, None], corner]])
            ties = np.pad(ties, ((0, 0), (0, 0), (0, 1)))
        lent = np.minimum(place.level, 0.5 / np.maximum(spare, NONE))
        self.factor = _Factor(matrix + (ties * lent[:, :, None]).swapaxes(1, 2) @ ties, ties, spare, lent)

    def direction(self, target: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Changes of the iterate that make products of slacks and multipliers less by `target` (B, C)."""
        search, place, M, E = self.search, self.place, self.search.M, self.search.E
        over, above, tops, loose = search.over, search.above, search.tops, search.loose
        back = -target / self.here.slack
        back += self.ratio * self.open
        right = back[:, :M] - back[:, search.caps] - self.residual[:, :M]
        lack = np.concatenate([-place.lacking, (target / self.here.dual - self.open)[:, loose]], axis=1)
        v = self.both
        if search.L:
            v = (back[:, over] + back[:, above] - self.residual[:, M : 2 * M]) / self.both
            right += self.ratio[:, over] * v - back[:, over]
            lack[:, -1] -= _sum(v)
        if search.K:
            right -= (back[:, None, tops] @ place.targets)[:, 0]
        if not search.all_free:
            right *= search.free
        if search.K:
            right = np.concatenate([right, _sums(back[:, tops]) - self.residual[:, -1:]], axis=1)
        move, shift = self.factor.solve(right, lack)
        p, way = move[:, :M], -self.open
        way[:, :M], way[:, search.caps] = p, -p
        if search.K:
            way[:, tops] += move[:, M:] - _along(place.targets, p)
        if search.T:
            way[:, loose] -= _along(place.ties[:, E:], p)
        if search.L:  # of which the tie's slopes along v are here, those along p that v follows are not
            v = v + (self.ratio[:, over] * p - shift[:, -1:]) / self.both
            way[:, over] += v - p
            way[:, above] += v
            way[:, -1] = -self.open[:, -1] - _sum(v)
            move = np.concatenate([p, v, move[:, M:]], axis=1)
        way *= search.on
        turn = -target / self.here.slack - self.ratio * way
        turn[:, loose] = shift[:, E:]
        return move, way, turn, shift[:, :E]


class _Factor:
    """Matrices (B, n, n), positive definite, beside ties (B, E + T, n) and what these spare (B, E + T).

    Ties have lent the matrix some stiffness (B, E + T) of its own size, so that directions which they alone determine
    are as well determined in it, and keep the rest.
    """

    def __init__(self, matrix: FloatArray, ties: FloatArray, spare: FloatArray, lent: FloatArray) -> None:
        self._ties, self._lent, self._kept = ties, lent, 1 - lent * spare
        alone = len(matrix) == 1 or matrix.shape[-1] >= LARGE
        self._apply = _cholesky(matrix) if alone else lambda right: np.linalg.solve(matrix, right)
        try:
            self._along = self._apply(ties.swapaxes(1, 2))
        except np.linalg.LinAlgError:  # one member is singular to rounding: the ridge of `_factorise` mends it
            self._apply = _cholesky(matrix)
            self._along = self._apply(ties.swapaxes(1, 2))
        self._total = ties @ self._along
        diagonal = _diagonals(self._total)
        diagonal += RIDGE * diagonal + NONE + spare / self._kept

    def solve(self, right: FloatArray, lack: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Move (B, n) and shift (B, E + T): matrix @ move + ties' shift = right, ties @ move - spare shift = lack."""
        right = right + ((self._lent * lack)[:, None] @ self._ties)[:, 0]
        raw = self._apply(right[:, :, None])
        excess = self._ties @ raw - lack[:, :, None]
        alone = excess.shape[1] == 1
        shift = excess / self._total if alone else np.asarray(np.linalg.solve(self._total, excess), dtype=np.float64)
        return (raw - self._along @ shift)[:, :, 0], shift[:, :, 0] / self._kept


def _cholesky(matrix: FloatArray) -> Callable[[FloatArray], FloatArray]:
    factors = [_factorise(member) for member in matrix]
    return lambda right: np.array([POTRS(L, b, lower=1)[0] for L, b in zip(factors, right, strict=True)])


def _factorise(matrix: FloatArray) -> FloatArray:
    """Cholesky factor; where rounding made the matrix indefinite, the ridge grows until it is not."""
    ridge = RIDGE * matrix.diagonal().max()
    for _ in range(12):
        factor, info = POTRF(matrix, lower=1, clean=0)
        if info == 0:
            return factor
        ridge *= 10
        matrix = matrix + ridge * np.eye(len(matrix))
    raise SolveError("the curvature is not finite or not positive", hint="check the law's parameters")


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
