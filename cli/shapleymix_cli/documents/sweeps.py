"""Plans of runs, and how far they are, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.sweeping.collecting import State
    from shapleymix.sweeping.plans import Plan
    from shapleymix_cli.sweeps.pool import Sweep


def plan_document(plan: Plan) -> dict[str, Json]:
    """`runs[]` as `runs.jsonl` has them."""
    runs = [run.to_document(place, len(plan)) for place, run in enumerate(plan.runs)]
    return {"kind": "plan", "sources": list(plan.sources), "runs": runs, "notices": list(plan.notices)}


def state_document(state: State) -> dict[str, Json]:
    """`runs[]` with index, id, name and status; failed ones with attempts and reason."""
    runs: list[dict[str, Json]] = []
    for place, (run, status) in enumerate(zip(state.plan.runs, state.status, strict=True)):
        failure = state.failures.get(place)
        told = {} if failure is None else {"attempts": failure.attempts, "reason": failure.reason}
        runs.append({"index": place, "id": run.id, "name": run.name, "status": status, **told})
    return {"kind": "sweep-state", "runs": runs, "of_no_run": state.strange}


def states_document(paths: Sequence[str], states: Sequence[State]) -> dict[str, Json]:
    """The state of a plan; of several `plans[]`, each with its file."""
    if len(states) == 1:
        return state_document(states[0])
    plans: list[Json] = [{"plan": path, **state_document(one)} for path, one in zip(paths, states, strict=True)]
    return {"kind": "sweep-states", "plans": plans}


def launch_document(sweep: Sweep) -> dict[str, Json]:
    """How many runs there are, are finished, were trained now; `failed[]` with index, id, name and reason."""
    failed = [
        {"index": place, "id": sweep.plan.runs[place].id, "name": sweep.plan.runs[place].name, "reason": reason}
        for place, reason in sorted(sweep.failed.items())
    ]
    counts = {"runs": len(sweep.plan), "finished": len(sweep.finished), "trained": sweep.trained}
    return {"kind": "launch", **counts, "failed": failed}
