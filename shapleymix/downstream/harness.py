"""The folders that lm-eval writes (`results_<date>.json`), as scores of the runs of a log.

Nothing is guessed: a file is of the run whose id stands, whole, in the path of the file or in the name of the model
(`pretrained=checkpoints/run-07`), or where a pattern says; a task is for the language that its name ends in, or that
somebody says. Where a task was evaluated twice, the later evaluation counts, if both showed as many examples.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from shapleymix.display import short
from shapleymix.downstream.scores import Scored
from shapleymix.downstream.tasks import Task, task_of, unplaced
from shapleymix.errors import DataError, Fault, Location, StoreError, UsageError
from shapleymix.files import parse_json, read_once
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sizes import parse_size

NAMES = "results_*.json"
_PARTS = re.compile(r"[/\\]|__")
_WILD = {"*": ".*", "{run}": r"(?P<run>[^/]+?)", "{D}": r"(?P<D>[0-9.]+(?:e[+-]?[0-9]+)?[kKMBT]?)"}


@dataclass(frozen=True)
class _Found:
    """One task in one file: its number, with how many examples, when, and of which part of the task."""

    scored: Scored
    shots: int | None
    date: float
    limit: object


@dataclass(frozen=True)
class _File:
    """A file of results: where, the names in which a run's id may stand, and its content."""

    path: str
    names: tuple[str, ...]
    content: Mapping[str, object]

    def fault(self, message: str, hint: str | None = None) -> Fault:
        return Fault(message, Location(file=self.path), hint=hint)


