"""What a law misses of a mixture, told by what it missed of fitted ones: a Gaussian process over mixtures.

    log L_j(p, N, D) = law_j + r_j(p) + level + noise,    var(r_j) = share s_j^2,    var(noise) = (1 - share) s_j^2

What is missed of a mixture is missed of those near it, at every N and D. `r_j` has the covariance `share s_j^2 k(p, q)`
where k is half the mean over sources of exponential kernels (Rasmussen and Williams 2006, eq. 4.18), in the distance of
square roots of ratios, and half their product. By the mean, what is missed is a sum of what each source's ratio
explains: a few runs show it, and mixtures far apart share it. By the product, only mixtures near each other do. A step
in one ratio, as trees find them, is told as well as a slope. Mean and covariance given the residuals of finished runs
are the usual ones (eq. 2.23 and 2.24). Of the level, what runs of one N miss in common, nothing is believed, so that it
moves no mixture. Optima and their proofs are the law's own: a corrected loss is no longer convex.

The share is the likeliest for all targets together, of a few. Where runs do not tell it, as where no two mixtures are
near, it is the first of these.
Axes: G fitted runs (the mean of what one mixture has at one N), R mixtures, M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from shapleymix.fitting.evidence import levels_of
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import spread_evenly
from shapleymix.tables.runs import RunLog

SHARES = (0.3, 0.5, 0.75, 0.9)
"""Shares that are tried; the first is taken where nothing tells."""
ALONE, TOGETHER = 0.15, 1.0
"""Distances at which kernels fall to 1/e: of one source's ratio alone, and of all ratios together."""
LEVEL = 100.0
"""Variance of a level, in variances of the noise."""
FEWEST, MOST = 3, 1000
"""Mixtures without which nothing is conditioned on, and runs beyond which a sample of them is enough."""
JUDGES, JUDGED = 8, 500
"""Targets and runs at most by which the share is chosen."""
TOLD = 0.1
"""Log likelihood by which another share must be better than those before."""
TAMED = 4.0
"""Residuals further out, in robust standard deviations, are moved there: a run that failed tells of no mixture."""
NORMAL_MEDIAN = 0.6745
"""The median absolute value of a standard normal."""


