"""A saved fit against a log that it may never have seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.scores import Scores, score
from shapleymix.records import Record
from shapleymix.tables.frames import Columns, Tabular


@dataclass(frozen=True)
class Evaluation(Tabular, Record):
    """Scores of a fit on the trained rows of a log, with the coverage of its intervals at `level`."""

    kind = "evaluation"

    scores: Scores
    level: float
    rows: int
    warnings: tuple[str, ...]

    def columns(self) -> Columns:
        """One row per target."""
        return self.scores.columns()


def evaluate(fit: Fit, log: Logs, level: float = 0.9, *, strict: bool = False) -> Evaluation:
    """Score the fit on a log; rows with D = 0 are left out; with `strict`, rows outside of what was fitted are refused.

    Raises
    ------
    DataError
        If a language of the fit is missing from the log, or the log has one that the fit does not know.
    """
    rows = one_log(log).aligned(fit.sources, fit.targets)
    rows = rows.select(rows.trained)
    predicted = fit.predict(rows.p, rows.N, rows.D, level, strict=strict)
    losses = fit.law(rows.p, rows.N, rows.D)  # a loss that is not shown for being absurd is an error all the same
    losses = np.broadcast_to(losses, rows.loss.shape)
    scores = score(fit.targets, rows.loss, losses, predicted.low, predicted.high)
    known = np.isfinite(predicted.low).any()
    notes = () if known else ("the fit has neither replicates nor held-out residuals: no intervals",)
    return Evaluation(scores, level, len(rows), predicted.warnings + notes)
