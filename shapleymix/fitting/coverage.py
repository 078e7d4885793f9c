"""Where a fit has data: what the losses that it used cover, target by target, and which points lie outside of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.evidence import Evidence
from shapleymix.records import BoolArray, FloatArray, IntArray, Record

BUDGET_SLACK = 1.01  # a budget this close to the fitted range is inside of it: token counts are rounded to batches
RATIO_SLACK = 1e-3


@dataclass(frozen=True)
class Coverage(Record):
    """What the used losses cover, target by target: a loss that a filter left out covers nothing.

    Parameters
    ----------
    p_range : (K, M, 2) lowest and highest ratio of each source.
    N_range : (K, 2) fewest and most parameters.
    D_range : (K, 2) fewest and most tokens.
    runs, mixtures : (K, M) number of different runs, and of mixtures, in which the source has a ratio above 0.
    untrained : (K,) loss of a model that has seen no token, nats; NaN where it is not known.
    """

    kind = "fit/coverage"

    p_range: FloatArray
    N_range: FloatArray
    D_range: FloatArray
    runs: IntArray
    mixtures: IntArray
    untrained: FloatArray

    @property
    def whole_p_range(self) -> FloatArray:
        """(M, 2) lowest and highest ratio of each source over all targets."""
        return np.stack([self.p_range[..., 0].min(axis=0), self.p_range[..., 1].max(axis=0)], axis=1)

    def check(self, sources: int, targets: int) -> None:
        """Refuse arrays that do not fit the labels.

        Raises
        ------
        ValueError
            If a shape is wrong.
        """
        expected = {
            "p_range": (targets, sources, 2),
            "N_range": (targets, 2),
            "D_range": (targets, 2),
            "runs": (targets, sources),
            "mixtures": (targets, sources),
            "untrained": (targets,),
        }
        for name, shape in expected.items():
            found = getattr(self, name)
            if found.size != np.prod(shape):
                raise ValueError(f"{name} has shape {found.shape}, the languages say {shape}")
            if found.shape != shape:  # JSON keeps no shape of an array without entries
                object.__setattr__(self, name, found.reshape(shape))

    def beyond_budgets(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Factors (R, K) by which N and D lie outside of each target's range; 1 inside of it."""
        return _factors(N, self.N_range), _factors(D, self.D_range)

    def beyond_ratios(self, p: FloatArray) -> FloatArray:
        """Distances (R, K, M) of ratios from each target's range; 0 inside of it."""
        low, high = self.p_range[..., 0], self.p_range[..., 1]
        off = np.maximum(low - p[:, None, :], p[:, None, :] - high)
        return np.where(off > RATIO_SLACK, off, 0.0)

    def outside(self, p: FloatArray, N: FloatArray, D: FloatArray) -> BoolArray:
        """Whether points (R, M) at N and D (R,) lie outside of what each target's fit used, (R, K)."""
        sizes, tokens = self.beyond_budgets(N, D)
        return (sizes > 1) | (tokens > 1) | (self.beyond_ratios(p) > 0).any(axis=2)


def _factors(values: FloatArray, fitted: FloatArray) -> FloatArray:
    factor = np.maximum(values[:, None] / fitted[:, 1], fitted[:, 0] / values[:, None])
    return np.where(factor > BUDGET_SLACK, factor, 1.0)


def coverage_of(evidence: Evidence, untrained: FloatArray) -> Coverage:
    """What the losses that have a weight cover; every target has at least one.

    Parameters
    ----------
    untrained : (K,) as in `Coverage`.
    """
    return Coverage(**evidence.used()._asdict(), untrained=untrained)
