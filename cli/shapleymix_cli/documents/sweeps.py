"""Plans of runs, and how far they are, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.sweeping.layout import Layout
    from shapleymix.sweeping.plans import Plan
    from shapleymix.sweeping.states import State
    from shapleymix_cli.sweeps.claims import Holder
    from shapleymix_cli.sweeps.pool import Sweep

    Told = tuple[State, Layout, Mapping[int, Holder]]
    """How far a plan is, its folder, and who trains its runs."""


def plan_document(plan: Plan) -> dict[str, Json]:
    """`runs[]` as `runs.jsonl` has them."""
    runs = [run.to_document(place, len(plan)) for place, run in enumerate(plan.runs)]
    return {"kind": "plan", "sources": list(plan.sources), "runs": runs, "notices": list(plan.notices)}


def states_document(states: Sequence[Told]) -> dict[str, Json]:
    """`runs[]` with plan, index, id, name and status; failed ones with their reason, those that train with by whom."""
    runs = [run for state, _, holders in states for run in _runs(state, holders)]
    return {"kind": "sweep-state", "runs": runs, "of_no_run": sum(state.strange for state, _, _ in states)}


def _runs(state: State, holders: Mapping[int, Holder]) -> Iterator[dict[str, Json]]:
    for place, (run, status) in enumerate(zip(state.plan.runs, state.status, strict=True)):
        failure = state.failures.get(place)
        told: dict[str, Json] = {} if failure is None else {"attempts": failure.attempts, "reason": failure.reason}
        if holder := holders.get(place):
            told["held_by"] = {"host": holder.host, "pid": holder.pid, "since": holder.since}
        yield {"plan": state.plan.file, "index": place, "id": run.id, "name": run.name, "status": status, **told}


def launch_document(sweep: Sweep) -> dict[str, Json]:
    """How many runs there are, are finished, were trained now, and are left since none finished; `failed[]`."""
    failed = [
        {"index": place, "id": sweep.plan.runs[place].id, "name": sweep.plan.runs[place].name, "reason": reason}
        for place, reason in sorted((sweep.failing if sweep.hopeless else sweep.failed).items())
    ]
    counts = {"runs": len(sweep.plan), "finished": len(sweep.finished), "trained": sweep.trained}
    counts["given_up"] = sweep.untried if sweep.hopeless else 0
    return {"kind": "launch", **counts, "failed": failed}


def submission_document(plan: Plan, jobs: Sequence[str], waiting: Mapping[int, str]) -> dict[str, Json]:
    """The jobs that were submitted, and those that have runs already, by the runs' indices."""
    held = {str(index): job for index, job in waiting.items()}
    return {"kind": "launch", "runs": len(plan), "submitted": list(jobs), "waiting": held}
