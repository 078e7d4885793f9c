"""What one mixture gains over another, paired over the replicates of a fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.terms import Terms
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray, Record


@dataclass(frozen=True)
class Gain:
    """Loss of one mixture less that of a better one, nats, with its interval over replicates.

    `probability` is the share of replicates in which it is above 0. All but `value` are NaN without replicates.
    """

    value: float
    low: float
    high: float
    probability: float


@dataclass(frozen=True)
class Rival(Record):
    """A baseline mixture at the same budget.

    `objective` is its mean or worst loss, and `penalty` what kl KL(p || anchor) adds to it. `gain` is its loss less the
    optimum's (nats, positive = the optimum is better), with an interval over the bootstrap replicates; `probability`
    the share of replicates in which the optimum is better. NaN without replicates, and where `reason` says why there
    is no number. `within_bounds` says whether it obeys every bound of the problem.
    """

    kind = "rival"

    name: str
    p: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float
    within_bounds: bool
    penalty: float = 0.0
    reason: str = ""


def gain(problem: Problem, better: FloatArray, other: FloatArray, replicates: Terms | None, level: float) -> Gain:
    """What mixture `better` (M,) saves of the mean or worst loss of `other` (M,): both under the same replicate."""
    value = float(problem.value(other)) - float(problem.value(better))
    if replicates is None:
        return Gain(value, np.nan, np.nan, np.nan)
    with np.errstate(invalid="ignore"):
        spread = problem.value(other, replicates) - problem.value(better, replicates)
    low, high = interval(spread[:, None], level, 1)
    return Gain(value, float(low[0]), float(high[0]), float(np.mean(spread > 0)))


def interval(values: FloatArray | None, level: float, width: int) -> FloatArray:
    """(2, width) quantiles over replicates, NaN without; nearest ranks, so that infinities do no harm."""
    if values is None:
        return np.full((2, width), np.nan)
    return np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0, method="nearest")
