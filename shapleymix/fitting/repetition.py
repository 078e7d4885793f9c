"""What repeated tokens are worth: the rate at which they lose it, told by the log where it repeats any.

One rate lambda serves the whole log (see `laws.pieces.effective`). Where runs repeat tokens it is fitted: each rate on
a grid is given the law's best symbols, and the one whose residuals and prior together are most likely is taken. The
prior is the published rate with its spread; a log without repetition leaves the rate there. A fold of a
cross-validation is predicted at the rate that the other rows tell. Each bootstrap replicate has a rate of its own:
under its own weights, along the fits of the grid (first order exact: the symbols follow the rate), with a centre of the
prior that is drawn, so that a rate which the log barely tells has the spread of the prior.

Legend: R rows, M sources, K targets, B replicates, G rates of the grid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from shapleymix.errors import FitError, UsageError, described
from shapleymix.fitting.estimation import TOLERANCE, Problem
from shapleymix.fitting.study import Study
from shapleymix.laws import BlackBox, Law
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.laws.pieces import PUBLISHED, PUBLISHED_SPREAD
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.streams import Stream
from shapleymix.tables.mixtures import ONCE, epochs_of, repetition, repetitions

EVERY_TARGET = "*"
"""Target of a symbol that all targets share."""


@dataclass(frozen=True)
class Repetition(Record):
    """What a fit knows of repeated tokens.

    Attributes
    ----------
    rate : float
        The rate lambda; 1 / rate is R*, the number of repetitions beyond which little is left. At 0 nothing is lost.
    rates : array (B,), optional
        The rates of the replicates.
    told : bool
        Whether enough runs repeat tokens, so that the rate was fitted; else it is the published one.
    epochs : array (M, 2)
        Fewest and most epochs of each source in the fitted runs; NaN where the log does not say.
    """

    kind = "repetition"

    rate: float
    rates: FloatArray | None
    told: bool
    epochs: FloatArray

    def __post_init__(self) -> None:
        rates = np.append(self.rate, [] if self.rates is None else self.rates)
        if not (np.isfinite(rates) & (rates >= 0)).all():
            raise ValueError("the rates of repetition are not all finite and at least 0")

    def check(self, sources: int, replicates: Law | None) -> None:
        """Raise a ValueError unless there are epochs of each of so many sources, and a rate for each replicate."""
        if self.epochs.shape != (sources, 2):
            raise ValueError(f"repetition: epochs of shape {self.epochs.shape}, expected ({sources}, 2)")
        if (self.epochs[:, 0] > self.epochs[:, 1]).any():
            raise ValueError("repetition: fewest epochs above the most")
        if replicates is not None and (self.rates is None or self.rates.shape != replicates.batch()):
            count = "no" if self.rates is None else len(self.rates)
            raise ValueError(f"repetition: {count} rates for {replicates.batch()} replicates")

    def with_source(self, row: int) -> Repetition:
        """The same with one more source at a row, of whose epochs nothing is known."""
        return replace(self, epochs=np.insert(self.epochs, row, np.nan, axis=0))

    def interval(self, level: float) -> FloatArray:
        """(2,) bounds of the rate; NaN without replicates."""
        tails = [0.5 - level / 2, 0.5 + level / 2]
        return np.full(2, np.nan) if self.rates is None else np.quantile(self.rates, tails)

    def parameters(self, level: float) -> list[tuple[str, None, str, float, float, float]]:
        """The rate as a row of a fit's parameters, where the log told it."""
        return [("lambda", None, EVERY_TARGET, self.rate, *self.interval(level).tolist())] if self.told else []

    def stars(self, level: float = 0.9) -> FloatArray:
        """R*, the epochs beyond which little is left, with the bounds of its interval (3,); infinite at rate 0."""
        rates = np.array([self.rate, *self.interval(level)[::-1]])
        return np.divide(1.0, rates, out=np.full(3, np.inf), where=rates != 0)

    def told_lines(self, level: float = 0.9) -> list[str]:
        """The rate in words, where the log told it."""
        if not self.told:
            return []
        star, low, high = self.stars(level)
        spread = "" if np.isnan(low) else f", {level:.0%} interval {low:.3g} .. {high:.3g}"
        worth = f"worth little beyond R* = {star:.3g} epochs" if np.isfinite(star) else "worth as much as fresh ones"
        return [f"  repeated tokens: {worth}{spread}"]

    def warnings(
        self, p: FloatArray, unique: FloatArray, D: float, sources: Sequence[str], who: str = "the mixture"
    ) -> list[str]:
        """Where a mixture (M,) makes other epochs than the fitted runs did; `unique` (M,), NaN where not known."""
        epochs = epochs_of(p, unique, D)
        often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable").tolist() if epochs[i] > ONCE]
        most = np.nan_to_num(self.epochs[:, 1])
        if not self.told:
            named = _named(sources, epochs, often)
            star = f"R* = {self.stars()[0]:.3g} epochs"
            few = "too little to measure this" if (most > ONCE).any() else "nothing"
            text = f"{who} repeats {named}; the fitted runs repeat {few}, so the penalty is the published one, {star}"
            return [text] if often else []
        found = []
        if far := [i for i in often if epochs[i] > max(most[i], 1) * ONCE]:
            seen = ", ".join(f"{sources[i]} at most {max(most[i], 1):.3g}" for i in far)
            found.append(f"{who} repeats {_named(sources, epochs, far)}; the fitted runs repeat {seen}")
        least = self.epochs[:, 0]
        if fresh := [i for i in np.flatnonzero(p > 0).tolist() if least[i] > ONCE and not epochs[i] >= least[i] / ONCE]:
            seen = ", ".join(f"{sources[i]} at least {least[i]:.3g} times" for i in fresh)
            found.append(f"the fitted runs repeat {seen}, but {who} does so less often or not at all")
        return found


