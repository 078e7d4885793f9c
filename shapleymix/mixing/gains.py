"""What an answer gains over its rivals: the law's promise, less the luck of the choice, with all that is unsure.

An optimum is the luckiest of many predictions: under each replicate, the mixture that is best there promises more than
it keeps under the fitted law, which stands for the truth there (the bootstrap's estimate of optimism; Efron and
Tibshirani 1993, section 17.6). The median of that excess is taken off: a few failed replicates would be all of its
mean. Where the replicates draw the effect of a source, what they would choose of it is no luck of the fitted law, which
did not draw: choices then hold as much of it as the answer, and so do the rivals that they are compared with.

Axes: B replicates, M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from shapleymix.fields import AMOUNT, FINITE, SHARE, Range
from shapleymix.fitting.cells import Effect
from shapleymix.fitting.misfit import Misfit
from shapleymix.laws.terms import Terms
from shapleymix.mixing.doubts import Doubts, Gain, Outlook, counted_of, told
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.regimes import Regime, rougher
from shapleymix.records import BoolArray, FloatArray, Record

SHOWN = 5
"""Rivals that the verdict names."""


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
    names = [
        rival.name if rival.within_bounds else f"{rival.name} (which breaks the bounds)"
        for rival in rivals
        if rival.told is False
    ]
    who = "no mixture within the bounds is" if best else "this mixture is not"
    shown = names if len(names) <= SHOWN else [*names[: SHOWN - 1], f"{len(names) - SHOWN + 1} others"]
    return f"{who} better than {' or '.join(shown)} by more than can be told" if names else ""


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
        What would have been chosen under each replicate, such as its optimum; None where nothing was chosen. All hold
        the same of sources that are drawn.
    level : float
        Probability of the intervals.
    drawn : bool array (M,), optional
        Sources whose effect the replicates draw, since the runs tell little of it.
    regime : Regime, optional
        What is known of mixtures without a target's own language.
    effect : Effect, optional
        What losses of all mixtures have in common beyond the law.
    """

    problem: Problem
    replicates: Terms | None
    misfit: Misfit | None
    choices: FloatArray | None
    level: float
    drawn: BoolArray | None = None
    regime: Regime | None = None
    effect: Effect | None = None

    @cached_property
    def doubts(self) -> Doubts:
        """What is unsure of every loss."""
        return Doubts(self.misfit, self.replicates is not None, self.level, self.drawn, self.effect)

    @property
    def blank(self) -> bool:
        """Whether nothing is known of how sure a number is."""
        return self.doubts.blank

    def outlook(self, p: FloatArray) -> Outlook:
        """What is believed of the mean or worst loss of a mixture (M,)."""
        losses, problem = self._losses(p), self.problem
        counted = counted_of(losses, problem.w) if problem.worst else problem.w
        rough = 1.0 if self.regime is None else rougher(self.regime.absent, self.misfit, p)
        return Outlook(p, self.value(p), self._values(p), problem.terms.sensitivity(p, losses, counted * rough))

    def value(self, p: FloatArray) -> float:
        """The mean or worst loss of a mixture (M,) under the law."""
        return float(self.problem.of_losses(self._losses(p)))

    def objective(self, p: FloatArray) -> tuple[float, float]:
        """Interval of the mean or worst loss of one run of a mixture (M,)."""
        return self.doubts.objective(self.outlook(p))

    def gain(self, better: FloatArray, other: FloatArray, *, runs: bool = True) -> Gain:
        """What mixture `better` (M,) saves of the mean or worst loss of `other` (M,).

        Parameters
        ----------
        runs : bool
            Whether for one trained run of each; else for the mean over many, without the seeds' noise.
        """
        one, rival = self.outlook(better), self.outlook(other)
        optimism = min(self.optimism(other), max(rival.value - one.value, 0.0))  # luck is at most all of a promise
        return self.doubts.gain(one, rival, optimism=optimism, runs=runs)

    def gain_over(self, before: Beliefs, better: FloatArray, other: FloatArray) -> Gain:
        """What mixture `better` (M,) saves, in the mean over many runs, of what `other` costs under other beliefs.

        The two differ in the tokens at hand; replicates are paired.
        """
        return self.doubts.gain(self.outlook(better), before.outlook(other), runs=False)

    def optimism(self, other: FloatArray) -> float:
        """By how much the gain of a chosen mixture over `other` (M,) is promised too high; at least 0.

        Under each replicate: what its own choice promises over `other`, less what the fitted law gives it.
        """
        like = self._holding_what_is_drawn(other)
        if like is None:
            return 0.0
        with np.errstate(invalid="ignore"):
            excess = self._values(like) - self.value(like) + self._disappointment
        excess = excess[np.isfinite(excess)]
        return max(float(np.median(excess)), 0.0) if excess.size else 0.0

    def _holding_what_is_drawn(self, other: FloatArray) -> FloatArray | None:
        """A mixture (M,) with as much of the drawn sources as the choices have; None where there is nothing to tell."""
        if self.replicates is None or self.choices is None:
            return None
        if self.drawn is None or not self.drawn.any():
            return other
        held, rest = np.where(self.drawn, self.choices[0], 0.0), np.where(self.drawn, 0.0, other)
        return held + rest * ((1 - held.sum()) / rest.sum()) if rest.sum() > 0 else None

    @cached_property
    def _disappointment(self) -> FloatArray:
        """What the choice under each replicate loses more under the fitted law than there (B,)."""
        if self.replicates is None or self.choices is None:
            return np.zeros(1)
        with np.errstate(invalid="ignore"):
            return self.problem.value(self.choices) - self.problem.value(self.choices, self.replicates)

    def _values(self, p: FloatArray) -> FloatArray:
        """The mean or worst loss of a mixture under each replicate (B,), or under the law alone (1,)."""
        return np.atleast_1d(self.problem.of_losses(self._losses(p, self.replicates)))

    def _losses(self, p: FloatArray, replicates: Terms | None = None) -> FloatArray:
        """Losses of a mixture (M,) under the law (K,), or under replicates (B, K)."""
        if self.regime is not None:
            return self.regime.losses(p, replicated=replicates is not None)
        return (self.problem.terms if replicates is None else replicates).losses(p)
