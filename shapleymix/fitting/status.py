"""Whether there are runs enough for a law, and how its fit ended for each target: never swallowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import FitError, Location
from shapleymix.fitting.estimation import Estimate, Problem
from shapleymix.fitting.evidence import Evidence
from shapleymix.fitting.least_squares import CONVERGED
from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.tables.runs import RunLog


def require_runs(problem: Problem, evidence: Evidence, rows: BoolArray) -> None:
    """Refuse a law with more numbers per target than there are runs to tell them.

    Raises
    ------
    FitError
        Naming the law, the target, what is there and what is needed.
    """
    log = evidence.log
    _require_mixtures(problem, evidence, rows)
    if problem.packing.law.knobs:
        return  # what is believed tells the numbers that the runs do not
    which = settings_of(problem, log)
    needed = len(problem.packing.names)
    for index, target in enumerate(log.targets):
        use = rows & (problem.observed.weight[:, index] > 0)
        count = len(np.unique(which[use]))
        if count < needed:
            message = (
                f"law {problem.packing.law.name!r} fits {needed} numbers for target {target!r} "
                f"but has {count} different runs for it"
            )
            hint = "add runs, loosen the filters, or choose a law with fewer symbols"
            raise FitError(message, hint=hint, location=Location(file=log.origin, column=f"loss_{target}"))


def settings_of(problem: Problem, log: RunLog) -> IntArray:
    """A number (R,) for each mixture, N and D, and for what its repeated tokens are worth: one setting, one answer."""
    lost = np.round(log.p - problem.observed.p, 12)  # what differs by rounding alone is one
    return np.unique(np.column_stack([log.groups, log.N, log.D, lost]), axis=0, return_inverse=True)[1].ravel()


def _require_mixtures(problem: Problem, evidence: Evidence, rows: BoolArray) -> None:
    """One mixture tells nothing about mixtures."""
    if "mixture" not in problem.packing.law.needs:
        return
    keys = {key for key, use in zip(evidence.log.mixture_keys, rows, strict=True) if use}
    if len(keys) < 2:
        message = f"law {problem.packing.law.name!r} needs different mixtures; all {int(rows.sum())} runs have one"
        raise FitError(message, hint="add runs of other mixtures, or fit 'chinchilla'")


ILL_CONDITIONED = 1e12


@dataclass(frozen=True)
class TargetStatus(Record):
    """`state` is converged, at-bound, ill-conditioned or not-converged; `advice` says what to do."""

    kind = "fit/status"

    target: str
    state: str
    advice: str


def statuses(problem: Problem, estimate: Estimate) -> tuple[TargetStatus, ...]:
    """The standing of the first weighting's fit, target by target."""
    condition = problem.condition(estimate.x[0])
    names = np.array(problem.packing.names)
    low, high = problem.packing.bounds()
    owners = problem.packing.owners
    meaningful = np.array([known.positive and known.high == 1.0 for known in owners], dtype=bool)  # the linear law
    stuck = estimate.at_bound[0] & ~(meaningful & (estimate.x[0] >= high))
    vanished = stuck & (estimate.x[0] <= low) & np.array([known.vanishes for known in owners], dtype=bool)
    told = stuck & ~vanished & np.array([known.role != "coefficients" for known in owners], dtype=bool)
    return tuple(
        _status(target, estimate.status[0, j], names[vanished[j]], names[told[j]], condition[j])
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


def _status(target: str, code: int, vanished: FloatArray, stuck: FloatArray, condition: float) -> TargetStatus:
    if code != CONVERGED:
        return TargetStatus(target, "not-converged", "the search stopped early: look at this target's held-out error")
    gone, bound = _unique(vanished), _unique(stuck)
    advice = (
        [f"{', '.join(gone)} fell to zero: at these budgets it cannot be separated from the other terms"]
        if gone
        else []
    )
    advice += [f"{', '.join(bound)} ended at a bound: trust the predictions, not this number"] if bound else []
    if gone or bound:
        return TargetStatus(target, "at-bound", "; ".join(advice))
    if condition > ILL_CONDITIONED:
        sound = "some symbols trade off against each other: trust predictions within range, not single symbols"
        return TargetStatus(target, "ill-conditioned", sound)
    return TargetStatus(target, "converged", "")


def _unique(names: FloatArray) -> list[str]:
    return list(dict.fromkeys(names.tolist()))


def _instead(name: str, public: set[str], law: type[Law]) -> str:
    """What stands for a symbol that a log of one N or D cannot tell."""
    if name in public:
        return "taken from public runs"
    return "held at 0, drawn in replicates" if issubclass(law, CoreLaw) else "dropped"
