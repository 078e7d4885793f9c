"""Several run logs as one: columns in one order, ids that stay apart, no row twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from shapleymix.errors import DataError, Fault, Location
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.names import align
from shapleymix.tables.runs import RunLog

Losses = Literal["required", "optional"]
"""Whether each log must have losses."""
Model = tuple[str, float, str, str]
"""Id, N, mixture and seed of a run: what makes its trajectory."""


def concat(logs: Sequence[RunLog], *, losses: Losses = "required") -> RunLog:
    """Several logs as one, with the columns of the first.

    All must have the same sources and targets, in any order; where losses are optional, a log without any (a plan, a
    table of points) has none of those of the others. Where two logs use one run id for different models (another N,
    mixture or seed), the ids are prefixed with the names of their files.

    Raises
    ------
    DataError
        If the labels differ, or a row (run, N, D, mixture, seed) is in two logs.
    """
    if not logs:
        raise DataError("there is no run log to read")
    if len(logs) == 1:
        return logs[0]
    if losses == "optional":
        logs = _with_targets(logs)
    ordered = [_like(log, logs[0]) for log in logs]
    faults = list(_shared_rows(ordered))
    if faults:
        raise DataError.of(faults, "the run logs")
    return _joined(_with_own_ids(ordered))


def _with_targets(logs: Sequence[RunLog]) -> list[RunLog]:
    """The logs, those without any target with the targets of the others, not measured."""
    heads = next((log.targets for log in logs if log.targets), ())
    return [
        log if log.targets else replace(log, targets=heads, loss=np.full((len(log), len(heads)), np.nan))
        for log in logs
    ]


def _like(log: RunLog, first: RunLog) -> RunLog:
    """The log with the columns of the first one."""
    source = f"sources (those of {first.origin})"
    target = f"targets (those of {first.origin})"
    column = align(log.sources, to=first.sources, what=source, exact=True, origin=log.origin)
    loss = align(log.targets, to=first.targets, what=target, exact=True, origin=log.origin)
    arrays = {"p": log.p[:, column], "loss": log.loss[:, loss]}
    if log.unique is not None:
        arrays["unique"] = log.unique[:, column]
    return replace(log, sources=first.sources, targets=first.targets, **arrays)


def _models(log: RunLog) -> list[Model]:
    """(R,) what makes a row's trajectory: its id, N, mixture and seed."""
    seeds = log.seed or [""] * len(log)
    keys = log.mixture_keys if log.sources else [""] * len(log)
    return list(zip(log.runs, log.N.tolist(), keys, seeds, strict=True))


def _shared_rows(logs: Sequence[RunLog]) -> Iterator[Fault]:
    first: dict[tuple[Model, float], tuple[int, str]] = {}
    for place, log in enumerate(logs):
        for model, D, line in zip(_models(log), log.D.tolist(), _lines(log).tolist(), strict=True):
            owner, where = first.setdefault((model, D), (place, f"{log.origin}:{line}"))
            if owner != place:
                message = f"repeats run {model[0]!r} at D = {D:g} of {where}"
                at = Location(log.origin, line, "run")
                yield Fault(message, at, model[0], "give each trained model once")


def _with_own_ids(logs: Sequence[RunLog]) -> list[RunLog]:
    """The logs with ids prefixed where one id stands for different models in different logs."""
    owners: dict[str, set[tuple[int, Model]]] = {}
    for place, log in enumerate(logs):
        for model in set(_models(log)):
            owners.setdefault(model[0], set()).add((place, model))
    clashing = {run for run, owned in owners.items() if _clashes(owned)}
    stems = _stems([log.origin for log in logs])
    return [
        replace(log, runs=tuple(f"{stem}/{run}" if run in clashing else run for run in log.runs))
        for log, stem in zip(logs, stems, strict=True)
    ]


def _clashes(owned: set[tuple[int, Model]]) -> bool:
    return len({place for place, _ in owned}) > 1 and len({model for _, model in owned}) > 1


def _stems(origins: Sequence[str]) -> list[str]:
    """Short names of the files; numbered where two are called the same."""
    stems = [Path(origin).name.split(".")[0] or origin for origin in origins]
    return [stem if stems.count(stem) == 1 else f"{stem}-{place}" for place, stem in enumerate(stems, start=1)]


def _joined(logs: Sequence[RunLog]) -> RunLog:
    def stack(name: str) -> FloatArray:
        return np.concatenate([getattr(log, name) for log in logs])

    weighted = any(log.weight is not None for log in logs)
    limited = any(log.unique is not None for log in logs)
    return RunLog(
        runs=tuple(run for log in logs for run in log.runs),
        N=stack("N"),
        D=stack("D"),
        p=stack("p"),
        loss=stack("loss"),
        sources=logs[0].sources,
        targets=logs[0].targets,
        weight=np.concatenate([_weights(log) for log in logs]) if weighted else None,
        split=_filled(logs, "split", "fit"),
        seed=_filled(logs, "seed", ""),
        unique=np.concatenate([_limits(log) for log in logs]) if limited else None,
        origin=" + ".join(log.origin for log in logs),
        digest=hashlib.sha256("".join(log.digest for log in logs).encode()).hexdigest(),
        notices=tuple(f"{log.origin}: {notice}" for log in logs for notice in log.notices),
        lines=np.concatenate([_lines(log) for log in logs]),
        files=tuple(file for log in logs for file in log.files),
    )


def _weights(log: RunLog) -> FloatArray:
    return np.ones(len(log)) if log.weight is None else log.weight


def _limits(log: RunLog) -> FloatArray:
    return np.full(log.p.shape, np.nan) if log.unique is None else log.unique


def _lines(log: RunLog) -> IntArray:
    return np.arange(1, len(log) + 1) if log.lines is None else log.lines


def _filled(logs: Sequence[RunLog], name: str, default: str) -> tuple[str, ...] | None:
    """A text column of all logs, with a default where a log lacks it; None if all lack it."""
    columns = [getattr(log, name) for log in logs]
    if all(column is None for column in columns):
        return None
    filled = (column or (default,) * len(log) for log, column in zip(logs, columns, strict=True))
    return tuple(value for column in filled for value in column)