@dataclass(frozen=True)
class Residual(Record):
    """The process, given what was left of fitted runs.

    Attributes
    ----------
    targets : tuple of str (K,)
        Their names.
    alike : int array (M,)
        In which source's place each counts: its own, or that of the one that a source without runs is taken to be like.
    runs : tuple of str (G,)
        Names of the runs.
    p : array (G, M)
        Their mixtures.
    left : array (G, K)
        Log of measured over fitted losses; 0 where none was measured.
    weight : array (G, K)
        The runs' weights, 1 in the mean; 0 where no loss was measured.
    size : int array (G,)
        Number of each run's N.
    share : float
        Share of the variance that is the mixture's own.
    """

    kind = "fit/residual"
    axes: ClassVar[Mapping[str, str]] = {
        "targets": "K", "alike": "M", "runs": "G", "p": "GM", "left": "GK", "weight": "GK", "size": "G",
    }  # fmt: skip

    targets: tuple[str, ...]
    alike: IntArray
    runs: tuple[str, ...]
    p: FloatArray
    left: FloatArray
    weight: FloatArray
    size: IntArray
    share: float = SHARES[0]

    @classmethod
    def of(cls, log: RunLog, left: FloatArray, weight: FloatArray) -> Residual:
        """The process given what is left of the losses of a log (R, K), NaN where none counts, and their weights."""
        there = ~np.isnan(left) & (weight > 0)
        used = np.flatnonzero(there.any(axis=1))
        if not len(log.sources) or len(np.unique(log.groups[used])) < FEWEST:
            used = used[:0]
        keys = np.column_stack([log.groups, levels_of(np.log(log.N))])[used]
        cells, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        together = (place.reshape(-1) == np.arange(len(cells))[:, None]).astype(np.float64)
        each, there = np.where(there, weight, 0.0)[used], there[used]
        total, count = together @ each, together @ there
        left = together @ (each * np.where(there, tame(left)[used], 0.0)) / np.where(total > 0, total, 1.0)
        usual = each.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
        weight = total / np.maximum(count, 1) / np.where(usual > 0, usual, 1.0)
        kept = spread_evenly(len(cells), MOST)
        rows, own = used[first[kept]], np.arange(len(log.sources))
        runs = tuple(log.runs[row] for row in rows.tolist())
        return cls(log.targets, own, runs, log.p[rows], left[kept], weight[kept], cells[kept, 1])._choose()

    def with_source(self, row: int, known: int) -> Residual:
        """The same where the source of a row counts in the place of that of a known one; the row may be a new one."""
        alike = np.concatenate([self.alike[:row], [known], self.alike[row + 1 :]])
        return replace(self, alike=alike, p=self.p if row < self.p.shape[1] else np.insert(self.p, row, 0.0, axis=1))

    def mean(self, p: FloatArray) -> FloatArray:
        """What is expected of r (R, K) at mixtures (R, M)."""
        return self.kernel(self.pool(p), self.p) @ self.pull

    def pool(self, p: FloatArray) -> FloatArray:
        """Ratios (..., M) with those of sources that are taken to be like another in its place."""
        return p @ (self.alike[:, None] == np.arange(len(self.alike)))

    @cached_property
    def pull(self) -> FloatArray:
        """By what each run (G, K) moves the targets' losses of mixtures that are alike."""
        found = np.zeros(self.left.shape)
        for targets, rows, precision in self._given:
            found[np.ix_(rows, targets)] = self.share * precision @ self.left[np.ix_(rows, targets)]
        return found

    def covariance(self, p: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """That of r_j / s_j over mixtures (R, M), (R, R), with the targets (J,) of which it is."""
        before, near = self.before(p), self.share * self.kernel(self.pool(p), self.p)
        for targets, rows, precision in self._given:
            yield targets, before - near[:, rows] @ precision @ near[:, rows].T

    def before(self, p: FloatArray) -> FloatArray:
        """The same before any run."""
        return self.share * self.kernel(self.pool(p), self.pool(p))

    @property
    def counted(self) -> BoolArray:
        """The sources (M,) that runs hold, each of which explains a part; all where there are no runs."""
        return np.any(self.p > 0, axis=0) | ~np.any(self.p > 0)

    def kernel(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """How alike r is at mixtures p (R, M) and q (G, M), (R, G)."""
        if not p.shape[1]:
            return np.ones((len(p), len(q)))
        a, b = (np.sqrt(np.maximum(one, 0.0)) for one in (p, q))
        found, places = np.exp(-cdist(a, b, "cityblock") / TOGETHER), np.flatnonzero(self.counted)
        for i in places:  # one source at a time: all of them would take M times the memory
            found += np.exp(-np.abs(a[:, i, None] - b[:, i]) / ALONE) / len(places)
        return found / 2

    @cached_property
    def _given(self) -> list[tuple[IntArray, IntArray, FloatArray]]:
        """Targets (J,) whose losses were measured alike, by which runs (G',), and these' precision (G', G')."""
        near = self.kernel(self.p, self.p)
        return [
            (targets, rows, np.asarray(np.linalg.inv(self._spread(near, rows, targets, self.share)), dtype=np.float64))
            for targets, rows in self._measured()
        ]

    def _measured(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Targets whose losses have the same weights, and the runs that have one."""
        patterns, place = np.unique(self.weight, axis=1, return_inverse=True)
        for number, pattern in enumerate(patterns.T):
            yield np.flatnonzero(place.reshape(-1) == number), np.flatnonzero(pattern > 0)

    def _spread(self, near: FloatArray, rows: IntArray, targets: IntArray, share: float) -> FloatArray:
        """The covariance of what is left of some runs, by how alike all are (G, G)."""
        level = LEVEL * (self.size[rows, None] == self.size[rows])
        noise = level + np.diag(1 / self.weight[rows, targets[0]])
        return np.asarray(share * near[np.ix_(rows, rows)] + (1 - share) * noise)

    def _choose(self) -> Residual:
        """The same with the likeliest share.

        Targets err alike, so that they count as the root of their number; a larger share must earn its odds.
        """
        G, K = self.left.shape
        runs, judges = spread_evenly(G, JUDGED), spread_evenly(K, JUDGES)
        place = np.ix_(runs, judges)
        some = replace(self, p=self.p[runs], left=self.left[place], weight=self.weight[place], size=self.size[runs])
        near, best, found = some.kernel(some.p, some.p), np.inf, self
        for share in SHARES if G else ():
            cost = some._misfit(near, share) / np.sqrt(len(judges)) + np.log(share / (1 - share))
            if cost < best - TOLD:
                best, found = cost, replace(self, share=share)
        return found

    def _misfit(self, near: FloatArray, share: float) -> float:
        """Minus the log of the likelihood at its best s_j, of all targets together (eq. 5.8)."""
        total = 0.0
        for targets, rows in self._measured():
            if len(rows) < FEWEST:
                continue
            root = np.linalg.cholesky(self._spread(near, rows, targets, share))
            unit = solve_triangular(root, self.left[np.ix_(rows, targets)], lower=True)
            variance = np.square(unit).mean(axis=0) + 1e-12
            total += float((len(rows) * np.log(variance) / 2).sum() + len(targets) * np.log(np.diag(root)).sum())
        return total


def tame(x: FloatArray) -> FloatArray:
    """Residuals (R, K), the outlying ones moved in."""
    usual = np.ma.filled(np.ma.median(np.ma.masked_invalid(np.abs(x)), axis=0), 0.0)
    limit = np.where(usual > 0, TAMED / NORMAL_MEDIAN * usual, np.inf)
    return np.clip(x, -limit, limit)
