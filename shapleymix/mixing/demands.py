"""What is asked of a mixture: weights, bounds, objective, method; and the problem that this makes at one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from shapleymix.downstream.scoring import ScoredFit
from shapleymix.errors import UsageError, described
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
from shapleymix.mixing.fit_like import FitLike, unseen_sources
from shapleymix.mixing.problem import MEAN, WORST, Constraint, Problem
from shapleymix.mixing.repeating import epochs_allowed, repeated
from shapleymix.mixing.weights import NORMALIZED, UNWEIGHTED, Weights, WeightSpec, task_weights, weights_of
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_choice, parse_level, parse_number, parse_ratio, parse_whole
from shapleymix.tables.baselines import Rivals, mixture_of
from shapleymix.tables.simplex import MixtureSpec

Size = float | str


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


def notices_of(demands: Demands, constraints: Constraints, weights: Weights) -> tuple[str, ...]:
    """What was decided for the user: sources held at 0, and targets that count for nothing."""
    held = [name for name, why in zip(constraints.sources, constraints.cap_origin, strict=True) if why == UNSEEN]
    found = list(weights.notices)
    if held:
        found.append(f"no run of the fit ever saw {', '.join(held)}: held at ratio 0, as nothing is known of them")
    return tuple(found)


takes_demands = spelt_out(Demands, DemandKeywords.__annotations__)
"""Marks a function whose keywords are those of `Demands`."""
