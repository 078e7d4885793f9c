"""How sure a loss of a mixture is, and what it gains over another: one rule for `optimize`, `predict` and `what_if`.

Both mixtures are paired under each replicate of the fit, so that what they have in common cancels. What held-out losses
scatter beyond that (`fitting.misfit`) is the same at one mixture, alike at near ones, and at others each mixture's own.
Where the replicates draw the effect of a source, since the runs tell little of it, their spread about their own middle
counts, not where that lies.

Axes: M sources, K targets, V values that stand for a distribution: replicates, or one of the law alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from shapleymix.fitting.cells import Effect
from shapleymix.fitting.misfit import Misfit
from shapleymix.records import BoolArray, FloatArray

SURE = 0.9
"""P(better) below which a gain is not told."""
NORMAL = ndtri((np.arange(41) + 0.5) / 41)
"""Equally likely values of a standard normal: what is normal needs no random draws."""


@dataclass(frozen=True)
class Outlook:
    """The mean or worst loss of one mixture, as it is believed.

    Attributes
    ----------
    p : array (M,)
        Ratios.
    value : float
        Under the law; NaN where it has no number.
    values : array (V,)
        Under each replicate, in the same order for every mixture.
    sensitivity : array (K,)
        What it changes by for a change of each log loss.
    """

    p: FloatArray
    value: float
    values: FloatArray
    sensitivity: FloatArray


@dataclass(frozen=True)
class Gain:
    """Loss of one mixture less that of a better one, nats, with its interval.

    `promised` is the law's own, `value` less the optimism. `probability` is that of a gain above 0, where a tie counts
    half. All but the first two are NaN with neither replicates nor misfit.
    """

    promised: float
    value: float
    low: float
    high: float
    probability: float


NO_GAIN = Gain(np.nan, np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Doubts:
    """What is unsure of every loss at one budget.

    Attributes
    ----------
    misfit : Misfit, optional
        How held-out losses scatter beyond the replicates.
    replicated : bool
        Whether the values of mixtures are those of replicates.
    level : float
        Probability of the intervals.
    drawn : bool array (M,), optional
        Sources whose effect the replicates draw.
    effect : Effect, optional
        What losses of all mixtures have in common beyond the law: it cancels in a gain.
    """

    misfit: Misfit | None
    replicated: bool
    level: float
    drawn: BoolArray | None = None
    effect: Effect | None = None

    @property
    def blank(self) -> bool:
        """Whether nothing is known of how sure a number is."""
        return self.misfit is None and not self.replicated

    def objective(self, one: Outlook) -> tuple[float, float]:
        """Interval of the loss of one trained run."""
        at = one.sensitivity
        own = 0.0 if self.misfit is None else self.misfit.covariance(at, at)
        common = 0.0 if self.effect is None else self.effect.variance(at)
        return self._interval(widened(one.values, float(np.sqrt(own + common))))

    def gain(self, better: Outlook, other: Outlook, *, optimism: float = 0.0, runs: bool = True) -> Gain:
        """What one mixture saves of the loss of another.

        Parameters
        ----------
        optimism : float
            By how much that is promised too high.
        runs : bool
            Whether for one trained run of each; else for the mean over many, without the seeds' noise.
        """
        promised = other.value - better.value + 0.0  # no negative zero
        value = promised - optimism
        if self.blank or np.isnan(promised):
            return Gain(promised, value, np.nan, np.nan, np.nan)
        with np.errstate(invalid="ignore"):
            paired = about(promised, other.values - better.values, np.stack([better.p, other.p]), self.drawn)
            values = widened(paired, self._apart(better, other, runs)) - optimism
        return Gain(promised, value, *self._interval(values), float(np.mean(0.5 * (1 + np.sign(values)))))

    def _apart(self, better: Outlook, other: Outlook, runs: bool) -> float:
        if self.misfit is None:
            return 0.0
        return self.misfit.spread(better.p, better.sensitivity, other.p, other.sensitivity, runs=runs)

    def _interval(self, values: FloatArray) -> tuple[float, float]:
        low, high = interval(None if self.blank else values[:, None], self.level, 1)[:, 0].tolist()
        return low + 0.0, high + 0.0


def told(low: float, probability: float) -> bool | None:
    """Whether a gain is above 0 for sure enough; None where it has no interval."""
    return None if np.isnan(low) else bool(low > 0 and probability >= SURE)


def parts_of(losses: FloatArray, w: FloatArray) -> FloatArray:
    """(K,) what the mean of weighted losses (K,) changes by for a change of each log loss."""
    return np.where(w > 0, w * np.nan_to_num(losses, posinf=0.0), 0.0)


def counted_of(losses: FloatArray, w: FloatArray) -> FloatArray:
    """(K,) the weights of which only that of the largest weighted loss is left."""
    top = int(parts_of(losses, w).argmax())
    return np.where(np.arange(len(w)) == top, w, 0.0)


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
