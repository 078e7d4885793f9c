"""Which of several mixtures is better at one budget: each against the first, with paired intervals.

Notation: M sources, K targets, B bootstrap replicates of the fit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import cut, text_table
from shapleymix.downstream.scoring import ScoredFit
from shapleymix.errors import UsageError
from shapleymix.fields import FINITE, SHARE, Range
from shapleymix.fitting.measures import ERROR, LOSS, Kind, measure_of
from shapleymix.mixing.bounds import Amounts, Bounds, LanguagesSpec
from shapleymix.mixing.doubts import Doubts, Outlook, told
from shapleymix.mixing.fit_like import Predicted
from shapleymix.mixing.outlooks import (
    AtBudget,
    PredictingFit,
    doubts_of,
    outlooks_of,
    plain_losses,
    predictions,
    replicated,
)
from shapleymix.mixing.weights import UNWEIGHTED, WeightSpec, task_weights, weights_of
from shapleymix.records import FloatArray, Record
from shapleymix.tables.amounts import parse_level
from shapleymix.tables.baselines import Rivals, mixture_of, rivals_of
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.languages import Languages
from shapleymix.tables.sizes import format_size, parse_budget


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
    ranges: ClassVar[Mapping[str, Range]] = {"p": SHARE, "objective": FINITE, "gain": FINITE, "probability": SHARE}

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

    @property
    def told(self) -> bool | None:
        """Whether this mixture is better or worse by more than can be told; None where nothing is known of that."""
        better, worse = told(self.gain_low, self.probability), told(-self.gain_high, 1 - self.probability)
        return None if better is None or worse is None else better or worse


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
    warnings, notices : tuple of str
        Warnings about the predictions, and decisions about the weights.
    measure : str
        `"loss"`, or `"error"`: losses and objectives are error rates of tasks, one less their score.
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
    measure: Kind = LOSS

    @property
    def verdict(self) -> str:
        """Which mixtures cannot be told from the first, in words; empty where there is none."""
        alike = [entry.name for entry in self.entries[1:] if entry.told is False]
        first = self.entries[0].name
        return f"not to be told from {first}, better or worse: {', '.join(alike)}" if alike else ""

    def columns(self) -> Columns:
        """One row a mixture: its objective, a mean loss or for tasks a mean score, and what it gains."""
        measure = measure_of(self.measure)
        objectives = [measure.shown(entry.objective) for entry in self.entries]
        names = ("gain", "gain_low", "gain_high", "probability")
        return {
            "name": [entry.name for entry in self.entries],
            "score" if measure.flipped else "objective": objectives,
            **{name: [getattr(entry, name) for entry in self.entries] for name in names},
        }

    def summary(self) -> str:
        """The mixtures with their gains over the first."""
        place = f"N = {format_size(self.N)}, D = {format_size(self.D)}"
        gained = f"{measure_of(self.measure).gained} over {self.entries[0].name}"
        title = f"Candidates at {place}: {gained} ({self.weights_origin.split(':')[0]})"
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
        A `Fit`, a `scored_fit`, the file of a saved fit, or anything with `sources`, `targets`, `law`, `replicates` and
        `predict`.
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
    predicted = predictions(fit, p, supply, (size, tokens), {"level": level, "runs": tuple(named), "strict": strict})
    law = AtBudget(fit.law, size, tokens)
    found = weights_of(_wanted(fit, weights, bounds.table), fit.targets, fit.sources, law, monolingual)
    replicates = replicated(fit, p, supply, (size, tokens))
    doubts = doubts_of(fit, replicates, level, (size, tokens))
    plain = plain_losses(fit, p, supply, (size, tokens), predicted)
    outlooks = outlooks_of(fit, p, predicted.losses, replicates, found.mean, doubts.misfit, plain)
    return Candidates(
        sources=tuple(fit.sources),
        targets=tuple(fit.targets),
        N=size,
        D=tokens,
        weights=found.mean,
        weights_origin=found.origin,
        level=level,
        replicates=0 if replicates is None else len(replicates),
        entries=_entries(tuple(named), predicted, outlooks, doubts),
        warnings=tuple(getattr(predicted, "warnings", ())),
        notices=found.notices,
        measure=ERROR if isinstance(fit, ScoredFit) else LOSS,
    )


def _predicting(given: PredictingFit | str | os.PathLike[str]) -> PredictingFit:
    if isinstance(given, PredictingFit):
        return given
    from shapleymix.fitting.fits import Fit

    return Fit.taken(given)


def _wanted(fit: PredictingFit, weights: WeightSpec | None, table: Languages | None) -> WeightSpec:
    """The weights that were asked for; by default those of the languages table, if it has any, and tasks alike."""
    if isinstance(fit, ScoredFit):
        return task_weights(fit, weights)
    if weights is not None:
        return weights
    return UNWEIGHTED if table is None or table.weight is None else table


def _entries(
    names: tuple[str, ...], predicted: Predicted, outlooks: list[Outlook], doubts: Doubts
) -> tuple[Candidate, ...]:
    def one(place: int) -> Candidate:
        found = doubts.gain(outlooks[place], outlooks[0])
        return Candidate(
            names[place], outlooks[place].p, predicted.losses[place], predicted.low[place], predicted.high[place],
            outlooks[place].value, *doubts.objective(outlooks[place]),
            found.value, found.low, found.high, found.probability if place else np.nan,
        )  # fmt: skip

    return tuple(map(one, range(len(names))))
