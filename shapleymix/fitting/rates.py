"""The rate at which repeated tokens lose their worth: from the log where it repeats any, else the published one.

One rate lambda serves the whole log (`laws.repeated`). Where runs repeat tokens it is fitted: each rate on a grid is
given the law's best symbols, and the one whose residuals and prior together are most likely is taken. The prior is the
published rate with its spread; a log without repetition leaves the rate there. Each bootstrap replicate has a rate of
its own: under its own weights, along the fits of the grid (first order exact: the symbols follow the rate), with a
centre of the prior that is drawn, so that a rate which the log barely tells has the spread of the prior.

Legend: R rows, M sources, K targets, B replicates, G rates of the grid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import CubicSpline

from shapleymix.errors import FitError
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.study import Study
from shapleymix.laws import BlackBox, Law
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.laws.repeated import PUBLISHED, PUBLISHED_SPREAD
from shapleymix.records import BoolArray, FloatArray, IntArray

COARSE = np.log(PUBLISHED) + np.linspace(-4.2, 4.2, 9)
"""Logarithms of rates: R* from 1,000 to a quarter of an epoch."""
FINER = ((0.35, 3), (0.1, 2))
"""Steps around the best so far, and how many to each side: well-told rates have a narrow minimum."""
STEP = 0.005
APART = 0.02
"""Rates nearer than this (in logarithms) are one: a spline through both would follow the rounding of their fits."""
GROUPS = 10
"""Rates that the replicates of one fit have, at most: each asks for a search of its own."""
Counted = Callable[[int, int], None]


@dataclass(frozen=True)
class Told:
    """A study at the rate that its runs tell under one law, and the profile that told it.

    `profile` is None where the law takes no repetition, or too few runs repeat tokens to tell the rate.
    """

    study: Study
    law: type[Law]
    rate: float
    profile: Profile | None

    @classmethod
    def of(cls, study: Study, law: type[Law], rows: BoolArray | None = None) -> Told:
        """The study with the most likely rate under the law, by some rows (R,) alone if they are named."""
        learns = issubclass(law, BlackBox) or not law.takes_repetition
        if learns or not study.evidence.tells_repetition:
            return cls(study, law, PUBLISHED, None)
        shares = np.ones((1, len(study.log))) if rows is None else rows[None].astype(np.float64)
        profile = Profile.of(study, law, shares)
        rate = float(np.exp(profile.lowest(shares, np.zeros(1))[0]))
        return cls(at_rate(study, rate), law, rate, profile)

    def rates(self, shares: FloatArray, seed: int) -> FloatArray:
        """A rate for each weighting of the rows (B, R)."""
        drawn = PUBLISHED_SPREAD * np.random.default_rng([seed, 8]).normal(size=len(shares))
        if self.profile is None:
            return np.exp(np.log(PUBLISHED) + drawn)
        return np.exp(self.profile.lowest(shares, drawn))

    def groups(self, rates: FloatArray) -> list[tuple[Study, IntArray]]:
        """Replicates (indices) of about one rate, with the study at it; all of them where the rate changes nothing."""
        if self.profile is None or not len(rates):
            return [(self.study, np.arange(len(rates)))]
        parts = np.array_split(np.argsort(rates, kind="stable"), min(GROUPS, len(rates)))
        return [(at_rate(self.study, float(np.exp(np.log(rates[part]).mean()))), part) for part in parts]

    def resampled(
        self, problem: Problem, shares: FloatArray, x: FloatArray, seed: int, progress: Counted | None
    ) -> tuple[FloatArray, FloatArray]:
        """Replicates of a finished fit x (K, P): vectors (B, K, P), and the rate (B,) of each."""
        rates = self.rates(shares, seed)
        again, done = np.empty((len(shares), *x.shape)), 0
        for number, (study, part) in enumerate(self.groups(rates)):
            there, stream = problem, seed
            if self.profile is not None:
                stream = GROUPS * seed + number  # what is believed is drawn anew for every group
                rates[part] = study.evidence.rate
                fresh = Problem.of(self.law, study.evidence, study.inputs, study.settings)
                there = replace(fresh, believed=problem.believed, threshold=problem.threshold)
            stage = _within(progress, done, len(part), len(shares))
            again[part] = there.resample(shares[part], x, stream, stage).x
            done += len(part)
        return again, rates

    def known(self, rates: FloatArray | None) -> Repetition | None:
        """What the fit will know; None for a law that takes no repetition."""
        if not self.law.takes_repetition:
            return None
        return Repetition(self.rate, rates, self.profile is not None, _epochs(self.study))


def _within(progress: Counted | None, before: int, size: int, total: int) -> Counted | None:
    """The progress of one part of all replicates, as that of the whole."""
    if progress is None:
        return None
    return lambda done, most: progress(round((before + size * done / most) / total * 1000), 1000)


def at_rate(study: Study, rate: float) -> Study:
    """The study with repeated tokens worth what a rate says."""
    return replace(study, evidence=replace(study.evidence, rate=rate))


def _epochs(study: Study) -> FloatArray:
    """Fewest and most epochs (M, 2) of each source over the runs that hold it; NaN where none says."""
    evidence = study.evidence
    M = evidence.log.p.shape[1]
    if evidence.unique is None:
        return np.full((M, 2), np.nan)
    epochs = evidence.log.p * evidence.log.D[:, None] / np.where(np.isnan(evidence.unique), np.inf, evidence.unique)
    held = (evidence.log.p > 0) & np.any(evidence.weight > 0, axis=1, keepdims=True)
    low = np.where(held, epochs, np.inf).min(axis=0, initial=np.inf)
    high = np.where(held, epochs, 0.0).max(axis=0, initial=0.0)
    return np.stack([np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(low), high, np.nan)], axis=1)


@dataclass(frozen=True)
class Profile:
    """A law's best fit at each of some rates.

    Attributes
    ----------
    log_rates : array (G,)
        Logarithms of the rates, rising.
    residuals : array (G, R, K)
        Log residuals of the best symbols at each; 0 where a loss does not count.
    weight : array (R, K)
        Weights of the losses.
    count : float
        How many independent errors the log holds: runs less unknowns, for as many targets as err independently.
    """

    log_rates: FloatArray
    residuals: FloatArray
    weight: FloatArray
    count: float

    @classmethod
    def of(cls, study: Study, law: type[Law], shares: FloatArray) -> Profile:
        """The profile under one weighting (1, R): a coarse grid, and finer ones around the best so far."""
        search = _Search(study, law, shares)
        for log_rate in COARSE[np.argsort(np.abs(COARSE - np.log(PUBLISHED)), kind="stable")].tolist():
            search.visit(log_rate)
        for step, each in FINER:
            best = float(search.profile().lowest(shares, np.zeros(1))[0])
            for turn in range(-each, each + 1):
                search.visit(best + step * turn)
        return search.profile()

    def lowest(self, shares: FloatArray, shift: FloatArray) -> FloatArray:
        """Logarithm of the most likely rate (B,) under weightings (B, R), with the prior's centre shifted (B,)."""
        fine = np.arange(self.log_rates[0], self.log_rates[-1], STEP)
        misfit = CubicSpline(self.log_rates, self._misfit(shares), axis=1)(fine)
        prior = (fine - np.log(PUBLISHED) - shift[:, None]) ** 2 / (2 * PUBLISHED_SPREAD**2)
        return fine[np.argmin(misfit + prior, axis=1)]

    def _misfit(self, shares: FloatArray) -> FloatArray:
        """Minus the log likelihood (B, G): the count times the logarithm of the mean absolute residual."""
        sizes = np.einsum("br,grk->bgk", shares, np.abs(self.residuals) * self.weight)
        scale = np.maximum(sizes / np.maximum(shares @ self.weight, 1e-300)[:, None, :], 1e-12)
        return self.count * np.log(scale).mean(axis=2)


