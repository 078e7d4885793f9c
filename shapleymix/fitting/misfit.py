"""How held-out losses scatter about a law beyond what its replicates know: a random field over mixtures.

A gain between two mixtures is sure only as far as the law's error is the same at both. The error of log loss that the
replicates do not explain is taken for a Gaussian field over mixtures p, at one N and D:

    cov(e_j(p), e_l(q)) = scale_j scale_l c_jl (smooth exp(-H2(p, q) / reach) + (1 - smooth) [p = q])

with `H2 = 1 - sum_i sqrt(p_i q_i)`, Hellinger's squared distance (a Gaussian kernel of the square roots of ratios), and
`c_jl` 1 for a target with itself, `shared` for two. The second part is what each run has for itself: its seed, and
misfit that is rougher than the mixtures lie apart, which no log without repeated runs can tell from it.

Few numbers, so that a dozen of mixtures tell them: `smooth` and `reach` by the likelihood of contrasts (REML; Rasmussen
and Williams 2006, section 2.7) of held-out residuals over a grid, under a weak prior; scales with them.

A held-out loss also misses its prediction by how little the law is known, which replicates hold already. Where a run
of leverage h scatters about the law by sigma, a fit to it is left with sigma^2 (1 - h), and one without it errs by
sigma^2 / (1 - h) (Allen's PRESS, 1974): sigma^2 is the geometric mean of the two.
Axes: R rows, S rows of one size, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from shapleymix.fields import AMOUNT, POSITIVE, Range
from shapleymix.laws import Law
from shapleymix.records import FloatArray, IntArray, Record
from shapleymix.tables.runs import RunLog

FEWEST = 4
"""Mixtures of one size with a held-out loss below which nothing is estimated from it."""
MOST = 150
"""Runs of one size that are looked at: more tell hardly more, at a cost that grows with their cube."""
POOLED = 4.0
"""Runs' worth of what all targets scatter by in the scale of each: three contrasts tell no variance."""
LEAST_LEFT = 0.25
"""Of the variance of held-out residuals is scatter, whatever little is left of the fitted ones."""
OUTLYING = 6.0
"""Residuals further out, in robust standard deviations, are moved there: one failed fold would set every scale."""
NORMAL_MEDIAN = 0.6745
"""The median absolute value of a standard normal."""
REACHES, SMOOTHS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8), (0.0, 0.25, 0.5, 0.75, 0.9)
REACH, REACH_SPREAD, SMOOTH, SMOOTH_SPREAD = 0.2, 1.2, 0.3, 0.4
"""The prior of log reach and of smooth: normal, wide, about what the published logs give."""
JITTER = 1e-9
SAME = 1e-9
"""Mixtures whose ratios all differ by less are one."""
WIDEST = 100.0
"""No scale of log losses is wider."""


@dataclass(frozen=True)
class Misfit(Record):
    """The scatter of a law's held-out log losses as a field over mixtures.

    Attributes
    ----------
    scale : array (K,)
        Standard deviation of the log loss of one run about the law, beyond what the replicates spread.
    shared : float
        Correlation between two targets.
    smooth, reach : float
        Share of the variance that near mixtures have in common, and the squared Hellinger distance over which that
        falls to 1/e.
    runs : int
        Number of runs from which this was estimated.
    """

    kind = "misfit"
    axes: ClassVar[Mapping[str, str]] = {"scale": "K"}
    ranges: ClassVar[Mapping[str, Range]] = {"scale": (0.0, WIDEST), "reach": POSITIVE, "runs": AMOUNT}

    scale: FloatArray
    shared: float
    smooth: float
    reach: float
    runs: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) & (self.scale >= 0)).all():
            raise ValueError("the scales of a misfit are not all finite and at least 0")
        if not (0 <= self.shared <= 1 and 0 <= self.smooth <= 1 and self.reach > 0):
            raise ValueError("shared and smooth lie between 0 and 1, and reach above 0")

    def check(self, targets: int) -> None:
        """Raise a ValueError unless there is one scale for each of so many targets."""
        if self.scale.shape != (targets,):
            raise ValueError(f"misfit: {self.scale.size} scales for {targets} targets")

    def covariance(self, first: FloatArray, second: FloatArray) -> float:
        """Covariance of two sums of log losses, with factors `first` and `second` (K,), at one mixture."""
        one, other = first * self.scale, second * self.scale
        return float(self.shared * one.sum() * other.sum() + (1 - self.shared) * (one @ other))

    def alike(self, p: FloatArray, q: FloatArray, *, runs: bool = True) -> float:
        """Correlation between the errors at two mixtures (M,): of two runs, or of what is smooth only."""
        if np.allclose(p, q, rtol=0, atol=SAME):
            return 1.0
        near = float(np.exp(-_hellinger(p[None], q[None])[0, 0] / self.reach))
        return self.smooth * near if runs else near

    def spread(self, p: FloatArray, at_p: FloatArray, q: FloatArray, at_q: FloatArray, *, runs: bool = True) -> float:
        """Standard deviation of a difference of objectives of two mixtures.

        Parameters
        ----------
        p, q : array (M,)
            The mixtures.
        at_p, at_q : array (K,)
            What each objective changes by for a change of log loss.
        runs : bool
            Whether one run of each is meant, with its seed, or the loss that many would have in the mean.
        """
        common = self.alike(p, q, runs=runs) * self.covariance(at_p, at_q)
        variance = self.covariance(at_p, at_p) + self.covariance(at_q, at_q) - 2 * common
        return float(np.sqrt(max(variance, 0.0) * (1.0 if runs else self.smooth)))


