"""What held-out losses of one N and D have in common beyond the law, and how much they scatter there.

A law of few numbers is off by about as much at every mixture of one budget, and at another budget by something else: a
random effect of each cell (N, D) and target. The fit follows the effects of its cells in part, and what is left of them
is in their held-out residuals. At a budget without runs, the error is the effect there and what the others have done to
the fit. With effects of variance tau^2, and a fit that follows them as least squares on columns x, weighted by runs W,

    left at cell c   tau^2 |e_c - h_c|^2,   h = x' (X' W X)^-1 X' W        elsewhere   tau^2 (1 + |h|^2)

At the cells the law bends in N and D by its exponents, so that x = (1, log N, log^2 N, log D, log^2 D). Elsewhere the
bend is what public runs have (`exponents`), and x = (1, log N, log D); of values that are all alike there is no column.
tau^2 comes from the means of held-out residuals over cells, less what chance makes of them (moments), and is drawn to
the mean of all targets, the more so the fewer cells there are beyond the columns. From what is left at a cell to what
is unknown elsewhere it grows over `REACH` in log N or log D: cells that near are off alike.

Runs also scatter more in some cells than in others. The squared factor of a cell and target is its mean squared
residual over the target's, drawn to 1 as far as chance explains that such numbers differ (empirical Bayes, Morris
1983). Between cells it is their mean weighted by one over the squared distance (Shepard 1968), and at least 1: that a
near cell is quiet promises nothing.
Axes: C cells, K targets, R rows or points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shapleymix.fields import POSITIVE, SHARE, Range
from shapleymix.fitting.magnitudes import SAME, levels_of
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.tables.runs import RunLog

FEWEST, MOST = 4, 150
"""Mixtures of one N and D below which it is no cell, and cells that are looked at, of very many some, evenly."""
REACH = 0.7
"""Distance in log N or log D, a factor of 2, over which the effect of one cell has little to do with another's."""
POOLED = 2.0
"""Degrees of freedom that the effects of all targets count for beside those of one."""
LEAST_FREEDOM = 0.5
"""Degrees of freedom of the cells beyond the columns below which no effect is told."""
OUTLYING = 6.0
"""Residuals further out, in robust standard deviations, are moved there."""
NORMAL_MEDIAN, NORMAL_KURTOSIS, MOST_KURTOSIS = 0.6745, 3.0, 12.0
WIDEST = 100.0
"""No effect on log losses is wider, nor the square root of a factor."""


@dataclass(frozen=True)
class Effect:
    """What log losses of all mixtures of one budget err by: standard deviations (K,), and the correlation of two."""

    scale: FloatArray
    shared: float

    def variance(self, factors: FloatArray) -> float:
        """Variance of a sum of log losses with factors (K,)."""
        parts = factors * self.scale
        return float(self.shared * parts.sum() ** 2 + (1 - self.shared) * (parts @ parts))


