"""A question as it stands: what is known of losses at its budget, what is minimised, and within which bounds.

Below the fit's regimes of losses are read into the bounds: a law says nothing of ratios that no run had.

Axes: M sources, K targets, B replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from shapleymix.errors import SolveError, UsageError
from shapleymix.fitting.coverage import TIED
from shapleymix.fitting.evidence import TRACE, own_source
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.jumps import NEVER
from shapleymix.fitting.own_fit import AnyFit, as_fit
from shapleymix.fitting.surface import Gain, Surface
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.answers import Mixture
from shapleymix.mixing.asked import WORST, Asked, Weights, weights_of
from shapleymix.mixing.bounds import DEFAULT_EPOCHS, polytope_of, tokens_of
from shapleymix.mixing.constraints import rows_and_curves
from shapleymix.mixing.goal import Goal, Searched
from shapleymix.mixing.infeasibility import explain, require_feasible
from shapleymix.mixing.polytope import JUMP, LEAST_NONZERO, REGIME, UNSEEN, Polytope
from shapleymix.mixing.proof import Proof
from shapleymix.mixing.solving import OF_TARGETS, join_pieces, solve, solve_all
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import own_data, paths_of, unit_of
from shapleymix.tables.mixtures import MixtureSpec, mixture_of
from shapleymix.tables.words import parse_budget

BELOW = 0.1
"""Share of the smallest ratio that any run had of a language to which an optimum may go where no run was without it."""
LONGER, LEAST_FALL = 1.5, 1e-7
"""By how much D is multiplied to see what it does, and the least share of the objective that counts as something."""
MOST_FLOORS = 64
"""Sets of floors against jumps that are tried: three losses and three sources, or one and 63."""
HALVINGS = 20
"""Of what all regimes ask for, at most: bounds that leave less room than a millionth of that leave none."""


@dataclass(frozen=True)
class Question:
    """What is asked of a mixture at N parameters and D tokens.

    Attributes
    ----------
    fit : AnyFit
        The fit.
    surface : Surface
        What it knows of losses at this budget.
    weights : Weights
        What each target counts.
    goal : Goal
        What is minimised, and the bounds.
    unit : str
        Unit of the objective.
    asked : Asked
        The keywords as they were given.
    bounds : Polytope
        The bounds as they were asked for, before what they and the fit's regimes leave no room for is held.
    notices : tuple of str
        What was decided for the user.
    free : Goal, optional
        The goal without floors against jumps, by which rivals are judged; None where there are no such floors.
    """

    fit: AnyFit
    surface: Surface
    weights: Weights
    goal: Goal
    unit: str
    asked: Asked
    bounds: Polytope
    notices: tuple[str, ...]
    free: Goal | None = None

    @classmethod
    def of(cls, asked: Asked) -> Self:
        """The question that keywords make.

        Raises
        ------
        InfeasibleError, UsageError
            As `problem`.
        """
        fit, N, D = as_fit(asked.fit), parse_budget(asked.N, "N"), parse_budget(asked.D, "D")
        if not fit.sources:
            hint = "add a column p_all of 1 to the log and fit it again: then N and D can be chosen, too"
            raise UsageError("the log of this fit had no mixtures, so that none is to be chosen", hint=hint)
        bounds, anchor = _bounds(fit, D, asked)
        bounds, curved = rows_and_curves(bounds, asked.constraints)
        surface = read_surface(fit, asked, N, D, bounds.supply.available)
        weights = weights_of(fit, surface, asked)
        w, unit = weights.of(asked.objective, surface.unit.name)
        within, law, notices = _hold_regimes(fit, surface, bounds, w > 0, asked.allow_unseen)
        goal = Goal(law, w, within, asked.objective == WORST, float(asked.kl), anchor, curved)
        unseen = [name for name, why in zip(within.sources, within.cap_origin, strict=True) if why == UNSEEN]
        if unseen:
            notices.append(f"no fitted run saw {', '.join(unseen)}: kept at ratio 0, because the effect is unknown")
        return cls(fit, surface, weights, goal, unit, asked, bounds, (*weights.notices, *notices))

    def with_bounds(self, bounds: Polytope) -> Self:
        """The same question within other bounds; floors of regimes are no higher than here, though there be room."""
        within, law, _ = _hold_regimes(self.fit, self.surface, bounds, self.goal.w > 0, self.asked.allow_unseen)
        lower = np.minimum(within.lower, np.maximum(bounds.lower, self.within.lower))
        within = replace(within, lower=np.where(self.within.is_none, within.lower, lower))
        return replace(self, goal=replace(self.goal, law=law, within=within), bounds=bounds)

    def with_help(self, proof: Proof) -> tuple[Self, Proof]:
        """The question and its optimum; where weighted losses jump there, with them as high, or with floors against it.

        Of each loss that may jump one source is tried at a time, and all of them together, up to `MOST_FLOORS` sets.
        """
        known, found = self.fit.jumps, []
        if known is None or self.fit.residual is None:
            return self, proof
        places = np.arange(len(self.goal.w)) if self.surface.places is None else self.surface.places
        targets = [j for j in np.unique(places[self.goal.w > 0]).tolist() if known.height[j] > 0]
        if not known.mean(self.fit.residual.pool(proof.p[None]))[0, targets].any():
            return self, proof
        upper, like, floors = self.bounds.upper, self.fit.residual.alike, np.zeros((1, len(self.bounds.upper)))
        for j in targets:
            low, high = known.low[like, j], known.high[like, j]
            ends = np.where((upper > low) & (high < NEVER), np.minimum(high, upper), 0.0)
            each = np.vstack([0 * ends, np.diag(ends)[ends > 0]])
            if len(floors) * len(each) <= MOST_FLOORS:
                floors = np.maximum(floors[:, None], each).reshape(-1, len(ends))
        for one in np.unique(floors, axis=0):
            with suppress(SolveError):  # no mixture has so much of all
                left = known.mean(self.fit.residual.pool(np.maximum(self.bounds.lower, one)[None]))[0]
                other = self._with_floors(one, np.exp(left))
                found.append((other, solve(other.goal, self.asked.seed)))
        return min(found, key=lambda one: one[0].total(one[1].p), default=(self, proof))

    def total(self, p: FloatArray) -> float:
        """The objective of a mixture (M,), with its penalty."""
        return self.objective(p) + self.goal.penalty(p)

    def _with_floors(self, floors: FloatArray, factor: FloatArray) -> Self:
        """The same with floors (M,) that keep losses from jumps; `factor` (K,) times as high are those that jump."""
        bounds = self.bounds
        lower = np.maximum(bounds.lower, floors)
        origin = tuple(np.where(lower > bounds.lower, JUMP, bounds.floor_origin).tolist())
        bounds = replace(bounds, lower=lower, floor_origin=origin)
        held = replace(self, surface=self.surface.raise_law(factor)).with_bounds(bounds)
        return replace(held, free=self.goal if floors.any() else None)

    @property
    def within(self) -> Polytope:
        """The bounds."""
        return self.goal.within

    @property
    def level(self) -> float:
        """Probability of the intervals."""
        return self.asked.level

    @cached_property
    def draws(self) -> Pieces | None:
        """Pieces of the fit's replicates (B,) that are finite numbers; None without."""
        found = self.surface.draws
        if found is None:
            return None
        sane = np.asarray(np.isfinite(found.losses(np.full(found.n_sources, 1 / found.n_sources))).all(axis=-1))
        return _with_absent(found.flat().take(sane), self.surface, self.within) if sane.any() else None

    def with_available(self, available: FloatArray) -> Self:
        """The same with these unique tokens (M,), NaN for no limit; an anchor and a ball stay where they are."""
        sources, ball = self.within.sources, self.within.ball
        asked = replace(
            self.asked,
            fit=self.fit,
            available={name: available[i] for i, name in enumerate(sources) if np.isfinite(available[i])},
            near=None if ball is None else ball.center,
            after=None if self.asked.after is None else self.within.supply.read / self.within.supply.read.sum(),
            anchor=self.goal.anchor,
        )
        return self.of(asked)

    def with_tokens(self, change: str) -> Self:
        """The same question with more or fewer unique tokens at hand: `"de+50B"`, `"en-1T,de+10B"`."""
        available = self.surface.available
        return self.with_available(available + tokens_of(str(change), self.within.sources, available))

    @property
    def own(self) -> BoolArray:
        """Which sources (M, K) are each target's own data, or that of the language of a task."""
        targets = self.surface.targets if self.surface.score is None else tuple(self.surface.score.targets)
        return own_data(paths_of(self.surface.sources, self.fit.parents, targets), targets)

    @property
    def by_source(self) -> FloatArray | None:
        """Weights (M,) of the targets, divided among the sources that are their own data; None if none is."""
        found = self.own @ (self.weights.raw / np.maximum(self.own.sum(axis=0), 1))
        return found if found.any() else None

    def gain(self, p: MixtureSpec, q: MixtureSpec) -> Gain:
        """What a mixture p saves of the objective of q."""
        return self.gain_between(self.ratios(p), self.ratios(q))

    def gain_between(self, p: FloatArray, q: FloatArray) -> Gain:
        """The same of two mixtures (M,) of the whole run."""
        return self.surface.gain(p, q, self.goal.of, self.level)

    def ratios(self, given: MixtureSpec) -> FloatArray:
        """A mixture (M,) of the whole run from one of what it has still to read, or from an answer."""
        if isinstance(given, Mixture) and given.read.any():
            return given.p
        surface = self.surface
        return self.whole(mixture_of(given, self.within.sources, surface.available, surface.D, self.by_source))

    def whole(self, rest: FloatArray) -> FloatArray:
        """The mixture (M,) of the whole run whose rest has such a mixture (M,)."""
        read = self.within.supply.read / self.surface.D
        return read + (1 - read.sum()) * rest

    def tokens_for(self, p: FloatArray, objectives: FloatArray) -> FloatArray:
        """How many times D mixtures (R, M) need for objectives (..., R): by `a + b D^-c` through three D, of each."""
        if not self.fit.tells_tokens or self.within.supply.read.any():  # a longer rest is another mixture
            return np.full(objectives.shape, np.nan)
        at, known = (self.surface.N, self.surface.D), self.surface.available
        longer = [read_surface(self.fit, self.asked, at[0], times * at[1], known) for times in (LONGER, LONGER**2)]
        found = [self.goal.of(one.mean(p)) for one in (self.surface, *longer)]
        first, last = found[0] - found[1], found[1] - found[2]
        with np.errstate(divide="ignore", invalid="ignore"):
            c = np.log(first / last) / np.log(LONGER)
            b = first / -np.expm1(-c * np.log(LONGER))
            left = np.maximum(objectives - found[0] + b, 0.0) / b
            return np.where((last > LEAST_FALL * found[0]) & (c > 0), left ** (-1 / c), np.nan)

    def objective(self, p: FloatArray) -> float:
        """The mean or worst loss of a mixture (M,), as `predict` has the losses."""
        return float(self.goal.of(self.surface.mean(p[None]))[0])

    def objective_interval(self, p: FloatArray) -> tuple[float, float]:
        """Its interval for one trained run."""
        low, high = self.surface.objective_interval(p[None], self.goal.of, self.level)[:, 0].tolist()
        return low, high


