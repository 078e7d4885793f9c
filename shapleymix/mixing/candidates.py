"""Which of several mixtures is better at one budget: each against the first, with paired intervals.

Axes: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import Columns, Tabular, cut, text_table
from shapleymix.errors import OutsideError, UsageError
from shapleymix.mixing.mixture import is_sure, listed
from shapleymix.mixing.question import Question
from shapleymix.records import FloatArray, Record
from shapleymix.tables.baselines import Rivals, rivals_of
from shapleymix.tables.words import format_size


@dataclass(frozen=True)
class Candidate(Record):
    """One mixture, and what it gains over the first.

    Attributes
    ----------
    name, p : str and array (M,)
        The mixture's name, as it was given, and its ratios.
    losses, low, high : array (K,)
        Predicted losses with their interval, nats per token.
    objective, objective_low, objective_high : float
        Mean or worst loss with its interval for one run; NaN if a loss of positive weight has no prediction.
    gain, gain_low, gain_high, probability : float
        Objective of the first mixture minus this one's, with the interval for one run of each, and the probability that
        this mixture is better than the first (NaN for the first).
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

    @property
    def sure(self) -> bool | None:
        """Whether this mixture is better or worse by more than the error bar; None where nothing is known of that."""
        better, worse = is_sure(self.gain_low, self.probability), is_sure(-self.gain_high, 1 - self.probability)
        return None if better is None or worse is None else better or worse


@dataclass(frozen=True)
class Candidates(Tabular, Record):
    """Several mixtures at N and D, in the order given; each is compared with the first.

    Attributes
    ----------
    weights, weights_origin : array (K,) and str
        Weights of the losses in the objective, and where they come from.
    objective_kind, objective_unit : str
        "mean" or "worst", and the unit of objectives and gains.
    entries : tuple of Candidate
        The mixtures.
    level : float
        Probability of the intervals.
    warnings, notices : tuple of str
        At most three things that change what a reader would do, and what else is to be known.
    measure : str
        `"loss"`, or `"error"`: losses and objectives are error rates of tasks, one less their score.
    """

    kind = "candidates"
    axes: ClassVar[Mapping[str, str]] = {"sources": "M", "targets": "K", "weights": "K"}

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    weights: FloatArray
    weights_origin: str
    objective_kind: str
    objective_unit: str
    level: float
    entries: tuple[Candidate, ...]
    warnings: tuple[str, ...]
    notices: tuple[str, ...]
    measure: str = "loss"

    @property
    def verdict(self) -> str:
        """Which mixtures differ from the first by less than the error bar; empty where there is none."""
        alike = [entry.name for entry in self.entries[1:] if entry.sure is False]
        first = self.entries[0].name
        return f"The predicted difference to {first} is within its error bar for {listed(alike)}." if alike else ""

    def columns(self) -> Columns:
        """One row a mixture: its objective, a loss or for tasks a score, and what it gains."""
        scored = self.measure == "error"
        objectives = [1 - entry.objective if scored else entry.objective for entry in self.entries]
        names = ("gain", "gain_low", "gain_high", "probability")
        return {
            "name": [entry.name for entry in self.entries],
            "score" if scored else "objective": objectives,
            **{name: [getattr(entry, name) for entry in self.entries] for name in names},
        }

    def summary(self) -> str:
        """The mixtures with their gains over the first."""
        place = f"N = {format_size(self.N)}, D = {format_size(self.D)}"
        title = f"Candidates at {place}: gain over {self.entries[0].name} ({self.weights_origin.split(':')[0]})"
        told = [cut(f"warning: {text}") for text in self.warnings]
        return "\n".join([*filter(None, [self.verdict]), title, *text_table(self.columns()), *told])

    def best(self) -> Candidate:
        """The candidate of the lowest objective among those that have one; the first where none has."""
        return min(self.entries, key=lambda entry: np.inf if np.isnan(entry.objective) else entry.objective)


def candidates_of(one: Question, mixtures: Rivals) -> Candidates:
    """The mixtures, compared as the question asks."""
    named = {name: one.ratios(given) for name, given in rivals_of(mixtures).items()}
    if not named:
        raise UsageError("no mixture is given to compare", hint="give at least one, such as 'uniform'")
    surface, p, level = one.surface, np.stack(list(named.values())), one.level
    outside = np.flatnonzero(np.any(surface.outside(p)[:, one.goal.w > 0], axis=1)).tolist()
    if one.asked["strict"] and outside:
        names = listed([list(named)[row] for row in outside])
        raise OutsideError(f"outside of what was fitted: {names}", hint="leave these out, or leave out strict")
    losses, ends = surface.mean(p), surface.interval(p, level)
    ends = np.where(np.isnan(losses), np.nan, ends)
    objectives, spread = one.goal.of(losses), surface.objective_interval(p, one.goal.of, level)
    entries = []
    for row, name in enumerate(named):
        gain, (low, high) = surface.gain(p[row], p[0], one.goal.of, level), spread[:, row].tolist()
        gained = (gain.value, gain.low, gain.high, gain.probability if row else np.nan)
        found = (losses[row], ends[0, row], ends[1, row], float(objectives[row]), low, high)
        entries.append(Candidate(name, p[row], *found, *gained))
    told = surface.warnings(p)
    return Candidates(
        sources=tuple(surface.sources),
        targets=tuple(surface.targets),
        N=surface.N,
        D=surface.D,
        weights=one.goal.w,
        weights_origin=one.weights.origin,
        objective_kind=one.asked["objective"],
        objective_unit=one.unit,
        level=level,
        entries=tuple(entries),
        warnings=told[:3],
        notices=(*told[3:], *one.weights.notices),
        measure=surface.measure,
    )