@dataclass(frozen=True)
class Cells(Record):
    """The cells of a log, as held-out log residuals show them.

    Attributes
    ----------
    N, D : array (C,)
        Parameters and tokens of each cell.
    runs : array (C,)
        Its mixtures.
    factor, apart : array (C, K)
        How many times as far as in the mean of all cells its residuals scatter about the law, and about their mean: a
        gain of one mixture over another knows no common error.
    effect : array (K,)
        Standard deviation of what log losses of one cell have in common, tau.
    shared : float
        Correlation of the effects on two targets.
    """

    kind = "fit/cells"
    axes: ClassVar[Mapping[str, str]] = {"N": "C", "D": "C", "runs": "C", "factor": "CK", "apart": "CK", "effect": "K"}
    ranges: ClassVar[Mapping[str, Range]] = {
        "N": POSITIVE, "D": POSITIVE, "runs": POSITIVE, "factor": (0.0, WIDEST), "apart": (0.0, WIDEST),
        "effect": (0.0, WIDEST), "shared": SHARE,
    }  # fmt: skip

    N: FloatArray
    D: FloatArray
    runs: FloatArray
    factor: FloatArray
    apart: FloatArray
    effect: FloatArray
    shared: float

    def check(self, targets: int) -> None:
        """Raise a ValueError unless each cell and target has a factor above 0, and each target an effect."""
        factors = self.factor, self.apart
        if any(one.shape != (len(self.N), targets) for one in factors) or self.effect.shape != (targets,):
            raise ValueError(f"cells: expected {len(self.N)} x {targets} factors, and {targets} effects")
        if not (len(self.N) and all((one > 0).all() for one in factors) and np.isfinite(self.effect).all()):
            raise ValueError("cells: there is one cell at least, factors are above 0, and effects finite")

    def factors(self, N: FloatArray, D: FloatArray, *, apart: bool = False) -> FloatArray:
        """How many times as far (R, K) as in the mean of cells runs scatter at budgets N and D (R,), or `apart`."""
        distance = self._distance(N, D)
        near = 1 / np.maximum(distance, SAME**2)
        square = near / near.sum(axis=1, keepdims=True) @ np.square(self.apart if apart else self.factor)
        quiet = np.minimum(square - 1, 0.0) * (1 - _apart(distance))[:, None]
        return np.sqrt(1 + np.maximum(square - 1, quiet))

    def elsewhere(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """Standard deviation (R, K) of what losses of a budget have in common beyond what is left at the cells."""
        share = 1 + np.square(_weights(self, N, D)).sum(axis=1) - self.left.mean()
        return np.sqrt(share * _apart(self._distance(N, D)))[:, None] * self.effect

    def common(self, N: float, D: float) -> Effect:
        """The whole of what losses of a budget have in common."""
        squares = np.square(self.elsewhere(np.array([N]), np.array([D]))[0])
        return Effect(np.sqrt(squares + self.left.mean() * np.square(self.effect)), self.shared)

    @property
    def left(self) -> FloatArray:
        """What the fit leaves (C,) of effects of variance 1 at the cells."""
        return np.square(np.eye(len(self.N)) - _weights(self, self.N, self.D, bent=True)).sum(axis=1)

    def _distance(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """Squared distances (R, C) of budgets from the cells, in logs."""
        places = np.log([self.N, self.D])[:, None, :] - np.log([N, D])[:, :, None]
        return np.square(places).sum(axis=0)


def _apart(distance: FloatArray) -> FloatArray:
    """How little (R,) points have to do with the nearest cell, from 0 to 1, by squared distances (R, C)."""
    return 1 - np.exp(-distance.min(axis=1) / REACH**2)


def cells_of(log: RunLog, residual: FloatArray) -> Cells | None:
    """The cells that held-out log residuals (R, K) show, NaN where none counts; None where there are fewer than two."""
    place, rows = _places(log, residual)
    if not len(rows) or place.max() < 1:
        return None
    cells = int(place.max()) + 1
    tamed = _tamed(residual[rows])
    sums = _Sums.of(tamed, place, cells)
    spread = [np.array([log.groups[rows][place == cell]]) for cell in range(cells)]
    runs = np.array([len(np.unique(groups)) for groups in spread], dtype=np.float64)
    first = [rows[np.flatnonzero(place == cell)[0]] for cell in range(cells)]
    even = np.ones_like(sums.mean)
    empty = Cells(log.N[first], log.D[first], runs, even, even, np.zeros(len(log.targets)), 0.0)
    share = runs / np.array([groups.size for groups in spread])  # of rows that tell something of their own
    effect, shared = _effect(empty, sums, share)
    about = _tamed(residual[rows] - _middle(residual[rows], place)[place])
    factor, apart = (_factors(values, place, share) for values in (tamed, about))
    return replace(empty, factor=factor, apart=apart, effect=effect, shared=shared)


@dataclass(frozen=True)
class _Sums:
    """What is known of the residuals of each cell (C, K): how many, mean, mean square, and the kurtosis within."""

    count: FloatArray
    mean: FloatArray
    square: FloatArray
    kurtosis: float

    @classmethod
    def of(cls, residual: FloatArray, place: IntArray, cells: int) -> _Sums:
        there = ~np.isnan(residual)
        values = np.where(there, residual, 0.0)
        count, mean, square, fourth = np.zeros((4, cells, residual.shape[1]))
        for total, part in ((count, there), (mean, values), (square, values**2), (fourth, values**4)):
            np.add.at(total, place, part)
        mean, square, fourth = (total / np.maximum(count, 1) for total in (mean, square, fourth))
        known = square > 0
        kurtosis = float(np.median(fourth[known] / square[known] ** 2)) if known.any() else NORMAL_KURTOSIS
        return cls(count, mean, square, min(kurtosis, MOST_KURTOSIS))

    @property
    def usual(self) -> FloatArray:
        """Mean square (K,) over all cells; 1 where every residual is 0."""
        squares = (self.count * self.square).sum(axis=0) / np.maximum(self.count.sum(axis=0), 1)
        return np.where(squares > 0, squares, 1.0)

    def of_mean(self, share: FloatArray) -> FloatArray:
        """What chance makes of the square of each mean (C, K), where a share (C,) of rows counts; NaN without two."""
        count = self.count * share[:, None]
        return np.where(count > 1, (self.square - self.mean**2) / np.where(count > 1, count - 1, 1.0), np.nan)

    def of_log(self, share: FloatArray) -> FloatArray:
        """What chance makes of the square of the log of each mean square (C, K)."""
        return (self.kurtosis - 1) / np.maximum(self.count * share[:, None], 1.0)


def _places(log: RunLog, residual: FloatArray) -> tuple[IntArray, IntArray]:
    """The number of each row's cell, and the rows, of cells with enough mixtures."""
    known = np.flatnonzero((~np.isnan(residual)).any(axis=1) & (log.D > 0))
    if not len(known):
        return known, known
    budgets = np.stack([levels_of(np.log(values[known])) for values in (log.N, log.D)], axis=1)
    cell = np.unique(budgets, axis=0, return_inverse=True)[1].reshape(-1)
    pairs = np.unique(np.stack([cell, log.groups[known]], axis=1), axis=0)
    whole = np.flatnonzero(np.bincount(pairs[:, 0]) >= FEWEST)
    kept = whole[np.unique(np.linspace(0, max(len(whole) - 1, 0), min(len(whole), MOST)).astype(np.int64))]
    enough = np.isin(cell, kept)
    return np.unique(cell[enough], return_inverse=True)[1].reshape(-1), known[enough]


def _tamed(residual: FloatArray) -> FloatArray:
    """Residuals (R, K), the outlying ones moved in."""
    known = np.flatnonzero((~np.isnan(residual)).any(axis=0))
    limit = np.full(residual.shape[1], np.inf)
    limit[known] = OUTLYING / NORMAL_MEDIAN * np.nanmedian(np.abs(residual[:, known]), axis=0)
    limit = np.where(limit > 0, limit, np.inf)
    return np.clip(residual, -limit, limit)


def _middle(residual: FloatArray, place: IntArray) -> FloatArray:
    """The median residual (C, K) of each cell; 0 where it has none."""
    parts = [residual[place == cell] for cell in range(int(place.max()) + 1)]
    return np.stack([np.nanmedian(np.where(np.isnan(part).all(axis=0), 0.0, part), axis=0) for part in parts])


def _effect(cells: Cells, sums: _Sums, share: FloatArray) -> tuple[FloatArray, float]:
    """Standard deviation (K,) of the cells' effects, and their correlation between targets, by moments."""
    chance = sums.of_mean(share)
    there = ~np.isnan(chance)
    left = np.where(there, cells.left[:, None], 0.0).sum(axis=0)
    if left.max() < LEAST_FREEDOM:
        return cells.effect, 0.0
    unit = np.where(there, sums.mean, 0.0) / np.sqrt(sums.usual)
    own = (unit**2 - np.where(there, chance, 0.0) / sums.usual).sum(axis=0)
    usual = own.sum() / left.sum()
    variance = np.maximum((own + POOLED * usual) / (left + POOLED), 0.0) * sums.usual
    return np.sqrt(np.where(left > 0, variance, 0.0)), _alike(unit)


def _alike(unit: FloatArray) -> float:
    """The mean correlation, at least 0, of the means of two targets over cells (C, K); of one target 1."""
    size = np.sqrt(np.square(unit).sum(axis=0))
    unit = unit[:, size > 0] / size[size > 0]
    targets = unit.shape[1]
    if targets < 2:
        return 1.0
    return float(np.clip((np.square(unit.sum(axis=1)).sum() - targets) / (targets * (targets - 1)), 0.0, 1.0))


def _factors(residual: FloatArray, place: IntArray, share: FloatArray) -> FloatArray:
    """Factors (C, K): first of a cell for all targets together (C, 1), and then of each target beyond that."""
    sums = _Sums.of(residual, place, len(share))
    mean = np.sqrt(np.nanmean(np.square(residual) / sums.usual, axis=1, keepdims=True))
    whole, known = _Sums.of(mean, place, len(share)), sums.square > 0
    logs = np.log(np.where(known, sums.square / sums.usual, 1.0))
    together = np.log(np.where(whole.square > 0, whole.square, 1.0))
    of_cell = _shrunk(together, whole.of_log(share), whole.square > 0)
    return np.exp((of_cell + _shrunk(logs - together, sums.of_log(share), known)) / 2)


def _shrunk(values: FloatArray, chance: FloatArray, known: BoolArray) -> FloatArray:
    """Logs of variances drawn to 0, as far as their `chance` variances explain that they differ from it."""
    between = max(float((values**2 - chance)[known].mean()), 0.0) if known.any() else 0.0
    return np.where(known, values * between / np.maximum(between + chance, 1e-12), 0.0)


def _weights(cells: Cells, N: FloatArray, D: FloatArray, *, bent: bool = False) -> FloatArray:
    """What the effect of each cell does (R, C) to the fit at budgets, whose exponents follow it too if `bent`."""
    root = np.sqrt(cells.runs)
    known = _columns(cells, cells.N, cells.D, bent=bent) * root[:, None]
    return _columns(cells, N, D, bent=bent) @ np.linalg.pinv(known) * root


def _columns(cells: Cells, N: FloatArray, D: FloatArray, *, bent: bool) -> FloatArray:
    """The columns (R, P) of the module's text at budgets, about the cells' mean, of what differs over cells."""
    columns = [np.ones(len(N))]
    for values, at in ((np.log(cells.N), np.log(N)), (np.log(cells.D), np.log(D))):
        different = int(levels_of(values).max()) + 1
        powers = range(1, min(different, 3 if bent else 2))
        columns += [(at - values.mean()) ** power for power in powers]
    return np.stack(columns, axis=1)
