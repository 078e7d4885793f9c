"""Which of several mixtures is better at one budget: each against the first, with paired intervals.

Notation: M sources, K targets, B bootstrap replicates of the fit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypedDict, TypeGuard, runtime_checkable

import numpy as np

from shapleymix import laws
from shapleymix.display import cut, text_table
from shapleymix.errors import UsageError
from shapleymix.fitting.absent import replicated
from shapleymix.fitting.repetition import Repetition, taken
from shapleymix.mixing.bounds import Amounts, Bounds, LanguagesSpec
from shapleymix.mixing.demands import Predicted, little_told
from shapleymix.mixing.gains import about, interval, widened
from shapleymix.mixing.repeating import supply_of
from shapleymix.mixing.weights import UNWEIGHTED, Weights, WeightSpec, weights_of
from shapleymix.records import FloatArray, Record
from shapleymix.tables.amounts import parse_level
from shapleymix.tables.baselines import Rivals, mixture_of, rivals_of
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.languages import Languages
from shapleymix.tables.sizes import format_size, parse_budget


class Law(Protocol):
    """Losses (..., R, K) of mixtures p (R, M) at N and D (R,)."""

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray: ...


@runtime_checkable
class PredictingFit(Protocol):
    """What is asked of a fit: no convexity, so that every law takes part."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def law(self) -> Law: ...
    @property
    def replicates(self) -> Law | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float, runs: tuple[str, ...], strict: bool
    ) -> Predicted: ...


class _Asked(TypedDict):
    """Keywords of a prediction."""

    level: float
    runs: tuple[str, ...]
    strict: bool


@dataclass(frozen=True)
class Candidate(Record):
    """One mixture, and what it gains over the first.

    Attributes
    ----------
    name : str
        The mixture's name, as it was given.
    p : array (M,)
        Ratios.
    losses, low, high : array (K,)
        Predicted losses with their interval, nats per token.
    objective : float
        Weighted mean of the losses; NaN if a loss of positive weight has no prediction.
    objective_low, objective_high : float
        Interval of the objective of one run.
    gain : float
        Objective of the first mixture minus this one's, nats; positive where this mixture is better.
    gain_low, gain_high : float
        Interval of the gain of one run of each; both objectives are computed under the same replicate.
    probability : float
        Probability that this mixture is better than the first; ties count half, and the first has NaN.
    """

    kind = "candidate"

    name: str
    p: FloatArray
    losses: FloatArray
    low: FloatArray
    high: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float


