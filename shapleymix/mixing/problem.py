"""A question about mixtures, written down once, and answered in several ways.

>>> question = problem(fit, "243M", "100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)
>>> question.solve(), question.with_tokens("fi+20B").solve(), question.compare(["uniform", "natural"])

Axes: M sources, K targets, B replicates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any, Self

import numpy as np

from shapleymix.errors import UsageError, described
from shapleymix.fitting.coverage import TIED
from shapleymix.fitting.evidence import TRACE, own_source
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.settings import Size
from shapleymix.fitting.surface import Gain, Score, Surface, as_surface
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.answers import Candidates, Mixture
from shapleymix.mixing.bounds import DEFAULT_EPOCHS, EpochsSpec, GroupSpec, NamesSpec, TokensSpec, polytope_of
from shapleymix.mixing.constraints import Constraint, rows_and_curves
from shapleymix.mixing.frontier import POINTS, Frontier, frontier_of
from shapleymix.mixing.goal import MEAN, NORMALIZED, WORST, Goal, Weights, WeightSpec, weights_of
from shapleymix.mixing.infeasibility import checked, explain
from shapleymix.mixing.polytope import LEAST_NONZERO, REGIME, TOKENS, UNSEEN, Polytope
from shapleymix.mixing.reporting import candidates_of, reported, tokens_of
from shapleymix.mixing.solving import solve_all
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import LanguagesSpec, languages_of, unit_of
from shapleymix.tables.mixtures import MixtureSpec, Rivals, mixture_of
from shapleymix.tables.words import Amounts, Ratios, parse_budget, parse_choice, parse_level, parse_number, parse_whole

BELOW = 0.1
"""Share of the smallest ratio that any run had of a language to which an optimum may go where no run was without it."""
LEAST_SHARE = 1e-6
"""Of the edges of regimes: with less room than that there is none."""
FitSpec = object
"""A `Fit`, the file of a saved one, or an object of the user's own (see `as_surface`)."""


