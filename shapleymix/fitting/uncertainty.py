"""Intervals of predicted losses: replicates, the scatter of held-out runs, the distance from the runs, and cells.

The parts are independent and added in quadrature on log loss. What the replicates hold (symbols that the runs tell
badly, exponents that public runs lend) opens with the distance by itself; the third part is for what no replicate of
one law holds: that the form is another, and that checkpoints of a decaying learning rate are no final losses. The last
is what losses of one budget have in common: at fitted budgets it is in the scatter, which is that of each (`cells`).

Legend: R points, K targets, B replicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student_t

from shapleymix.display import short
from shapleymix.fields import ROUNDING
from shapleymix.fitting.cells import Cells
from shapleymix.fitting.coverage import Coverage
from shapleymix.fitting.repetition import replicate_losses
from shapleymix.laws import Law, Terms
from shapleymix.records import BoolArray, FloatArray, IntArray

QUANTILES = np.arange(1, 100) / 100.0  # levels at which held-out residuals are kept
BEYOND_N, BEYOND_D = 0.010, 0.030
"""Standard deviation of the form's error in log loss for each factor e beyond the fitted N and D.

What is left of the errors on the sizes, and on the later halves of the trajectories, that fits of three published logs
had not seen, after replicates and scatter (bench_coverage.py); a fifth of what the loss itself changes on the way.
"""
SAMPLED = 64  # runs at which the replicates' variance is looked at
LEAST_SCATTER = 0.25  # of the variance of held-out residuals is scatter, whatever the replicates say
SHRUNK = 2.0  # residuals that the scatter of all targets counts for beside those of one
HALF = 0.5  # of a residual beyond a quantile: there the sample's counts as much as Student's t
STREAM = 3  # of the draws of the form's error, which are the same for every point


@dataclass(frozen=True)
class Spread:
    """What an interval is made of: replicates, quantiles (99, K) of held-out log residuals, what runs cover, cells."""

    replicates: Law | None
    residuals: FloatArray | None
    coverage: Coverage | None = None
    cells: Cells | None = None

    def interval(
        self, losses: FloatArray, p: FloatArray, N: FloatArray, D: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Low and high (R, K): the parts of the module's text in quadrature.

        NaN where neither replicates nor held-out residuals are at hand.
        """
        tails = np.array([0.5 - level / 2, 0.5 + level / 2])
        own = self._of_replicates(losses, p, N, D, tails)
        run = self._of_residuals(N, D, tails)
        if own is None and run is None:
            return np.full_like(losses, np.nan), np.full_like(losses, np.nan)
        normal = [self._of_form(N, D, level), self._of_cells(N, D, level)]
        squares = sum(part**2 for part in (own, run, *normal) if part is not None)
        down, up = np.sqrt(np.broadcast_to(squares, (2, *losses.shape)))
        return losses * np.exp(-down), losses * np.exp(up)

    def terms(self, N: float, D: float) -> Terms | None:
        """The replicates' terms at one budget, each with one draw of the form's error; None without replicates."""
        if self.replicates is None:
            return None
        terms = self.replicates.terms(N, D)
        if self.coverage is None or not self.coverage.beyond(N, D):
            return terms
        return terms.scaled(form_factors(self.coverage, N, D, terms.batch[0]))

    def lacks(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """What the intervals do not hold, in words; nothing where both parts are at hand for every target."""
        if self.replicates is None and self.residuals is None:
            return ("there are no intervals: the fit has neither bootstrap replicates nor held-out residuals",)
        if self.replicates is None:
            return (
                "intervals hold how held-out runs scatter about the law, and not how uncertain the law itself is: away "
                "from these runs they are too narrow (no bootstrap replicates)",
            )
        mute = [name for j, name in enumerate(targets) if self.residuals is None or not self.residuals[:, j].any()]
        if not mute:
            return ()
        which = "" if len(mute) == len(targets) else f" of {short(mute)}"
        return (
            f"intervals{which} hold how uncertain the law is, and not how a new run scatters about it: fewer new "
            "losses lie inside than they say (no held-out residuals)",
        )

    def _of_replicates(
        self, losses: FloatArray, p: FloatArray, N: FloatArray, D: FloatArray, tails: FloatArray
    ) -> FloatArray | None:
        if self.replicates is None:
            return None
        bounds = np.quantile(np.log(replicate_losses(self.replicates, p, N, D) / losses), tails, axis=0)
        return np.maximum(np.array([-1.0, 1.0])[:, None, None] * bounds, 0.0)

    def _of_form(self, N: FloatArray, D: FloatArray, level: float) -> FloatArray | None:
        return None if self.coverage is None else norm.ppf(0.5 + level / 2) * form_error(self.coverage, N, D)

    def _of_cells(self, N: FloatArray, D: FloatArray, level: float) -> FloatArray | None:
        return None if self.cells is None else norm.ppf(0.5 + level / 2) * self.cells.elsewhere(N, D)

    def _of_residuals(self, N: FloatArray, D: FloatArray, tails: FloatArray) -> FloatArray | None:
        if self.residuals is None:
            return None
        bounds = np.stack([_between(self.residuals, tail) for tail in tails])
        sides = np.maximum(np.array([-1.0, 1.0])[:, None] * bounds, 0.0)[:, None, :]
        return sides if self.cells is None else sides * self.cells.factors(N, D)


def form_error(coverage: Coverage, N: FloatArray, D: FloatArray) -> FloatArray:
    """Standard deviation (R, K) of log loss for the form's sake, at budgets N and D (R,); 0 within the fitted ones."""
    sizes, tokens = coverage.beyond_budgets(N, D)
    return np.hypot(BEYOND_N * np.log(sizes), BEYOND_D * np.log(tokens))


def form_factors(coverage: Coverage, N: float, D: float, replicates: int) -> FloatArray:
    """Factors (B, K) of the losses of replicates at one budget: one draw each, as all targets err together."""
    drawn = np.random.default_rng(STREAM).standard_normal((replicates, 1))
    return np.exp(drawn * form_error(coverage, np.array([N]), np.array([D])))


def law_variance(
    law: Law, replicates: Law, p: FloatArray, N: FloatArray, D: FloatArray, counted: BoolArray
) -> FloatArray:
    """Mean variance (K,) of the replicates' log losses where losses count (R, K), or at every so manieth run of many.

    Elsewhere replicates may be wild: at runs without a target's own language, which another law tells, they spread by
    several times what they do where they were fitted.
    """
    rows = np.flatnonzero(counted.any(axis=1))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED)).astype(np.int64))]
    points = p[rows], N[rows], D[rows]
    known = np.log(law.losses(*points))
    shifts = [np.where(counted[rows], np.log(one.losses(*points)) - known, np.nan) for one in _each(replicates)]
    squares = np.square(shifts)
    there = ~np.isnan(squares)
    return np.where(there, squares, 0.0).sum(axis=(0, 1)) / np.maximum(there.sum(axis=(0, 1)), 1)


