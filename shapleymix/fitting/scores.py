"""How well predictions match losses: PE, R2, rank correlation, coverage of intervals; per target and mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.stats import norm, rankdata, t

from shapleymix.display import Columns, Tabular
from shapleymix.records import BoolArray, FloatArray, IntArray, Record

SURE = 2.0
"""Standard errors by which one law must be better than another, were there mixtures without number."""


def sure_errors(count: int) -> float:
    """How many standard errors of a mean of so many values are as sure as `SURE` of a normal law: Student's t."""
    return float(t.ppf(norm.cdf(SURE), count - 1))


def surely(mean: float, error: float, count: int) -> int:
    """1 or -1 where a mean of so many paired differences is surely above or below 0, else 0; of one, 0.

    `error` is its standard error, as unbiased as that of independent differences.
    """
    bound = sure_errors(count) * error
    return int(mean > bound) - int(mean < -bound)


@dataclass(frozen=True)
class Scores(Tabular, Record):
    """Scores of each target; NaN where there is nothing to score.

    PE (K,) is the mean absolute error over the mean loss (normalised MAE, ShapleyLaw paper, section 4.1), a fraction.
    `coverage` (K,) is the share of losses inside their interval. `rows` (K,) counts the losses scored.
    """

    kind = "scores"
    axes: ClassVar[Mapping[str, str]] = dict.fromkeys(("targets", "PE", "R2", "spearman", "coverage", "rows"), "K")

    targets: tuple[str, ...]
    PE: FloatArray
    R2: FloatArray
    spearman: FloatArray
    coverage: FloatArray
    rows: IntArray

    def columns(self) -> Columns:
        """One row per target."""
        arrays = {name: getattr(self, name).tolist() for name in ("PE", "R2", "spearman", "coverage", "rows")}
        return {"target": self.targets, **arrays}

    @property
    def mean(self) -> dict[str, float]:
        """Mean of each score over the targets that have it."""
        return {name: mean_of(getattr(self, name)) for name in ("PE", "R2", "spearman", "coverage")}


def mean_of(values: FloatArray) -> float:
    """Mean without NaN; NaN if nothing is left."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def score(
    targets: tuple[str, ...],
    loss: FloatArray,
    predicted: FloatArray,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
    counted: BoolArray | None = None,
) -> Scores:
    """Score predictions (R, K) against losses (R, K), where both are there and `counted`."""
    use = ~np.isnan(loss) & ~np.isnan(predicted)
    if counted is not None:
        use &= counted
    rows = use.sum(axis=0)
    error = np.where(use, np.abs(loss - predicted), 0.0).sum(axis=0)
    total = np.where(use, loss, 0.0).sum(axis=0)
    return Scores(
        targets=targets,
        PE=_ratio(error, total),
        R2=_r_squared(loss, predicted, use),
        spearman=_spearman(loss, predicted, use),
        coverage=np.full(len(targets), np.nan) if low is None or high is None else _coverage(loss, low, high, use),
        rows=rows.astype(np.int64),
    )


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def _coverage(loss: FloatArray, low: FloatArray, high: FloatArray, use: BoolArray) -> FloatArray:
    """Share of losses inside their interval, among those that have one."""
    bounded = use & ~np.isnan(low) & ~np.isnan(high)
    inside = bounded & (loss >= low) & (loss <= high)
    return _ratio(inside.sum(axis=0), bounded.sum(axis=0))


def _r_squared(loss: FloatArray, predicted: FloatArray, use: BoolArray) -> FloatArray:
    """Share of the losses' variance that is explained; none of losses that are one but for rounding."""
    rows = np.maximum(use.sum(axis=0), 1)
    center = np.where(use, loss, 0.0).sum(axis=0) / rows
    spread = np.where(use, (loss - center) ** 2, 0.0).sum(axis=0)
    residual = np.where(use, (loss - predicted) ** 2, 0.0).sum(axis=0)
    varies = spread > rows * (1e-12 * center) ** 2
    return np.where(varies, 1.0 - residual / np.where(varies, spread, 1.0), np.nan)


def _spearman(loss: FloatArray, predicted: FloatArray, use: BoolArray) -> FloatArray:
    """Rank correlation of every target; ties get their mean rank, a constant prediction has none."""
    ranks = [rankdata(np.where(use, values, np.nan), axis=0, nan_policy="omit") for values in (loss, predicted)]
    rows = np.maximum(use.sum(axis=0), 1)
    centred = [np.where(use, rank - np.where(use, rank, 0.0).sum(axis=0) / rows, 0.0) for rank in ranks]
    product = (centred[0] * centred[1]).sum(axis=0)
    scale = np.sqrt((centred[0] ** 2).sum(axis=0) * (centred[1] ** 2).sum(axis=0))
    return np.where(scale > 0, product / np.where(scale > 0, scale, 1.0), np.nan)