@dataclass(frozen=True)
class Problem:
    """What is asked of a mixture at N parameters and D tokens, and the answers to it; see `problem`.

    Attributes
    ----------
    fit : object
        The fit.
    surface : Surface
        What it knows of losses at this budget.
    weights : Weights
        What each target counts.
    goal : Goal
        What is minimised, and the bounds.
    unit : str
        Unit of the objective.
    asked : dict
        The keywords as they were given.
    bounds : Polytope
        The bounds as they were asked for, before what they and the fit's regimes leave no room for is held.
    notices : tuple of str
        What was decided for the user.
    """

    fit: Any
    surface: Surface
    weights: Weights
    goal: Goal
    unit: str
    asked: dict[str, Any]
    bounds: Polytope
    notices: tuple[str, ...]

    @classmethod
    def written(cls, fit: Any, N: float, D: float, asked: dict[str, Any]) -> Self:
        """The question that keywords make, once they are `parsed`.

        Raises
        ------
        InfeasibleError, UsageError
            As `problem`.
        """
        bounds, anchor = _bounds(fit, D, asked)
        bounds, curved = rows_and_curves(bounds, asked["constraints"])
        surface = as_surface(fit, N, D, available=bounds.supply.available, score=asked["downstream"])
        if surface.score is None:
            parents = getattr(fit, "parents", {})
            surface = surface.read_in(unit_of(asked["unit"], asked["languages"], surface.targets, parents))
        weights = weights_of(fit, surface, asked)
        w, unit = weights.of(asked["objective"], surface.unit.name)
        within, law, told = _held(fit, surface, bounds, w > 0, asked["allow_unseen"])
        goal = Goal(law, w, within, asked["objective"] == WORST, float(asked["kl"]), anchor, curved)
        held = [name for name, why in zip(within.sources, within.cap_origin, strict=True) if why == UNSEEN]
        if held:
            told.append(f"no fitted run saw {', '.join(held)}: kept at ratio 0, because the effect is unknown")
        return cls(fit, surface, weights, goal, unit, asked, bounds, (*weights.notices, *told))

    def with_bounds(self, bounds: Polytope) -> Self:
        """The same question within other bounds; floors of regimes are no higher than here, though there be room."""
        within, law, _ = _held(self.fit, self.surface, bounds, self.goal.w > 0, self.asked["allow_unseen"])
        lower = np.minimum(within.lower, np.maximum(bounds.lower, self.within.lower))
        within = replace(within, lower=np.where(self.within.is_none, within.lower, lower))
        return replace(self, goal=replace(self.goal, law=law, within=within))

    @property
    def within(self) -> Polytope:
        """The bounds."""
        return self.goal.within

    @property
    def level(self) -> float:
        """Probability of the intervals."""
        return self.asked["level"]

    @property
    def knows_repetition(self) -> bool:
        """Whether the fit knows what repeated tokens are worth."""
        return getattr(self.fit, "repetition", None) is not None

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
        sources, ball, table = self.within.sources, self.within.ball, self.asked["languages"]
        nowhere = None if table is None else np.full(len(table.names), np.nan)
        fixed = {
            "languages": None if table is None else replace(table, available_tokens=nowhere),
            "available": {name: available[i] for i, name in enumerate(sources) if np.isfinite(available[i])},
            "near": None if ball is None else ball.center,
            "after": None if self.asked["after"] is None else self.within.supply.read / self.within.supply.read.sum(),
            "anchor": self.goal.anchor,
        }
        return self.written(self.fit, self.surface.N, self.surface.D, self.asked | fixed)

    def gain(self, p: MixtureSpec, q: MixtureSpec) -> Gain:
        """What a mixture p saves of the objective of q."""
        return self.gained(self.ratios(p), self.ratios(q))

    def gained(self, p: FloatArray, q: FloatArray) -> Gain:
        """The same of two mixtures (M,) of the whole run."""
        return self.surface.gain(p, q, self.goal.of, self.level)

    def ratios(self, given: MixtureSpec) -> FloatArray:
        """A mixture (M,) of the whole run from one of what it has still to read, or from an answer."""
        if isinstance(given, Mixture) and given.read.any():
            return given.p
        return self.whole(mixture_of(given, self.within.sources, self.surface.available, self.surface.D))

    def whole(self, rest: FloatArray) -> FloatArray:
        """The mixture (M,) of the whole run whose rest has such a mixture (M,)."""
        read = self.within.supply.read / self.surface.D
        return read + (1 - read.sum()) * rest

    def objective(self, p: FloatArray) -> float:
        """The mean or worst loss of a mixture (M,), as `predict` has the losses."""
        return float(self.goal.of(self.surface.mean(p[None]))[0])

    def objective_interval(self, p: FloatArray) -> tuple[float, float]:
        """Its interval for one trained run."""
        low, high = self.surface.objective_interval(p[None], self.goal.of, self.level)[:, 0].tolist()
        return low, high

    def solve(self) -> Mixture:
        """The optimal mixture, with its proof."""
        return solved((self,))[0]

    def compare(self, mixtures: Rivals) -> Candidates:
        """Several mixtures side by side, and what each gains over the first."""
        return candidates_of(self, mixtures)

    def frontier(self, between: str, points: int = POINTS) -> Frontier:
        """The trade-off between the mean losses of two sets of targets, such as `"en:rest"`."""
        return frontier_of(self, between, points)

    def with_tokens(self, change: str) -> Problem:
        """The same question with more or fewer unique tokens at hand: `"de+50B"`, `"en-1T,de+10B"`."""
        available = self.surface.available
        return self.with_available(available + tokens_of(change, self.within.sources, available))


def solved(problems: Sequence[Problem]) -> tuple[Mixture, ...]:
    """The optimal mixtures of several problems of one kind."""
    found = solve_all([one.goal for one in problems], problems[0].asked["seed"])
    return tuple(map(reported, problems, found))


def fit_of(given: FitSpec) -> Any:
    """A fit, or the one that a file holds."""
    return Fit.load(given) if isinstance(given, (str, os.PathLike)) else given


