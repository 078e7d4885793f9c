"""What a mixture must obey at one token budget: every bound written once, as a row, with where it comes from.

Axes: M sources, G rows (bounds on summed ratios), K targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, InfeasibleError
from shapleymix.fitting.evidence import TRACE, traceless
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.words import format_size

FEASIBLE = 1e-9
"""A mixture that breaks a bound by more than this, in units of ratio, is outside of it."""
LEAST_NONZERO = 2 * TRACE
"""A ratio that no rounding takes for none, as one of `TRACE` would be."""
ROUNDING = 1e-13
RIGID = 1e4
"""What a repair pays to change a kept ratio, in place of 1."""
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
FIXED, TOKENS, GIVEN, UNSEEN, REGIME, READ, KEPT = "fixed", "tokens", "given", "unseen", "regime", "read", "kept"
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


@dataclass(frozen=True)
class Supply:
    """Tokens at hand for a run of D tokens: unique ones (M,), NaN where not known; how often they may be seen; the
    fewest that are asked for, 0 for none; and those that the run has read already, 0 before it."""

    D: float
    available: FloatArray
    epochs: FloatArray
    least: FloatArray
    read: FloatArray


class Duals(NamedTuple):
    """Multipliers of a linear program: of the rows (G,), above 0 at a floor and below at a cap; of the ball,
    `ball . s <= limit`; and of the tangents of the targets (K,)."""

    rows: FloatArray
    ball: FloatArray
    limit: float
    targets: FloatArray


class Tangents(NamedTuple):
    """`slopes . s - limits` (K,) are below the weighted losses whose largest, t, is minimised."""

    slopes: FloatArray
    limits: FloatArray

    def over(self, unit: float, p: FloatArray) -> Tangents:
        """The same in another unit, counted from the largest at a mixture (M,)."""
        top = (self.slopes @ p - self.limits).max(initial=-np.inf)
        return Tangents(self.slopes / unit, (self.limits + top) / unit)


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
        Where each comes from: "given", "fixed", "tokens", "unseen", "regime", "read", "kept", or "" for none.
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

    def held_at_zero(self, absent: BoolArray, why: str) -> Polytope:
        """The same with some sources (M,) held at ratio 0."""
        origins = zip(absent.tolist(), self.cap_origin, strict=True)
        origin = tuple(why if out else old for out, old in origins)
        return replace(self, upper=np.where(absent, 0.0, self.upper), cap_origin=origin) if absent.any() else self

    def with_floors(self, floors: FloatArray, why: str) -> Polytope:
        """The same with floors (M,) that are at least these, as far as the caps allow; where one was typed a trace."""
        typed = np.array(self.floor_origin) == GIVEN
        lower = np.maximum(
            self.lower, np.minimum(np.where(typed, np.minimum(floors, LEAST_NONZERO), floors), self.upper)
        )
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

    def minimise_linear(
        self, cost: FloatArray, at: FloatArray | None = None, tangents: Tangents | None = None
    ) -> tuple[FloatArray, Duals] | None:
        """The mixture (M,) at which `cost . s` plus the largest tangent is least, and the duals.

        Parameters
        ----------
        cost : array (M,) or (2 M,)
            Cost of a unit of each ratio, and of its distance from the centre of an L1 ball.
        at, tangents : see `written`

        Returns
        -------
        None where no mixture is within the bounds, or the program fails.
        """
        M, K = len(self.sources), 0 if tangents is None else len(tangents.limits)
        matrix, limits, equal = self.written(at, tangents)
        costs = np.pad(cost, (0, matrix.shape[1] - len(cost)))
        if K:
            costs[-1] = 1.0
        found = linprog(
            costs,
            A_ub=matrix[equal:],
            b_ub=limits[equal:],
            A_eq=matrix[:equal],
            b_eq=limits[:equal],
            bounds=[*zip(self.lower.tolist(), self.upper.tolist(), strict=True), *[(None, None)] * (len(costs) - M)],
            method="highs",
            options=EXACT,
        )
        if not found.success:
            return None
        duals = -np.concatenate([found.eqlin.marginals, np.minimum(found.ineqlin.marginals, 0.0)])
        places, signs, _ = self._sides()
        of_sums, of_ball, of_targets = np.split(duals[1:], [len(places), len(matrix) - 1 - K])
        of_rows = np.zeros(len(self.rows))
        np.add.at(of_rows, places, -signs * of_sums)
        return np.asarray(found.x[:M]), Duals(of_rows, *self._of_ball(of_ball, at), of_targets)

    def written(
        self, at: FloatArray | None = None, tangents: Tangents | None = None
    ) -> tuple[FloatArray, FloatArray, int]:
        """The bounds but those on single ratios as rows over (s, v, t) with v >= |s - center| for an L1 ball.

        Parameters
        ----------
        at : array (M,), optional
            The mixture at which a KL ball is replaced by its tangent, KL(s) >= KL(p) + grad KL(p) . (s - p); None
            leaves it out.
        tangents : Tangents, optional
            Those of the worst case, t; without any there is no t.

        Returns
        -------
        Rows, which times (s, v, t) are at most the limits; these; and how many rows, the first, equal theirs. The unit
        sum comes first, then sums with one value, other sums, the rows of the ball, and those of the tangents.
        """
        places, signs, equal = self._sides()
        ball, ball_limits = self._ball_rows(at)
        sums = np.concatenate([np.ones((1, len(self.sources))), signs[:, None] * self.rows[places]])
        limits = np.where(signs < 0, -self.row_low[places], self.row_high[places])
        matrix = np.concatenate([np.pad(sums, ((0, 0), (0, ball.shape[1] - sums.shape[1]))), ball])
        limits = np.concatenate([[1.0], limits, ball_limits])
        if tangents is not None and len(tangents.limits):
            below = np.pad(tangents.slopes, ((0, 0), (0, matrix.shape[1] - sums.shape[1])))
            top = np.repeat([0.0, -1.0], [len(matrix), len(below)])
            matrix = np.column_stack([np.concatenate([matrix, below]), top])
            limits = np.concatenate([limits, tangents.limits])
        return matrix, limits, 1 + equal

    def _sides(self) -> tuple[IntArray, FloatArray, int]:
        """Places of the sides of rows that bound, those of equalities first; -1 for a floor, else 1; how many equal."""
        equal = self.row_low == self.row_high
        sides = equal, ~equal & np.isfinite(self.row_low), ~equal & np.isfinite(self.row_high)
        counts = [int(side.sum()) for side in sides]
        return np.concatenate([np.flatnonzero(side) for side in sides]), np.repeat([1.0, -1.0, 1.0], counts), counts[0]

    def explain(self) -> InfeasibleError | None:
        """Which bounds leave no mixture, by how much, and the smallest repair; None where there is a mixture."""
        faults = self._sums()
        if not faults and (len(self.rows) or (self.lower > self.upper + FEASIBLE).any()):
            faults = self._repair()
        if not faults and self.ball is not None:
            faults = self._too_far(self.ball)
        if not faults:
            return None
        unseen = [name for name, why in zip(self.sources, self.cap_origin, strict=True) if why == UNSEEN]
        if unseen:
            why = f"; no run of the fit ever saw {', '.join(unseen)}: held at 0 unless they are allowed"
            faults = [replace(fault, message=f"{fault.message}{why}") for fault in faults]
        error = InfeasibleError.of(faults, "the set of bounds")
        assert isinstance(error, InfeasibleError)
        return error

    def checked(self) -> Polytope:
        """The same, with bounds that crossed by rounding alone made equal, and ratios without room held at one value.

        Raises
        ------
        InfeasibleError
            If they leave no mixture.
        """
        error = self.explain()
        if error is not None:
            raise error
        return replace(self, upper=np.maximum(self.upper, self.lower))._with_room()

    @property
    def is_none(self) -> BoolArray:
        """Sources (M,) of which no mixture has more than a trace, which is none."""
        return self.upper < TRACE

    def _with_room(self) -> Polytope:
        """The same where a ratio that is the same in all mixtures is held there by its own bounds, and traces at 0.

        One linear program finds these, whatever bounds hold them: over mixtures times any factor, as many ratios as can
        be off a bound are, each by up to 1 (Freund, Roundy and Todd 1985).
        """
        M, lower, upper = len(self.sources), np.where(self.is_none, 0.0, self.lower), traceless(self.upper)
        if self.is_box:
            return replace(self, lower=lower, upper=upper)
        matrix, limits, equal = self.written()
        wide, eye = matrix.shape[1], np.eye(M, matrix.shape[1])
        none, one = np.zeros((len(matrix), 2 * M)), np.eye(M)
        # Columns: mixtures times the factor, with what an L1 ball adds; the distances from floors and caps; the factor.
        rows = np.concatenate(
            [
                np.column_stack([matrix, none, -limits]),
                np.column_stack([-eye, one, 0 * one, lower]),
                np.column_stack([eye, 0 * one, one, -upper]),
            ]
        )
        bounds = [*[(None, None)] * wide, *[(0.0, 1.0)] * (2 * M), (1.0, 1 / TRACE)]
        cost = np.repeat([0.0, -1.0, 0.0], [wide, 2 * M, 1])
        found = linprog(
            cost, A_ub=rows[equal:], b_ub=np.zeros(len(rows) - equal), A_eq=rows[:equal], b_eq=np.zeros(equal),
            bounds=bounds, method="highs", options=EXACT,
        )  # fmt: skip
        if not found.success:
            return replace(self, lower=lower, upper=upper)
        off_floor, off_cap = np.split(found.x[wide : wide + 2 * M] > 0.5, 2)
        return replace(self, lower=np.where(off_cap, lower, upper), upper=np.where(off_floor, upper, lower))

    def _ball_rows(self, at: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Rows and their limits of the ball over (s, v): of L1 exactly, with v >= |s - center|; of KL its tangent."""
        M = len(self.sources)
        if self.ball is None or (self.ball.kind == "kl" and at is None):
            return np.zeros((0, M)), np.zeros(0)
        center, radius = self.ball.center, self.ball.radius
        if self.ball.kind == "l1":
            eye = np.eye(M)
            rows = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, M)), np.ones((1, M))]])
            return rows, np.concatenate([center, -center, [radius]])
        slope, limit = self._kl_tangent(at)
        return slope[None], np.array([limit])

    def _kl_tangent(self, at: FloatArray | None) -> tuple[FloatArray, float]:
        """slope . s <= limit for every mixture s within the KL ball."""
        assert self.ball is not None
        assert at is not None
        slope = divergence_gradient(at, self.ball.center)
        slope = np.where(self.movable, slope, 0.0)
        return slope, self.ball.radius - divergence(at, self.ball.center) + float(slope @ at)

    def _of_ball(self, duals: FloatArray, at: FloatArray | None) -> tuple[FloatArray, float]:
        """One row `ball . s <= limit` that holds within the ball, from the multipliers of its rows."""
        M = len(self.sources)
        if self.ball is None or not len(duals):
            return np.zeros(M), 0.0
        if self.ball.kind == "l1":
            row = duals[:M] - duals[M : 2 * M]
            return row, float(row @ self.ball.center + self.ball.radius * np.abs(row).max())
        slope, limit = self._kl_tangent(at)
        return float(duals[0]) * slope, float(duals[0]) * limit

    def _sums(self) -> list[Fault]:
        floors, caps = float(self.lower.sum()), float(self.upper.sum())
        if floors > 1 + FEASIBLE:
            listed = ", ".join(f"{name} {low:.4g}" for name, low in zip(self.sources, self.lower, strict=True) if low)
            hint = f"lower them by {floors - 1:.4g} in all, for instance multiply each by {1 / floors:.4g}"
            return [Fault(f"the floors sum to {floors:.6g}, above 1 by {floors - 1:.4g}: {listed}", hint=hint)]
        if caps < 1 - FEASIBLE:
            listed = ", ".join(f"{name} {high:.4g}" for name, high in zip(self.sources, self.upper, strict=True))
            text = f"the caps sum to {caps:.6g}, short of 1 by {1 - caps:.4g}: {listed}"
            return [Fault(text, value=f"{1 - caps:.6g}", hint=self._more_supply(caps))]
        return []

    def _more_supply(self, caps: float) -> str:
        """What would raise caps to a sum of 1."""
        parts = [f"raise the caps by {1 - caps:.4g} in all"]
        limited = np.array([why == TOKENS for why in self.cap_origin])
        supplied = float(self.upper[limited].sum())
        if supplied > 0:
            parts.append(f"allow {1 + (1 - caps) / supplied:.4g} times the epochs")
            if limited.all():
                parts.append(f"train on D = {format_size(caps * self.supply.D)} tokens at most")
        return ", or ".join(parts)

    def _repair(self) -> list[Fault]:
        """One fault for each bound of the smallest repair in the sum of absolute changes, by a linear program."""
        bounds, M = np.concatenate([np.eye(len(self.sources)), self.rows]), len(self.sources)
        low, high = np.concatenate([self.lower, self.row_low]), np.concatenate([self.upper, self.row_high])
        eye, none = np.eye(len(bounds)), np.zeros((len(bounds), len(bounds)))
        # Columns: p, then by how much each lower and each upper bound gives way.
        A, b = np.block([[-bounds, -eye, none], [bounds, none, -eye]]), np.concatenate([-low, high])
        told = np.isfinite(b)
        read = np.append(np.array(self.floor_origin) == READ, self.rigid)  # what was read stays read
        rigid = np.append(np.zeros(M, dtype=bool), self.rigid)
        cost = np.concatenate([np.zeros(M), *(np.where(one, RIGID, 1.0) for one in (read, rigid))])
        total = np.concatenate([np.ones(M), np.zeros(2 * len(bounds))])[None]
        found = linprog(cost, A_ub=A[told], b_ub=b[told], A_eq=total, b_eq=[1.0], bounds=(0, None), method="highs")
        names = (*self.sources, *(f"the group {name}" for name in self.row_names))
        origins = {"floor": self.floor_origin, "cap": self.cap_origin}
        sides = (("floor", low, -1, found.x[M : M + len(bounds)]), ("cap", high, 1, found.x[M + len(bounds) :]))
        faults = []
        for kind, bound, sign, change in sides:
            for i in np.flatnonzero(change > FEASIBLE).tolist():
                why, other = origins[kind][i] if i < M else "", bound[i] + sign * change[i]
                named = f"the {kind} {bound[i]:.4g}{why and f' ({why})'} of {names[i]}"
                epochs = kind == "cap" and why == TOKENS and bound[i] > 0
                hint = f"change it to {other:.4g}" + (f" ({other / bound[i]:.3g} times the epochs)" if epochs else "")
                text = f"{named} cannot hold with {self._against(i)}, by {change[i]:.4g}"
                faults.append(Fault(text, value=f"{change[i]:.6g}", hint=hint))
        return faults

    def _against(self, place: int) -> str:
        """What a bound of that number cannot hold with: the tokens of its source, where they are too few."""
        if place >= len(self.sources) or self.cap_origin[place] != TOKENS or self.lower[place] <= self.upper[place]:
            return "the others"
        epochs, tokens, D = self.supply.epochs[place], self.supply.available[place], self.supply.D
        return (
            f"its tokens: {epochs:g} epochs of {self.sources[place]}'s {format_size(tokens)} tokens are "
            f"{self.upper[place]:.3g} of {format_size(D)}"
        )

    def _too_far(self, ball: Ball) -> list[Fault]:
        """Whether no mixture within the other bounds is near enough to the centre."""
        if self.violation(ball.center) <= FEASIBLE:
            return []
        text = f"no mixture within the other bounds is within {ball.radius:.4g} of the one to stay near"
        least = self._least_l1(ball) if ball.kind == "l1" else self._least_kl(ball)
        if not np.isfinite(least):
            return [Fault(f"{text}: it gives ratio 0 to sources that the bounds need", hint="give it some, or use l1")]
        if least <= ball.radius * (1 + 1e-6) + FEASIBLE:
            return []
        hint = f"widen it to {least * 1.001:.4g}, or loosen the other bounds"
        return [Fault(f"{text}: the nearest is at {least:.4g}", value=f"{least:.6g}", hint=hint)]

    def _least_l1(self, ball: Ball) -> float:
        """The least L1 distance from the centre of a mixture within the other bounds."""
        everywhere = replace(self, ball=replace(ball, radius=2.0))
        found = everywhere.minimise_linear(np.repeat([0.0, 1.0], len(self.sources)))
        return np.inf if found is None else ball.distance(found[0])

    def _least_kl(self, ball: Ball) -> float:
        """The same in KL; infinite where the other bounds need sources that the centre has none of."""
        from shapleymix.laws.pieces import Pieces
        from shapleymix.mixing.goal import Goal
        from shapleymix.mixing.solving import solve

        others = replace(self, ball=None).held_at_zero(ball.center == 0, "centre")
        if others.explain() is not None:
            return np.inf
        none, one = np.zeros(1), np.ones(1)
        nothing = Pieces("power", none, none, one, np.ones((len(self.sources), 1)))
        return solve(Goal(nothing, one, others, kl=1.0, anchor=ball.center)).certificate.objective


def divergence(p: FloatArray, center: FloatArray) -> float:
    """KL(p || center) = sum_i p_i log(p_i / center_i) in nats; infinite outside of the centre's support."""
    inside = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[inside] * np.log(p[inside] / center[inside])))


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
    last = np.sum((before < rest - FEASIBLE) & (room > 0), axis=-1, keepdims=True) - 1
    # The marginal source is the last one that the fill touches, counted among those with room.
    touched = np.argsort(~(room > 0), axis=-1, kind="stable")
    margin = np.take_along_axis(touched, np.maximum(last, 0), axis=-1)
    return s, np.take_along_axis(np.take_along_axis(cost, order, axis=-1), margin, axis=-1)[..., 0]
