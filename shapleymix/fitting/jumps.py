"""Losses that jump: a target without data of its own has a far higher loss unless some source has its least ratio.

    log L_j(p) = law_j(p) + height_j    unless p_i >= least_ij for some source i

Of Wiki-40B's 512 models the losses of Romanian, of which none saw a word, lie at 8.8 nats or at 11.8, and none between:
11.8 unless French has a ratio of .24, Spanish .22, Italian .58, Russian .36 or German .81, without one exception, and
those of Ukrainian jump where a mixture has any Russian. A law that is smooth in the ratios says of either something
between. Runs tell only between which two ratios a least ratio lies; samples draw it between them.

Axes: R rows, M sources, K targets, S samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from shapleymix.display import short
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.statistics import RandomStream

FEWEST = 4
"""Losses on either side of a jump."""
STEEP = 0.05
"""A ratio below which a law's powers are steep enough to tell what looks like a jump."""
RUNS_AN_EXCEPTION = 40
"""Runs for each one that may have failed."""
NEVER = 2.0
"""A ratio that no mixture has: the upper end for a source that no run shows to help."""


@dataclass(frozen=True)
class Jumps(Record):
    """The jumps of all targets.

    Attributes
    ----------
    low, high : array (M, K)
        The ends between which each source's least ratio lies: its largest ratio in a run that nothing helped, and its
        smallest in one that no other source can have helped.
    height : array (K,)
        By how much the log loss is higher where no source helps; 0 for targets without a jump.
    """

    kind = "fit/jumps"
    axes: ClassVar[Mapping[str, str]] = {"low": "MK", "high": "MK", "height": "K"}

    low: FloatArray
    high: FloatArray
    height: FloatArray

    @classmethod
    def of(cls, p: FloatArray, loss: FloatArray) -> Jumps:
        """What the log losses (R, K) of mixtures (R, M) show; losses that do not count are NaN."""
        each = [_find_jump(p[~np.isnan(one)], one[~np.isnan(one)]) for one in loss.T]
        low, high, height = zip(*each, strict=True)
        return cls(np.stack(low, axis=1), np.stack(high, axis=1), np.array(height))

    def with_source(self, row: int) -> Jumps:
        """The same with one more source, which helps none."""
        return replace(self, low=np.insert(self.low, row, 1.0, axis=0), high=np.insert(self.high, row, NEVER, axis=0))

    def describe(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
        """A sentence for each target whose losses jump."""
        for j in np.flatnonzero(self.height).tolist():
            helps = [f"{name} {one:.2g}" for name, one in zip(sources, self.high[:, j], strict=True) if one < NEVER]
            without = f"one of {short(helps)}" if helps else "several sources together"
            yield f"losses of {targets[j]} are {np.expm1(self.height[j]):.0%} higher without {without}"

    def mean(self, p: FloatArray) -> FloatArray:
        """Log of the expected factor (R, K) by which losses of mixtures (R, M) are higher."""
        return np.log1p(self._chance_alone(p) * np.expm1(self.height))

    def draw(self, p: FloatArray, samples: int, seed: int) -> FloatArray:
        """Logs of factors (S, K) at one mixture (M,); in a sample all least ratios are as far from `low` to `high`."""
        unit = np.random.default_rng([seed, RandomStream.JUMPS]).random((samples, 1))
        return np.where(unit < 1 - self._chance_alone(p[None]), 0.0, self.height)

    def _chance_alone(self, p: FloatArray) -> FloatArray:
        """The probability (R, K) that no source helps: least ratios are anywhere between their ends, alike for all."""
        chance = np.ones((len(p), len(self.height)))
        for ratio, low, high in zip(p.T[:, :, None], self.low, self.high, strict=True):
            chance = np.minimum(chance, np.maximum(high - ratio, 0.0) / (high - low))
        return chance


def _find_jump(p: FloatArray, loss: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Both ends of the least ratios (M,) for the widest gap between log losses (R,), and its height.

    0 where more than a few low losses have no source with a larger ratio than in every run of a high loss, and where
    ratios near zero would do: a law's powers tell these.
    """
    none, ordered = (np.ones(p.shape[1]), np.full(p.shape[1], NEVER), 0.0), np.sort(loss)
    gaps = np.diff(ordered)[FEWEST - 1 : len(ordered) - FEWEST]
    if not gaps.size:
        return none
    above = loss > ordered[FEWEST - 1 + gaps.argmax()]
    p, loss, above = _without_exceptions(p, loss, above)
    low = p[above].max(axis=0)
    can_help = p[~above] > low
    high = np.where(can_help & (can_help.sum(axis=1, keepdims=True) == 1), p[~above], NEVER).min(axis=0)
    if not can_help.any(axis=1).all() or (low[high < NEVER] < STEEP).any():
        return none
    apart = cdist(np.sqrt(p[above]), np.sqrt(p[~above]))
    heights = loss[above] - loss[~above][apart.argmin(axis=1)], loss[above][apart.argmin(axis=0)] - loss[~above]
    return low, high, max(float(np.median(np.concatenate(heights))), 0.0)


def _without_exceptions(p: FloatArray, loss: FloatArray, above: BoolArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The runs (R,) but for the few, such as failed ones, without which fewest low losses are above no least ratio."""
    for _ in range(len(loss) // RUNS_AN_EXCEPTION):
        unhelped = ~above & (p <= p[above].max(axis=0)).all(axis=1)
        if not unhelped.any() or min(above.sum(), (~above).sum()) <= FEWEST:
            break
        extreme = np.unique(np.where(above[:, None], p, -1.0).argmax(axis=0))
        tried = [np.arange(len(p)) != row for row in (*extreme.tolist(), int(unhelped.argmax()))]
        kept = min(tried, key=lambda rows: _count_unhelped(p[rows], above[rows]))
        p, loss, above = p[kept], loss[kept], above[kept]
    return p, loss, above


def _count_unhelped(p: FloatArray, above: BoolArray) -> int:
    """Of how many low losses no source has more than in all runs of high ones."""
    return int((p[~above] <= p[above].max(axis=0)).all(axis=1).sum())
