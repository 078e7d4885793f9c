"""Predicted losses with intervals, and plain words where a point lies outside of what was fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws import Law
from shapleymix.records import FloatArray, Record
from shapleymix.tables.sizes import format_size

QUANTILES = np.arange(1, 100) / 100.0  # levels at which held-out residuals are kept
SLACK = 1.01  # a point this close to the fitted range is inside of it: token counts are rounded to whole batches


@dataclass(frozen=True)
class Prediction(Record):
    """Losses (R, K) in nats a token, with the interval that holds a new run's loss with probability `level`."""

    kind = "prediction"

    runs: tuple[str, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: FloatArray
    D: FloatArray
    p: FloatArray
    losses: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """What an interval is made of: replicates of the law, and quantiles (99, K) of held-out log residuals."""

    replicates: Law | None
    residuals: FloatArray | None

    def interval(
        self, losses: FloatArray, p: FloatArray, N: FloatArray, D: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Low and high (R, K): the law's own uncertainty and a run's scatter, added in quadrature on log loss.

        NaN where neither replicates nor held-out residuals are at hand.
        """
        tails = np.array([0.5 - level / 2, 0.5 + level / 2])
        own = self._of_replicates(losses, p, N, D, tails)
        run = self._of_residuals(tails)
        if own is None and run is None:
            return np.full_like(losses, np.nan), np.full_like(losses, np.nan)
        squares = sum(part**2 for part in (own, run) if part is not None)
        down, up = np.sqrt(np.broadcast_to(squares, (2, *losses.shape)))
        return losses * np.exp(-down), losses * np.exp(up)

    def _of_replicates(
        self, losses: FloatArray, p: FloatArray, N: FloatArray, D: FloatArray, tails: FloatArray
    ) -> FloatArray | None:
        if self.replicates is None:
            return None
        bounds = np.quantile(np.log(self.replicates(p, N, D) / losses), tails, axis=0)
        return np.maximum(np.array([-1.0, 1.0])[:, None, None] * bounds, 0.0)

    def _of_residuals(self, tails: FloatArray) -> FloatArray | None:
        if self.residuals is None:
            return None
        bounds = np.stack([_between(self.residuals, tail) for tail in tails])
        return np.maximum(np.array([-1.0, 1.0])[:, None] * bounds, 0.0)[:, None, :]


def residual_quantiles(loss: FloatArray, predicted: FloatArray) -> FloatArray:
    """Quantiles (99, K) of the held-out log residuals; zero for a target that has none."""
    there = ~np.isnan(loss) & ~np.isnan(predicted)
    residual = np.where(there, np.log(np.where(there, loss, 1.0) / np.where(there, predicted, 1.0)), np.nan)
    residual[:, ~there.any(axis=0)] = 0.0
    return np.nanquantile(residual, QUANTILES, axis=0)


def _between(quantiles: FloatArray, tail: float) -> FloatArray:
    """The residual quantile at `tail`, linear between those kept and constant beyond them."""
    place = np.clip((tail - QUANTILES[0]) / 0.01, 0, len(QUANTILES) - 1)
    first = min(int(place), len(QUANTILES) - 2)
    share = place - first
    return (1 - share) * quantiles[first] + share * quantiles[first + 1]


def outside(
    p: FloatArray,
    N: FloatArray,
    D: FloatArray,
    sources: tuple[str, ...],
    p_range: FloatArray,
    N_range: FloatArray,
    D_range: FloatArray,
    untold: tuple[str, ...],
) -> tuple[str, ...]:
    """Plain warnings for points outside of the fitted range; `untold` names budgets whose effect is unknown."""
    found = [
        *_beyond("N", N, N_range, "N" in untold),
        *_beyond("D", D, D_range, "D" in untold),
    ]
    low, high = p_range.reshape(-1, 2).T  # a log without ratios has none
    off = ((p < low - 1e-3) | (p > high + 1e-3)).sum(axis=0)
    found += [
        f"p_{name} lies outside of the fitted range {low[i]:.4g} to {high[i]:.4g} at {off[i]} of {len(p)} points"
        for i, name in enumerate(sources)
        if off[i]
    ]
    return tuple(found)


def _beyond(name: str, values: FloatArray, fitted: FloatArray, unknown: bool) -> list[str]:
    off = (values < fitted[0] / SLACK) | (values > fitted[1] * SLACK)
    if not off.any():
        return []
    span = " to ".join(format_size(value) for value in dict.fromkeys(fitted.tolist()))
    count = f"at {int(off.sum())} of {len(values)} points"
    if unknown:
        return [f"the log holds one {name} ({span}): its effect is unknown, and {count} another {name} is asked for"]
    factor = max(values.max() / fitted[1], fitted[0] / values.min())
    return [f"{name} lies outside of the fitted range {span} {count}, by up to a factor of {factor:.3g}"]
