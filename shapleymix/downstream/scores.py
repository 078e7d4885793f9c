"""Scores of runs on tasks: `run,task,target,score[,D][,chance]`, and each beside the loss of its run.

Legend: S scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.display import short
from shapleymix.downstream.tasks import Task, task_of
from shapleymix.errors import DataError, Fault, UsageError, did_you_mean
from shapleymix.fields import SHARE
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.amounts import parse_number, parse_pairs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Sheet, Table, numbers, read_sheet, require, texts
from shapleymix.tables.sizes import format_size
from shapleymix.tables.spelling import near

COLUMNS = ("run", "task", "target", "score", "D", "chance")
SAME_TOKENS = 0.01
"""Of D: a score stands at the checkpoint that is no further from it than that."""
PER_CENT = 100.0
FEWEST = 3
"""Mixtures, or runs, below which two numbers can be fitted and nothing is known of their error."""


@dataclass(frozen=True)
class Scored:
    """One score: of which run, at which tokens (None: the run's last), on which task for which target."""

    run: str
    task: Task
    score: float
    D: float | None
    chance: float
    place: Fault


@dataclass(frozen=True)
class Points:
    """The scores of one task beside the losses of its target.

    Attributes
    ----------
    task : Task
        The task and its target.
    loss, score : array (S,)
        Losses, nats per token, and scores between 0 and 1.
    groups : int array (S,)
        Equal where two rows are held out together: those of one mixture, or of one run where mixtures are too few.
    chance : float
        The score of a guess; NaN where nobody says.
    """

    task: Task
    loss: FloatArray
    score: FloatArray
    groups: IntArray
    chance: float


def read_scores(
    table: Table, log: RunLog, meanings: Mapping[str, Task], *, percent: bool = False
) -> tuple[list[Scored], str]:
    """The scores in a table, and the hash of its bytes.

    Its columns are `run, task, score`, and `target` where the name of the task does not say it.

    Parameters
    ----------
    table : Table
        A file, a frame, or columns.
    log : RunLog
        The runs that were scored; its targets are those of the tasks.
    meanings : mapping of str to Task
        Names of tasks that do not say their target.
    percent : bool
        Whether scores are given from 0 to 100.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    sheet = read_sheet(table)
    faults = _header_faults(sheet)
    if faults:
        raise DataError.of(faults, sheet.origin)
    runs, names = (texts(sheet, column, faults) for column in ("run", "task"))
    score = _shares(sheet, "score", faults, percent)
    chance = _shares(sheet, "chance", faults, percent) if "chance" in sheet.columns else np.full(sheet.rows, np.nan)
    D = numbers(sheet, "D", faults, empty=True, sizes=True) if "D" in sheet.columns else np.full(sheet.rows, np.nan)
    tasks = _tasks(sheet, names, log, meanings, faults)
    found = [
        Scored(run, task, float(score[row]), None if np.isnan(D[row]) else float(D[row]), float(chance[row]), place)
        for row, (run, task) in enumerate(zip(runs, tasks, strict=True))
        for place in [sheet.fault(row, "score", "")]
        if task is not None
    ]
    faults += repeats(found)
    if faults:
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return found, sheet.digest


def repeats(found: Iterable[Scored]) -> list[Fault]:
    """A fault for every score that stands there twice."""
    first: dict[tuple[str, Task, float | None], Scored] = {}
    faults = []
    for one in found:
        earlier = first.setdefault((one.run, one.task, one.D), one)
        if earlier is not one:
            message = f"repeats the score of run {one.run!r} on {one.task.label}"
            faults.append(replace(one.place, message=message, hint="keep one row a run and task, or add a column D"))
    return faults


def _header_faults(sheet: Sheet) -> list[Fault]:
    missing = [name for name in ("run", "task", "score") if name not in sheet.columns]
    hint = "a row a run and task: run,task,target,score (several columns of scores: one row each)"
    return [sheet.header_fault(name, f"has no column {name!r}", hint) for name in missing]


def _shares(sheet: Sheet, column: str, faults: list[Fault], percent: bool) -> FloatArray:
    """A column of scores between 0 and 1."""
    values = numbers(sheet, column, faults, empty=column == "chance") / (PER_CENT if percent else 1.0)
    far = (values < SHARE[0]) | (values > SHARE[1])
    hint = "for scores from 0 to 100 give percent=True" if not percent else "leave out percent=True"
    require(sheet, column, values, far, "expected a score between 0 and 1", faults, hint)
    most = float(np.nanmax(PER_CENT * values, initial=0.0))
    if percent and 0 < most <= 1:
        message = f"is {most:g} at most, as where 1 is the best, and percent=True says that 100 is"
        hint = "leave out percent=True; of tasks that all runs fail so, divide the column by 100 yourself"
        faults.append(sheet.header_fault(column, message, hint))
    return values


def _tasks(
    sheet: Sheet, names: Sequence[str], log: RunLog, meanings: Mapping[str, Task], faults: list[Fault]
) -> list[Task | None]:
    """What each row's name means, or the target that its row names."""
    if "target" in sheet.columns:
        targets = texts(sheet, "target", faults)
        for row, target in enumerate(targets):
            if target and target not in log.targets:
                message = f"{target!r} is no target of the log"
                faults.append(sheet.fault(row, "target", message, near(target, log.targets)))
        return [Task(name, target) for name, target in zip(names, targets, strict=True)]
    found = [task_of(name, log.targets, meanings) for name in names]
    unknown = list(dict.fromkeys(name for name, task in zip(names, found, strict=True) if task is None and name))
    if unknown:
        hint = f"add a column target, or say task_language={unknown[0]}={log.targets[0]}"
        faults.append(sheet.header_fault("task", f"no target is known of {short(unknown)}", hint))
    return found


def points_of(
    scores: Sequence[Scored], log: RunLog, chances: Mapping[str, float]
) -> tuple[list[Points], tuple[str, ...]]:
    """The scores of every task beside the losses of its target, and what was left out.

    Raises
    ------
    DataError
        If a run is none of the log's, or it has no checkpoint at a score's tokens.
    """
    rows, faults = _rows(scores, log)
    if faults:
        raise DataError.of(faults, "the set of scores")
    places = {target: place for place, target in enumerate(log.targets)}
    by_task: dict[Task, list[int]] = {}
    for place, one in enumerate(scores):
        by_task.setdefault(one.task, []).append(place)
    found, lost = [], 0
    for task, members in sorted(by_task.items()):
        at = np.array([rows[place] for place in members], dtype=np.int64)
        loss = log.loss[at, places[task.target]]
        there = ~np.isnan(loss)
        lost += int((~there).sum())
        values = np.array([scores[place].score for place in members])
        chance = _chance(task, [scores[place].chance for place in members], chances)
        found.append(Points(task, loss[there], values[there], _groups(log, at[there]), chance))
    silent = len(set(log.runs) - {one.run for one in scores})
    notices = [f"{lost} scores are of runs without a loss for their target, and were left out"] if lost else []
    notices += [f"{silent} of {len(set(log.runs))} runs of the log have no scores"] if silent else []
    return found, tuple(notices)


def _groups(log: RunLog, rows: IntArray) -> IntArray:
    """What is held out together (S,): rows of one mixture; of fewer than `FEWEST` mixtures, rows of one run."""
    mixtures = log.groups[rows]
    if len(np.unique(mixtures)) >= FEWEST:
        return mixtures
    return np.unique([log.runs[row] for row in rows.tolist()], return_inverse=True)[1]


def _rows(scores: Sequence[Scored], log: RunLog) -> tuple[list[int], list[Fault]]:
    """The row of the log of every score, and what is wrong."""
    own: dict[str, list[int]] = {}
    for row, run in enumerate(log.runs):
        own.setdefault(run, []).append(row)
    found, faults = [], []
    for one in scores:
        known = own.get(one.run)
        if known is None:
            message = f"the log has no run {one.run!r}"
            faults.append(replace(one.place, message=message, hint=did_you_mean(one.run, own)))
            continue
        tokens = log.D[known]
        if one.D is None:
            found.append(known[int(np.argmax(tokens))])
            continue
        nearest = int(np.argmin(np.abs(tokens - one.D)))
        if abs(tokens[nearest] - one.D) > SAME_TOKENS * one.D:
            message = f"run {one.run!r} has no row at D = {format_size(one.D)}"
            hint = f"its nearest is at D = {format_size(float(tokens[nearest]))}"
            faults.append(replace(one.place, message=message, hint=hint))
        found.append(known[nearest])
    return found, faults


def chances_of(given: Mapping[str, float] | str | float | None) -> dict[str, float]:
    """Chance levels by task (`hellaswag=0.25`), by task and target (`xnli/de=0.33`), or one for all (`0.25`).

    Raises
    ------
    UsageError
        If one is no number between 0 and 1.
    """
    if given is None:
        return {}
    text = str(given) if isinstance(given, float | int) else given
    text = f"*={text}" if isinstance(text, str) and "=" not in text else text
    found = parse_pairs(text, parse_number, "chance level")
    odd = next((name for name, value in found.items() if not 0 <= value < 1), None)
    if odd is not None:
        share = f": write {found[odd] / PER_CENT:g}" if 1 <= found[odd] < PER_CENT else ""
        hint = f"it is a share of 1, where scores are from 0 to 100 as well{share}"
        raise UsageError(f"the chance level of {odd} is {found[odd]:g}, expected 0 or more and below 1", hint=hint)
    return found


def _chance(task: Task, told: Sequence[float], given: Mapping[str, float]) -> float:
    """The chance level of a task: as it was given, else what its rows say."""
    for name in (task.label, task.name, "*"):
        if name in given:
            return given[name]
    known = {value for value in told if not np.isnan(value)}
    if len(known) > 1:
        raise DataError(f"the rows of {task.label} have several chance levels: {sorted(known)}")
    return known.pop() if known else float("nan")
