"""Whether there are runs enough for the numbers that a law fits."""

from __future__ import annotations

import numpy as np

from shapleymix.errors import FitError, Location
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.evidence import Evidence
from shapleymix.records import BoolArray, IntArray
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