def problem(
    fit: FitSpec,
    N: Size,
    D: Size,
    *,
    unit: str = "nats",
    weights: WeightSpec | None = None,
    monolingual: Mapping[str, float | str] | str | None = None,
    objective: str = MEAN,
    caps: Ratios | None = None,
    floors: Ratios | None = None,
    fix: Ratios | None = None,
    languages: LanguagesSpec | None = None,
    available: Amounts | None = None,
    max_epochs: EpochsSpec | None = None,
    min_tokens: TokensSpec | None = None,
    groups: Sequence[GroupSpec] | GroupSpec = (),
    keep_within: NamesSpec = (),
    kept: MixtureSpec | None = None,
    near: MixtureSpec | None = None,
    within: float | str | None = None,
    distance: str = "l1",
    after: MixtureSpec | None = None,
    trained: Size | None = None,
    anchor: MixtureSpec | None = None,
    kl: float = 0.0,
    constraints: Sequence[Constraint] = (),
    compare_to: Rivals = (),
    what_if: Sequence[str] | str = (),
    downstream: Score | str | os.PathLike[str] | None = None,
    allow_unseen: bool = False,
    level: float = 0.9,
    seed: int = 0,
) -> Problem:
    """A question about mixtures for N parameters and D tokens.

    A mixture may be text (`"en=0.5,de=50%"`), a mapping, ratios in the order of the sources, a `Mixture`, the file of
    a saved one, or a baseline's name: `"uniform"`, `"natural"`, `"temperature:T"`, `"unimax:E"`.

    Parameters
    ----------
    fit : FitSpec
        A `Fit`, the file of a saved one, or an object of your own with `sources`, `targets` and `predict`.
    N, D : Size
        Parameters and tokens of the run: numbers, or sizes such as `"243M"`.
    unit : str
        Unit of the losses, and so of the objective: `"nats"` a token, or `"bpb"`, bits a byte by the column
        `bytes_per_token` of `languages`.
    weights : WeightSpec, optional
        What each target's loss counts: `"unweighted"`, `"normalized"` (losses are divided by those of monolingual
        models), numbers by target (`"en=1,de=2"`; the others get 0), or a languages table. By default the weights of
        `languages` if it has any, else unweighted.
    monolingual : mapping or str, optional
        Measured losses of monolingual models in nats, for normalized weights; predicted where not given.
    objective : str
        `"mean"`, or `"worst"`: the largest weighted loss is minimised.
    caps : Ratios, optional
        Highest ratios, such as `"en=0.3,de=40%"`.
    floors : Ratios, optional
        Lowest ratios, likewise.
    fix : Ratios, optional
        Exact ratios, likewise.
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families and weights.
    available : Amounts, optional
        Unique tokens by name, such as `"en=5T,fi=20B"`; they override those of the table.
    max_epochs : EpochsSpec, optional
        How often a token may be seen, for all sources or by name. Without it there is no limit if the fit knows what
        repetition costs, and the limit is 4 if it does not.
    min_tokens : TokensSpec, optional
        Fewest tokens, for every source or by name.
    groups : GroupSpec or sequence of GroupSpec
        Bounds on summed ratios, such as `"en+de<=0.3"`, `"cjk: zh+ja>=10%"`, `"Germanic>=60%"` (a family) or
        `"en>=20%"` (all sources whose names begin with `en/`).
    keep_within : NamesSpec
        Families or parents, such as `"en"` of `en/web` and `en/books`, of which only the summed ratio is chosen: inside
        of each the ratios stay as the mixture `kept` has them.
    kept : MixtureSpec, optional
        The mixture whose ratios `keep_within` keeps; natural by default.
    near : MixtureSpec, optional
        A mixture to stay close to; needs `within`.
    within : float or str, optional
        The largest distance from `near`.
    distance : str
        How that is measured: `"l1"`, the sum of absolute differences, or `"kl"`, nats.
    after : MixtureSpec, optional
        For a run already begun, what it has read so far; needs `trained`. N, D, bounds and epochs are those of the
        whole run, and so is the answer, whose `rest` is what to read from now on. Mixtures to compare with are of the
        rest. Losses are taken to hang on what a run has read in all, not on its order.
    trained : Size, optional
        How many of the D tokens it has read.
    anchor : MixtureSpec, optional
        A mixture towards which the optimum is pulled; needs `kl`.
    kl : float
        Strength of the pull: the term kl * KL(p || anchor) is added to the objective, in its unit.
    constraints : sequence of Constraint
        Functions from the ratios by name, which are cvxpy expressions, to one cvxpy constraint or a list of them:
        `lambda p: p["en"] <= 2 * p["de"]`.
    compare_to : Rivals
        Further mixtures to compare with, by name or in a list: `["unimax:4", "plan=en=0.5,de=0.5"]`.
    what_if : str or sequence of str
        Changes of the available tokens, such as `"de+50B"` or `"de+50B,fr-10B"`: the problem is solved again with each.
    downstream : Downstream or path, optional
        Calibrated tasks: the mixture is chosen by their scores instead of losses.
    allow_unseen : bool
        Allow ratios for sources that no fitted run saw, and others than the one that all runs had.
    level : float
        Probability of the intervals.
    seed : int
        Seed of the search that is made where a law is not convex.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture; says which, by how much, and the smallest repair.
    SolveError
        If no mixture has a finite loss, the law overflows at the budget, or a constraint is not convex.
    UsageError
        If a name is unknown or an option out of range.
    """
    asked = {name: value for name, value in locals().items() if name not in ("fit", "N", "D")}
    return Problem.written(fit_of(fit), parse_budget(N, "N"), parse_budget(D, "D"), parsed(asked))


