"""How far a plan is, by the files in its folder: what is finished, what failed, what is open."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from shapleymix.display import Shown
from shapleymix.errors import ShapleyMixError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.results import Failure, RunResult, failure_of, result_of

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
        Folders of runs that are of no plan.
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


Sweep = tuple[Plan, Layout]


def state_of(plan: Plan, layout: Layout) -> State:
    """How far a plan is, by the files in its folder."""
    return states_of([(plan, layout)])[0]


def states_of(sweeps: Sequence[Sweep]) -> tuple[State, ...]:
    """How far each plan is."""
    return tuple(state for state, _ in read_states(sweeps))


def read_states(sweeps: Sequence[Sweep]) -> list[tuple[State, dict[int, RunResult]]]:
    """How far each plan is, and the results of its finished runs by their index.

    In a folder that plans share the runs of one are not strange to another.
    """
    return [
        _read(plan, layout, {run.id for other, place in sweeps if place == layout for run in other.runs})
        for plan, layout in sweeps
    ]


def _read(plan: Plan, layout: Layout, ids: Set[str]) -> tuple[State, dict[int, RunResult]]:
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
    strange = len(there - ids)
    return State(plan, tuple(status), failures, strange, broken), results
