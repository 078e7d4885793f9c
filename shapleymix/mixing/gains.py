"""What one mixture gains over another, if one run of each is trained: law, misfit, and the luck of the choice.

A gain is uncertain in three ways. Both mixtures are paired under each replicate of the fit, so that what they have in
common cancels. What held-out losses scatter beyond that (`fitting.misfit`) is the same at one mixture, alike at near
ones, and at others each mixture's own. And an optimum is the luckiest of many predictions: under each replicate, the
mixture that is best there promises more than it keeps under the fitted law, which stands for the truth there (the
bootstrap's estimate of optimism; Efron and Tibshirani 1993, section 17.6). The median of that excess is taken off: a
few failed replicates would be all of its mean.

Axes: B replicates, M sources, K targets, V values that stand for the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from shapleymix.fields import AMOUNT, FINITE, SHARE, Range
from shapleymix.fitting.misfit import Misfit
from shapleymix.laws.terms import Terms
from shapleymix.mixing.problem import Problem
from shapleymix.records import BoolArray, FloatArray, Record

SURE = 0.9
"""P(better) below which a gain is not told."""
NORMAL = ndtri((np.arange(41) + 0.5) / 41)
"""Equally likely values of a standard normal: what is normal needs no random draws."""
SHOWN = 5
"""Rivals that the verdict names."""


@dataclass(frozen=True)
class Gain:
    """Loss of one mixture less that of a better one, nats, with its interval.

    `promised` is the law's own, `value` less the optimism. `probability` is that of a gain above 0. All but the first
    two are NaN with neither replicates nor misfit.
    """

    promised: float
    value: float
    low: float
    high: float
    probability: float


NO_GAIN = Gain(np.nan, np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Rival(Record):
    """A baseline mixture at the same budget.

    Attributes
    ----------
    name : str
        Its name.
    p : array (M,)
        Ratios.
    objective, objective_low, objective_high : float
        Its mean or worst loss with its interval.
    promised : float
        Its loss less the optimum's under the law, nats: positive = the optimum is better.
    gain, gain_low, gain_high : float
        What remains of that less the optimism of choosing the luckiest of many predictions, with the interval for one
        trained run of each mixture. NaN with neither replicates nor held-out losses, and where `reason` says why.
    probability : float
        Probability that the optimum is better.
    within_bounds : bool
        Whether it obeys every bound of the problem.
    penalty : float
        What kl KL(p || anchor) adds to its objective.
    reason : str
        Why there is no number; empty where there is one.
    """

    kind = "rival"
    ranges: ClassVar[Mapping[str, Range]] = {
        "p": SHARE,
        "objective": FINITE,
        "gain": FINITE,
        "probability": SHARE,
        "penalty": AMOUNT,
    }

    name: str
    p: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    promised: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float
    within_bounds: bool
    penalty: float = 0.0
    reason: str = ""

    @property
    def told(self) -> bool | None:
        """Whether the optimum is better by more than can be told; None where nothing is known of that."""
        return told(self.gain_low, self.probability)


def verdict_of(rivals: Sequence[Rival], *, best: bool) -> str:
    """What is to be said first: the rivals over which nothing is gained that can be told; empty if there is none.

    `best`: the mixture has the highest gain that any has, so that what it cannot gain no mixture can.
    """
    names = [rival.name for rival in rivals if rival.told is False]
    who = "no mixture within the bounds is" if best else "this mixture is not"
    shown = names if len(names) <= SHOWN else [*names[: SHOWN - 1], f"{len(names) - SHOWN + 1} others"]
    return f"{who} better than {' or '.join(shown)} by more than can be told" if names else ""


def told(low: float, probability: float) -> bool | None:
    """Whether a gain is above 0 for sure enough; None where it has no interval."""
    return None if np.isnan(low) else bool(low > 0 and probability >= SURE)


@dataclass(frozen=True)
class Beliefs:
    """What is believed of the losses of mixtures at one budget.

    Attributes
    ----------
    problem : Problem
        The law and the objective.
    replicates : Terms, optional
        The law's replicates.
    misfit : Misfit, optional
        How held-out losses scatter beyond them.
    choices : array (B, M), optional
        What would have been chosen under each replicate, such as its optimum; None where nothing was chosen.
    level : float
        Probability of the intervals.
    drawn : bool array (M,), optional
        Sources whose effect the replicates draw, since the runs tell little of it: where a mixture holds one, their
        spread about their own middle counts, not where that lies.
    """

    problem: Problem
    replicates: Terms | None
    misfit: Misfit | None
    choices: FloatArray | None
    level: float
    drawn: BoolArray | None = None

    @property
    def blank(self) -> bool:
        """Whether nothing is known of how sure a number is."""
        return self.replicates is None and self.misfit is None

    def objective(self, p: FloatArray) -> tuple[float, float]:
        """Interval of the mean or worst loss of one run of a mixture (M,)."""
        at = sensitivity(self.problem, p)
        spread = 0.0 if self.misfit is None else float(np.sqrt(self.misfit.covariance(at, at)))
        return self._interval(widened(self._values(p), spread))

    def gain(self, better: FloatArray, other: FloatArray, *, runs: bool = True) -> Gain:
        """What mixture `better` (M,) saves of the mean or worst loss of `other` (M,).

        Parameters
        ----------
        runs : bool
            Whether for one trained run of each; else for the mean over many, without the seeds' noise.
        """
        if np.array_equal(better, other):
            return Gain(0.0, 0.0, *((np.nan,) * 3 if self.blank else (0.0, 0.0, 0.5)))
        promised = float(self.problem.value(other)) - float(self.problem.value(better))
        optimism = min(self.optimism(other), max(promised, 0.0))  # luck is at most all of a promise
        if self.blank:
            return Gain(promised, promised, np.nan, np.nan, np.nan)
        with np.errstate(invalid="ignore"):
            paired = self._values(other) - self._values(better)
            paired = about(promised, paired, np.stack([better, other]), self.drawn)
            values = widened(paired, self._misfit(better, other, runs)) - optimism
        return Gain(promised, promised - optimism, *self._interval(values), float(np.mean(values > 0)))

    def gain_over(self, before: Beliefs, better: FloatArray, other: FloatArray) -> Gain:
        """What mixture `better` (M,) saves, in the mean over many runs, of what `other` costs under other beliefs.

        The two differ in the tokens at hand; replicates are paired.
        """
        promised = float(before.problem.value(other)) - float(self.problem.value(better))
        if self.blank:
            return Gain(promised, promised, np.nan, np.nan, np.nan)
        with np.errstate(invalid="ignore"):
            values = widened(before._values(other) - self._values(better), self._misfit(better, other, runs=False))
        return Gain(promised, promised, *self._interval(values), float(np.mean(values > 0)))

    def optimism(self, other: FloatArray) -> float:
        """By how much the gain of a chosen mixture over `other` (M,) is promised too high; at least 0.

        Under each replicate: what its own choice promises over `other`, less what the fitted law gives it.
        """
        if self.replicates is None or self.choices is None:
            return 0.0
        with np.errstate(invalid="ignore"):
            known = float(self.problem.value(other))
            excess = about(known, self._values(other), other[None], self.drawn) - known + self._disappointment
        excess = excess[np.isfinite(excess)]
        return max(float(np.median(excess)), 0.0) if excess.size else 0.0

    @cached_property
    def _disappointment(self) -> FloatArray:
        """What the choice under each replicate loses more under the fitted law than there (B,)."""
        if self.replicates is None or self.choices is None:
            return np.zeros(1)
        with np.errstate(invalid="ignore"):
            return self.problem.value(self.choices) - self.problem.value(self.choices, self.replicates)

    def _values(self, p: FloatArray) -> FloatArray:
        """The mean or worst loss of a mixture under each replicate (B,), or under the law alone (1,)."""
        return np.atleast_1d(
            self.problem.value(p) if self.replicates is None else self.problem.value(p, self.replicates)
        )

    def _misfit(self, better: FloatArray, other: FloatArray, runs: bool) -> float:
        if self.misfit is None:
            return 0.0
        at_better, at_other = sensitivity(self.problem, better), sensitivity(self.problem, other)
        return self.misfit.spread(better, at_better, other, at_other, runs=runs)

    def _interval(self, values: FloatArray) -> tuple[float, float]:
        low, high = interval(None if self.blank else values[:, None], self.level, 1)[:, 0].tolist()
        return low, high


def sensitivity(problem: Problem, p: FloatArray) -> FloatArray:
    """(K,) what the mean or worst loss at a mixture (M,) changes by for a change of each log loss."""
    parts = np.where(problem.w > 0, problem.w * np.nan_to_num(problem.terms.losses(p), posinf=0.0), 0.0)
    return np.where(np.arange(len(parts)) == parts.argmax(), parts, 0.0) if problem.worst else parts


def about(middle: float, values: FloatArray, mixtures: FloatArray, drawn: BoolArray | None) -> FloatArray:
    """Values (V,) moved to lie about what the law says, where a mixture (R, M) holds a source that is drawn (M,)."""
    held = drawn is not None and np.any(mixtures[:, drawn] > 0)
    return values - np.median(values) + middle if held else values


def widened(values: FloatArray, spread: float) -> FloatArray:
    """Values (V,) with a normal of standard deviation `spread` added, as equally likely values."""
    return values if spread == 0 else (values[:, None] + spread * NORMAL).ravel()


def interval(values: FloatArray | None, level: float, width: int) -> FloatArray:
    """(2, width) quantiles over replicates, NaN without; nearest ranks, so that infinities do no harm."""
    if values is None:
        return np.full((2, width), np.nan)
    return np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0, method="nearest")