def _named(sources: Sequence[str], epochs: FloatArray, chosen: Sequence[int]) -> str:
    return ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in chosen)


def warnings_of_repetition(
    known: Repetition | None,
    p: FloatArray,
    unique: FloatArray,
    D: FloatArray,
    sources: Sequence[str],
    names: Sequence[str] | None,
) -> list[str]:
    """What to beware of where points (R, M) repeat tokens, or make other epochs than the fitted runs."""
    if known is None:
        return repetitions(p, unique, D, names, lambda p, u, D, who: repetition(p, sources, u, D, who))
    if known.told and np.isnan(unique).all():
        return ["the fitted runs repeat tokens, but no available tokens are given, so every token counts as fresh"]
    return repetitions(p, unique, D, names, lambda p, u, D, who: known.warnings(p, u, D, sources, who))


def limits_of_points(given: ArrayLike | None, supply: FloatArray, p: FloatArray) -> FloatArray:
    """Unique tokens (R, M) of points p: those given for each, else the supply (M,) for all; NaN for no limit.

    Raises
    ------
    UsageError
        If those given are no positive numbers, or not one a point and source.
    """
    if given is None:
        return np.broadcast_to(supply, p.shape)
    try:
        limits = np.broadcast_to(np.asarray(given, dtype=np.float64), p.shape)
    except (TypeError, ValueError, OverflowError) as error:
        hint = f"give an array of {p.shape[0]} x {p.shape[1]} (points x sources), NaN where there is no limit"
        raise UsageError(
            f"unique tokens: {described(given)} is not one number a point and source", hint=hint
        ) from error
    if (limits <= 0).any():
        raise UsageError("unique tokens must be above 0", hint="NaN stands for no limit")
    return limits


