"""Stretches of a run, by which its calibrated values spread.

A calibrated column is made of shares in what all sources gave to a target. Shares drift along a run, and another seed
weighs its stretches otherwise, which differences of one evaluation to the next do not show: across seeds values spread
several times as far. Between a few long stretches of one run shares differ about as much as between runs, so that
they stand for both: for stretches b of weight w_b in a column (sum 1), whose shares are s_b and s in the mean, the
variance of s is `sum_b (w_b (s_b - s) / (1 - w_b))^2` (the jackknife's, HC3 of MacKinnon and White 1985: a heavy
stretch makes the mean its own), times Student's factor squared for so few of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Array = NDArray[np.float64]
MANY = 10  # stretches at most; half of them are left when they are joined
HEAVY = 0.9  # the weight of a stretch that is reckoned with at most


class BlocksDocument(TypedDict):
    """`Blocks` as JSON."""

    length: int
    filled: int
    sums: list[list[list[float]]]


@dataclass
class Blocks:
    """Sums of contributions (K, K) over stretches of as many evaluations each; neighbours are joined as they grow.

    Attributes
    ----------
    sums : list of array (K, K)
        In the order of the run.
    length, filled : int
        Evaluations of a whole stretch, and of the last one.
    """

    sums: list[Array] = field(default_factory=list)
    length: int = 1
    filled: int = 0

    def add(self, contribution: Array) -> None:
        """Book an evaluation."""
        if self.filled < self.length and self.sums:
            self.sums[-1] = self.sums[-1] + contribution
            self.filled += 1
            return
        if len(self.sums) == MANY:
            self.sums = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
            self.length *= 2
        self.sums.append(contribution.copy())
        self.filled = 1

    def stderr(self, correction: Array) -> Array | None:
        """Standard errors (K, K) of values whose columns are scaled to known sums; None before two evaluations.

        Parameters
        ----------
        correction : array (K, K)
            What contributions are multiplied with.
        """
        if len(self.sums) < 2:
            return None
        parts = np.array(self.sums) * correction
        columns = parts.sum(1, keepdims=True)
        total = columns.sum(0, keepdims=True)
        shares = np.divide(parts.sum(0), total, out=np.zeros_like(parts[:1]), where=total != 0)
        sizes = np.abs(columns)
        weights = np.divide(sizes, sizes.sum(0), out=np.zeros_like(sizes), where=sizes.sum(0) != 0)
        squares = ((parts - shares * columns) / (1 - np.minimum(weights, HEAVY))) ** 2
        return student(len(parts)) * np.sqrt(squares.sum(0))

    def to_document(self) -> BlocksDocument:
        """JSON-ready; floats read back exactly."""
        return {"length": self.length, "filled": self.filled, "sums": [each.tolist() for each in self.sums]}

    @classmethod
    def from_document(cls, document: BlocksDocument) -> Blocks:
        """What `to_document` gave."""
        sums = [np.array(each, dtype=np.float64) for each in document["sums"]]
        return cls(sums, document["length"], document["filled"])


def student(stretches: int) -> float:
    """The 95% quantile of Student's t with one degree of freedom less than stretches, over the normal one."""
    return float(stdtrit(stretches - 1, 0.95) / ndtri(0.95))
