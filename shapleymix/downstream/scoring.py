"""A fit and its calibrated tasks as one that predicts error rates: `optimize` takes it wherever it takes a fit.

>>> scored = scored_fit("fit.json", "downstream.json")
>>> mix = optimize(scored, "243M", "100B", weights=scored.weights("hellaswag=1,xwinograd=1"))
>>> mix.scores

Its targets are tasks (`hellaswag/en`), its losses their error rates, one less the score. What is unsure of them is what
is unsure of the law's losses, how little a line is known (Student's t about the fitted numbers, drawn once for each of
the law's replicates), and how scores of single runs scatter about it.

Legend: B replicates, K targets of the law, T tasks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import short
from shapleymix.downstream.calibrations import Calibration, Downstream
from shapleymix.downstream.doubts import ScoredAbsent, ScoredCells, ScoredMisfit, drawn_lines, spread
from shapleymix.downstream.pieces import Lines, Scored, lines_of_tasks, scored_terms
from shapleymix.errors import Fault, OutsideError, ShapleyMixWarning, UsageError, caution, did_you_mean
from shapleymix.files import Json
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.measures import ERROR
from shapleymix.fitting.prediction import Budget, Points, Prediction
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.settings import LEVEL
from shapleymix.laws import Law
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.amounts import parse_number, parse_pairs
from shapleymix.tables.by_source import Amounts
from shapleymix.tables.languages import LanguagesSpec

MEAN = "mean"
BEYOND = 0.05
"""Of the span of the calibrated losses: a loss further outside of it has a score that no run has shown."""


@dataclass(frozen=True)
class ScoredFit:
    """A fit that predicts error rates of tasks.

    Attributes
    ----------
    fit : Fit
        The law of the losses.
    downstream : Downstream
        The tasks, each calibrated by the loss of its target.
    """

    fit: Fit
    downstream: Downstream

    measure = ERROR

    @property
    def tasks(self) -> tuple[Calibration, ...]:
        """The calibrated tasks."""
        return self.downstream.calibrations

    @property
    def sources(self) -> tuple[str, ...]:
        """M labels."""
        return self.fit.sources

    @property
    def targets(self) -> tuple[str, ...]:
        """T labels such as `hellaswag/en`."""
        return self.downstream.labels

    @cached_property
    def places(self) -> IntArray:
        """(T,) the law's target of each task."""
        return np.array([self.fit.targets.index(task.target) for task in self.tasks], dtype=np.int64)

    @cached_property
    def lines(self) -> Lines:
        """The fitted lines."""
        return lines_of_tasks(self.tasks)

    @cached_property
    def drawn(self) -> Lines | None:
        """Lines (B, T) beside the law's replicates; None without these."""
        if self.fit.replicates is None:
            return None
        return drawn_lines(self.tasks, self.fit.replicates.batch()[0])

    @property
    def replicates(self) -> Law | None:
        """The law's replicates; `errors_of` has the error rates of what they predict."""
        return self.fit.replicates

    def errors_of(self, losses: FloatArray) -> FloatArray | None:
        """Error rates (B, R, T) of losses (B, R, K) under the replicates, by the line drawn for each; None without."""
        if self.drawn is None:
            return None
        a, b, guess, shape = self.drawn
        return Lines(a[:, None], b[:, None], guess, shape).errors(losses[..., self.places])

    def sensitivity(self, losses: FloatArray, w: FloatArray) -> FloatArray:
        """(2 T) what sum_t w_t e_t changes by for a change of each log loss (K,), and of each score for itself."""
        return self.lines.sensitivity(losses[self.places], w)

    def terms(self, N: float, D: float) -> Scored:
        """Error rates at one budget as pieces in the mixture."""
        return scored_terms(self.fit.terms(N, D), self.places, self.lines)

    def replicate_terms(self, N: float, D: float) -> Scored | None:
        """The same of every replicate of the law, each with lines of its own."""
        found = self.fit.replicate_terms(N, D)
        return None if found is None or self.drawn is None else scored_terms(found, self.places, self.drawn)

    def predict(
        self,
        p: Points,
        N: Budget | None = None,
        D: Budget | None = None,
        level: float = LEVEL,
        runs: tuple[str, ...] | None = None,
        *,
        languages: LanguagesSpec | None = None,
        available: Amounts | None = None,
        unique: ArrayLike | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Scores (R, T) at mixtures p, with the intervals of single runs: `found.scores`, or error rates as losses.

        Parameters
        ----------
        p, N, D, level, runs, languages, available, unique, strict : see `Fit.predict`
            What to predict, and with which unique tokens.

        Raises
        ------
        DataError, UsageError
            As `Fit.predict`. With `strict` also where a loss lies outside of what its task was calibrated on, or a line
            gives a score that is none.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShapleyMixWarning)  # said below, with those of the lines
            losses = self.fit.predict(
                p, N, D, level, runs, languages=languages, available=available, unique=unique, strict=strict
            )
        middle, low, high = (values[:, self.places] for values in (losses.losses, losses.low, losses.high))
        errors, ends = self.lines.errors(middle), [self.lines.errors(end) for end in (low, high)]
        own = np.stack([spread(task, middle[:, place], level) for place, task in enumerate(self.tasks)], axis=1)
        down, up = (np.hypot(end - errors, own) for end in ends)
        far = self._far(middle)
        absurd = self._absurd(errors)
        told = self._told(far, absurd)
        if strict and (far | absurd).any():
            raise OutsideError.of([Fault(text, hint=_BEYOND_HINT) for text in told])
        found = replace(
            losses,
            targets=self.targets,
            losses=errors,
            low=errors - down,
            high=errors + up,
            outside=losses.outside[:, self.places] | far,
            above_untrained=losses.above_untrained[:, self.places],
            warnings=(*losses.warnings, *told),
            measure=ERROR,
        )
        caution(found.warnings)
        return found

    def _far(self, loss: FloatArray) -> BoolArray:
        """Which losses (R, T) lie outside of what their task was calibrated on."""
        low, high = np.array([task.losses for task in self.tasks]).T
        room = BEYOND * (high - low)
        return (loss < low - room) | (loss > high + room)

    @staticmethod
    def _absurd(errors: FloatArray) -> BoolArray:
        """Which error rates (R, T) belong to no score."""
        with np.errstate(invalid="ignore"):
            return (errors < 0) | (errors > 1)

    def _told(self, far: BoolArray, absurd: BoolArray) -> list[str]:
        """Which tasks are asked about losses, or answer with scores, that no run had."""
        told = []
        beyond = self._named(far)
        if beyond:
            told.append(f"the loss lies outside of what {short(beyond)} was calibrated on: the line goes on unseen")
        none = self._named(absurd)
        if none:
            told.append(f"the line of {short(none)} gives a score that is none, below 0 or above 1")
        return told

    def _named(self, mask: BoolArray) -> list[str]:
        """The tasks that a mask (R, T) holds anywhere."""
        return [self.targets[place] for place in np.flatnonzero(np.any(mask, axis=0)).tolist()]

    def weights(self, given: Mapping[str, float | str] | str | None = None, objective: str = MEAN) -> dict[str, float]:
        """Weights of every label: of a task for several targets its weight in equal shares, or that of a label alone.

        Parameters
        ----------
        given : mapping or str, optional
            `"hellaswag=1,xwinograd/ja=0.5"`; tasks without a weight get 0. None = every task alike.
        objective : str
            `"mean"`, or `"worst"`, where nothing is shared: the weight of a task is that of its worst target.

        Raises
        ------
        UsageError
            If a name is no task, or a task that counts scores worse for a lower loss.
        """
        names = tuple(dict.fromkeys(task.task for task in self.tasks))
        weights = dict.fromkeys(names, 1.0) if given is None else parse_pairs(given, parse_number, "task weight")
        known = (*names, *self.targets)
        odd = [
            Fault(f"a task weight is given for {name!r}, which is no task", hint=did_you_mean(name, known))
            for name in weights
            if name not in known
        ]
        if odd:
            raise UsageError.of(odd, "the task weights")
        shares = {name: sum(task.task == name for task in self.tasks) if objective == MEAN else 1 for name in names}
        found = {
            task.label: weights.get(task.label, weights.get(task.task, 0.0) / shares[task.task]) for task in self.tasks
        }
        if not any(weight > 0 for weight in found.values()):
            raise UsageError("no task counts for anything", hint="give one of them a task weight above 0")
        if objective != MEAN and len({weight for weight in found.values() if weight > 0}) > 1:
            raise UsageError("of the worst score every task counts alike, or not", hint="give task weights of 1, or 0")
        self._require_sensible(found)
        return found

    def _require_sensible(self, weights: Mapping[str, float]) -> None:
        senseless = [task.label for task in self.tasks if weights[task.label] > 0 and not task.sensible]
        if senseless:
            message = f"{short(senseless)} scores higher where the loss is higher: no mixture is to be chosen by that"
            rest = ",".join(f"{name}=1" for name in self.targets if name not in senseless)
            raise UsageError(message, hint=f"leave it out: task_weights={rest}" if rest else "evaluate other tasks")

    @cached_property
    def misfit(self) -> ScoredMisfit | None:
        """How held-out losses and scores scatter; None where nothing was held out of the law."""
        own = self.fit.misfit
        if own is None:
            return None
        scatter = np.array([task.scatter for task in self.tasks])
        return ScoredMisfit(own.scale[self.places], own.shared, own.smooth, own.reach, own.runs, self.places, scatter)

    @cached_property
    def cells(self) -> ScoredCells | None:
        """What losses of one budget have in common; None where the log does not tell."""
        return None if self.fit.cells is None else ScoredCells.of(self.fit.cells, self.places)

    @cached_property
    def absent(self) -> ScoredAbsent | None:
        """What tells error rates without a task's own language; None where that is no other regime."""
        own = self.fit.absent
        if own is None:
            return None
        residuals = None if own.residuals is None else own.residuals[:, self.places]
        return ScoredAbsent(
            own.law, own.replicates, residuals, own.coverage, own.own[self.places], self.places, self.lines, self.drawn
        )

    @property
    def law(self) -> Law:
        """The law of the losses."""
        return self.fit.law

    @property
    def repetition(self) -> Repetition | None:
        """What the law knows of repeated tokens."""
        return self.fit.repetition

    @property
    def held(self) -> dict[str, str]:
        """Symbols of the law that its runs do not tell."""
        return self.fit.held

    @property
    def unseen(self) -> tuple[str, ...]:
        """Sources that no run of the law saw."""
        return self.fit.unseen

    @property
    def thin(self) -> dict[str, str]:
        """Sources of whose effect little is known."""
        return self.fit.thin

    @property
    def N_range(self) -> FloatArray:
        """(2,) fewest and most parameters of the law's runs."""
        return self.fit.N_range

    @property
    def D_range(self) -> FloatArray:
        """(2,) fewest and most tokens of the law's runs."""
        return self.fit.D_range

    @property
    def provenance(self) -> dict[str, Json]:
        """Where the law and the calibrations are from."""
        return {**self.fit.provenance, "downstream": self.downstream.provenance}


_BEYOND_HINT = "score runs of such losses, or leave out strict"


def scored_fit(fit: Fit | str | os.PathLike[str], downstream: Downstream | str | os.PathLike[str]) -> ScoredFit:
    """A fit that predicts error rates of the calibrated tasks.

    Parameters
    ----------
    fit : Fit or path
        The law of the losses, or the file of a saved fit.
    downstream : Downstream or path
        What `calibrate_scores` returns, or the file in which that was saved.

    Raises
    ------
    UsageError
        If a task's target is none of the fit.
    """
    law, known = Fit.taken(fit), Downstream.taken(downstream)
    strange = sorted({task.target for task in known.calibrations if task.target not in law.targets})
    if strange:
        hint = "calibrate by the losses of the fit's targets"
        raise UsageError(f"the fit has no target {', '.join(strange)}, by whose loss tasks are calibrated", hint=hint)
    return ScoredFit(law, known)