@dataclass(frozen=True)
class _Slice:
    """Runs of one size, seen through contrasts: what all mixtures have in common cancels in a gain.

    `contrasts` (S - 1, S) are orthonormal with sum zero, `distance` (S, S) is Hellinger's, squared; `residual` and
    `fitted` (S - 1, K) are contrasts of log residuals, held out and fitted.
    """

    contrasts: FloatArray
    distance: FloatArray
    residual: FloatArray
    fitted: FloatArray


def misfit_of(
    log: RunLog,
    loss: FloatArray,
    predicted: FloatArray | None,
    law: Law,
    *,
    replicated: bool,
    ratios: FloatArray | None = None,
) -> Misfit | None:
    """The misfit that held-out predictions show; None where there are too few mixtures to tell.

    Parameters
    ----------
    log : RunLog
        The rows (R,) that were fitted.
    loss, predicted : array (R, K)
        Losses, NaN where none counts, and their predictions by fits that did not see them.
    law : Law
        The law fitted to all rows.
    replicated : bool
        Whether replicates hold how little the law is known, so that a misfit must not.
    ratios : array (R, M), optional
        What the law takes for the ratios, where some of their tokens are repeated.
    """
    if predicted is None or len(log.sources) < 2:
        return None
    residual = _log_ratio(loss, predicted)
    p = log.p if ratios is None else ratios
    fitted = np.where(np.isnan(residual), np.nan, _log_ratio(loss, law.losses(p, log.N, log.D)))
    slices = [_slice(log.p[rows], residual[rows], fitted[rows]) for rows in _rows_by_size(log, residual)]
    seen = sum((np.square(one.residual).sum(axis=0) for one in slices), np.zeros(len(log.targets)))
    if not seen.any():
        return None
    smooth, reach, variance = _most_likely(slices)
    if replicated:
        variance = variance * _share_of_scatter(slices, seen)
    runs = sum(len(one.distance) for one in slices)
    return Misfit(np.sqrt(_pooled(variance, runs)), _shared(slices), smooth, reach, runs)


def _share_of_scatter(slices: list[_Slice], seen: FloatArray) -> FloatArray:
    """Of the variance of held-out residuals (K,), what a run scatters about the law by, as the module's text has it."""
    fitted = sum((np.square(one.fitted).sum(axis=0) for one in slices), np.zeros_like(seen))
    return np.clip(np.sqrt(fitted / np.where(seen > 0, seen, 1.0)), LEAST_LEFT, 1.0)


def _pooled(variance: FloatArray, runs: int) -> FloatArray:
    """Variances (K,) drawn to their median, the less the more runs there are; 0 where nothing was measured."""
    there = variance > 0
    usual = np.median(variance[there])
    return np.where(there, (runs * variance + POOLED * usual) / (runs + POOLED), 0.0)


def _log_ratio(loss: FloatArray, predicted: FloatArray) -> FloatArray:
    """log(loss / predicted), NaN where one of them is no loss."""
    with np.errstate(invalid="ignore"):
        there = (loss > 0) & (predicted > 0)
    return np.where(there, np.log(np.where(there, loss, 1.0) / np.where(there, predicted, 1.0)), np.nan)


