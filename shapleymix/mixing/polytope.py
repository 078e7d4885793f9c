"""What a mixture must obey at one token budget: every bound written once, as a row, with where it comes from.

Axes: M sources, G rows (bounds on summed ratios), K targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import linprog
from scipy.special import rel_entr

from shapleymix.fitting.evidence import TRACE
from shapleymix.records import BoolArray, FloatArray

FEASIBLE = 1e-9
"""A mixture that breaks a bound by more than this, in units of ratio, is outside of it."""
LEAST_NONZERO = 2 * TRACE
"""A ratio that no rounding takes for none, as one of `TRACE` would be."""
ROUNDING = 1e-13
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
FIXED, TOKENS, GIVEN, UNSEEN = "fixed", "tokens", "given", "unseen"
REGIME, JUMP, READ, KEPT = "regime", "jump", "read", "kept"
"""Where a bound comes from."""


@dataclass(frozen=True)
class Ball:
    """No further than `radius` from the mixture `center` (M,): in L1 distance, or in KL(p || center), nats."""

    center: FloatArray
    radius: float
    kind: Literal["l1", "kl"] = "l1"

    def distance(self, p: FloatArray) -> float:
        """How far a mixture (M,) is from the centre."""
        return float(np.abs(p - self.center).sum()) if self.kind == "l1" else divergence(p, self.center)

    def tangent(self, duals: FloatArray, at: FloatArray) -> tuple[FloatArray, float]:
        """One row (M,) and its limit, which hold for every mixture within, from an engine's multipliers.

        Those of L1 are of p - v <= center, v >= 0 (M,); that of KL (1,) is of the tangent at a mixture (M,).
        """
        if self.kind == "l1":
            row = duals - duals.max() / 2
            return row, float(row @ self.center + self.radius * np.abs(row).max())
        slope = np.where(at > 0, divergence_gradient(at, self.center), 0.0)
        limit = self.radius - divergence(at, self.center) + float(slope @ at)
        return float(duals[0]) * slope, float(duals[0]) * limit


@dataclass(frozen=True)
class Supply:
    """Tokens at hand for a run of D tokens: unique ones (M,), NaN where not known; how often they may be seen; the
    fewest that are asked for, 0 for none; and those that the run has read already, 0 before it."""

    D: float
    available: FloatArray
    epochs: FloatArray
    least: FloatArray
    read: FloatArray


@dataclass(frozen=True)
class Polytope:
    """The mixtures within bounds.

    Attributes
    ----------
    sources : tuple of str (M,)
        Labels.
    lower, upper : array (M,)
        Bounds of the ratios.
    floor_origin, cap_origin : tuple of str (M,)
        Where each comes from: "given", "fixed", "tokens", "unseen", "regime", "jump", "read", "kept", or "" for none.
    rows : array (G, M)
        Weights of the ratios in each further bound: ones for the sources of a group.
    row_low, row_high : array (G,)
        Bounds of the weighted sums, which may be infinite.
    row_names : tuple of str (G,)
        What to call them.
    supply : Supply
        The tokens from which bounds were computed.
    ball : Ball, optional
        The ball around a mixture within which to stay.
    """

    sources: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    floor_origin: tuple[str, ...]
    cap_origin: tuple[str, ...]
    rows: FloatArray
    row_low: FloatArray
    row_high: FloatArray
    row_names: tuple[str, ...]
    supply: Supply
    ball: Ball | None = None

    @property
    def is_box(self) -> bool:
        """Whether there are bounds on single ratios alone."""
        return not len(self.rows) and self.ball is None

    @property
    def movable(self) -> BoolArray:
        """Sources (M,) whose ratio is not held at one value by bounds on single ratios."""
        return (self.upper - self.lower > ROUNDING) & (1 - self.lower.sum() > ROUNDING)

    def with_row(self, name: str, weights: FloatArray, low: float, high: float) -> Polytope:
        """The same with one more bound on a weighted sum."""
        return replace(
            self,
            rows=np.concatenate([self.rows, weights[None]]),
            row_low=np.append(self.row_low, low),
            row_high=np.append(self.row_high, high),
            row_names=(*self.row_names, name),
        )

    def hold_at_zero(self, absent: BoolArray, why: str) -> Polytope:
        """The same with some sources (M,) held at ratio 0."""
        origin = tuple(np.where(absent, why, self.cap_origin).tolist())
        return replace(self, upper=np.where(absent, 0.0, self.upper), cap_origin=origin) if absent.any() else self

    def with_floors(self, floors: FloatArray, why: str) -> Polytope:
        """The same with floors (M,) that are at least these, as far as the caps allow; where one was typed a trace."""
        typed = np.array(self.floor_origin) == GIVEN
        least = np.where(typed, np.minimum(floors, LEAST_NONZERO), floors)
        lower = np.maximum(self.lower, np.minimum(least, self.upper))
        origins = zip(((lower > self.lower) & ~typed).tolist(), self.floor_origin, strict=True)
        return replace(self, lower=lower, floor_origin=tuple(why if more else old for more, old in origins))

    @property
    def rigid(self) -> BoolArray:
        """(G,) rows that tie ratios to each other, as kept ones are: no bounds that could give way."""
        return (self.row_low == 0) & (self.row_high == 0)

    def violation(self, p: FloatArray) -> float:
        """By how much p (M,) breaks the worst of its bounds, in units of ratio (of nats for a KL ball)."""
        if not np.isfinite(p).all():
            return np.inf
        sums = self.rows @ p
        parts = [[abs(1 - p.sum())], self.lower - p, p - self.upper, self.row_low - sums, sums - self.row_high]
        ball = [] if self.ball is None else [self.ball.distance(p) - self.ball.radius]
        return max(float(np.concatenate([*parts, ball]).max()), 0.0)

    def minimise_linear(self, cost: FloatArray) -> FloatArray | None:
        """The mixture (M,) at which `cost . s` is least, within all bounds but a KL ball; of an L1 ball a cost of the
        distances from its centre may follow (2 M,). None where there is no mixture."""
        (matrix, limits, equal), M = self.matrices(), len(self.sources)
        wide = matrix.shape[1]
        found = linprog(
            np.pad(cost, (0, wide - len(cost))),
            A_ub=matrix[equal:], b_ub=limits[equal:], A_eq=matrix[:equal], b_eq=limits[:equal],
            bounds=[*zip(self.lower.tolist(), self.upper.tolist(), strict=True), *[(None, None)] * (wide - M)],
            method="highs", options=EXACT,
        )  # fmt: skip
        return np.asarray(found.x[:M]) if found.success else None

    def sums(self) -> tuple[FloatArray, FloatArray, int]:
        """Rows (., M) which times a mixture are at most the limits; these; and how many rows, the first, equal theirs:
        the unit sum, then sums with one value, then other sums."""
        signs, limits, equal = self._sides()
        return np.vstack([np.ones(len(self.sources)), signs @ self.rows]), np.append(1.0, limits), 1 + equal

    def multipliers_of_rows(self, multipliers: FloatArray) -> FloatArray:
        """Multipliers (G,) of the rows, above 0 at a floor and below at a cap, from those of `sums`."""
        return -multipliers[1:] @ self._sides()[0]

    def matrices(self) -> tuple[FloatArray, FloatArray, int]:
        """The same over (s, v) with the rows of an L1 ball last: v >= |s - center|, and the sum of v."""
        (rows, limits, equal), M = self.sums(), len(self.sources)
        if self.ball is None or self.ball.kind == "kl":
            return rows, limits, equal
        eye, center = np.eye(M), self.ball.center
        around = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, M)), np.ones((1, M))]])
        rows = np.concatenate([np.pad(rows, ((0, 0), (0, M))), around])
        return rows, np.concatenate([limits, center, -center, [self.ball.radius]]), equal

    def _sides(self) -> tuple[FloatArray, FloatArray, int]:
        """The sides (., G) of rows that bound, those of equalities first, -1 at the row of a floor and 1 at others; the
        limit of each; and how many equal theirs."""
        equal, eye = self.row_low == self.row_high, np.eye(len(self.rows))
        floors, caps = ~equal & np.isfinite(self.row_low), ~equal & np.isfinite(self.row_high)
        limits = np.concatenate([self.row_low[equal], -self.row_low[floors], self.row_high[caps]])
        return np.concatenate([eye[equal], -eye[floors], eye[caps]]), limits, int(equal.sum())

    @property
    def is_none(self) -> BoolArray:
        """Sources (M,) of which no mixture has more than a trace, which is none."""
        return self.upper < TRACE

    def presolve(self) -> Polytope:
        """The same where a ratio that is the same in all mixtures is held there by its own bounds, traces at 0, and
        sums that have one value are rows with one.

        One linear program finds these, whatever bounds hold them: over mixtures times any factor, as many ratios and
        sums as can be off a bound are, each by up to 1 (Freund, Roundy and Todd 1985). There must be a mixture.
        """
        M, none = len(self.sources), self.is_none
        lower, upper = np.where(none, 0.0, self.lower), np.where(none, 0.0, np.maximum(self.upper, self.lower))
        if self.is_box:
            return replace(self, lower=lower, upper=upper)
        matrix, limits, equal = self.matrices()
        wide, sums = matrix.shape[1], len(self._sides()[0]) + 1 - equal
        count = 2 * M + sums
        box, off = np.eye(M, wide), np.zeros((len(matrix) + 2 * M, count))
        off[equal : equal + sums, 2 * M :] = np.eye(sums)
        off[len(matrix) :, : 2 * M] = np.eye(2 * M)
        # Columns: mixtures times the factor, with what an L1 ball adds; the distances from bounds; the factor.
        rows = np.column_stack([np.concatenate([matrix, -box, box]), off, -np.concatenate([limits, -lower, upper])])
        found = linprog(
            np.repeat([0.0, -1.0, 0.0], [wide, count, 1]),
            A_ub=rows[equal:], b_ub=np.zeros(len(rows) - equal), A_eq=rows[:equal], b_eq=np.zeros(equal),
            bounds=[*[(None, None)] * wide, *[(0.0, 1.0)] * count, (1.0, 1 / TRACE)], method="highs", options=EXACT,
        )  # fmt: skip
        if not found.success:
            return replace(self, lower=lower, upper=upper)
        off_floor, off_cap, off_rows = np.split(found.x[wide : wide + count] > 0.5, [M, 2 * M])
        # Of a sum without room the ratios are held already, each by its own bounds.
        has_room = np.abs(self.rows) @ (off_floor & off_cap) > 0
        held = self._sides()[0][equal - 1 :][~off_rows] * has_room
        low = np.where((held > 0).any(axis=0), self.row_high, self.row_low)
        high = np.where((held < 0).any(axis=0), low, self.row_high)
        lower, upper = np.where(off_cap, lower, upper), np.where(off_floor, upper, lower)
        return replace(self, lower=lower, upper=upper, row_low=low, row_high=high)


def divergence(p: FloatArray, center: FloatArray) -> float:
    """KL(p || center) = sum_i p_i log(p_i / center_i) in nats; infinite outside of the centre's support."""
    return float(rel_entr(np.maximum(p, 0.0), center).sum())