def _each(replicates: Law) -> Iterator[Law]:
    """One law after the other: all at once, laws of many sources fill the memory at many runs."""
    count = len(getattr(replicates, replicates.fitted()[0].name))
    for number in range(count):
        yield replicates.mapped(
            lambda known, value, number=number: value[number] if value.ndim > len(known.axes) else value
        )


def scatter(residuals: FloatArray, variance: FloatArray) -> FloatArray:
    """Held-out quantiles (99, K) less what the law's own variance (K,) makes of them, which intervals add again.

    A held-out loss misses the prediction for two reasons, a run's scatter and how little the law is known. Intervals
    know the second point by point, so that it must not be counted twice; half of the width at least is a run's.
    """
    whole = ((_between(residuals, 0.95) - _between(residuals, 0.05)) / (2 * norm.ppf(0.95))) ** 2
    share = np.where(whole > 0, variance / np.where(whole > 0, whole, 1.0), 0.0)
    return residuals * np.sqrt(np.maximum(1.0 - share, LEAST_SCATTER))


def check_quantiles(residuals: FloatArray | None, targets: int) -> None:
    """Raise a ValueError unless quantiles of residuals are there for each of so many targets, or not at all."""
    if residuals is None:
        return
    if residuals.shape != (len(QUANTILES), targets):
        raise ValueError(f"residuals: expected {len(QUANTILES)} quantiles of each of {targets} targets")
    if not (np.isfinite(residuals).all() and (np.diff(residuals, axis=0) >= -ROUNDING).all()):
        raise ValueError("residuals: quantiles are finite, and do not fall")