class _Search:
    """The rates visited so far, with the symbols and the residuals of each."""

    def __init__(self, study: Study, law: type[Law], shares: FloatArray) -> None:
        self.study, self.law, self.shares = study, law, shares
        self.x: dict[float, FloatArray] = {}
        self.residuals: dict[float, FloatArray] = {}

    def visit(self, log_rate: float) -> None:
        """Fit at one rate, from the symbols of the nearest that was visited; not twice at what is about one rate."""
        near = min(self.x, key=lambda known: abs(known - log_rate), default=None)
        if near is not None and abs(near - log_rate) < APART:
            return
        there = at_rate(self.study, float(np.exp(log_rate)))
        problem = Problem.of(self.law, there.evidence, there.inputs, there.settings, self.shares[0] > 0)
        if near is None:
            x = problem.estimate(self.shares).x
        else:
            x = problem.follow(self.shares, self.x[near][None], self.study.settings.tolerance)
        self.x[log_rate] = x[0]
        residual = problem.observed.log_loss - problem.predicted(x)[0]
        self.residuals[log_rate] = np.where(problem.observed.weight > 0, residual, 0.0)

    def profile(self) -> Profile:
        """What was found, in the order of the rates."""
        rates = sorted(self.x)
        residuals = np.stack([self.residuals[rate] for rate in rates])
        used = self.shares[0] > 0
        runs = len({run for run, use in zip(self.study.log.runs, used.tolist(), strict=True) if use})
        unknowns = next(iter(self.x.values())).shape[-1]
        freedom = max(runs - unknowns, runs / 4)
        count = freedom * _independent(residuals[:, used].mean(axis=0))
        return Profile(np.array(rates), residuals, self.study.evidence.weight, count)


def _independent(residuals: FloatArray) -> float:
    """How many independent targets (R, K) amount to, from the eigenvalues of their correlation: between 1 and K."""
    used = residuals[:, residuals.any(axis=0)]
    if used.shape[1] < 2 or len(used) < 3:
        return 1.0
    values = np.linalg.eigvalsh(np.corrcoef(used.T))
    return float(values.sum() ** 2 / (values**2).sum())


def for_comparison(study: Study, masks: BoolArray) -> Study:
    """A study at one rate for all laws that are compared: what `learned-base` tells, if it can be fitted.

    It is told by the rows that no mask (V, R) holds out; where each is held out in turn, by all.
    """
    seen = np.all(~masks, axis=0, keepdims=True)[0]
    with contextlib.suppress(FitError):
        return Told.of(study, LearnedBase, seen if seen.any() else None).study
    return study
