"""A question about mixtures, as it stands: what is minimised, at which budget, within which bounds.

Axes: M sources, K targets, B replicates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any, Self

import numpy as np

from shapleymix.errors import SolveError, UsageError, described
from shapleymix.fitting.evidence import TRACE
from shapleymix.fitting.surface import Gain, Surface, as_surface
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.bounds import DEFAULT_EPOCHS, polytope_of
from shapleymix.mixing.cone import written
from shapleymix.mixing.goal import MEAN, NORMALIZED, UNWEIGHTED, WORST, Goal, Weights, weights_of
from shapleymix.mixing.polytope import FEASIBLE, REGIME, UNSEEN, Polytope, Supply
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import languages_of
from shapleymix.tables.mixtures import MixtureSpec, mixture_of
from shapleymix.tables.words import parse_choice, parse_level, parse_number, parse_ratio, parse_whole

BELOW = 0.1
"""Share of the smallest ratio that any run had of a language to which an optimum may go where no run was without it."""
LEAST_SHARE = 1e-6
"""Of the edges of regimes: with less room than that there is none."""


@dataclass(frozen=True)
class Question:
    """What is asked of a mixture at N parameters and D tokens.

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
    notices : tuple of str
        What was decided for the user.
    """

    fit: Any
    surface: Surface
    weights: Weights
    goal: Goal
    unit: str
    asked: dict[str, Any]
    notices: tuple[str, ...]

    @classmethod
    def written(cls, fit: Any, N: float, D: float, asked: dict[str, Any]) -> Self:
        """The question that keywords make, once they are `checked`.

        Raises
        ------
        InfeasibleError, UsageError
            As `problem`.
        """
        within, anchor = _bounds(fit, D, asked)
        within, own = written(within, asked["constraints"])
        within = within.checked()
        assert within.supply is not None
        surface = as_surface(fit, N, D, available=within.supply.available, score=asked["downstream"])
        weights = _weights(fit, surface, asked)
        w, unit = weights.of(asked["objective"], surface.measure)
        within, told = _above_the_edge(fit, surface, within, w > 0)
        law = _Searched(surface) if surface.pieces is None else _with_absent(surface.pieces, surface, within)
        goal = Goal(law, w, within, asked["objective"] == WORST, float(asked["kl"]), anchor, own)
        held = [name for name, why in zip(within.sources, within.cap_origin, strict=True) if why == UNSEEN]
        if held:
            told.append(f"no fitted run saw {', '.join(held)}: kept at ratio 0, because the effect is unknown")
        return cls(fit, surface, weights, goal, unit, asked, (*weights.notices, *told))

    @property
    def within(self) -> Polytope:
        """The bounds."""
        return self.goal.within

    @property
    def supply(self) -> Supply:
        """The tokens at hand."""
        assert self.within.supply is not None
        return self.within.supply

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

    def require_convex(self) -> None:
        """Refuse a law whose optimum can only be searched for, unless that is asked for.

        Raises
        ------
        SolveError
            If the law has no convex pieces.
        """
        if isinstance(self.goal.law, Pieces) or self.asked["allow_nonconvex"]:
            return
        name = getattr(getattr(self.fit, "law", None), "name", "of this fit")
        message = f"law {name!r} is not known to be convex in the mixture, so no optimum of it can be proved"
        raise SolveError(message, hint="search without a proof (allow_nonconvex), or fit another law")

    def with_available(self, available: FloatArray) -> Self:
        """The same with these unique tokens (M,), NaN for no limit; an anchor and a ball stay where they are."""
        sources, ball, table = self.within.sources, self.within.ball, self.asked["languages"]
        nowhere = None if table is None else np.full(len(table.names), np.nan)
        fixed = {
            "languages": None if table is None else replace(table, available_tokens=nowhere),
            "available": {name: available[i] for i, name in enumerate(sources) if np.isfinite(available[i])},
            "near": None if ball is None else ball.center,
            "anchor": self.goal.anchor,
        }
        return self.written(self.fit, self.surface.N, self.surface.D, self.asked | fixed)

    def gain(self, p: MixtureSpec, q: MixtureSpec) -> Gain:
        """What a mixture p saves of the objective of q."""
        return self.surface.gain(self.ratios(p), self.ratios(q), self.goal.of, self.level)

    def ratios(self, given: MixtureSpec) -> FloatArray:
        """A mixture (M,) from whatever may be given for one."""
        return mixture_of(given, self.within.sources, self.surface.available, self.surface.D)

    def objective(self, p: FloatArray) -> float:
        """The mean or worst loss of a mixture (M,), as `predict` has the losses."""
        return float(self.goal.of(self.surface.mean(p[None]))[0])

    def objective_interval(self, p: FloatArray) -> tuple[float, float]:
        """Its interval for one trained run."""
        low, high = self.surface.objective_interval(p[None], self.goal.of, self.level)[:, 0].tolist()
        return low, high


@dataclass(frozen=True)
class _Searched:
    """The losses of a law without convex pieces: values, infinite where there is none, and no derivatives."""

    surface: Surface

    def losses(self, p: FloatArray) -> FloatArray:
        found = self.surface.mean(p.reshape(-1, p.shape[-1]))
        return np.where(np.isfinite(found), found, np.inf).reshape(*p.shape[:-1], -1)


def checked(asked: dict[str, Any]) -> dict[str, Any]:
    """The keywords, with the tables and tasks that files hold.

    Raises
    ------
    UsageError
        If one is out of range, or does nothing without another.
    """
    parse_choice(asked["objective"], (MEAN, WORST), "objective")
    parse_level(asked["level"])
    parse_whole(asked["seed"], "seed")
    parse_ratio(asked["smoothing"], "smoothing")
    if not isinstance(asked["constraints"], (list, tuple)) or not all(map(callable, asked["constraints"])):
        hint = "give a list of functions from the cvxpy variable p (M,) to cvxpy constraints"
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
    if isinstance(score, (str, os.PathLike)):
        from shapleymix.scores import Downstream

        score = Downstream.load(score)
    return asked | {"languages": table, "downstream": score}


def _bounds(fit: Any, D: float, asked: Mapping[str, Any]) -> tuple[Polytope, FloatArray | None]:
    """The bounds but for those that cvxpy writes, and the anchor (M,) of the pull."""
    unseen = () if asked["allow_unseen"] else tuple(getattr(fit, "unseen", ()))
    usual = DEFAULT_EPOCHS if getattr(fit, "repetition", None) is None else np.inf
    bounds = {name: asked[name] for name in signature(polytope_of).parameters if name in asked}
    within = polytope_of(tuple(fit.sources), D, unseen=unseen, usual_epochs=usual, **bounds)
    anchor, ball = None, within.ball
    if asked["kl"] > 0:
        assert within.supply is not None
        anchor = mixture_of(asked["anchor"], within.sources, within.supply.available, D)
        within = within.held_at_zero(anchor == 0, "anchor")
    if ball is not None and ball.kind == "kl":
        within = within.held_at_zero(ball.center == 0, "centre")
    return within, anchor


def _weights(fit: Any, surface: Surface, asked: Mapping[str, Any]) -> Weights:
    """What the targets count; tasks are weighed by the scores' own rule."""
    given, table, score = asked["weights"], asked["languages"], asked["downstream"]
    if score is not None and (given is None or isinstance(given, Mapping) or (isinstance(given, str) and "=" in given)):
        given = score.weights(given, asked["objective"])
        found = weights_of(given, surface.targets, surface.sources, None)
        return found if asked["weights"] is not None else replace(found, origin=UNWEIGHTED)
    if given is None:
        given = UNWEIGHTED if table is None or table.weight is None else table
    alone = None
    if isinstance(given, str) and given == NORMALIZED:
        if score is not None:
            raise UsageError(f"{NORMALIZED} weights are of losses, not of scores", hint="give weights of tasks")
        alone = as_surface(fit, surface.N, surface.D).mean(np.eye(len(surface.sources)))
    return weights_of(given, surface.targets, surface.sources, alone, asked["monolingual"])


