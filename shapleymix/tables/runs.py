"""Run logs in memory: trained models, their budgets, mixtures and losses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from shapleymix.display import Column, Shown, Tabular
from shapleymix.errors import DataError, Fault, Location, UsageError, described, printable
from shapleymix.files import Origin
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.languages import Parents, paths_of
from shapleymix.tables.sheets import write_table
from shapleymix.tables.words import RECIPE, align, format_range, parse_whole

Filled = TypeVar("Filled", FloatArray, IntArray, tuple[str, ...])

LOSSES = (1e-9, 20.0)
"""Between these losses lie: an untrained model with 485 million words has a loss of 20 nats a token."""
UNIQUE, LATE = "tokens_unique_", "late_"
"""Beginnings of the columns with the unique tokens of a source, and with its ratio in the last phase of a run."""
_OPTIONAL = ("weight", "split", "seed", "schedule", *RECIPE, "tokenizer")
_COLUMNS = ("runs", "N", "D", "p", "loss", "lines", "unique", "late", *_OPTIONAL)


LossUse = Literal["required", "optional"]
"""Whether each log must have losses."""
Model = tuple[str, float, Hashable, str]
"""Id, N, mixture and seed of a run: what makes its trajectory."""


@dataclass(frozen=True)
class RunLog(Tabular, Shown):
    """R rows, each a model of N parameters after D tokens of a mixture of M sources, with K measured losses.

    A row with `D = 0` is an untrained model, the empty coalition.

    Attributes
    ----------
    runs : tuple of str (R,)
        Ids of training trajectories; the checkpoints of one run share its id.
    N : array (R,)
        Non-embedding parameters.
    D : array (R,)
        Tokens seen.
    p : array (R, M)
        Ratios; a row sums to one, or to zero where the model is untrained.
    loss : array (R, K)
        Losses, nats per token; NaN where not measured.
    sources, targets : tuple of str
        M and K labels; separate sets.
    weight : array (R,), optional
        Weights in fitting; None for all ones.
    split : tuple of str (R,), optional
        `fit` or `held-out`; None where the log does not say.
    seed : tuple of str (R,), optional
        Seeds as they are written.
    unique : array (R, M), optional
        Unique tokens of each source that the run could draw on, NaN where it had no limit; None where the log does not
        say.
    late : array (R, M), optional
        Ratios of the last phase of a run that was trained in phases, NaN of others; None where none was.
    schedule : array (R,), optional
        Tokens at which the run's learning-rate schedule ends, NaN where it does not; None where the last row of a run
        is its end.
    learning_rate, batch_tokens : array (R,), optional
        Largest learning rate of each row's run, and tokens or sequences of one of its steps, whose differences count
        (column `batch`); None where the log does not say.
    tokenizer : tuple of str (R,), optional
        Name of the tokenizer of each row's run: one for all, since losses are per token.
    origin : str
        Name of the file.
    digest : str
        SHA-256 of the bytes read; for several files, the hash of their hashes.
    files : tuple of Origin
        Each file that was read, with its own hash.
    parents : Parents
        Whose part a source is, where a languages table says so and not its name.
    notices : tuple of str
        What reading changed or ignored.
    lines : int array (R,), optional
        Line of each row in its file.
    """

    runs: tuple[str, ...]
    N: FloatArray
    D: FloatArray
    p: FloatArray
    loss: FloatArray
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    weight: FloatArray | None = None
    split: tuple[str, ...] | None = None
    seed: tuple[str, ...] | None = None
    unique: FloatArray | None = None
    late: FloatArray | None = None
    schedule: FloatArray | None = None
    learning_rate: FloatArray | None = None
    batch_tokens: FloatArray | None = None
    tokenizer: tuple[str, ...] | None = None
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()
    lines: IntArray | None = None
    files: tuple[Origin, ...] = ()
    parents: Parents = field(default_factory=dict)

    def headline(self) -> str:
        """Where the runs are from, and how many there are."""
        return f"RunLog from {printable(self.origin)}: {self.extent}"

    @property
    def extent(self) -> str:
        """How many runs and rows, and the range of the budgets and losses of what was trained, in one line."""
        budgets = {"N": self.N, "D": self.D[self.trained]}
        parts = [f"{len(set(self.runs))} runs, {len(self)} rows"]
        parts += [f"{name} {format_range(values)}" for name, values in budgets.items() if values.size]
        losses = self.loss[self.measured & self.trained[:, None]]
        return ", ".join([*parts, f"losses {losses.min():.4g} to {losses.max():.4g} nats"] if losses.size else parts)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def paths(self) -> tuple[str, ...]:
        """(M,) whose part each source is."""
        return paths_of(self.sources, self.parents, self.targets)

    @property
    def trained(self) -> BoolArray:
        """(R,) rows that have seen a token."""
        return self.D > 0

    @cached_property
    def ends(self) -> FloatArray:
        """(R,) tokens at which the schedule of each row's run ends; NaN where no end of it is known."""
        return self.schedule if self.schedule is not None else self.ends_by(None)

    def ends_by(self, final: BoolArray | None) -> FloatArray:
        """(R,) tokens of the next `final` row (R,) in each row's run, NaN where none follows; or of the last."""
        table = pl.DataFrame({"run": self.runs, "N": self.N, "D": self.D, "final": final})
        if final is None:
            return np.maximum(table.select(pl.col("D").max().over("run", "N")).to_series().to_numpy(), 1.0)
        next_final = pl.when("final").then("D").backward_fill().over("run", "N", order_by="D")
        return table.select(next_final).to_series().to_numpy()

    @property
    def measured(self) -> BoolArray:
        """(R, K) losses that are there."""
        return ~np.isnan(self.loss)

    @cached_property
    def mixture_keys(self) -> tuple[Hashable, ...]:
        """(R,) equal where two rows have the same mixture: its ratios in steps of 1e-4, or the run without any."""
        if not self.sources:
            return self.runs
        p = np.where(self.trained[:, None], self.p, 0.0)
        steps = np.rint(np.round(p * 1e4, 3))  # rounded twice, so that noise in the last bits cannot move a half
        return tuple(map(tuple, steps.astype(np.int64).tolist()))

    @cached_property
    def contents(self) -> list[tuple[float, ...]]:
        """(R,) numbers of a row beside its mixture: N, D, and the losses in ascending order."""
        losses = np.nan_to_num(np.sort(self.loss, axis=1), nan=np.inf)
        return list(map(tuple, np.column_stack([self.N, self.D, losses]).tolist()))

    @cached_property
    def groups(self) -> IntArray:
        """(R,) integers, equal where two rows have the same mixture: what folds and replicates keep together.

        Mixtures are numbered by a hash of their ratios and budgets (equal ones by their losses), so that no name and no
        order of rows, sources or targets changes what is drawn for which. In a log of one mixture they are its runs.
        """
        rows: dict[Hashable, list[tuple[float, ...]]] = {}
        for key, content in zip(self._together, self.contents, strict=True):
            rows.setdefault(key, []).append(content)
        known = {key: [sorted(filter(None, key)) if isinstance(key, tuple) else [], sorted(rows[key])] for key in rows}
        mark = {key: repr([ratios, [one[:2] for one in numbers]]) for key, (ratios, numbers) in known.items()}
        ranked = sorted(rows, key=lambda key: (hashlib.sha256(mark[key].encode()).digest(), known[key][1]))
        place = {key: number for number, key in enumerate(ranked)}
        return np.array([place[key] for key in self._together], dtype=np.int64)

    @property
    def _together(self) -> tuple[Hashable, ...]:
        keys = self.mixture_keys
        return keys if len(set(keys)) > 1 else self.runs

    def folds(self, count: int) -> IntArray:
        """(R,) folds 0 to count - 1 that keep each mixture together, and differ by at most one mixture.

        Raises
        ------
        UsageError
            If there are fewer than two folds.
        DataError
            If there are fewer mixtures than folds.
        """
        parse_whole(count, "folds", 2)
        mixtures = len(set(self._together))
        if mixtures < count:
            message = f"{count} folds need {count} different mixtures; the log has {mixtures}"
            raise DataError(message, location=Location(file=self.origin), hint="use fewer folds")
        return self.groups % count

    def select(self, rows: ArrayLike) -> RunLog:
        """The rows of a mask (R,) or of indices, in their order."""
        chosen = np.asarray(rows)
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(self, **{name: _take(getattr(self, name), index) for name in _COLUMNS})

    def align(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> RunLog:
        """The same rows with the columns in the given order.

        Raises
        ------
        DataError
            If a source is missing or one of the log's is not named, or a target is missing.
        """
        wanted = tuple(self.targets if targets is None else targets)
        column = align(self.sources, to=sources, what="sources", exact=True, origin=self.origin)
        target = align(self.targets, to=wanted, what="targets", origin=self.origin)
        p, loss = self.p[:, column], self.loss[:, target]
        unique, late = (None if one is None else one[:, column] for one in (self.unique, self.late))
        return replace(self, p=p, loss=loss, unique=unique, late=late, sources=tuple(sources), targets=wanted)

    def columns(self) -> dict[str, Column]:
        """The columns of the table that `read_runs` reads, in its order."""
        bare = self.targets == ("loss",)
        table: dict[str, Column] = {"run": list(self.runs), "N": self.N, "D": self.D}
        table |= {f"p_{name}": self.p[:, index] for index, name in enumerate(self.sources)}
        table |= {"loss" if bare else f"loss_{name}": self.loss[:, index] for index, name in enumerate(self.targets)}
        for prefix, values in ((UNIQUE, self.unique), (LATE, self.late)):
            each = () if values is None else values.T
            table |= {f"{prefix}{name}": column for name, column in zip(self.sources, each, strict=False)}
        extras = {RECIPE.get(name, name): getattr(self, name) for name in _OPTIONAL}
        return table | {name: column for name, column in extras.items() if column is not None}


def _take(values: Filled | None, index: IntArray) -> Filled | None:
    if isinstance(values, tuple):
        return tuple(values[row] for row in index.tolist())  # pyright: ignore[reportReturnType]
    return None if values is None else values[index]


def write_runs(log: RunLog, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a run log in the format that the name's ending says; reading it gives the same arrays bit for bit.

    Parameters
    ----------
    log : RunLog
        What `read_runs` returns.
    path : str or path
        Ends in `.csv`, `.csv.gz`, `.parquet` or `.jsonl`.
    force : bool
        Whether a file that exists is overwritten.

    Raises
    ------
    UsageError
        If it is no run log, the name's ending says no format, or the file exists and `force` is not set.
    """
    if not isinstance(log, RunLog):
        raise UsageError(f"{described(log)} is no run log", hint="give what `read_runs` returns")
    write_table(log.columns(), path, force=force)


def concat(logs: Sequence[RunLog], *, losses: LossUse = "required") -> RunLog:
    """Several logs as one, with the columns of the first.

    All must have one tokenizer, and the same sources and targets, in any order; where losses are optional, a log
    without any (a plan, a table of points) has none of those of the others. Where two logs use one run id for different
    models (another N, mixture or seed), the ids are prefixed with the names of their files.

    Raises
    ------
    DataError
        If the labels or tokenizers differ, or a row (run, N, D, mixture, seed) is in two logs.
    """
    if not logs:
        raise DataError("there is no run log to read")
    _require_one_tokenizer(logs)
    if len(logs) == 1:
        return logs[0]
    if losses == "optional":
        targets = next((log.targets for log in logs if log.targets), ())
        logs = [
            log if log.targets else replace(log, targets=targets, loss=np.full((len(log), len(targets)), np.nan))
            for log in logs
        ]
    first, ordered = logs[0], []
    for log in logs:
        align(log.targets, to=first.targets, what=f"targets of {first.origin}", exact=True, origin=log.origin)
        ordered.append(log.align(first.sources, first.targets))
    if faults := list(_find_shared_rows(ordered)):
        raise DataError.of(faults, "the run logs")
    named = [replace(log, notices=tuple(f"{log.origin}: {notice}" for notice in log.notices)) for log in ordered]
    return _join(_with_own_ids(named))


def _require_one_tokenizer(logs: Sequence[RunLog]) -> None:
    """Refuse the first row whose tokenizer is not that of the rows before it."""
    named = [(name, log, row) for log in logs for row, name in enumerate(log.tokenizer or ()) if name]
    for name, log, row in named:
        if name != named[0][0]:
            message = (
                f"the tokenizer is {name!r}, of rows before it {named[0][0]!r}: fit the runs of each by themselves"
            )
            raise DataError(message, location=Location(log.origin, int(_lines(log)[row]), "tokenizer"))


def _models(log: RunLog) -> list[Model]:
    """(R,) what makes a row's trajectory: its id, N, mixture and seed."""
    return list(zip(log.runs, log.N.tolist(), log.mixture_keys, log.seed or [""] * len(log), strict=True))


def _find_shared_rows(logs: Sequence[RunLog]) -> Iterator[Fault]:
    first: dict[tuple[Model, float], tuple[int, str]] = {}
    for place, log in enumerate(logs):
        for model, D, line in zip(_models(log), log.D.tolist(), _lines(log).tolist(), strict=True):
            owner, where = first.setdefault((model, D), (place, f"{log.origin}:{line}"))
            if owner != place:
                yield Fault(
                    f"repeats run {model[0]!r} at D = {D:g} of {where}", Location(log.origin, line, "run"), model[0]
                )


def _with_own_ids(logs: Sequence[RunLog]) -> list[RunLog]:
    """The logs with ids prefixed where one id stands for different models in different logs."""
    owned: dict[str, set[tuple[int, Model]]] = {}
    for place, log in enumerate(logs):
        for model in _models(log):
            owned.setdefault(model[0], set()).add((place, model))
    clashing = {run for run, pairs in owned.items() if all(len(set(part)) > 1 for part in zip(*pairs, strict=True))}
    stems = [Path(log.origin).name.split(".")[0] or log.origin for log in logs]
    names = [stem if stems.count(stem) == 1 else f"{stem}-{place}" for place, stem in enumerate(stems, start=1)]
    return [
        replace(log, runs=tuple(f"{name}/{run}" if run in clashing else run for run in log.runs))
        for log, name in zip(logs, names, strict=True)
    ]


def _join(logs: Sequence[RunLog]) -> RunLog:
    def column(name: str) -> object:
        """A column of all logs, filled up where one lacks it; None where all do."""
        given = [getattr(log, name) for log in logs]
        if all(one is None for one in given):
            return None
        filled = [_usual(log, name) if one is None else one for one, log in zip(given, logs, strict=True)]
        return tuple(chain(*filled)) if isinstance(filled[0], tuple) else np.concatenate(filled)

    columns: dict[str, Any] = {name: column(name) for name in (*_COLUMNS, "notices", "files")}
    digest = hashlib.sha256("".join(log.digest for log in logs).encode()).hexdigest()
    return replace(logs[0], **columns, origin=" + ".join(log.origin for log in logs), digest=digest)


def _usual(log: RunLog, name: str) -> FloatArray | IntArray | tuple[str, ...]:
    """What a column that a log lacks says beside one that has it."""
    if name in ("schedule", "lines"):
        return log.ends if name == "schedule" else _lines(log)
    value = {"weight": 1.0, "split": "fit", "seed": "", "tokenizer": ""}.get(name, np.nan)
    if isinstance(value, str):
        return (value,) * len(log)
    return np.full(log.p.shape if name in ("unique", "late") else len(log), value)


def _lines(log: RunLog) -> IntArray:
    return np.arange(1, len(log) + 1) if log.lines is None else log.lines
