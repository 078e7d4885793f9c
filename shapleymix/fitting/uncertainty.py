"""Intervals of predicted losses: the replicates of the law and the scatter of held-out runs, together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.display import short
from shapleymix.fitting.repetition import replicate_losses
from shapleymix.laws import Law
from shapleymix.records import FloatArray

QUANTILES = np.arange(1, 100) / 100.0  # levels at which held-out residuals are kept


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
