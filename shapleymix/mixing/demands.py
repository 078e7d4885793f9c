"""What is asked of a mixture: weights, bounds, objective, method; and the problem that this makes at one budget."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict, TypeGuard, runtime_checkable

import numpy as np

from shapleymix.downstream.scoring import ScoredFit
from shapleymix.errors import UsageError, described
from shapleymix.fitting.cells import Cells, Effect
from shapleymix.fitting.misfit import Misfit
from shapleymix.fitting.settings import LEVEL, SEED
from shapleymix.keywords import spelt_out
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import (
    DEFAULT_EPOCHS,
    UNSEEN,
    Amounts,
    Bounds,
    Constraints,
    EpochsSpec,
    GroupSpec,
    LanguagesSpec,
    Ratios,
    TokensSpec,
    tightened,
)
from shapleymix.mixing.closed_forms import EXACT, METHODS
from shapleymix.mixing.feasibility import require_anchor, require_feasible
from shapleymix.mixing.problem import MEAN, WORST, Constraint, Problem
from shapleymix.mixing.repeating import Rates, epochs_allowed, repeated
from shapleymix.mixing.weights import NORMALIZED, UNWEIGHTED, Weights, WeightSpec, task_weights, weights_of
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.amounts import parse_choice, parse_level, parse_number, parse_ratio, parse_whole
from shapleymix.tables.baselines import Rivals, mixture_of
from shapleymix.tables.simplex import MixtureSpec

Size = float | str


class Predicted(Protocol):
    """What is read of a prediction: (R, K) losses and their interval. What more it says is read where it is there."""

    @property
    def losses(self) -> FloatArray: ...
    @property
    def low(self) -> FloatArray: ...
    @property
    def high(self) -> FloatArray: ...


@runtime_checkable
class FitLike(Protocol):
    """What is asked of a fit."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    def terms(self, N: float, D: float) -> Terms: ...
    def replicate_terms(self, N: float, D: float) -> Terms | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float = LEVEL, strict: bool = False
    ) -> Predicted: ...


@runtime_checkable
class Informed(Protocol):
    """A fit that knows what repeated tokens are worth: it predicts with the unique tokens at hand."""

    @property
    def repetition(self) -> Rates | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float, strict: bool, available: Mapping[str, float]
    ) -> Predicted: ...


def predicted(
    fit: FitLike,
    p: FloatArray,
    N: float,
    D: float,
    supply: Mapping[str, float],
    *,
    level: float = LEVEL,
    strict: bool = False,
) -> Predicted:
    """What a fit predicts of mixtures p (R, M), with unique tokens by source where it takes them."""
    if supply and _is_informed(fit):
        return fit.predict(p, N, D, level=level, strict=strict, available=supply)
    if strict:  # a fit of a user's own need not know the word
        return fit.predict(p, N, D, level=level, strict=True)
    return fit.predict(p, N, D, level=level)


def _is_informed(fit: object) -> TypeGuard[Informed]:
    return isinstance(fit, Informed)


FitSpec = FitLike | str | os.PathLike[str]


class DemandKeywords(TypedDict, total=False):
    """The keywords of `optimize` and its kin, which make `Demands`: what each means and its default stand there."""

    caps: Ratios | None
    floors: Ratios | None
    fix: Ratios | None
    languages: LanguagesSpec | None
    available: Amounts | None
    max_epochs: EpochsSpec | None
    min_tokens: TokensSpec | None
    groups: Sequence[GroupSpec] | GroupSpec
    near: MixtureSpec | None
    within: float | str | None
    distance: str
    weights: WeightSpec | None
    monolingual: Mapping[str, float | str] | str | None
    objective: str
    anchor: MixtureSpec | None
    kl: float
    constraints: Sequence[Constraint]
    method: str
    compare_to: Rivals | None
    smoothing: float
    allow_unseen: bool
    strict: bool
    level: float
    seed: int
    allow_nonconvex: bool
    what_if: Sequence[str] | str
    cautious: MixtureSpec | bool | None


