"""How runs scatter about a law: one model of log losses, told by held-out residuals.

    log L_j(p, N, D) = law_j + (replicate_bj - median_b replicate_bj) + r_j(p) + T (s_j z_j(p) + m_j z(p) + f_j z_0)

The replicates say how little the law is known; they are moved to lie about the law, since with few runs what is
believed draws their middle off it. `r_j`, what the law misses of a mixture, is the mean of `Residual`, and `z_j` are
Gaussian fields of what it does not tell, whose covariance of two targets is `c_jl ((1 - common) (k + alone) + common)`:

    c_jl = 1 for a target with itself, `shared` for two;   k: the process's, given the fitted runs;   alone = 1 - share

of one mixture with itself. `z_0` is one draw for all mixtures and targets: that the law's form is another far from the
runs, and that checkpoints of a decaying learning rate are no final losses. `z` is a field as `z_j` before any run, that
all targets have in common: beyond the runs a mixture errs alike in all of them (RedPajama and SlimPajama: correlations
of .3 to .4), which inside it does not (.03). Of the form's variance e^2 it has at most a part of that of a run,
`m_j^2 = min(e^2, MIXED s_j^2 e / BEYOND_N)`; `f_j^2 = e^2 - m_j^2` keeps that of single losses.
`T = sqrt(runs / chi2(runs))` makes all of it Student's t with as many degrees of freedom as there are independent runs.

A held-out loss also misses its prediction by how little the law is known, which replicates hold already. Where a run
of leverage h scatters about the law by sigma, a fit to it is left with sigma^2 (1 - h), and one without it errs by
sigma^2 / (1 - h) (Allen's PRESS, 1974): sigma^2 is the geometric mean of the two.
Axes: S samples, R rows or mixtures, M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from shapleymix.fitting.coverage import Coverage
from shapleymix.fitting.residual import Residual, tame
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import RandomStream, ranks_of

BEYOND_N, BEYOND_D = 0.010, 0.030
"""Standard deviation of the form's error in log loss for each factor e beyond the fitted N and D.

BEYOND_N is that beyond the fitted N D and D / N, too: the likeliest on nine public suites, of which the largest N, D
or N D, or all D / N but the usual ones, are left out.

What is left of the errors on the sizes, and on the later halves of the trajectories, that fits of three published logs
had not seen, after replicates and scatter (bench_coverage.py); a fifth of what the loss itself changes on the way.
"""
BARE_N = 0.025
"""The same for what N goes beyond the fitted ones and N D does not: larger models than any for no more compute, so with
few tokens a parameter, or smaller ones with many.

The least multiple of .005 by which intervals hold 85% of the losses of each suite that has these left out: 94 to 100%
of the largest N (35 to 84 on five of eight without), 89 to 100% of the smallest (17 to 55 on three without).
"""
MIXED = 0.5
"""By so much of one run's variance, for each factor e beyond N, the form's error tells mixtures apart at most.

Of .4, .5 and .6 the least by which 90% intervals hold 85% of gains at each of 2.2 to 10.7 times the fitted sizes of
three published logs, over four draws of the weights of bench_coverage.py; of all these they hold 95%. Our own runs had
no say in it: at 4 to 16 times 86 to 96% are held.
"""
POOLED = 4.0
"""Runs' worth of the median target's scatter in that of each."""
LEAST = 0.5
"""Least share of the held-out residuals' variance that counts as scatter, however small the fitted ones are."""
FEWEST_RUNS = 2.5
"""Degrees of freedom at least."""
CELL = 4
"""Mixtures of one N and D below which it tells nothing of what they have in common."""
MOST_COMMON = 0.9
SAME = 1e-9
"""Mixtures whose ratios all differ by less are one."""
JITTER = 1e-10
STEP = 0.3
"""By how much of the mixture a slope of the field is meant: ratios of replicates' optima differ by some tenths."""
TILTS = 10**6
"""The number of the stream of slopes: no row of a question has it."""