def divergence_gradient(p: FloatArray, center: FloatArray) -> FloatArray:
    """log(p / center) + 1 (M,), -inf at ratio zero, and 0 outside of the centre's support."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(center > 0, np.log(p / center) + 1, 0.0)


def linear_minimiser(cost: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mixture (..., M) that minimises `cost . s` under bounds on single ratios, and the price (...) at its margin:
    the cheapest sources are filled first."""
    order = np.argsort(cost, axis=-1, kind="stable")
    low, high = np.broadcast_to(lower, cost.shape), np.broadcast_to(upper, cost.shape)
    room = np.take_along_axis(high - low, order, axis=-1)
    rest = (1 - low.sum(axis=-1))[..., None]
    before = np.cumsum(room, axis=-1) - room
    s = low.copy()
    filled = np.take_along_axis(low, order, axis=-1) + np.clip(rest - before, 0.0, room)
    np.put_along_axis(s, order, filled, axis=-1)
    # The marginal source is the last one with room that the fill touches; the first with room if it touches none.
    touched = (room > 0) & ((before < rest - FEASIBLE) | (before == 0))
    margin = room.shape[-1] - 1 - np.argmax(touched[..., ::-1], axis=-1, keepdims=True)
    return s, np.take_along_axis(cost, np.take_along_axis(order, margin, axis=-1), axis=-1)[..., 0]
