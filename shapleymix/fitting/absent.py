"""Runs without a target's own language: where they are another regime, a law of their own tells their losses.

A model that never saw a language predicts it far worse than the law of those that did says, however little they saw.
One law for both is pulled off by such runs; without them it knows nothing of such mixtures. So where the log tells the
two regimes apart, its losses of runs with the language are fitted alone, and mixtures without it are predicted by the
fit to all runs, which knows how all other sources help.

Legend: R rows or points, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from shapleymix.display import short
from shapleymix.fitting.coverage import Coverage
from shapleymix.fitting.repetition import Taken, replicate_losses
from shapleymix.fitting.uncertainty import QUANTILES, Spread, check_quantiles
from shapleymix.laws import Law, Terms
from shapleymix.records import BoolArray, FloatArray, IntArray, Record

SOME = 1.0  # tokens: a filter on own tokens of so many leaves out the runs without any

TRACE = 1e-6  # of all tokens: less of a language is none of it, and no answer hangs on a solver's rounding


@dataclass(frozen=True)
class Absent(Record):
    """What tells the losses of mixtures without a target's own language.

    Attributes
    ----------
    law, replicates : Law
        The law fitted to all runs, with its bootstrap replicates.
    residuals : array (99, K), optional
        Quantiles of its held-out residuals on runs without the target's own language.
    coverage : Coverage
        What all runs cover.
    own : int array (K,)
        Each target's own source; -1 where no fitted run was without it, and there is nothing to tell apart.
    """

    kind = "fit/absent"
    axes: ClassVar[Mapping[str, str]] = {"residuals": "QK", "own": "K"}

    law: Law
    replicates: Law | None
    residuals: FloatArray | None
    coverage: Coverage
    own: IntArray

    def check(self, sources: tuple[str, ...], targets: int, replicates: Law | None) -> None:
        """Refuse arrays that do not fit the labels, and other numbers of replicates than the fit has, if any.

        Raises
        ------
        ValueError
            If a shape is wrong, or `own` names no source.
        """
        for law, leading in ((self.law, 0), (self.replicates, 1)):
            if law is not None:
                law.check(len(sources), targets, leading)
        counts = [() if one is None else one.batch() for one in (self.replicates, replicates)]
        if replicates is not None and counts[0] != counts[1]:
            raise ValueError(f"absent: {counts[0] or 'no'} replicates beside {counts[1]} of the fit")
        self.coverage.check(sources, targets)
        check_quantiles(self.residuals, targets)
        if self.own.shape != (targets,) or not ((self.own >= -1) & (self.own < len(sources))).all():
            raise ValueError(f"absent: own names one of {len(sources)} sources for each of {targets} targets, or -1")

    def entries(self, p: FloatArray) -> BoolArray:
        """Which losses (R, K) of mixtures p (R, M) are of this regime."""
        return (self.own >= 0) & (p[:, self.own] < TRACE)

    def terms(self, N: float, D: float) -> Terms:
        """The law of this regime at one budget, as convex pieces in the mixture."""
        return self.law.terms(N, D)

    def replicate_terms(self, N: float, D: float) -> Terms | None:
        """The same of every replicate; None without."""
        return Spread(self.replicates, self.residuals, self.coverage).terms(N, D)

    def scale(self) -> FloatArray:
        """Standard deviation (K,) of the log losses of this regime about the law; 0 where nothing was held out."""
        if self.residuals is None:
            return np.zeros(len(self.own))
        low, high = (self.residuals[np.abs(QUANTILES - tail).argmin()] for tail in (0.05, 0.95))
        return (high - low) / (2 * norm.ppf(0.95))

    def warnings(self, targets: tuple[str, ...], p: FloatArray) -> tuple[str, ...]:
        """Which targets' losses are of this regime at points p (R, M)."""
        there = np.any(self.entries(p), axis=0)
        if not there.any():
            return ()
        names = short([name for name, off in zip(targets, there, strict=True) if off])
        return (
            f"mixtures without {names} are another regime for {'each' if there.sum() > 1 else 'that target'}: its loss "
            "comes from the fit to all runs, and no optimum is sought there but where the bounds leave none of it",
        )


def traceless(p: FloatArray) -> FloatArray:
    """Ratios without the traces that `TRACE` takes for none: a law's power of one may be far from that of zero."""
    return np.where(p < TRACE, 0.0, p)


def merged(
    known: tuple[FloatArray, FloatArray, FloatArray],
    absent: Absent | None,
    counted: Taken,
    budgets: tuple[FloatArray, FloatArray],
    level: float,
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Losses with their intervals (R, K): those known, and of the other regime its own; and which these are (R, K)."""
    if absent is None:
        return *known, np.zeros(known[0].shape, dtype=bool)
    there, losses = absent.entries(counted.q), absent.law.losses(traceless(counted.q), *budgets)
    spread = Spread(absent.replicates, absent.residuals, absent.coverage)
    found = losses, *spread.interval(losses, traceless(counted.replicates), *budgets, level)
    loss, low, high = (np.where(there, other, one) for one, other in zip(known, found, strict=True))
    return loss, low, high, there


def of_replicates(
    law: Law, absent: Absent | None, counted: Taken, budgets: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Losses (B, R, K) of a law's replicates, and of the other regime those of its own."""
    found = replicate_losses(law, counted.replicates, *budgets)
    if absent is None or absent.replicates is None:
        return found
    other = replicate_losses(absent.replicates, traceless(counted.replicates), *budgets)
    return np.where(absent.entries(counted.q), other, found)
