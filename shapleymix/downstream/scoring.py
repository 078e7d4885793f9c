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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import t as student_t

from shapleymix.display import short
from shapleymix.downstream.calibrations import Calibration, Downstream
from shapleymix.downstream.pieces import Lines, Scored, lines_of_tasks, scored_terms
from shapleymix.errors import Fault, OutsideError, UsageError, did_you_mean
from shapleymix.files import Json
from shapleymix.fitting.absent import Absent
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.misfit import SAME, Misfit
from shapleymix.fitting.prediction import Prediction
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.settings import LEVEL
from shapleymix.laws import Law, Terms
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.amounts import parse_number, parse_pairs
from shapleymix.tables.by_source import Amounts

STREAM = 11
"""Of the draws of the lines' numbers, which are the same at every budget."""
LEAST_SLOPE = 0.02
"""Of a fitted slope is left in every draw: no line is drawn that scores worse for a lower loss."""
BEYOND = 0.05
"""Of the span of the calibrated losses: a loss further outside of it has a score that no run has shown."""


@dataclass(frozen=True)
class ScoredMisfit(Misfit):
    """The scatter of the law's log losses, by the targets of the tasks, and that of scores about their lines.

    `scale` (T) is that of each task's target, `places` (T) says which target that is. Factors are (2 T): what an objective changes by for each log loss, then for each score.
    """

    places: IntArray
    scatter: FloatArray

    def covariance(self, first: FloatArray, second: FloatArray) -> float:
        """Covariance of two sums of log losses and scores at one mixture."""
        one, other = np.split(first, 2), np.split(second, 2)
        return self._of_losses(one[0], other[0]) + float((one[1] * self.scatter**2) @ other[1])

    def spread(self, p: FloatArray, at_p: FloatArray, q: FloatArray, at_q: FloatArray, *, runs: bool = True) -> float:
        """Standard deviation of a difference of objectives; of single runs with their scatter about the lines."""
        loss_p, own_p = np.split(at_p, 2)
        loss_q, own_q = np.split(at_q, 2)
        common = self.alike(p, q, runs=runs) * self._of_losses(loss_p, loss_q)
        variance = self._of_losses(loss_p, loss_p) + self._of_losses(loss_q, loss_q) - 2 * common
        variance = max(variance, 0.0) * (1.0 if runs else self.smooth)
        if runs and not np.allclose(p, q, rtol=0, atol=SAME):
            variance += float(np.sum((own_p**2 + own_q**2) * self.scatter**2))
        return float(np.sqrt(variance))

    def _of_losses(self, first: FloatArray, second: FloatArray) -> float:
        """Of the law's losses: tasks of one target err alike."""
        one, other = (np.bincount(self.places, factors * self.scale) for factors in (first, second))
        return float(self.shared * one.sum() * other.sum() + (1 - self.shared) * (one @ other))


