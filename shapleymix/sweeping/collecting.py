"""The results of a plan as one run log, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.display import Shown
from shapleymix.errors import DataError, Location, ShapleyMixError
from shapleymix.records import FloatArray, IntArray
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.results import Failure, RunResult, failure_of, result_of
from shapleymix.tables.runs import UNTRAINED, RunLog

FINISHED, FAILED, OPEN = "finished", "failed", "open"
"""A run whose result is there; one that was started and did not finish; one of which nothing is known."""


@dataclass(frozen=True)
class State(Shown):
    """How far a plan is.

    Attributes
    ----------
    plan : Plan
        The runs.
    status : tuple of str (R,)
        Of each run: `"finished"`, `"failed"` or `"open"`.
    failures : dict of int to Failure
        Of failed runs by their index.
    strange : int
        Folders of runs that are none of the plan's.
    broken : dict of int to str
        Of runs whose result is broken or another run's, by their index: what is wrong; they count as open.
    """

    plan: Plan
    status: tuple[str, ...]
    failures: dict[int, Failure]
    strange: int
    broken: dict[int, str]

    def where(self, *status: str) -> list[int]:
        """Indices of the runs of a status."""
        return [place for place, one in enumerate(self.status) if one in status]

    def count(self, status: str) -> int:
        """How many runs have it."""
        return self.status.count(status)


@dataclass(frozen=True)
class Collected(Shown):
    """The log of the finished runs, and how far the plan is."""

    log: RunLog
    state: State
    notices: tuple[str, ...]


def state_of(plan: Plan, layout: Layout) -> State:
    """How far a plan is, by the files in its folder."""
    return _read(plan, layout)[0]


def _read(plan: Plan, layout: Layout) -> tuple[State, dict[int, RunResult]]:
    """How far a plan is, and the results of its finished runs by their index."""
    there = layout.there()
    results: dict[int, RunResult] = {}
    failures: dict[int, Failure] = {}
    broken: dict[int, str] = {}
    for place, run in enumerate(plan.runs):
        files = layout.place(run.id)
        if run.id not in there:
            continue
        if files.result.exists():
            try:
                results[place] = result_of(run, files.result)
            except ShapleyMixError as error:
                broken[place] = error.message
        elif failure := failure_of(files):
            failures[place] = failure
    status = (FINISHED if one in results else FAILED if one in failures else OPEN for one in range(len(plan)))
    strange = len(there - {run.id for run in plan.runs})
    return State(plan, tuple(status), failures, strange, broken), results


def collect(plan: Plan, layout: Layout) -> Collected:
    """One run log of all finished runs of a plan, in its order, each called by its name and its id.

    An untrained model that several runs measured alike (N, seed and losses) is there once. A result that is broken, or
    another run's, is left out and told.

    Raises
    ------
    DataError
        If no run is finished.
    """
    state, results = _read(plan, layout)
    if not results:
        hint = "train them with `shapleymix launch`, or `shapleymix run`"
        raise DataError(f"none of {len(plan)} runs is finished", location=Location(str(layout.root)), hint=hint)
    return Collected(_joined(plan, results), state, tuple(_said(plan, state, results)))


def _joined(plan: Plan, results: dict[int, RunResult]) -> RunLog:
    targets = _targets(plan, list(results.values()))
    found = [(plan.runs[place], one) for place, one in results.items()]
    trained = np.concatenate([one.D > 0 for _, one in found])
    ids = tuple(run.label for run, one in found for _ in range(len(one.D)))
    names = (run if known else f"{run}-{UNTRAINED}" for run, known in zip(ids, trained.tolist(), strict=True))
    unique = np.concatenate([one.unique for _, one in found])
    log = RunLog(
        runs=tuple(names),
        N=np.concatenate([one.N for _, one in found]),
        D=np.concatenate([one.D for _, one in found]),
        p=np.concatenate([one.p for _, one in found]),
        loss=np.concatenate([_losses(one, targets) for _, one in found]),
        sources=plan.sources,
        targets=targets,
        seed=tuple(str(run.seed) for run, one in found for _ in range(len(one.D))),
        unique=unique if np.isfinite(unique).any() else None,
    )
    return log.select(_once(log))


def _targets(plan: Plan, results: Sequence[RunResult]) -> tuple[str, ...]:
    """Every target of any run: the sources first, in the plan's order."""
    seen = dict.fromkeys(name for one in results for name in one.targets)
    return (*(name for name in plan.sources if name in seen), *(name for name in seen if name not in plan.sources))


def _losses(result: RunResult, targets: tuple[str, ...]) -> FloatArray:
    found = np.full((len(result.D), len(targets)), np.nan)
    found[:, [targets.index(name) for name in result.targets]] = result.loss
    return found


def _once(log: RunLog) -> IntArray:
    """Rows to keep: of untrained models with the same N, seed and losses the first."""
    seeds = log.seed or ("",) * len(log)
    seen: set[tuple[float, str, bytes]] = set()
    kept = []
    for row, trained in enumerate(log.trained.tolist()):
        key = (float(log.N[row]), seeds[row], log.loss[row].tobytes())
        if trained or key not in seen:
            kept.append(row)
        if not trained:
            seen.add(key)
    return np.array(kept, dtype=np.int64)


def _said(plan: Plan, state: State, results: dict[int, RunResult]) -> Iterator[str]:
    """What is missing, what is not as planned, and what was left out."""
    missing = len(plan) - len(results)
    if missing:
        failed = state.count(FAILED)
        listed = ", ".join(str(place) for place in state.where(OPEN, FAILED)[:10])
        more = ", ..." if missing > 10 else ""
        yield f"{missing} of {len(plan)} runs are missing, {failed} of which failed: index {listed}{more}"
    for said, runs in Counter(text for one in results.values() for text in one.notices).items():
        yield f"{runs} of {len(results)} runs: {said}"
    for place, wrong in state.broken.items():
        yield f"the result of run {place} {wrong}: it is left out; launch the plan again, which mends it"
    if state.strange:
        are = "folder is" if state.strange == 1 else "folders are"
        yield f"{state.strange} {are} of no run of this plan (it was written anew?), and left out"