@dataclass(frozen=True)
class Noise(Record):
    """The scatter of runs about a law.

    Attributes
    ----------
    scale : array (K,)
        Standard deviation of the log loss of one run.
    shared : float
        Correlation of two targets.
    common : float
        Share of the variance that all mixtures of one budget have in common.
    runs : float
        Independent runs behind this, the degrees of freedom.
    """

    kind = "fit/noise"
    axes: ClassVar[Mapping[str, str]] = {"scale": "K"}

    scale: FloatArray
    shared: float
    common: float
    runs: float

    @classmethod
    def of(
        cls, held: FloatArray, alone: FloatArray, fitted: FloatArray, groups: IntArray, cells: IntArray
    ) -> Noise | None:
        """The scatter that residuals show; None without any.

        Parameters
        ----------
        held, alone, fitted : array (R, K)
            log(loss / prediction) of runs that fits did not see, in units of the scatter about the law; the same by the
            law alone, and by the law fitted to all, which errs less by what replicates hold: without them the second
            again. NaN where none counts.
        groups, cells : int array (R,)
            The number of each row's mixture, and of its budget (N, D).
        """
        there = ~np.isnan(held)
        if not there.any():
            return None
        each = np.stack([tame(np.where(there, one, np.nan)) for one in (held, alone, fitted)])
        size, before, left = np.nansum(each**2, axis=1) / np.maximum((~np.isnan(each)).sum(axis=1), 1)
        unit = np.where(there, each[0], 0.0) / np.sqrt(np.where(size > 0, size, 1.0))
        count = _independent(unit, there, groups)
        share = np.clip(np.sqrt(left / np.where(before > 0, before, 1.0)), LEAST, 1.0)
        variance, known = size * share, size > 0
        usual = np.median(variance[known]) if known.any() else 0.0
        pooled = np.where(known, (count * variance + POOLED * usual) / (count + POOLED), 0.0)
        runs = max(float(np.median(count[count > 0])), FEWEST_RUNS)
        return cls(np.sqrt(pooled), _correlate(unit), _common(np.where(there, unit, np.nan), cells, groups), runs)

    def field(self, p: FloatArray, samples: int, seed: int, left: Residual, *, runs: bool = True) -> FloatArray:
        """T z (S, R, 1 + 2K) at mixtures p (R, M), of single runs or the mean of many, given what is `left` of others.

        First what is beyond all runs, then what targets have in common, and what each has alone. The draws of a row are
        its own whatever rows follow it, and mixtures that are one have one draw.
        """
        first, K = first_alike(p), len(self.scale)
        kept = np.unique(first)
        draws = self._spread([_draw_normal(seed, place, samples, K) for place in range(len(kept))])
        found, alone = np.empty(draws.shape), (1 - left.share if runs else 0.0) * np.eye(len(kept))
        parts = [(np.array([0]), left.before(p[kept]))]
        parts += [(1 + np.append(some, K + some), known) for some, known in left.covariance(p[kept])]
        for columns, known in parts:
            root = np.linalg.cholesky((1 - self.common) * (known + alone) + self.common + JITTER * np.eye(len(kept)))
            found[..., columns] = np.einsum("rq,sqk->srk", root, draws[..., columns])
        return found[:, np.searchsorted(kept, first)] * self.heavy(samples, seed)[:, None, None]

    def tilts(self, p: FloatArray, order: IntArray, samples: int, seed: int, left: Residual) -> FloatArray:
        """Slopes (S, M, 1 + 2K) of T z in the ratios at one mixture (M,): by them the field leans beside the law.

        They are what it changes by on a step towards each source, over the step. A source of that place in the `order`
        (M,) has the draws of the place.
        """
        points, places, K = np.vstack([p, p + STEP * (np.eye(len(p)) - p)]), np.append(0, 1 + order), len(self.scale)
        rng = np.random.default_rng([seed, RandomStream.NOISE, TILTS])
        unit = self._spread(list(rng.standard_normal((len(points), samples, 2 + K))[places]))
        found = np.zeros(unit.shape)
        for some, known in left.covariance(points):
            values, vectors = np.linalg.eigh((1 - self.common) * known)
            root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T  # symmetric: no order of sources changes it
            columns = 1 + np.append(some, K + some)
            found[..., columns] = np.einsum("mn,snk->smk", root, unit[..., columns])
        return self.heavy(samples, seed)[:, None, None] * (found[:, 1:] - found[:, :1]) / STEP

    def _spread(self, normal: list[FloatArray]) -> FloatArray:
        """Draws (S, R, 1 + 2K) from R times (S, 2 + K): what targets have in common is one draw, K times."""
        order, K = ranks_of(self.scale[None]), len(self.scale)  # the same draws for a target, whatever their order
        return np.stack(normal, axis=1)[..., np.concatenate([[0], np.ones(K, dtype=np.int64), 2 + order])]

    def of_targets(self, unit: FloatArray, scale: FloatArray, mixed: FloatArray) -> FloatArray:
        """Errors (..., K) of log losses from T z (..., 1 + 2K): of a `scale` each, and of `mixed` in all at once."""
        together, alone = np.split(unit[..., 1:], 2, axis=-1)
        return mixed * unit[..., :1] + scale * (np.sqrt(self.shared) * together + np.sqrt(1 - self.shared) * alone)

    def heavy(self, samples: int, seed: int) -> FloatArray:
        """T (S,)."""
        chi2 = np.random.default_rng([seed, RandomStream.NOISE, 0]).chisquare(self.runs, samples)
        return np.sqrt(self.runs / chi2)