@dataclass(frozen=True)
class Candidates(Tabular, Record):
    """Several mixtures at N and D, in the order given; each is compared with the first.

    Attributes
    ----------
    weights : array (K,)
        Weights of the losses in the objective.
    weights_origin : str
        Where the weights come from.
    level : float
        Probability of the intervals.
    replicates : int
        Number of bootstrap replicates; with 0, gains have no intervals.
    warnings : tuple of str
        Warnings about the predictions.
    notices : tuple of str
        Decisions about the weights.
    """

    kind = "candidates"

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    weights: FloatArray
    weights_origin: str
    level: float
    replicates: int
    entries: tuple[Candidate, ...]
    warnings: tuple[str, ...]
    notices: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Which mixtures cannot be told from the first, in words; empty where there is none."""
        alike = [entry.name for entry in self.entries[1:] if entry.gain_low <= 0 <= entry.gain_high]
        first = self.entries[0].name
        return f"not to be told from {first}, better or worse: {', '.join(alike)}" if alike else ""

    def columns(self) -> Columns:
        """One row a mixture."""
        names = ("name", "objective", "gain", "gain_low", "gain_high", "probability")
        return {name: [getattr(entry, name) for entry in self.entries] for name in names}

    def summary(self) -> str:
        """The mixtures with their gains over the first."""
        place = f"N = {format_size(self.N)}, D = {format_size(self.D)}"
        title = f"Candidates at {place}: gain over {self.entries[0].name} in nats ({self.weights_origin.split(':')[0]})"
        told = [cut(f"warning: {text}") for text in self.warnings[:3]]
        first = [cut(self.verdict)] if self.verdict else []
        return "\n".join([*first, title, *text_table(self.columns()), *told])

    def best(self) -> Candidate:
        """The candidate of the lowest objective among those that have one; the first where none has."""
        return min(self.entries, key=lambda entry: np.inf if np.isnan(entry.objective) else entry.objective)


def compare_mixtures(
    fit: PredictingFit | str | os.PathLike[str],
    mixtures: Rivals,
    N: float | str,
    D: float | str,
    *,
    weights: WeightSpec | None = None,
    monolingual: Mapping[str, float | str] | str | None = None,
    languages: LanguagesSpec | None = None,
    available: Amounts | None = None,
    level: float = 0.9,
    strict: bool = False,
) -> Candidates:
    """Predicted losses of several mixtures side by side, and the gain of each over the first.

    The gains are paired: under each bootstrap replicate of the fit, both objectives are taken from the same law, so
    what the mixtures have in common cancels. Their intervals are for one trained run of each mixture: they hold the
    scatter of held-out losses about the law, which near mixtures have in common.

    Parameters
    ----------
    fit : PredictingFit or path
        A `Fit`, the file of a saved one, or anything with `sources`, `targets`, `law`, `replicates` and `predict`.
    mixtures : Rivals
        At least one mixture: a mapping from names, or a list of what `parse_mixture` takes and of the baselines
        `uniform`, `natural`, `temperature:T` and `unimax:E`.
    N, D : float or str
        Numbers, or sizes such as `"243M"`.
    weights, monolingual, languages, available : see `optimize`
        Weights of the mean loss, and the unique tokens from which some baselines are computed.
    level : float
        Probability of the intervals.
    strict : bool
        Whether a mixture outside of what was fitted is an error instead of a warning.

    Raises
    ------
    UsageError
        If no mixture is given, one cannot be read, or an option is out of range.
    """
    fit, level = _predicting(fit), parse_level(level)
    size, tokens = (parse_budget(value, name) for name, value in (("N", N), ("D", D)))
    bounds = Bounds(languages=languages, available=available)
    supply = bounds.supply(fit.sources)
    named = {name: mixture_of(given, fit.sources, supply, tokens) for name, given in rivals_of(mixtures).items()}
    if not named:
        raise UsageError("no mixture is given to compare", hint="give at least one, such as 'uniform'")
    p = np.stack(list(named.values()))
    predicted = _predicted(fit, p, supply, (size, tokens), {"level": level, "runs": tuple(named), "strict": strict})
    law = AtBudget(fit.law, size, tokens)
    found = weights_of(_wanted(weights, bounds.table), fit.targets, fit.sources, law, monolingual)
    replicates = None if fit.replicates is None else _of_replicates(fit, fit.replicates, p, supply, (size, tokens))
    return Candidates(
        sources=tuple(fit.sources),
        targets=tuple(fit.targets),
        N=size,
        D=tokens,
        weights=found.mean,
        weights_origin=found.origin,
        level=level,
        replicates=0 if replicates is None else len(replicates),
        entries=_entries(tuple(named), p, predicted, replicates, fit, found, level),
        warnings=tuple(getattr(predicted, "warnings", ())),
        notices=found.notices,
    )


@runtime_checkable
class _Informed(Protocol):
    """A fit that knows what repeated tokens are worth: it takes the unique tokens at hand."""

    @property
    def repetition(self) -> Repetition | None: ...
    def predict(
        self,
        p: FloatArray,
        N: float,
        D: float,
        *,
        level: float,
        runs: tuple[str, ...],
        strict: bool,
        available: Mapping[str, float],
    ) -> Predicted: ...


def _predicted(
    given: PredictingFit, p: FloatArray, supply: FloatArray, budget: tuple[float, float], asked: _Asked
) -> Predicted:
    """What the fit predicts, with the unique tokens (M,) where it takes them."""
    known = supply_of(given, tuple(given.sources), supply)
    if known and _is_informed(given):
        return given.predict(p, *budget, **asked, available=known)
    return given.predict(p, *budget, **asked)


def _is_informed(fit: object) -> TypeGuard[_Informed]:
    return isinstance(fit, _Informed)


def _of_replicates(
    fit: PredictingFit, law: Law, p: FloatArray, supply: FloatArray, budget: tuple[float, float]
) -> FloatArray:
    """Losses (B, R, K) of each replicate, with repeated tokens at the worth that it gives them."""
    known = getattr(fit, "repetition", None)
    if not isinstance(known, Repetition) or not isinstance(law, laws.Law):
        return AtBudget(law, *budget).losses(p)
    N, D = (np.full(len(p), value) for value in budget)
    counted = taken(known, p, None, supply, D)
    return replicated(law, getattr(fit, "absent", None), counted, (N, D))


def _predicting(given: PredictingFit | str | os.PathLike[str]) -> PredictingFit:
    if isinstance(given, PredictingFit):
        return given
    from shapleymix.fitting.fits import Fit

    return Fit.taken(given)


def _wanted(weights: WeightSpec | None, table: Languages | None) -> WeightSpec:
    """The weights that were asked for; by default those of the languages table, if it has any."""
    if weights is not None:
        return weights
    return UNWEIGHTED if table is None or table.weight is None else table


@dataclass(frozen=True)
class AtBudget:
    """A law at one N and D: losses (..., R, K) of mixtures p (R, M)."""

    law: Law
    N: float
    D: float

    def losses(self, p: FloatArray) -> FloatArray:
        rows = np.atleast_2d(p)
        found = self.law(rows, np.full(len(rows), self.N), np.full(len(rows), self.D))
        return np.broadcast_to(found, (*np.shape(found)[:-2], len(rows), np.shape(found)[-1]))


def _entries(
    names: tuple[str, ...],
    p: FloatArray,
    predicted: Predicted,
    replicates: FloatArray | None,
    fit: PredictingFit,
    weights: Weights,
    level: float,
) -> tuple[Candidate, ...]:
    misfit, drawn = getattr(fit, "misfit", None), little_told(fit, fit.sources)
    objectives = weighted(predicted.losses, weights.mean)
    values = _replicated(objectives, replicates, weights.mean)
    at = np.where(weights.mean > 0, weights.mean * np.nan_to_num(predicted.losses), 0.0)
    blank = replicates is None and misfit is None

    def interval_of(spread: FloatArray) -> tuple[float, float]:
        low, high = interval(None if blank or np.isnan(spread).any() else spread[:, None], level, 1)[:, 0].tolist()
        return low, high

    def one(place: int) -> Candidate:
        own = 0.0 if misfit is None else np.sqrt(misfit.covariance(at[place], at[place]))
        apart = 0.0 if misfit is None else misfit.spread(p[place], at[place], p[0], at[0])
        with np.errstate(invalid="ignore"):
            gains = values[:, 0] - values[:, place]
            gains = widened(about(objectives[0] - objectives[place], gains, p[[0, place]], drawn), apart)
        better = float(np.mean(0.5 * (1 + np.sign(gains)))) if place and not blank else np.nan
        return Candidate(
            names[place], p[place], predicted.losses[place], predicted.low[place], predicted.high[place],
            float(objectives[place]), *interval_of(widened(values[:, place], own)),
            float(objectives[0] - objectives[place]), *interval_of(gains), better,
        )  # fmt: skip

    return tuple(map(one, range(len(names))))


def weighted(losses: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_j w_j loss_j over the last axis; a target of weight 0 never counts, even without a prediction."""
    counted = weights > 0
    return losses[..., counted] @ weights[counted]


def _replicated(objectives: FloatArray, replicates: FloatArray | None, weights: FloatArray) -> FloatArray:
    """Objectives (B, R) under each replicate, or (1, R) under the law; NaN where a point has no prediction."""
    if replicates is None:
        return objectives[None]
    return np.where(np.isnan(objectives), np.nan, weighted(replicates, weights))
