"""The runs of a log as a fit's figure takes them: at one token count a size, told apart where held out.

Legend: R rows, M sources, K targets.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from shapleymix.errors import DataError, Location, ShapleyMixWarning, UsageError
from shapleymix.fitting.evidence import Logs, one_log, own_tokens
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.prediction import Prediction
from shapleymix.fitting.repetition import taken
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sizes import format_size, parse_size

NEAR = 0.01
"""Token counts are rounded to batches: those within this share of one are that one."""


@runtime_checkable
class HasTheta(Protocol):
    """A law through whose Theta alone the mixture acts on a target's loss."""

    def theta(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Theta, shape (..., R, K)."""
        ...


@dataclass(frozen=True)
class Points:
    """Runs at one token count a size, with what a fit says of each.

    Attributes
    ----------
    log : RunLog
        The rows, in the order of the fit's sources and targets.
    held : array (R,)
        Whether the fit did not see the row.
    drawn : array (R, K)
        Losses that are there, and of the regime that the fit is of.
    predicted : Prediction
        What the fit says of each row.
    left_out : int
        Losses that are there and are not drawn, being of another regime or of too few own tokens.
    budgets : dict of float to float
        The token count of each size.
    """

    log: RunLog
    held: BoolArray
    drawn: BoolArray
    predicted: Prediction
    left_out: int
    budgets: dict[float, float]

    def rows_of(self, N: float) -> BoolArray:
        """(R,) rows of a size."""
        return self.log.N == N

    def parts(self) -> list[tuple[str, BoolArray]]:
        """Losses (R, K) that the fit saw, and those held out within and outside of what it covers, with their names."""
        held, outside = self.held[:, None], self.predicted.outside
        within = "held out" if not (held & outside & self.drawn).any() else "held out within the fitted ranges"
        known = {
            "fitted" if self.held.any() else "runs": ~held & np.ones_like(outside),
            within: held & ~outside,
            "held out beyond them": held & outside,
        }
        return [(name, where) for name, where in known.items() if (where & self.drawn).any()]

    def told(self, where: BoolArray) -> str:
        """PE, and the share within the intervals, of some of the losses that are drawn (R, K), in words."""
        use = self.drawn & where & ~np.isnan(self.predicted.losses)
        loss, said = self.log.loss[use], self.predicted.losses[use]
        inside = (loss >= self.predicted.low[use]) & (loss <= self.predicted.high[use])
        bounded = ~np.isnan(self.predicted.low[use])
        share = f", {inside[bounded].mean():.0%} within their interval" if bounded.any() else ""
        return f"PE {np.abs(loss - said).sum() / loss.sum():.2%} on {use.sum()} losses{share}"


def points_of_log(fit: Fit, log: Logs, held_out: Logs | None, D: float | str | None, level: float) -> Points:
    """The rows of a log and of those held out at the token count asked for, else at each size's most usual one.

    Raises
    ------
    DataError
        If the logs do not have the fit's languages, share a run, or no row is left.
    """
    seen = one_log(log).aligned(fit.sources, fit.targets)
    rows = seen if held_out is None else _joined(seen, one_log(held_out).aligned(fit.sources, fit.targets))
    held = _held(seen, len(rows))
    budgets = {N: _usual(rows, N) if D is None else parse_size(D) for N in np.unique(rows.N[rows.trained]).tolist()}
    wanted = np.array([budgets.get(N, np.nan) for N in rows.N.tolist()])
    keep = rows.trained & (np.abs(rows.D - wanted) <= NEAR * wanted)
    if not keep.any():
        counts = ", ".join(map(format_size, np.unique(rows.D[rows.trained]).tolist()))
        raise DataError("no run has this token count", location=Location(file=rows.origin), hint=f"there are {counts}")
    rows, held = rows.select(keep), held[keep]
    drawn = rows.measured & ~_other_regime(fit, rows)
    predicted = quietly(fit, rows.p, rows.N, rows.D, level, rows.unique)
    found = {N: D for N, D in budgets.items() if (rows.N == N).any()}
    return Points(rows, held, drawn, predicted, int((rows.measured & ~drawn).sum()), found)


def quietly(
    fit: Fit, p: FloatArray, N: FloatArray, D: FloatArray, level: float, unique: FloatArray | None = None
) -> Prediction:
    """What a fit says of points, without a word on each that is far from its runs: a figure shows where they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        return fit.predict(p, N, D, level, unique=unique)


def theta_of(fit: Fit, p: FloatArray, N: FloatArray, D: FloatArray, unique: FloatArray | None = None) -> FloatArray:
    """Theta (R, K) of runs under a fit, with the worth of repeated tokens.

    Raises
    ------
    UsageError
        If the law has none.
    """
    law = fit.law
    if not isinstance(law, HasTheta):
        hint = "draw the losses against the predicted ones (against='prediction')"
        raise UsageError(f"law {law.name!r} has no Theta to draw the loss against", hint=hint)
    counted = taken(fit.repetition, p, unique, np.full(len(fit.sources), np.nan), D)
    return law.theta(counted.q, N, D)


def _joined(seen: RunLog, others: RunLog) -> RunLog:
    """Two logs of the same languages, one below the other; what neither a figure nor a prediction needs is left.

    Raises
    ------
    DataError
        If a run of one is in the other: what was fitted would be drawn as held out.
    """
    both = (seen, others)
    if shared := sorted(
        set(zip(seen.runs, seen.D.tolist(), strict=True)) & set(zip(others.runs, others.D.tolist(), strict=True))
    ):
        message = f"run {shared[0][0]!r} is among the fitted ones as well, and so are {len(shared) - 1} others"
        raise DataError(message, location=Location(file=others.origin), hint="give runs that the fit did not see")
    limits = [np.full(one.p.shape, np.nan) if one.unique is None else one.unique for one in both]
    return RunLog(
        runs=(*seen.runs, *others.runs),
        N=np.concatenate([one.N for one in both]),
        D=np.concatenate([one.D for one in both]),
        p=np.concatenate([one.p for one in both]),
        loss=np.concatenate([one.loss for one in both]),
        sources=seen.sources,
        targets=seen.targets,
        unique=None if all(one.unique is None for one in both) else np.concatenate(limits),
        origin=seen.origin,
    )


def _held(seen: RunLog, count: int) -> BoolArray:
    """(R,) rows that the split column sets aside, and all beyond the log's own."""
    split: Sequence[str] = seen.split or ["fit"] * len(seen)
    return np.array([label != "fit" for label in split] + [True] * (count - len(seen)))


def _usual(rows: RunLog, N: float) -> float:
    """The token count of most runs of a size; of several, the largest."""
    counts, often = np.unique(rows.D[rows.trained & (rows.N == N)], return_counts=True)
    return float(counts[often == often.max()].max())


def _other_regime(fit: Fit, rows: RunLog) -> BoolArray:
    """(R, K) losses that the fit's law is not of: without the own language where that is apart, or of too little."""
    least = fit.provenance.get("min_own_tokens")
    own = own_tokens(rows)
    few = own < (float(least) if isinstance(least, (int, float)) else 0.0)
    return few if fit.absent is None else few | fit.absent.entries(rows.p)
