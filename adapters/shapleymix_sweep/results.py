"""What the runs of a plan have left, held to what was planned, and collected as one run log.

A run's program writes a run log, `runs.csv` or `runs.jsonl`, into its folder: `run, N, D, loss_<target>...`, a row for
each checkpoint, in which `p_<source>` may be left out, since the plan knows the mixture. A run is finished when that
log reaches the planned D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import shapleymix as sm
from shapleymix.errors import DataError, Location, ShapleyMixError
from shapleymix_sweep.plans import FAILED, OUT, Plan, PlannedRun

RESULTS = ("runs.csv", "runs.jsonl")
"""The names of the run log that a run's program writes into `{out}`."""

SHORT = 0.05
"""A run that ends more than this part before or after the planned D is not finished; batches round by less."""
ROUNDED = 5e-3
"""Largest difference between a planned ratio and the one in the run's log."""


@dataclass(frozen=True)
class State:
    """How far a plan is.

    Attributes
    ----------
    plan : Plan
        The runs.
    results : dict of int to RunLog
        The logs of the finished runs, by the index of the run.
    failures : dict of int to str
        Why others failed the last time that they were tried, by the index of the run.
    """

    plan: Plan
    results: dict[int, sm.RunLog]
    failures: dict[int, str]


def state_of(plan: Plan) -> State:
    """How far a plan is, by what its runs have left."""
    results: dict[int, sm.RunLog] = {}
    failures: dict[int, str] = {}
    for index, run in enumerate(plan.runs):
        place = plan.place(index)
        try:
            results[index] = result_of(run, place)
        except ShapleyMixError:
            if (place / FAILED).exists():
                failures[index] = (place / FAILED).read_text(encoding="utf-8")
    return State(plan, results, failures)


def result_of(run: PlannedRun, place: Path) -> sm.RunLog:
    """The run log that a finished run has left in its folder.

    Raises
    ------
    DataError
        If there is none, or it ends early, has no loss at its end, or is of a different mixture.
    """
    path = next((path for name in RESULTS if (path := place / OUT / name).is_file()), None)
    if path is None:
        hint = "the program of a run writes its losses there: run, N, D, loss_<target>..."
        raise DataError(f"left no {' or '.join(RESULTS)}", location=Location(str(place / OUT)), hint=hint)
    log = sm.read_runs(path)
    location = Location(str(path))
    last = int(np.argmax(log.D))
    if abs(log.D[last] / run.D - 1) > SHORT:
        raise DataError(f"ended at D = {log.D[last]:g}, the plan says {run.D:g}", location=location)
    if not log.measured[last].any():
        raise DataError("has no loss at its end", location=location)
    for name in (*log.sources, *run.mixture) if log.sources else ():
        found = log.p[log.trained, log.sources.index(name)] if name in log.sources else np.zeros(1)
        planned = run.mixture.get(name, 0.0)
        if np.abs(found - planned).max() > ROUNDED:
            raise DataError(f"trained on {found[-1]:.4g} of {name}, the plan says {planned:.4g}", location=location)
    return log


def is_finished(run: PlannedRun, place: Path) -> bool:
    """Whether the run log of a run is there, and reaches what was planned."""
    try:
        return len(result_of(run, place)) > 0
    except ShapleyMixError:
        return False


def collect(states: Sequence[State]) -> sm.RunLog:
    """One run log of the finished runs of plans, in their order.

    A run that several plans have is there once. So is a row that several runs have with the same N, D, mixture, seed
    and losses: the untrained model is the same for all runs of a size and seed.

    Raises
    ------
    DataError
        If no run is finished.
    """
    sources = tuple(dict.fromkeys(name for state in states for name in state.plan.sources))
    found: dict[str, tuple[PlannedRun, sm.RunLog]] = {}
    for state in states:
        for index, log in state.results.items():
            found.setdefault(state.plan.runs[index].id, (state.plan.runs[index], log))
    if not found:
        planned = sum(len(state.plan) for state in states)
        hint = "train them with `shapleymix launch`; where the plan was written anew, its ids may have changed"
        raise DataError(f"none of {planned} runs is finished", location=Location(states[0].plan.file), hint=hint)
    rows: dict[frozenset[tuple[str, object]], dict[str, object]] = {}
    for run, log in found.values():
        for row in _rows(run, log, sources):
            rows.setdefault(frozenset(cell for cell in row.items() if cell[0] != "run"), row)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return sm.read_runs({name: [row.get(name) for row in rows.values()] for name in names})


def _rows(run: PlannedRun, log: sm.RunLog, sources: Sequence[str]) -> Iterator[dict[str, object]]:
    """The rows of a run, under its name and with its seed; the plan's mixture where the log has none."""
    for row, trained in enumerate(log.trained.tolist()):
        p = dict(zip(log.sources, log.p[row].tolist(), strict=True)) or run.mixture
        losses = dict(zip(log.targets, log.loss[row].tolist(), strict=True))
        unique = {} if log.unique is None else dict(zip(log.sources, log.unique[row].tolist(), strict=True))
        yield {
            "run": run.label if trained else f"{run.label}-untrained",
            "N": float(log.N[row]),
            "D": float(log.D[row]),
            **{f"p_{name}": p.get(name, 0.0) if trained else 0.0 for name in sources},
            **{f"loss_{name}": loss for name, loss in losses.items() if loss == loss},
            **{f"tokens_unique_{name}": count for name, count in unique.items() if count == count},
            "seed": str(run.seed),
        }
