"""A saved fit against a log that it may never have seen."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.absent import traceless
from shapleymix.fitting.evidence import Logs, one_log, own_tokens
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.repetition import taken
from shapleymix.fitting.scores import Scores, score
from shapleymix.fitting.settings import LEVEL
from shapleymix.fitting.uncertainty import Spread
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.runs import RunLog


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


def evaluate(fit: Fit | str | os.PathLike[str], log: Logs, level: float = LEVEL, *, strict: bool = False) -> Evaluation:
    """Score the fit on a log; rows with D = 0 are left out.

    Parameters
    ----------
    fit : Fit or path
        The fit, or the file in which one was saved.
    log : RunLog, path, or a sequence of them
        Run logs.
    level : float
        Probability of the intervals whose coverage is counted.
    strict : bool
        Whether rows outside of what was fitted are refused.

    Raises
    ------
    DataError
        If a language of the fit is missing from the log, or the log has one that the fit does not know.
    UsageError, StoreError
        If the fit is none, or cannot be read.
    """
    fit = Fit.taken(fit)
    rows = one_log(log).aligned(fit.sources, fit.targets)
    rows = rows.select(rows.trained)
    predicted = fit.predict(rows.p, rows.N, rows.D, level, unique=rows.unique, strict=strict)
    counted = taken(fit.repetition, rows.p, rows.unique, np.full(len(fit.sources), np.nan), rows.D)
    losses = fit.law.losses(
        counted.q, rows.N, rows.D
    )  # a loss that is not shown for being absurd is an error all the same
    if fit.absent is not None:
        losses = np.where(
            fit.absent.entries(counted.q), fit.absent.law.losses(traceless(counted.q), rows.N, rows.D), losses
        )
    scores = score(fit.targets, rows.loss, losses, predicted.low, predicted.high)
    none = fit.replicates is None and fit.residuals is None
    notes = Spread(None, None).lacks(fit.targets) if none else ()
    return Evaluation(scores, level, len(rows), (*predicted.warnings, *notes, *_regimes(rows, losses)))


def _regimes(log: RunLog, losses: FloatArray) -> tuple[str, ...]:
    """What part of the error is of runs without the target's own language."""
    lacking = (own_tokens(log) == 0) & log.measured
    if not lacking.any() or not (log.measured & ~lacking).any():
        return ()
    there, others = (
        score(log.targets, log.loss, losses, counted=rows).mean["PE"] for rows in (lacking, log.measured & ~lacking)
    )
    return (
        f"{int(lacking.sum())} of {int(log.measured.sum())} losses are of runs without the target's own language, "
        f"often another regime: PE {there:.2%} there, {others:.2%} on the others",
    )