@dataclass(frozen=True, kw_only=True)
class Demands(Bounds):
    """All that is asked of a mixture but its budget.

    Attributes
    ----------
    weights : WeightSpec, optional
        `"unweighted"`, `"normalized"` (by `monolingual` losses, measured, or predicted where not given), numbers by
        target (`"en=1,de=2"` or a mapping; targets without one get 0), or a languages table. None = those of
        `languages` if it has any, else unweighted.
    monolingual : mapping or str, optional
        Measured losses of monolingual models, by target.
    objective : str
        `"mean"`, or `"worst"` (the largest weighted loss is minimised).
    anchor, kl : MixtureSpec or float, optional
        Adds the term kl * KL(p || anchor) to the objective, with kl in nats of loss.
    constraints : sequence of Constraint
        Functions from the cvxpy variable p (M,) to cvxpy constraints.
    method : str
        `"exact"`, or one of the closed forms of `closed_forms.METHODS`, for comparison.
    compare_to : Rivals, optional
        Further mixtures to compare with: by name, or a list such as `["unimax:4", "plan=en=0.5,de=0.5"]`.
    smoothing : float
        Exponent alpha of the smoothed baseline, p ~ available^alpha.
    allow_unseen : bool
        Whether sources that no run of the fit ever saw may get a ratio.
    strict : bool
        Whether an optimum outside of what was fitted is an error instead of a warning.
    level : float
        Probability of the intervals.
    seed : int
        Seed of the search that laws without convexity need.
    allow_nonconvex : bool
        Solve laws without convexity by multi-start, without a certificate.
    what_if : str or sequence of str
        Changes of the available tokens, each of which is answered beside: `"de+50B"`, `["de+50B,fr-10B"]`.
    cautious : MixtureSpec or bool, optional
        Look for the mixture of the best lower bound of its gain over this baseline instead of the lowest predicted
        loss; True = `natural` where the tokens are known, else `uniform`.
    """

    weights: WeightSpec | None = None
    monolingual: Mapping[str, float | str] | str | None = None
    objective: str = MEAN
    anchor: MixtureSpec | None = None
    kl: float = 0.0
    constraints: Sequence[Constraint] = ()
    method: str = EXACT
    compare_to: Rivals | None = None
    smoothing: float = 0.5
    allow_unseen: bool = False
    strict: bool = False
    level: float = LEVEL
    seed: int = SEED
    allow_nonconvex: bool = False
    what_if: Sequence[str] | str = ()
    cautious: MixtureSpec | bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_choice(self.objective, (MEAN, WORST), "objective")
        parse_choice(self.method, METHODS, "method")
        if not isinstance(self.constraints, (list, tuple)) or not all(map(callable, self.constraints)):
            hint = "give a list of functions from the cvxpy variable p (M,) to cvxpy constraints"
            raise UsageError(f"constraints: {described(self.constraints)} holds no functions", hint=hint)
        if parse_number(self.kl, "kl") < 0:
            raise UsageError("the weight of the KL term must be a number that is not negative")
        if self.kl > 0 and self.anchor is None:
            raise UsageError("a KL weight needs an anchor mixture", hint="for instance anchor='uniform'")
        parse_level(self.level)
        parse_whole(self.seed, "seed")
        parse_ratio(self.smoothing, "smoothing")
        listed = [self.what_if] if isinstance(self.what_if, str) else self.what_if
        if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) for one in listed):
            hint = "write it like 'de+50B'"
            raise UsageError(f"what_if: {described(self.what_if)} is no change of tokens", hint=hint)
        if self.what_if and self.method != EXACT:
            raise UsageError(f"what_if asks for optima, which method {self.method!r} does not find")
        self._require_effect()
        self._require_plain_caution()

    def _require_effect(self) -> None:
        """An option that would do nothing without another is a mistake, not a wish to be passed over."""
        normalized = isinstance(self.weights, str) and self.weights == NORMALIZED
        pairs = (
            ("max_epochs", self.max_epochs, "languages or available", (self.languages, self.available)),
            ("monolingual", self.monolingual, "weights 'normalized'", (normalized or None,)),
            ("anchor", self.anchor, "kl", (self.kl or None,)),
        )
        for option, given, other, needed in pairs:
            if given is not None and all(value is None for value in needed):
                raise UsageError(f"{option} does nothing without {other}", hint=f"give {other}, or leave out {option}")

    def _require_plain_caution(self) -> None:
        """Refuse by name what the search for a cautious mixture has no place for."""
        if not self.wary:
            return
        refused = (("KL penalty", self.kl > 0), (f"method {self.method!r}", self.method != EXACT))
        for what, asked in (*refused, ("what_if", bool(self.what_if))):
            if asked:
                raise UsageError(f"a cautious mixture takes no {what}", hint=f"leave out the {what}, or cautious")

    @property
    def wary(self) -> bool:
        """Whether a cautious mixture is asked for."""
        return self.cautious is not None and self.cautious is not False

    def cautious_of(self, sources: tuple[str, ...], available: FloatArray, D: float) -> tuple[str, FloatArray]:
        """Name and ratios (M,) of the baseline over which the gain is to be sure."""
        given = self.cautious
        if given is None or isinstance(given, bool):
            given = "natural" if np.isfinite(available).all() and available.any() else "uniform"
        return given if isinstance(given, str) else "the baseline", mixture_of(given, sources, available, D)

    def bounds(
        self, sources: tuple[str, ...], D: float, unseen: Sequence[str] = (), epochs: float = DEFAULT_EPOCHS
    ) -> Constraints:
        """Feasible constraints at D, or an InfeasibleError; `unseen` sources are held at 0 unless that is allowed."""
        found = self.at(sources, D, () if self.allow_unseen else unseen, epochs)
        require_feasible(found)
        return tightened(found)

    def problem(self, fit: FitLike, terms: Terms, D: float) -> tuple[Problem, Weights]:
        """The problem to solve at one budget, and the weights that it uses; `terms` are those of unlimited data."""
        weights = self.weights_for(fit, terms)
        w = weights.mean if self.objective == MEAN else weights.raw
        bounds = self.bounds(fit.sources, D, unseen_sources(fit), epochs_allowed(fit))
        anchor = self._anchor(fit.sources, bounds)
        terms = repeated(fit, terms, bounds.available, D)
        return Problem(terms, w, bounds, self.objective, self.kl, anchor, tuple(self.constraints)), weights

    def weights_for(self, fit: FitLike, terms: Terms | None) -> Weights:
        """The weights of the targets; `terms` None = the law has none, and predicts no monolingual losses."""
        given = task_weights(fit, self.weights, self.objective) if isinstance(fit, ScoredFit) else self.weights
        if given is None:
            given = UNWEIGHTED if self.table is None or self.table.weight is None else self.table
        return weights_of(given, fit.targets, fit.sources, terms, self.monolingual)

    def _anchor(self, sources: tuple[str, ...], bounds: Constraints) -> FloatArray | None:
        if self.anchor is None or self.kl == 0:
            return None
        anchor = mixture_of(self.anchor, sources, bounds.available, bounds.D)
        require_anchor(bounds, anchor)
        return anchor


