"""Stretches of a run, by which its calibrated values spread.

A calibrated column is made of shares in what all sources gave to a target. Shares drift along a run, and another seed
weighs its stretches otherwise, which differences of one evaluation to the next do not show: across seeds values spread
several times as far. Between a few stretches of one run shares differ about as much as between runs, so that they stand
for both: for stretches b of weight w_b in a column (sum 1), whose shares are s_b and s in the mean, the variance of s
is `sum_b (w_b (s_b - s) / (1 - w_b))^2` (the jackknife's, HC3 of MacKinnon and White 1985: a heavy stretch makes the
mean its own), times Student's factor squared for so few of them. Stretches are of equal weight, not of equal length:
most of a column comes from a few early evaluations, which would else be one stretch that outweighs all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Array = NDArray[np.float64]
MANY = 16  # stretches that are kept
USED = 8  # stretches that a standard error is made of
HEAVY = 0.9  # the weight of a stretch that is reckoned with at most


class BlocksDocument(TypedDict):
    """`Blocks` as JSON."""

    sums: list[list[list[float]]]


@dataclass
class Blocks:
    """Sums of contributions (K, K) over stretches of the run; the lightest neighbours are joined as they grow.

    Attributes
    ----------
    sums : list of array (K, K)
        In the order of the run.
    """

    sums: list[Array] = field(default_factory=list)

    def add(self, contribution: Array) -> None:
        """Book an evaluation."""
        self.sums.append(contribution.copy())
        if len(self.sums) > MANY:
            weights = weight(np.array(self.sums))
            at = int(np.argmin(weights[1:] + weights[:-1]))
            self.sums[at : at + 2] = [self.sums[at] + self.sums[at + 1]]

    def stderr(self, correction: Array) -> Array | None:
        """Standard errors (K, K) of values whose columns are scaled to known sums; None before two evaluations.

        Parameters
        ----------
        correction : array (K, K)
            What contributions are multiplied with.
        """
        if len(self.sums) < 2:
            return None
        parts = joined(np.array(self.sums) * correction)
        columns = parts.sum(1, keepdims=True)
        total = columns.sum(0, keepdims=True)
        shares = np.divide(parts.sum(0), total, out=np.zeros_like(parts[:1]), where=total != 0)
        sizes = np.abs(columns)
        weights = np.divide(sizes, sizes.sum(0), out=np.zeros_like(sizes), where=sizes.sum(0) != 0)
        squares = ((parts - shares * columns) / (1 - np.minimum(weights, HEAVY))) ** 2
        return student(len(parts)) * np.sqrt(squares.sum(0))

    def to_document(self) -> BlocksDocument:
        """JSON-ready; floats read back exactly."""
        return {"sums": [each.tolist() for each in self.sums]}


def weight(parts: Array) -> Array:
    """What each part (n, K, K) is of a column, in the mean over columns, (n,)."""
    sizes = np.abs(parts.sum(1))
    return np.divide(sizes, sizes.sum(0), out=np.zeros_like(sizes), where=sizes.sum(0) != 0).mean(1)


def joined(parts: Array) -> Array:
    """At most `USED` stretches of about equal weight."""
    weights = weight(parts)
    middle = np.cumsum(weights) - weights / 2
    number = np.minimum((middle * USED).astype(np.intp), USED - 1)
    return np.array([parts[number == each].sum(0) for each in np.unique(number)])


def student(stretches: int) -> float:
    """The 95% quantile of Student's t with one degree of freedom less than stretches, over the normal one."""
    return float(stdtrit(stretches - 1, 0.95) / ndtri(0.95))