def solve_questions(asked: Sequence[Question]) -> list[tuple[Question, Proof]]:
    """Questions of one kind with their optima; see `Question.with_help`."""
    proofs = solve_all([one.goal for one in asked], asked[0].asked.seed) if asked else []
    return [one.with_help(proof) for one, proof in zip(asked, proofs, strict=True)]


def read_surface(fit: AnyFit, asked: Asked, N: float, D: float, available: FloatArray) -> Surface:
    """What is known of losses at a budget, in the unit that is asked for."""
    found = fit.at(N, D, available=available, score=asked.score)
    if found.score is not None:
        return found
    return found.read_in(unit_of(asked.unit, asked.table, found.targets, fit.parents))


def _bounds(fit: AnyFit, D: float, asked: Asked) -> tuple[Polytope, FloatArray | None]:
    """The bounds but for those that cvxpy writes, and the anchor (M,) of the pull."""
    unseen, usual = () if asked.allow_unseen else fit.unseen, DEFAULT_EPOCHS if fit.repetition is None else np.inf
    within = polytope_of(asked, fit.sources, D, unseen=unseen, usual_epochs=usual, parents=fit.parents)
    anchor, ball = None, within.ball
    if asked.anchor is not None:
        anchor = mixture_of(asked.anchor, within.sources, within.supply.available, D)
        within = within.hold_at_zero(anchor == 0, "anchor")
    if ball is not None and ball.kind == "kl":
        within = within.hold_at_zero(ball.center == 0, "centre")
    return within, anchor


