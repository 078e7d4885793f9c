"""The results of plans as one run log, and what is missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.display import Shown
from shapleymix.errors import DataError, Location
from shapleymix.records import FloatArray, IntArray
from shapleymix.sweeping.plans import Plan, PlannedRun
from shapleymix.sweeping.results import RunResult
from shapleymix.sweeping.states import FAILED, State, Sweep, read_states
from shapleymix.tables.names import align
from shapleymix.tables.runs import UNTRAINED, RunLog

Found = tuple[PlannedRun, RunResult]


@dataclass(frozen=True)
class Collected(Shown):
    """The log of the finished runs, how far each plan is, and how many runs are finished nowhere."""

    log: RunLog
    states: tuple[State, ...]
    missing: int
    notices: tuple[str, ...]


def collect(sweeps: Sequence[Sweep]) -> Collected:
    """One run log of all finished runs of plans with their folders, in their order, each called by its name and its id.

    A run that several plans have is there once, and so is one whose command alone differs from another's and that came
    out alike, and an untrained model that several runs measured alike (N, seed and losses). A result that is broken, or
    another run's, is left out and told.

    Raises
    ------
    DataError
        If no run is finished, or the plans are of different languages.
    """
    plans = [plan for plan, _ in sweeps]
    _check_sources(plans)
    read = read_states(sweeps)
    found = [(state.plan.runs[place], result) for state, results in read for place, result in results.items()]
    if not found:
        hint = _where_else(sum(state.strange for state, _ in read))
        place = Location(", ".join(dict.fromkeys(str(layout.root) for _, layout in sweeps)))
        planned = len({run.id for plan in plans for run in plan.runs})
        raise DataError(f"none of {planned} runs is finished", location=place, hint=hint)
    kept, notices = _each_once(found)
    known = {run.id for run, _ in found}
    for state, results in read:
        name = f"{os.path.basename(state.plan.file)}: " if len(read) > 1 else ""
        notices += [f"{name}{said}" for said in _said(state, results, known)]
    missing = {run.id for plan in plans for run in plan.runs} - known
    log = _joined(plans[0].sources, kept)
    return Collected(log, tuple(state for state, _ in read), len(missing), tuple(notices))


def _where_else(strange: int) -> str:
    """What to do where nothing is finished."""
    hint = "train them with `shapleymix launch`, or `shapleymix run`"
    return f"{strange} folders there are of other runs: was the plan written anew? else {hint}" if strange else hint


def _check_sources(plans: Sequence[Plan]) -> None:
    for plan in plans[1:]:
        if set(plan.sources) != set(plans[0].sources):
            message = f"has the sources {', '.join(plan.sources)}; {plans[0].file} has {', '.join(plans[0].sources)}"
            raise DataError(message, location=Location(plan.file), hint="collect plans of other languages apart")


def _each_once(found: Sequence[Found]) -> tuple[list[Found], list[str]]:
    """The runs, each once, and what was left out."""
    ids: set[str] = set()
    models: set[tuple[object, ...]] = set()
    kept: list[Found] = []
    again = alike = 0
    for run, result in found:
        model = _model(run, result)
        if run.id in ids:
            again += 1
        elif model in models:
            alike += 1
        else:
            kept.append((run, result))
        ids.add(run.id)
        models.add(model)
    told = [f"{again} runs are in several plans, and are there once"] if again else []
    told += [f"{alike} runs are others again (mixture, N, D, seed and losses), and are there once"] if alike else []
    return kept, told


def _model(run: PlannedRun, result: RunResult) -> tuple[object, ...]:
    """What two runs have alike that are one model, trained by commands that differ in what changes nothing."""
    order = sorted(range(len(result.targets)), key=lambda column: result.targets[column])
    rows = result.D > 0
    losses = result.loss[rows][:, order]
    targets = tuple(result.targets[column] for column in order)
    mixture = tuple(sorted((name, ratio) for name, ratio in run.mixture.items() if ratio > 0))
    return mixture, run.seed, result.N[rows].tobytes(), result.D[rows].tobytes(), targets, losses.tobytes()


def _joined(sources: tuple[str, ...], found: Sequence[Found]) -> RunLog:
    targets = _targets(sources, [one for _, one in found])
    trained = np.concatenate([one.D > 0 for _, one in found])
    ids = tuple(run.label for run, one in found for _ in range(len(one.D)))
    names = (run if known else f"{run}-{UNTRAINED}" for run, known in zip(ids, trained.tolist(), strict=True))
    unique = np.concatenate([_in_order(one, one.unique, sources) for _, one in found])
    log = RunLog(
        runs=tuple(names),
        N=np.concatenate([one.N for _, one in found]),
        D=np.concatenate([one.D for _, one in found]),
        p=np.concatenate([_in_order(one, one.p, sources) for _, one in found]),
        loss=np.concatenate([_losses(one, targets) for _, one in found]),
        sources=sources,
        targets=targets,
        seed=tuple(str(run.seed) for run, one in found for _ in range(len(one.D))),
        unique=unique if np.isfinite(unique).any() else None,
    )
    return log.select(_once(log))


def _in_order(result: RunResult, values: FloatArray, sources: tuple[str, ...]) -> FloatArray:
    """Columns (R, M) of a result in the order of the log's sources."""
    if result.sources == sources:
        return values
    return values[:, align(result.sources, to=sources, what="sources", exact=True, origin=result.id)]


def _targets(sources: tuple[str, ...], results: Sequence[RunResult]) -> tuple[str, ...]:
    """Every target of any run: the sources first, in their order."""
    seen = dict.fromkeys(name for one in results for name in one.targets)
    return (*(name for name in sources if name in seen), *(name for name in seen if name not in sources))


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


def _said(state: State, results: dict[int, RunResult], known: set[str]) -> Iterator[str]:
    """What is missing of a plan, not as planned, or left out; `known` are the ids of finished runs."""
    plan = state.plan
    missing = [place for place, run in enumerate(plan.runs) if run.id not in known]
    if missing:
        failed = sum(state.status[place] == FAILED for place in missing)
        listed = ", ".join(map(str, missing[:10]))
        more = ", ..." if len(missing) > 10 else ""
        yield f"{len(missing)} of {len(plan)} runs are missing, {failed} of which failed: index {listed}{more}"
    for said, runs in Counter(text for one in results.values() for text in one.notices).items():
        yield f"{runs} of {len(results)} runs: {said}"
    for place, wrong in state.broken.items():
        yield f"the result of run {place} {wrong}: it is left out; launch the plan again, which mends it"
    if state.strange:
        are = "folder is" if state.strange == 1 else "folders are"
        yield f"{state.strange} {are} of no run of this plan (it was written anew?), and left out"