@dataclass(frozen=True)
class ScoredAbsent(Absent):
    """What tells the error rates of mixtures without a task's own language."""

    places: IntArray
    fitted: Lines
    drawn: Lines | None

    def terms(self, N: float, D: float) -> Terms:
        return scored_terms(super().terms(N, D), self.places, self.fitted)

    def replicate_terms(self, N: float, D: float) -> Terms | None:
        found = super().replicate_terms(N, D)
        return None if found is None or self.drawn is None else scored_terms(found, self.places, self.drawn)


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

    measure = "error"

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

    def terms(self, N: float, D: float) -> Scored:
        """Error rates at one budget as pieces in the mixture."""
        return scored_terms(self.fit.terms(N, D), self.places, self.lines)

    def replicate_terms(self, N: float, D: float) -> Scored | None:
        """The same of every replicate of the law, each with lines of its own."""
        found = self.fit.replicate_terms(N, D)
        return None if found is None or self.drawn is None else scored_terms(found, self.places, self.drawn)

    def predict(
        self,
        p: FloatArray,
        N: float,
        D: float,
        level: float = LEVEL,
        *,
        strict: bool = False,
        available: Amounts | None = None,
    ) -> Prediction:
        """Error rates (R, T) at mixtures p (R, M), with the intervals of single runs."""
        losses = self.fit.predict(p, N, D, level, available=available, strict=strict)
        middle, low, high = (values[:, self.places] for values in (losses.losses, losses.low, losses.high))
        errors, ends = self.lines.errors(middle), [self.lines.errors(end) for end in (low, high)]
        own = np.stack([_spread(task, middle[:, place], level) for place, task in enumerate(self.tasks)], axis=1)
        down, up = (np.hypot(end - errors, own) for end in ends)
        far = self._far(middle)
        found = replace(
            losses,
            targets=self.targets,
            losses=errors,
            low=errors - down,
            high=errors + up,
            outside=losses.outside[:, self.places] | far,
            above_untrained=losses.above_untrained[:, self.places],
            warnings=(*losses.warnings, *self._warnings(far, errors)),
        )
        if strict and far.any():
            raise OutsideError.of([Fault(text, hint=_BEYOND_HINT) for text in self._warnings(far, errors)])
        return found

    def _far(self, loss: FloatArray) -> BoolArray:
        """Which losses (R, T) lie outside of what their task was calibrated on."""
        low, high = np.array([task.losses for task in self.tasks]).T
        room = BEYOND * (high - low)
        return (loss < low - room) | (loss > high + room)

    def _warnings(self, far: BoolArray, errors: FloatArray) -> list[str]:
        """Which tasks are asked about losses, or answer with scores, that no run had."""
        told = []
        beyond = [name for name, one in zip(self.targets, far.any(axis=0).tolist(), strict=True) if one]
        if beyond:
            told.append(f"the loss lies outside of what {short(beyond)} was calibrated on: the line goes on unseen")
        with np.errstate(invalid="ignore"):
            odd = ((errors < 0) | (errors > 1)).any(axis=0).tolist()
        absurd = [name for name, one in zip(self.targets, odd, strict=True) if one]
        return told + ([f"the line of {short(absurd)} gives a score that is none, below 0 or above 1"] if absurd else [])

    def weights(self, given: Mapping[str, float | str] | str | None = None) -> dict[str, float]:
        """Weights of every task: of a task for several targets its weight in equal shares, or of one label alone.

        Parameters
        ----------
        given : mapping or str, optional
            `"hellaswag=1,xwinograd/ja=0.5"`; tasks without a weight get 0. None = every task alike.

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
        shares = {name: sum(task.task == name for task in self.tasks) for name in names}
        found = {
            task.label: weights.get(task.label, weights.get(task.task, 0.0) / shares[task.task]) for task in self.tasks
        }
        self._require_sensible(found)
        return found

    @property
    def usual_weights(self) -> dict[str, float]:
        """What the tasks count for where nobody says: each alike."""
        return self.weights()

    def _require_sensible(self, weights: Mapping[str, float]) -> None:
        senseless = [task.label for task in self.tasks if weights[task.label] > 0 and not task.sensible]
        if senseless:
            message = f"{short(senseless)} scores higher where the loss is higher: no mixture is to be chosen by that"
            rest = ",".join(f"{name}=1" for name in self.targets if name not in senseless)
            raise UsageError(message, hint=f"leave it out: --task-weights {rest}" if rest else "evaluate other tasks")

    @cached_property
    def misfit(self) -> ScoredMisfit | None:
        """How held-out losses and scores scatter; None where nothing was held out of the law."""
        own = self.fit.misfit
        if own is None:
            return None
        scatter = np.array([task.scatter for task in self.tasks])
        return ScoredMisfit(
            own.scale[self.places], own.shared, own.smooth, own.reach, own.runs, self.places, scatter
        )

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


def drawn_lines(tasks: Sequence[Calibration], count: int) -> Lines:
    """Lines (B, T), each with numbers drawn by Student's t about the fitted ones.

    A draw whose slope is of the wrong sign, or next to none, is drawn nearer to the fitted line.
    """
    rng = np.random.default_rng(STREAM)
    fitted = lines_of_tasks(tuple(tasks))
    a, b = np.empty((2, count, len(tasks)))
    for place, task in enumerate(tasks):
        root = np.linalg.cholesky(task.covariance + 1e-300 * np.eye(2))
        heavy = np.sqrt(task.dof / rng.chisquare(task.dof, count))
        moves = heavy[:, None] * (rng.standard_normal((count, 2)) @ root.T)
        share = moves[:, 0] / task.a if task.a != 0 else np.zeros(count)
        back = np.minimum(1.0, (LEAST_SLOPE - 1) / np.minimum(share, LEAST_SLOPE - 1))
        a[:, place], b[:, place] = task.a + back * moves[:, 0], task.b + back * moves[:, 1]
    return Lines(a, b, fitted.guess, fitted.shape)


def _spread(task: Calibration, loss: FloatArray, level: float) -> FloatArray:
    """Half the width (R,) of the interval of a run's score for the sake of its line: how little it is known, scatter."""
    g = task.shape.value(loss)
    steep = np.ones_like(g)
    if task.shape.bent:
        share = (task.score(loss) - task.base) / (1 - task.base)
        steep = (1 - task.base) * share * (1 - share)
    C = task.covariance
    variance = steep**2 * (C[0, 0] * g**2 + 2 * C[0, 1] * g + C[1, 1]) + task.scatter**2
    return student_t.ppf(0.5 + level / 2, task.dof) * np.sqrt(np.maximum(variance, 0.0))