def _above_the_edge(fit: Any, surface: Surface, within: Polytope, counted: BoolArray) -> tuple[Polytope, list[str]]:
    """The bounds with the own sources of counted targets (K,) above the least ratios that a fit tells of, and a notice.

    Below it the loss jumps, at 0 at the latest, to that of models that saw nothing of the language. Where the other
    bounds leave less room than all edges need, each gets the same share of its own; a source with no room at all is
    held at 0. A floor that was typed holds in place of an edge.
    """
    edge = _edges(fit, surface, counted)
    for place in np.flatnonzero(edge).tolist():
        most = within.minimise_linear(-np.eye(len(edge))[place])
        if most is None or most[0][place] <= FEASIBLE:
            within = within.held_at_zero(np.arange(len(edge)) == place, REGIME)
            edge[place] = 0.0
    share, wanted = 1.0, within.with_floors(edge, REGIME)
    while share > LEAST_SHARE and wanted.explain() is not None:
        share /= 2
        wanted = within.with_floors(share * edge, REGIME)
    raised = np.flatnonzero(wanted.lower > within.lower).tolist()
    if not raised or wanted.explain() is not None:
        return within, []
    named = ", ".join(f"{within.sources[i]} {wanted.lower[i]:.3g}" for i in raised)
    return wanted, [f"the runs do not tell the losses far below the smallest ratios that they had: floors are {named}"]


def _edges(fit: Any, surface: Surface, counted: BoolArray) -> FloatArray:
    """The least ratio (M,) of each counted target's own source; 0 where a fitted run had none of it.

    Where runs without it follow a regime of their own, that is the smallest ratio of the others: below it the regimes
    meet nobody knows where. Where no run was without it, the law holds for `BELOW` of the smallest ratio too.
    """
    edge, coverage = np.zeros(len(surface.sources)), getattr(fit, "coverage", None)
    if coverage is not None:
        names = surface.targets if surface.score is None else surface.score.targets
        apart = {names[j]: surface.own[j] >= 0 for j in np.flatnonzero(counted)}
        for name in set(apart) & set(surface.sources):
            place = surface.sources.index(name)
            least = coverage.p_range[fit.targets.index(name), place, 0] * (1.0 if apart[name] else BELOW)
            edge[place] = least if least >= TRACE else 0.0
    return edge


def _with_absent(pieces: Pieces, surface: Surface, within: Polytope) -> Pieces:
    """The pieces, those of targets whose own source the bounds leave out being those of the other regime."""
    absent, own = surface.absent, surface.own
    there = (own >= 0) & (within.upper[np.maximum(own, 0)] <= 0)
    if absent is None or not there.any():
        return pieces

    usual, changed = {"s": 1.0, "base": 0.0}, {}
    for name in ("floor", "scale", "gamma", "phi", "s", "base"):
        other, one = (getattr(known, name) for known in (absent, pieces))
        if other is not None or one is not None:
            sides = (usual[name] if known is None else known for known in (other, one))
            changed[name] = np.where(there, *sides)
    return replace(pieces, **changed)
