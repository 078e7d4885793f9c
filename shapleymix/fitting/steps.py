"""Losses that jump: targets without data of their own that some source must help, by its least ratio or more.

    log L_j(p) = law_j(p) + height_j    unless p_i >= least_ij for some source i

Of Wiki-40B's 512 models the losses of Romanian, of which none saw a word, lie at 8.8 nats or at 11.8, and none between:
11.8 unless French has a ratio of .24, Spanish .22, Italian .58, Russian .36 or German .81, without one exception, and
those of Ukrainian jump where a mixture has any Russian. A law that is smooth in the ratios says of either something
between. Of a least ratio the runs tell between which two it lies, no more: there it is drawn.

Axes: R rows, G runs of one N and D, M sources, K targets, S samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.statistics import RandomStream

FEWEST = 4
"""Mixtures on either side of a jump."""
NEVER = 2.0
"""A ratio that no mixture has: of sources which no run shows to help, the least one lies somewhere below it."""


@dataclass(frozen=True)
class Steps(Record):
    """The jumps of all targets.

    Attributes
    ----------
    low, high : array (M, K)
        Each source's largest ratio that did not help a target, and its smallest that did: the least one lies between.
    height : array (K,)
        By how much the log loss is higher where no source helps; 0 for targets without a jump.
    """

    kind = "fit/steps"
    axes: ClassVar[Mapping[str, str]] = {"low": "MK", "high": "MK", "height": "K"}

    low: FloatArray
    high: FloatArray
    height: FloatArray

    @classmethod
    def of(cls, p: FloatArray, loss: FloatArray, wanted: BoolArray) -> Steps:
        """What the log losses (R, K) of mixtures (R, M) show of some targets (K,); losses that do not count are NaN."""
        M, K = p.shape[1], len(wanted)
        found = cls(np.ones((M, K)), np.full((M, K), NEVER), np.zeros(K))
        for j in np.flatnonzero(wanted).tolist():
            there = ~np.isnan(loss[:, j])
            found.low[:, j], found.high[:, j], found.height[j] = _find_jump(p[there], loss[there, j])
        return found

    def of_targets(self, places: Sequence[int]) -> Steps:
        """The same with the jumps of some targets alone."""
        return replace(self, height=np.where(np.isin(np.arange(len(self.height)), places), self.height, 0.0))

    def with_source(self, row: int) -> Steps:
        """The same with one more source, which helps none."""
        return replace(self, low=np.insert(self.low, row, 1.0, axis=0), high=np.insert(self.high, row, NEVER, axis=0))

    def mean(self, p: FloatArray) -> FloatArray:
        """Log of the factor (R, K) of the mean losses of mixtures (R, M)."""
        without = np.ones((len(p), len(self.height)))
        for ratio, low, high in zip(p.T[:, :, None], self.low, self.high, strict=True):
            without = np.minimum(without, np.maximum(high - ratio, 0.0) / (high - low))
        return np.log1p(without * np.expm1(self.height))

    def draw(self, p: FloatArray, samples: int, seed: int) -> FloatArray:
        """Log factors (S, K) at one mixture (M,), by least ratios that are the same for all mixtures of a sample, and
        where one lies between its ends, so do all."""
        unit = np.random.default_rng([seed, RandomStream.STEPS]).random((samples, 1, 1))
        helped = p[:, None] > self.low + unit * (self.high - self.low)
        return np.where(helped.any(axis=1), 0.0, self.height)


def _find_jump(p: FloatArray, loss: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Between which ratios (M,) the least ones lie for the widest gap between log losses (G,), and its height; 0 where
    some run below it has no source more than all above it have."""
    none, ordered = (np.ones(p.shape[1]), np.full(p.shape[1], NEVER), 0.0), np.sort(loss)
    gaps = np.diff(ordered)[FEWEST - 1 : len(ordered) - FEWEST]
    if not gaps.size:
        return none
    above = loss > ordered[FEWEST - 1 + gaps.argmax()]
    low = p[above].max(axis=0)
    more = p[~above] > low
    if not more.any(axis=1).all():
        return none
    high = np.where(more & (more.sum(axis=1, keepdims=True) == 1), p[~above], NEVER).min(axis=0)
    apart = cdist(np.sqrt(p[above]), np.sqrt(p[~above]))
    near = loss[above] - loss[~above][apart.argmin(axis=1)], loss[above][apart.argmin(axis=0)] - loss[~above]
    return low, high, float(np.median(np.concatenate(near)))