def form_errors(coverage: Coverage, noise: Noise | None, N: float, D: float) -> FloatArray:
    """Deviations (2, K) of log loss for the form's sake, between mixtures and alike for all; 0 at fitted budgets."""
    far = np.log(coverage.beyond_budgets(np.array([N]), np.array([D]))[:, 0])
    of_least, of_most = np.log(N * D / coverage.compute_range.T)
    bare = np.maximum(far[0] - np.maximum(of_most, -of_least).clip(0), 0)
    whole = np.square([BEYOND_N, BEYOND_D, BEYOND_N, BEYOND_N, BARE_N]) @ np.square([*far, bare])
    mixed = 0 * whole if noise is None else np.minimum(whole, MIXED * noise.scale**2 * np.sqrt(whole) / BEYOND_N)
    return np.sqrt([mixed, whole - mixed])


def form_draws(samples: int, seed: int) -> FloatArray:
    """z_0 (S,), alike at every budget."""
    return np.random.default_rng([seed, RandomStream.NOISE, 1]).standard_normal(samples)


@lru_cache(maxsize=64)
def _draw_normal(seed: int, place: int, samples: int, targets: int) -> FloatArray:
    """Draws (S, 2 + K) for the row at a place: two of all targets, and one of each."""
    return np.random.default_rng([seed, RandomStream.NOISE, 2 + place]).standard_normal((samples, targets + 2))


def first_alike(p: FloatArray) -> IntArray:
    """For each mixture (R, M) the first that is the same (R,)."""
    return np.array([int(np.all(np.abs(p - one) <= SAME, axis=1).argmax()) for one in p], dtype=np.int64)


def _independent(unit: FloatArray, there: BoolArray, groups: IntArray) -> FloatArray:
    """Independent runs (K,): rows of one mixture err alike (Kish 1965, with the mean correlation within)."""
    together = (groups[:, None] == np.unique(groups)).astype(np.float64)
    count = together.T @ there
    pairs = count**2 - count
    alike = (np.square(together.T @ unit).sum() - np.square(unit).sum()) / max(float(pairs.sum()), 1.0)
    rows = there.sum(axis=0)
    return rows**2 / np.maximum(rows + np.clip(alike, 0.0, 1.0) * pairs.sum(axis=0), 1.0)


def _correlate(unit: FloatArray) -> float:
    """The mean correlation of two targets, at least 0; of one target with itself 1."""
    targets = int((unit != 0).any(axis=0).sum())
    if targets < 2:
        return 1.0
    of_pairs = (np.square(unit.sum(axis=1)).mean() - np.square(unit).sum(axis=1).mean()) / (targets * (targets - 1))
    return float(np.clip(of_pairs, 0.0, 1.0))


def _common(unit: FloatArray, cells: IntArray, groups: IntArray) -> float:
    """Share of the variance between budgets of enough mixtures, by analysis of variance; 0 with fewer than two."""
    parts = [unit[cells == cell] for cell in np.unique(cells) if len(np.unique(groups[cells == cell])) >= CELL]
    if len(parts) < 2:
        return 0.0
    found = []
    for part in parts:
        count = (~np.isnan(part)).sum(axis=0)
        known = part[:, count > 1]
        if known.size:
            chance = np.nanvar(known, axis=0, ddof=1) / count[count > 1]
            found.append(float((np.nanmean(known, axis=0) ** 2 - chance).mean()))
    return float(np.clip(np.mean(found), 0.0, MOST_COMMON)) if found else 0.0