COARSE = np.log(PUBLISHED) + np.linspace(-4.2, 4.2, 9)
"""Logarithms of rates: R* from 1,000 to a quarter of an epoch."""
FINER = ((0.35, 3), (0.1, 2))
"""Steps around the best so far, and how many to each side: well-told rates have a narrow minimum."""
STEP = 0.005
APART = 0.02
"""Rates nearer than this (in logarithms) are one: a spline through both would follow the rounding of their fits."""
ALIKE = 0.15
"""The same for the rates of folds, of which each asks for fits of its own."""
GROUPS = 10
"""Rates that the replicates of one fit have, at most: each asks for a search of its own."""
Counted = Callable[[int, int], None]
Part = tuple[Study, IntArray]
"""A study at one rate, and the numbers of those (masks, replicates) that have it."""


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
        """The study with the most likely rate under the law, by some rows (R,) alone if they are named.

        A black box has no symbols that a rate could be told by: it takes that of `learned-base`.
        """
        if not law.takes_repetition or not study.evidence.tells_repetition:
            return cls(study, law, PUBLISHED, None)
        shares = np.ones((1, len(study.log))) if rows is None else rows[None].astype(np.float64)
        try:
            profile = Profile.of(study, _telling(law), shares)
        except FitError:
            if not issubclass(law, BlackBox):
                raise
            return cls(study, law, PUBLISHED, None)
        rate = float(np.exp(profile.lowest(shares, np.zeros(1))[0]))
        return cls(at_rate(study, rate), law, rate, profile)

    def without(self, masks: BoolArray) -> list[Part]:
        """The study at the rate that the rows outside of each mask (V, R) tell, and the numbers of the masks there.

        Held-out errors would be too small at a rate that held-out rows had a say in: by a fortieth on the 64 runs of
        `fixtures/repetition_runs.csv`. Rates nearer than `ALIKE` are one, so that few searches are needed.
        """
        if self.profile is None:
            return [(self.study, np.arange(len(masks)))]
        law, study = _telling(self.law), self.study
        told = np.array([study.evidence.held(law, ~mask) == study.evidence.held(law) for mask in masks])
        log_rates = np.empty(len(masks))
        if told.any():
            log_rates[told] = self.profile.anew(study, law, ~masks[told])
        for number in np.flatnonzero(~told).tolist():  # these rows tell other symbols than all do
            log_rates[number] = np.log(Told.of(study, self.law, ~masks[number]).rate)
        place = np.round(log_rates / ALIKE)
        return [
            (at_rate(study, float(np.exp(log_rates[place == one].mean()))), np.flatnonzero(place == one))
            for one in np.unique(place)
        ]

    def rates(self, shares: FloatArray, seed: int) -> FloatArray:
        """A rate for each weighting of the rows (B, R)."""
        drawn = PUBLISHED_SPREAD * np.random.default_rng([seed, Stream.RATES]).normal(size=len(shares))
        if self.profile is None:
            return np.exp(np.log(PUBLISHED) + drawn)
        return np.exp(self.profile.lowest(shares, drawn))

    def groups(self, rates: FloatArray) -> list[Part]:
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
    x : array (G, K, P)
        The best symbols at each, as the search knows them.
    residuals : array (G, R, K)
        Log residuals of these; 0 where a loss does not count.
    weight : array (R, K)
        Weights of the losses.
    count : float
        How many independent errors the log holds: runs less unknowns, for as many targets as err independently.
    """

    log_rates: FloatArray
    x: FloatArray
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

    def anew(self, study: Study, law: type[Law], rows: BoolArray) -> FloatArray:
        """Logarithms of the rates (V,) that some rows (V, R) tell each, with symbols of their own at every rate."""
        shares, found = rows.astype(np.float64), []
        for log_rate, x in zip(self.log_rates.tolist(), self.x, strict=True):
            problem = _problem(study, law, log_rate, np.any(rows, axis=0))
            start = np.broadcast_to(x, (len(rows), *x.shape))
            found.append(_residuals(problem, problem.follow(shares, start, TOLERANCE)))
        residuals, here = np.stack(found, axis=1), np.zeros(1)  # (V, G, R, K)
        profiles = [
            _profile(study, used, self.log_rates, self.x, own) for used, own in zip(rows, residuals, strict=True)
        ]
        return np.array([one.lowest(share[None], here)[0] for one, share in zip(profiles, shares, strict=True)])

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
        problem = _problem(self.study, self.law, log_rate, self.shares[0] > 0)
        if near is None:
            x = problem.estimate(self.shares).x
        else:
            x = problem.follow(self.shares, self.x[near][None], TOLERANCE)
        self.x[log_rate] = x[0]
        self.residuals[log_rate] = _residuals(problem, x)[0]

    def profile(self) -> Profile:
        """What was found, in the order of the rates."""
        rates = sorted(self.x)
        x, residuals = (np.stack([known[rate] for rate in rates]) for known in (self.x, self.residuals))
        return _profile(self.study, self.shares[0] > 0, np.array(rates), x, residuals)


def _telling(law: type[Law]) -> type[Law]:
    """The law that tells a rate: itself, or `learned-base` for a black box."""
    return LearnedBase if issubclass(law, BlackBox) else law


def _problem(study: Study, law: type[Law], log_rate: float, rows: BoolArray) -> Problem:
    there = at_rate(study, float(np.exp(log_rate)))
    return Problem.of(law, there.evidence, there.inputs, there.settings, rows)


def _residuals(problem: Problem, x: FloatArray) -> FloatArray:
    """Log residuals (V, R, K) at unknowns x (V, K, P); 0 where a loss does not count."""
    return np.where(problem.observed.weight > 0, problem.observed.log_loss - problem.predicted(x), 0.0)


def _profile(study: Study, used: BoolArray, log_rates: FloatArray, x: FloatArray, residuals: FloatArray) -> Profile:
    """The profile of residuals (G, R, K) by the `used` rows (R,)."""
    runs = len({run for run, use in zip(study.log.runs, used.tolist(), strict=True) if use})
    freedom = max(runs - x.shape[-1], runs / 4)
    count = freedom * _independent(residuals[:, used].mean(axis=0))
    return Profile(log_rates, x, residuals, study.evidence.weight, count)


def _independent(residuals: FloatArray) -> float:
    """How many independent targets (R, K) amount to, from the eigenvalues of their correlation: between 1 and K."""
    used = residuals[:, residuals.any(axis=0)]
    if used.shape[1] < 2 or len(used) < 3:
        return 1.0
    values = np.linalg.eigvalsh(np.corrcoef(used.T))
    return float(values.sum() ** 2 / (values**2).sum())


def for_comparison(study: Study, masks: BoolArray) -> list[Part]:
    """The study at the same rates for all laws that are compared: what `learned-base` tells of each mask's other rows.

    Where it cannot be fitted, and where the runs tell nothing, the rate is the published one.
    """
    with contextlib.suppress(FitError):
        return Told.of(study, LearnedBase).without(masks)
    return [(study, np.arange(len(masks)))]