def residual_quantiles(residual: FloatArray, groups: IntArray) -> FloatArray:
    """Quantiles (99, K) of the held-out log residuals of a new run; zero for a target that has none.

    Few residuals have no 5% quantile: between the lowest and the highest of 4 lie 60% of new ones. There Student's t
    stands in, its scale shrunk to the targets' mean one, which counts as `SHRUNK` residuals more. Once half a residual
    should lie beyond a quantile, both count the same; of many, the residuals speak alone.

    Parameters
    ----------
    residual : array (R, K)
        Logs of losses over their predictions by fits that did not see them; NaN where there is none.
    groups : int array (R,)
        The number of each row's mixture: rows of one mixture miss alike, and count less.
    """
    there = ~np.isnan(residual)
    known = np.flatnonzero(there.any(axis=0))
    found = np.zeros((len(QUANTILES), there.shape[1]))
    if not len(known):
        return found
    residual = residual[:, known]
    count = _independent(residual, groups)
    expected = np.minimum(QUANTILES, 1 - QUANTILES)[:, None] * count
    own = expected**2 / (expected**2 + HALF**2)
    found[:, known] = own * _sample_quantiles(residual) + (1 - own) * _student(residual, count)
    return np.sort(found, axis=0)  # where the sample's quantiles lie far off, weights that change could turn the order


def _independent(residual: FloatArray, groups: IntArray) -> FloatArray:
    """How many independent residuals (K,) those of each target are worth, as they correlate within mixtures.

    Kish's design effect (1965), with the mean correlation of two rows of one mixture over all targets.
    """
    there = ~np.isnan(residual)
    unit = np.where(there, residual, 0.0) / np.sqrt(np.maximum(np.nanmean(np.square(residual), axis=0), 1e-300))
    place = np.unique(groups, return_inverse=True)[1]
    total, count = np.zeros((2, int(place.max()) + 1, residual.shape[1]))
    np.add.at(total, place, unit)
    np.add.at(count, place, there.astype(np.float64))
    pairs = np.square(count) - count
    alike = (np.square(total).sum() - np.square(unit).sum()) / max(float(pairs.sum()), 1.0)
    rows = there.sum(axis=0)
    return rows**2 / (rows + float(np.clip(alike, 0.0, 1.0)) * pairs.sum(axis=0))


def _sample_quantiles(residual: FloatArray) -> FloatArray:
    """Quantiles (99, K) of residuals (R, K), NaN where there is none, at Weibull's plotting positions.

    Of new residuals like these, the share below a quantile is then its level, on average over samples. Between the 5%
    and 95% quantiles that NumPy takes by default of 24 lie 83% of new ones, not 90.
    """
    return np.nanquantile(residual, QUANTILES, axis=0, method="weibull")


def _student(residual: FloatArray, count: FloatArray) -> FloatArray:
    """Quantiles (99, K) of Student's t about zero, with scales pooled in part over targets."""
    squares = np.nanmean(np.square(residual), axis=0)
    usual = np.sqrt(squares).mean() ** 2
    freedom = count + SHRUNK
    return np.sqrt((count * squares + SHRUNK * usual) / freedom) * student_t.ppf(QUANTILES[:, None], freedom)


def _between(quantiles: FloatArray, tail: float) -> FloatArray:
    """The residual quantile at `tail`, linear between those kept and constant beyond them."""
    place = np.clip((tail - QUANTILES[0]) / 0.01, 0, len(QUANTILES) - 1)
    first = min(int(place), len(QUANTILES) - 2)
    share = place - first
    return (1 - share) * quantiles[first] + share * quantiles[first + 1]
