"""How unsure error rates of tasks are: scatter of losses and of scores, other regimes, and lines drawn at random.

Legend: B replicates, T tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from shapleymix.downstream.calibrations import Calibration
from shapleymix.downstream.pieces import Lines, lines_of_tasks, scored_terms
from shapleymix.fitting.absent import Absent
from shapleymix.fitting.cells import Cells, Effect
from shapleymix.fitting.misfit import SAME, Misfit
from shapleymix.laws import Terms
from shapleymix.records import FloatArray, IntArray

STREAM = 11
"""Of the draws of the lines' numbers, which are the same at every budget."""
LEAST_SLOPE = 0.02
"""Of a fitted slope is left in every draw: no line is drawn that scores worse for a lower loss."""


@dataclass(frozen=True)
class ScoredMisfit(Misfit):
    """The scatter of the law's log losses, by the targets of the tasks, and that of scores about their lines.

    `scale` (T) is that of each task's target, `places` (T) says which target that is. Factors are (2 T): what an
    objective changes by for each log loss, then for each score.
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
class ScoredEffect(Effect):
    """What log losses of one budget have in common, by the targets of the tasks; factors are (2 T), as of a misfit."""

    places: IntArray

    def variance(self, factors: FloatArray) -> float:
        """Variance of a sum of log losses, in which tasks of one target err alike."""
        parts = np.bincount(self.places, np.split(factors, 2)[0] * self.scale)
        return float(self.shared * parts.sum() ** 2 + (1 - self.shared) * (parts @ parts))


@dataclass(frozen=True)
class ScoredCells(Cells):
    """The cells of the law's log, with the columns of each task's target."""

    places: IntArray

    @classmethod
    def of(cls, own: Cells, places: IntArray) -> ScoredCells:
        """Those of a fit."""
        factor, apart = own.factor[:, places], own.apart[:, places]
        return cls(own.N, own.D, own.runs, factor, apart, own.effect[places], own.shared, places)

    def common(self, N: float, D: float) -> Effect:
        """The whole of what losses of a budget have in common."""
        known = super().common(N, D)
        return ScoredEffect(known.scale, known.shared, self.places)


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


def spread(task: Calibration, loss: FloatArray, level: float) -> FloatArray:
    """Half the width (R,) of a run's interval for the sake of its line: how little that is known, and the scatter."""
    g = task.shape.value(loss)
    steep = np.ones_like(g)
    if task.shape.bent:
        share = (task.score(loss) - task.base) / (1 - task.base)
        steep = (1 - task.base) * share * (1 - share)
    C = task.covariance
    variance = steep**2 * (C[0, 0] * g**2 + 2 * C[0, 1] * g + C[1, 1]) + task.scatter**2
    return student_t.ppf(0.5 + level / 2, task.dof) * np.sqrt(np.maximum(variance, 0.0))