@dataclass(frozen=True)
class _Searched:
    """The losses of a law without convex pieces: values, infinite where there is none, and no derivatives."""

    surface: Surface

    def losses(self, p: FloatArray) -> FloatArray:
        found = self.surface.mean(p.reshape(-1, p.shape[-1]))
        return np.where(np.isfinite(found), found, np.inf).reshape(*p.shape[:-1], -1)


def parsed(asked: dict[str, Any]) -> dict[str, Any]:
    """The keywords, with the tables and tasks that files hold.

    Raises
    ------
    UsageError
        If one is out of range, or does nothing without another.
    """
    parse_choice(asked["objective"], (MEAN, WORST), "objective")
    parse_level(asked["level"])
    parse_whole(asked["seed"], "seed")
    if not isinstance(asked["constraints"], (list, tuple)) or not all(map(callable, asked["constraints"])):
        hint = "give a list of functions from ratios by name to cvxpy constraints: lambda p: p['en'] <= 0.5"
        raise UsageError(f"constraints: {described(asked['constraints'])} holds no functions", hint=hint)
    if parse_number(asked["kl"], "kl") < 0:
        raise UsageError("the weight of the KL term must be a number that is not negative")
    table, score = languages_of(asked["languages"]), asked["downstream"]
    for option, other, there in (
        ("max_epochs", "languages or available", table is not None or asked["available"] is not None),
        ("monolingual", f"weights {NORMALIZED!r}", str(asked["weights"]) == NORMALIZED),
        ("anchor", "kl", asked["kl"] > 0),
    ):
        if asked[option] is not None and not there:
            raise UsageError(f"{option} does nothing without {other}", hint=f"give {other}, or leave out {option}")
    if asked["kl"] > 0 and asked["anchor"] is None:
        raise UsageError("a KL weight needs an anchor mixture", hint="for instance the anchor uniform")
    if score is not None and asked["unit"] != "nats":
        raise UsageError("unit is of losses, not of scores", hint="leave out unit or downstream")
    if isinstance(score, (str, os.PathLike)):
        from shapleymix.scores import Downstream

        score = Downstream.load(score)
    return asked | {"languages": table, "downstream": score}


def _bounds(fit: Any, D: float, asked: Mapping[str, Any]) -> tuple[Polytope, FloatArray | None]:
    """The bounds but for those that cvxpy writes, and the anchor (M,) of the pull."""
    unseen = () if asked["allow_unseen"] else tuple(getattr(fit, "unseen", ()))
    usual = DEFAULT_EPOCHS if getattr(fit, "repetition", None) is None else np.inf
    bounds = {name: asked[name] for name in signature(polytope_of).parameters if name in asked}
    parents = getattr(fit, "parents", {})
    within = polytope_of(tuple(fit.sources), D, unseen=unseen, usual_epochs=usual, parents=parents, **bounds)
    anchor, ball = None, within.ball
    if asked["kl"] > 0:
        anchor = mixture_of(asked["anchor"], within.sources, within.supply.available, D)
        within = within.held_at_zero(anchor == 0, "anchor")
    if ball is not None and ball.kind == "kl":
        within = within.held_at_zero(ball.center == 0, "centre")
    return within, anchor


