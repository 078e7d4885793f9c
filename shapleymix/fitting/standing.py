"""How a fit ended for each target, with advice: a status is a value, never swallowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.estimation import Estimate, Problem
from shapleymix.fitting.evidence import Evidence
from shapleymix.fitting.identification import untold
from shapleymix.fitting.least_squares import CONVERGED
from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw
from shapleymix.records import FloatArray, Record

ILL_CONDITIONED = 1e12


@dataclass(frozen=True)
class TargetStatus(Record):
    """`state` is converged, unidentified, at-bound, ill-conditioned or not-converged; `advice` says what to do."""

    kind = "fit/status"

    target: str
    state: str
    advice: str


def statuses(problem: Problem, estimate: Estimate) -> tuple[TargetStatus, ...]:
    """The standing of the first weighting's fit, target by target."""
    condition, sliding = problem.condition(estimate.x[0]), untold(problem, estimate.x[0])
    names = np.array(problem.packing.names)
    low, high = problem.packing.bounds()
    owners = problem.packing.owners
    meaningful = np.array([known.positive and known.high == 1.0 for known in owners], dtype=bool)  # the linear law
    stuck = estimate.at_bound[0] & ~(meaningful & (estimate.x[0] >= high))
    vanished = stuck & (estimate.x[0] <= low) & np.array([known.vanishes for known in owners], dtype=bool)
    told = stuck & ~vanished & np.array([known.role != "coefficients" for known in owners], dtype=bool)
    return tuple(
        _status(target, estimate.status[0, j], names[vanished[j]], names[told[j]], sliding[j], condition[j])
        for j, target in enumerate(problem.inputs.targets)
    )


def reasons(law: type[Law], held: dict[str, float], evidence: Evidence) -> dict[str, str]:
    """Why each held symbol was not fitted."""
    values = {"N": np.unique(evidence.log.N), "D": np.unique(evidence.log.D)}
    public = {known.name for known in CoreLaw.fitted()} if issubclass(law, CoreLaw) else set()
    why = {}
    for name, value in held.items():
        budget = next(known.budget for known in law.fitted() if known.name == name) or "D"
        if value == 0.0:
            why[name] = f"the log holds one {budget} ({values[budget][0]:g}): {_instead(name, public, law)}"
        else:
            why[name] = f"the log holds two {budget}: held at {value:g}"
    return why


def _status(
    target: str, code: int, vanished: FloatArray, stuck: FloatArray, sliding: tuple[str, ...], condition: float
) -> TargetStatus:
    if code != CONVERGED:
        return TargetStatus(target, "not-converged", "the search stopped early: look at this target's held-out error")
    gone, bound = _unique(vanished), _unique(stuck)
    advice = [f"{', '.join(gone)} fell to zero: these budgets do not tell it from the other terms"] if gone else []
    advice += [f"{', '.join(bound)} ended at a bound: trust predictions, not the symbol"] if bound else []
    if sliding:
        free = f"{', '.join(sliding)} can move and fit these runs as well: add runs, above all of other sizes"
        return TargetStatus(target, "unidentified", "; ".join([free, *advice]))
    if gone or bound:
        return TargetStatus(target, "at-bound", "; ".join(advice))
    if condition > ILL_CONDITIONED:
        sound = "some symbols trade off freely: predictions in range are sound, single symbols are not"
        return TargetStatus(target, "ill-conditioned", sound)
    return TargetStatus(target, "converged", "")


def _unique(names: FloatArray) -> list[str]:
    return list(dict.fromkeys(names.tolist()))


def _instead(name: str, public: set[str], law: type[Law]) -> str:
    """What stands for a symbol that a log of one N or D cannot tell."""
    if name in public:
        return "taken from public runs"
    return "held at 0, drawn in replicates" if issubclass(law, CoreLaw) else "dropped"