def _rows_by_size(log: RunLog, residual: FloatArray) -> Iterator[IntArray]:
    """The last rows with a residual of the runs of each size, where there are enough; of very many some, evenly."""
    known = np.flatnonzero((~np.isnan(residual)).any(axis=1))
    last = {(log.N[row], log.runs[row]): row for row in known[np.argsort(log.D[known], kind="stable")].tolist()}
    for N in np.unique(log.N):
        rows = np.array(sorted(row for (size, _), row in last.items() if size == N), dtype=np.int64)
        if len(np.unique(log.groups[rows])) >= FEWEST:
            yield rows[_evenly(len(rows), MOST)]


def _slice(p: FloatArray, residual: FloatArray, fitted: FloatArray) -> _Slice:
    rows = len(p)
    contrasts = np.linalg.svd(np.eye(rows) - 1 / rows)[0][:, : rows - 1].T
    return _Slice(contrasts, _hellinger(p, p), contrasts @ _tamed(residual), contrasts @ _tamed(fitted))


def _evenly(count: int, most: int) -> IntArray:
    """Places of at most so many of a number of things, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _tamed(residual: FloatArray) -> FloatArray:
    """Residuals (S, K) about their median, the outlying ones moved in, unknown ones 0 and the others larger for it."""
    there = ~np.isnan(residual)
    known = np.flatnonzero(there.any(axis=0))
    centre, scale = np.zeros((2, residual.shape[1]))
    centre[known] = np.nanmedian(residual[:, known], axis=0)
    found = np.where(there, residual - centre, 0.0)
    scale[known] = np.nanmedian(np.where(there, np.abs(found), np.nan)[:, known], axis=0) / NORMAL_MEDIAN
    scale = np.where(scale > 0, scale, np.inf)  # more than half of the residuals alike: nothing is outlying
    return np.clip(found, -OUTLYING * scale, OUTLYING * scale) * np.sqrt(
        len(residual) / np.maximum(there.sum(axis=0), 1)
    )


def _hellinger(p: FloatArray, q: FloatArray) -> FloatArray:
    """Squared Hellinger distances of mixtures (R, M) and (S, M) -> (R, S)."""
    return np.clip(1 - np.sqrt(np.maximum(p, 0.0)) @ np.sqrt(np.maximum(q, 0.0)).T, 0.0, 1.0)


def _shared(slices: list[_Slice]) -> float:
    """The mean correlation of two targets, at least 0; of one target with itself 1."""
    residual = np.concatenate([one.residual for one in slices])
    size = np.sqrt(np.square(residual).mean(axis=0))
    unit = residual[:, size > 0] / size[size > 0]
    targets = unit.shape[1]
    if targets < 2:
        return 1.0
    of_pairs = (np.square(unit.sum(axis=1)).mean() - targets) / (targets * (targets - 1))
    return float(np.clip(of_pairs, 0.0, 1.0))


def _most_likely(slices: list[_Slice]) -> tuple[float, float, FloatArray]:
    """Smooth, reach and the variances (K,): the grid point of the highest posterior density."""
    count = sum(len(one.residual) for one in slices)
    targets = slices[0].residual.shape[1]
    independent = targets / (1 + (targets - 1) * _shared(slices))
    best = (-np.inf, 0.0, REACH, np.zeros(targets))
    for smooth, reach in product(SMOOTHS, REACHES):
        logdet, squares = _likelihood_parts(slices, smooth, reach)
        variance = squares / count
        there = variance > 0
        fit = -0.5 * (count * np.log(variance[there]).mean() + logdet) * independent
        prior = ((smooth - SMOOTH) / SMOOTH_SPREAD) ** 2 + (np.log(reach / REACH) / REACH_SPREAD) ** 2
        if fit - 0.5 * prior > best[0]:
            best = (fit - 0.5 * prior, smooth, reach, variance)
    return best[1:]


def _likelihood_parts(slices: list[_Slice], smooth: float, reach: float) -> tuple[float, FloatArray]:
    """The log determinant of the contrasts' correlations, and the whitened squares (K,), over all sizes."""
    logdet, squares = 0.0, np.zeros(slices[0].residual.shape[1])
    for one in slices:
        alike = smooth * np.exp(-one.distance / reach) + (1 - smooth + JITTER) * np.eye(len(one.distance))
        factor = cho_factor(one.contrasts @ alike @ one.contrasts.T, lower=True)
        logdet += 2 * float(np.log(np.diag(factor[0])).sum())
        squares += np.sum(one.residual * cho_solve(factor, one.residual), axis=0)
    return logdet, squares