def unseen_sources(fit: FitLike) -> tuple[str, ...]:
    """Sources that no run of the fit ever saw; a fit of a user's own need not know."""
    return tuple(getattr(fit, "unseen", ()))


def effect_of(fit: object, N: float, D: float) -> Effect | None:
    """What losses of all mixtures of one budget have in common, where the fit knows; one of a user's own need not."""
    cells = getattr(fit, "cells", None)
    return cells.common(N, D) if isinstance(cells, Cells) else None


def misfit_of(fit: object, N: float, D: float) -> Misfit | None:
    """How held-out losses of one budget scatter about the law; a fit of a user's own need not know."""
    misfit, cells = getattr(fit, "misfit", None), getattr(fit, "cells", None)
    if misfit is None or not isinstance(cells, Cells):
        return misfit
    return replace(misfit, scale=misfit.scale * cells.factors(np.array([N]), np.array([D]), apart=True)[0])


def little_told(fit: object, sources: Sequence[str]) -> BoolArray:
    """Sources (M,) whose effect the replicates draw, since the runs tell little of it; some fits need not know."""
    little = {*getattr(fit, "unseen", ()), *getattr(fit, "thin", {})}
    return np.array([name in little for name in sources], dtype=bool)


def drawn_sources(fit: FitLike, constraints: Constraints) -> tuple[str, ...]:
    """Those of them that may get a ratio."""
    used = (little_told(fit, constraints.sources) & (constraints.upper > 0)).tolist()
    return tuple(name for name, one in zip(constraints.sources, used, strict=True) if one)


def notices_of(demands: Demands, constraints: Constraints, weights: Weights) -> tuple[str, ...]:
    """What was decided for the user: sources held at 0, and targets that count for nothing."""
    held = [name for name, why in zip(constraints.sources, constraints.cap_origin, strict=True) if why == UNSEEN]
    found = list(weights.notices)
    if held:
        found.append(f"no run of the fit ever saw {', '.join(held)}: held at ratio 0, as nothing is known of them")
    return tuple(found)


def fit_of(given: FitSpec, *, for_losses: str = "") -> FitLike:
    """A fit, or the one that a file holds; not of scores where only losses will do, for what is named.

    Raises
    ------
    UsageError
        If it is neither. StoreError if the file cannot be read.
    """
    if isinstance(given, (str, os.PathLike)):
        from shapleymix.fitting.fits import Fit

        return Fit.load(given)
    if not isinstance(given, FitLike):
        hint = "give what `fit` returns, or the file in which it was saved"
        raise UsageError(f"{described(given)} is no fit", hint=hint)
    if for_losses and isinstance(given, ScoredFit):
        raise UsageError(f"{for_losses} is of losses, not of scores", hint="give the fit of the losses")
    return given


takes_demands = spelt_out(Demands, DemandKeywords.__annotations__)
"""Marks a function whose keywords are those of `Demands`."""