def _hold_regimes(
    fit: AnyFit, surface: Surface, bounds: Polytope, weighted: BoolArray, free: bool
) -> tuple[Polytope, Pieces | Searched, list[str]]:
    """The bounds with what they and the fit's regimes leave no room for held, the law within them, and notices."""
    within = require_feasible(bounds)
    within, notices = (within, []) if free else _at_the_runs(fit, within)
    within, floors = _above_the_edge(fit, surface, within, weighted)
    notices += floors
    law = Searched(surface) if surface.pieces is None else _with_absent(surface.pieces, surface, within)
    return within, law, notices


def _at_the_runs(fit: AnyFit, within: Polytope) -> tuple[Polytope, list[str]]:
    """The bounds with sources that all runs had at one ratio kept at it, where that leaves a mixture, and a notice."""
    if fit.coverage is None:
        return within, []
    (low, high), kept = fit.coverage.whole_p_range.T, []
    for place in np.flatnonzero((low > TIED) & (high - low <= TIED) & within.movable).tolist():
        here, ratio = np.arange(len(low)) == place, (low[place] + high[place]) / 2
        found = replace(within, lower=np.where(here, ratio, within.lower), upper=np.where(here, ratio, within.upper))
        if within.lower[place] <= ratio <= within.upper[place] and explain(found) is None:
            within, kept = found, [*kept, f"{within.sources[place]} {ratio:.3g}"]
    if not kept:
        return within, []
    text = f"every run has one ratio of {', '.join(kept)}: kept there, because what others would do is unknown"
    return within.presolve(), [text]