def is_harness(given: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether scores are the folder, or a file, of lm-eval."""
    if not isinstance(given, (str, os.PathLike)):
        return False
    return os.path.isdir(given) or os.fspath(given).lower().endswith(".json")


def read_harness(
    place: str | os.PathLike[str],
    log: RunLog,
    meanings: Mapping[str, Task],
    metric: str,
    shots: int | None,
    pattern: str | None,
) -> tuple[list[Scored], tuple[str, ...], str]:
    """Scores of the runs of a log, what was left out, and the hash of all files.

    Parameters
    ----------
    place : str or path
        A folder, with folders in it, or one file.
    metric : str
        The number of each task: `acc`, `acc_norm`, or with its filter `exact_match,strict-match`.
    shots : int, optional
        Only evaluations with so many examples.
    pattern : str, optional
        Where the run's id stands, such as `checkpoints/{run}/step*` or `{run}-{D}`: the whole name of the model, or
        the whole path of the file within the folder.

    Raises
    ------
    DataError
        With every fault of every file.
    """
    files, digest = _files(place)
    faults: list[Fault] = []
    found, strange, lacking = [], dict[str, None](), dict[str, None]()
    for one in files:
        run, D = _run_of(one, log, pattern, faults)
        for name, numbers in _tasks_of(one, meanings):
            task = task_of(name, log.targets, meanings)
            if task is None:
                strange[name] = None
            elif (value := _number(one, name, numbers, metric, faults)) is None:
                lacking[name] = None
            elif run is not None:
                found.append(_found(one, name, Scored(run, task, value, D, float("nan"), one.fault(""))))
    if faults:
        raise DataError.of(faults, os.fspath(place))
    if not found:
        if lacking:
            raise DataError(f"no task has the metric {metric!r}", hint="name another: metric='acc_norm'")
        raise DataError.of([replace(unplaced(list(strange)), location=Location(file=os.fspath(place)))])
    kept = [one for one in found if shots is None or one.shots == shots]
    notices = _notices(kept, list(strange), list(lacking), metric)
    return _latest(kept, shots, os.fspath(place)), notices, digest


def _files(place: str | os.PathLike[str]) -> tuple[list[_File], str]:
    """Every file of results, in the order of their paths, and the hash of their hashes."""
    root = Path(place)
    paths = sorted(root.rglob(NAMES)) if root.is_dir() else [root]
    if not paths:
        hint = "give the --output_path of lm-eval, or a table run,task,target,score"
        raise DataError(f"holds no {NAMES}", location=Location(file=os.fspath(place)), hint=hint)
    files, hashes = [], []
    for path in paths:
        try:
            data, origin = read_once(path)
            content = parse_json(data, str(path))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", location=Location(file=str(path))) from error
        except StoreError as error:
            raise DataError(error.message, location=error.location, hint="lm-eval writes it anew") from error
        hashes.append(origin.sha256)
        if not isinstance(content, Mapping) or not isinstance(content.get("results"), Mapping):
            hint = "lm-eval's results have a key 'results'; a table of scores ends in .csv, .parquet or .jsonl"
            raise DataError("is no file of lm-eval's results", location=Location(file=str(path)), hint=hint)
        within = str(path.relative_to(root)) if root.is_dir() else path.name
        files.append(_File(str(path), _names(content, within), content))
    return files, hashlib.sha256("".join(hashes).encode()).hexdigest()


def _names(content: Mapping[str, object], within: str) -> tuple[str, ...]:
    """The name of the model, and the path of the file within the folder."""
    named = content.get("model_name")
    config = content.get("config")
    arguments = config.get("model_args") if isinstance(config, Mapping) else None
    if not named and isinstance(arguments, str):  # lm-eval before 0.4.2
        pairs = (part.partition("=") for part in arguments.split(","))
        named = next((value for key, _, value in pairs if key == "pretrained"), "")
    return tuple(name for name in (named, within) if isinstance(name, str) and name)


def _run_of(one: _File, log: RunLog, pattern: str | None, faults: list[Fault]) -> tuple[str | None, float | None]:
    """The run that a file is of, and its tokens where the pattern says them."""
    if pattern is not None:
        return _by_pattern(one, log, pattern, faults)
    parts = {part for name in one.names for part in (name, *_PARTS.split(name))}
    known = sorted(parts & set(log.runs))
    if len(known) == 1:
        return known[0], None
    if known:
        faults.append(one.fault(f"names several runs of the log: {', '.join(known)}", _PATTERN_HINT))
    else:
        faults.append(one.fault(f"names no run of the log: the model is {one.names[0]!r}", _PATTERN_HINT))
    return None, None


_PATTERN_HINT = "say where the run's id stands: run_pattern='checkpoints/{run}/final', * for whatever else there is"


def _by_pattern(one: _File, log: RunLog, pattern: str, faults: list[Fault]) -> tuple[str | None, float | None]:
    if "{run}" not in pattern:
        raise UsageError(f"the pattern {pattern!r} has no {{run}}", hint=_PATTERN_HINT)
    parts = re.split(r"(\*|\{run\}|\{D\})", pattern)
    wanted = re.compile("".join(_WILD.get(part, re.escape(part)) for part in parts))
    matched = next((found for name in one.names if (found := wanted.fullmatch(name))), None)
    if matched is None:
        faults.append(one.fault(f"neither its model nor its path is like {pattern!r}: {' and '.join(one.names)}"))
        return None, None
    run, D = matched["run"], matched.groupdict().get("D")
    if run not in log.runs:
        faults.append(one.fault(f"is of the run {run!r} by {pattern!r}, which the log has not"))
        return None, None
    return run, None if D is None else parse_size(D)


def _tasks_of(one: _File, meanings: Mapping[str, Task]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The tasks of a file with their numbers, without means over groups of them."""
    groups = one.content.get("group_subtasks")
    means = {name for name, members in groups.items() if members} if isinstance(groups, Mapping) else set()
    results = one.content["results"]
    assert isinstance(results, Mapping)
    for name, numbers in results.items():
        if isinstance(numbers, Mapping) and (name not in means or name in meanings):
            yield str(name), numbers


def _number(one: _File, name: str, numbers: Mapping[str, object], metric: str, faults: list[Fault]) -> float | None:
    """The number of a task; None where it has no such metric."""
    known = [key for key in numbers if key == metric or key.partition(",")[0] == metric]
    if metric in known:
        known = [metric]
    if len(known) > 1:
        faults.append(one.fault(f"{name} has {' and '.join(known)}", f"say which: metric='{known[0]}'"))
        return None
    value = numbers[known[0]] if known else None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    if not 0 <= value <= 1:
        faults.append(one.fault(f"{name} {known[0]} = {value:g}, expected a score between 0 and 1"))
        return None
    higher = _of_task(one, "higher_is_better", name)
    if isinstance(higher, Mapping) and higher.get(metric.partition(",")[0]) is False:
        faults.append(one.fault(f"{name}: less {metric} is better, which no score is", "name another: metric='acc'"))
        return None
    return float(value)


def _found(one: _File, name: str, scored: Scored) -> _Found:
    shots, date, config = _of_task(one, "n-shot", name), one.content.get("date"), one.content.get("config")
    limit = config.get("limit") if isinstance(config, Mapping) else None
    return _Found(
        scored,
        shots if isinstance(shots, int) else None,
        float(date) if isinstance(date, (int, float)) else 0.0,
        limit,
    )


def _of_task(one: _File, key: str, name: str) -> object:
    values = one.content.get(key)
    return values.get(name) if isinstance(values, Mapping) else None


def _latest(found: Sequence[_Found], shots: int | None, place: str) -> list[Scored]:
    """One score for each run and task, the latest; all of a task with as many examples."""
    if not found:
        raise DataError(f"nothing was evaluated with {shots} examples", location=Location(file=place))
    seen: dict[Task, set[int | None]] = {}
    for one in found:
        seen.setdefault(one.scored.task, set()).add(one.shots)
    faults = [
        Fault(f"{task.label} was evaluated with {' and '.join(map(str, counts))} examples", hint="say which: shots=5")
        for task, counts in seen.items()
        if len(counts) > 1
    ]
    kept: dict[tuple[str, Task, float | None], _Found] = {}
    for one in sorted(found, key=lambda one: one.date):
        kept[one.scored.run, one.scored.task, one.scored.D] = one
    if faults:
        raise DataError.of(faults, place)
    return [one.scored for one in kept.values()]


def _notices(found: Sequence[_Found], strange: Sequence[str], lacking: Sequence[str], metric: str) -> tuple[str, ...]:
    """What was left out, and what of the evaluations makes scores doubtful."""
    notices = []
    again = len(found) - len({(one.scored.run, one.scored.task, one.scored.D) for one in found})
    if again:
        notices.append(f"{again} evaluations were done again later: the latest counts")
    if strange:
        notices.append(f"left out for no known language: {short(strange)} (task_language={strange[0]}=en says it)")
    if lacking:
        notices.append(f"left out for want of the metric {metric!r}: {short(lacking)}")
    cut = sorted({one.scored.task.label for one in found if one.limit})
    if cut:
        notices.append(f"evaluated on a part of the task alone (limit): {short(cut)}")
    return tuple(notices)