def _held(
    fit: Any, surface: Surface, bounds: Polytope, counted: BoolArray, free: bool
) -> tuple[Polytope, Pieces | _Searched, list[str]]:
    """The bounds with what they and the fit's regimes leave no room for held, the law within them, and notices."""
    within = checked(bounds)
    scarce = within.is_none & (bounds.upper > 0) & (np.array(within.cap_origin) == TOKENS)
    names = [name for name, none in zip(within.sources, scarce.tolist(), strict=True) if none]
    within, known = (within, []) if free else _at_the_runs(fit, within)
    within, told = _above_the_edge(fit, surface, within, counted)
    told = [*known, *told, *[f"the tokens of {', '.join(names)} are next to nothing here: left out"] * bool(names)]
    law = _Searched(surface) if surface.pieces is None else _with_absent(surface.pieces, surface, within)
    return within, law, told


def _at_the_runs(fit: Any, within: Polytope) -> tuple[Polytope, list[str]]:
    """The bounds with sources that all runs had at one ratio kept at it, where that leaves a mixture, and a notice."""
    if (coverage := getattr(fit, "coverage", None)) is None:
        return within, []
    (low, high), kept = coverage.whole_p_range.T, []
    for place in np.flatnonzero((low > TIED) & (high - low <= TIED) & within.movable).tolist():
        here, ratio = np.arange(len(low)) == place, (low[place] + high[place]) / 2
        found = replace(within, lower=np.where(here, ratio, within.lower), upper=np.where(here, ratio, within.upper))
        if within.lower[place] <= ratio <= within.upper[place] and explain(found) is None:
            within, kept = found, [*kept, f"{within.sources[place]} {ratio:.3g}"]
    text = f"every run has one ratio of {', '.join(kept)}: kept there, because what others would do is unknown"
    return within, [text] * bool(kept)


def _above_the_edge(fit: Any, surface: Surface, within: Polytope, counted: BoolArray) -> tuple[Polytope, list[str]]:
    """The bounds with the own sources of counted targets (K,) above the least ratios that a fit tells of, and a notice.

    Below it the loss jumps, at 0 at the latest, to that of models that saw nothing of the language. Where the other
    bounds leave less room than all edges need, each gets the same share of its own; a source with no room at all is
    held at 0. A floor that was typed holds in place of an edge.
    """
    edge = _edges(fit, surface, counted)
    for place in np.flatnonzero(edge).tolist():
        most = within.minimise_linear(-np.eye(len(edge))[place])
        if most is None or most[place] < TRACE:
            within = within.held_at_zero(np.arange(len(edge)) == place, REGIME)
            edge[place] = 0.0
    share, wanted = 1.0, within.with_floors(edge, REGIME)
    while share > LEAST_SHARE and explain(wanted) is not None:
        share /= 2
        wanted = within.with_floors(share * edge, REGIME)
    raised = np.flatnonzero(wanted.lower > within.lower).tolist()
    if not raised or explain(wanted) is not None:
        return within, []
    named = ", ".join(f"{within.sources[i]} {wanted.lower[i]:.3g}" for i in raised)
    return wanted.presolved(), [
        f"the runs do not tell the losses far below the smallest ratios that they had: floors are {named}"
    ]


def _edges(fit: Any, surface: Surface, counted: BoolArray) -> FloatArray:
    """The least ratio (M,) of each counted target's own source; 0 where a fitted run had none of it.

    Where runs without it follow a regime of their own, that is the smallest ratio of the others: below it the regimes
    meet nobody knows where. Where no run was without it, the law holds for `BELOW` of the smallest ratio too.
    """
    edge, coverage = np.zeros(len(surface.sources)), getattr(fit, "coverage", None)
    if coverage is not None:
        names = surface.targets if surface.score is None else surface.score.targets
        apart = {names[j]: surface.own[j] >= 0 for j in np.flatnonzero(counted)}
        fitted = ["" if name in coverage.alike else path for name, path in zip(fit.sources, fit.paths, strict=True)]
        for target, place in enumerate(own_source(fitted, fit.targets).tolist()):
            if place >= 0 and (name := fit.targets[target]) in apart:
                least = coverage.p_range[target, place, 0] * (1.0 if apart[name] else BELOW)
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

    usual, changed = {"s": 1.0, "base": 0.0, "worth": 0.0}, {}
    for name in ("floor", "scale", "gamma", "phi", "s", "base", "worth"):
        other, one = (getattr(known, name) for known in (absent, pieces))
        if other is not None or one is not None:
            sides = (usual[name] if known is None else known for known in (other, one))
            changed[name] = np.where(there, *sides)
    return replace(pieces, **changed)