def _above_the_edge(fit: AnyFit, surface: Surface, within: Polytope, weighted: BoolArray) -> tuple[Polytope, list[str]]:
    """The bounds with the own sources of weighted targets (K,) above the least ratios that a fit knows, and a notice.

    Below it the loss jumps, at 0 at the latest, to that of models that saw nothing of the language. Where the other
    bounds leave less room than all edges need, each gets the same share of its own; a source with no room at all is
    left out. A floor that was typed holds in place of an edge.
    """
    room = np.minimum(within.upper, 1 - within.lower.sum() + within.lower)
    edge = _edges(fit, surface, weighted)
    within = within.hold_at_zero((edge > 0) & (room < TRACE), REGIME)
    edge = np.where(within.is_none, 0.0, edge)
    shared = (within.with_floors(edge / 2**halving, REGIME) for halving in range(HALVINGS + 1))
    wanted = next((bounds for bounds in shared if explain(bounds) is None), within)
    raised = np.flatnonzero(wanted.lower > within.lower).tolist()
    if not raised:
        return within, []
    named = ", ".join(f"{within.sources[i]} {wanted.lower[i]:.3g}" for i in raised)
    text = f"the runs do not tell the losses far below the smallest ratios that they had: floors are {named}"
    return wanted.presolve(), [text]


def _edges(fit: AnyFit, surface: Surface, weighted: BoolArray) -> FloatArray:
    """The least ratio (M,) of each weighted target's own source; 0 where a fitted run had none of it.

    Where runs without it follow a regime of their own, that is the smallest ratio of the others: below it the regimes
    meet nobody knows where. Where no run was without it, the law holds for `BELOW` of the smallest ratio too.
    """
    edge = np.zeros(len(surface.sources))
    if isinstance(fit, Fit):
        names = surface.targets if surface.score is None else surface.score.targets
        apart = {names[j]: surface.own[j] >= 0 for j in np.flatnonzero(weighted)}
        fitted = ["" if name in fit.coverage.alike else path for name, path in zip(fit.sources, fit.paths, strict=True)]
        for target, place in enumerate(own_source(fitted, fit.targets).tolist()):
            if place >= 0 and (name := fit.targets[target]) in apart:
                least = fit.coverage.p_range[target, place, 0] * (1.0 if apart[name] else BELOW)
                edge[place] = max(edge[place], least if least >= TRACE else 0.0)
    # what a few epochs of all that there is do not reach is no less than the runs tell of
    few = DEFAULT_EPOCHS * surface.available / surface.D
    return np.minimum(edge, np.where(np.isnan(few), np.inf, np.maximum(few, LEAST_NONZERO)))


def _with_absent(pieces: Pieces, surface: Surface, within: Polytope) -> Pieces:
    """The pieces, those of targets whose own source the bounds leave out being those of the other regime."""
    absent, own = surface.absent, surface.own
    there = (own >= 0) & within.is_none[np.maximum(own, 0)]
    if absent is None or not there.any():
        return pieces
    return join_pieces((absent, pieces), lambda sides: np.where(there, *sides), OF_TARGETS)
