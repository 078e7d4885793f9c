"""How a fit ended for each target, with advice: a status is a value, never swallowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.estimation import Estimate, Problem
from shapleymix.fitting.least_squares import CONVERGED
from shapleymix.records import FloatArray, Record

ILL_CONDITIONED = 1e12


@dataclass(frozen=True)
class TargetStatus(Record):
    """`state` is converged, at-bound, ill-conditioned or not-converged; `advice` says what to do about it."""

    kind = "fit/status"

    target: str
    state: str
    advice: str


def statuses(problem: Problem, estimate: Estimate) -> tuple[TargetStatus, ...]:
    """The standing of the first weighting's fit, target by target."""
    condition = problem.condition(estimate.x[0])
    names = np.array(problem.packing.names)
    return tuple(
        _status(target, estimate.status[0, j], names[estimate.at_bound[0, j]], condition[j])
        for j, target in enumerate(problem.inputs.targets)
    )


def _status(target: str, code: int, at_bound: FloatArray, condition: float) -> TargetStatus:
    if code != CONVERGED:
        return TargetStatus(target, "not-converged", "the search stopped early: look at this target's held-out error")
    bound = [name for name in dict.fromkeys(at_bound.tolist()) if name != "coefficients"]
    if bound:
        advice = f"{', '.join(bound)} ended at a bound: the data put no value on it; use predictions, not the symbol"
        return TargetStatus(target, "at-bound", advice)
    if condition > ILL_CONDITIONED:
        advice = "some symbols trade off freely: predictions in range are sound, single symbols are not"
        return TargetStatus(target, "ill-conditioned", advice)
    return TargetStatus(target, "converged", "")
