"""Run logs in memory: trained models, their budgets, mixtures and losses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Column, Shown, cut, short
from shapleymix.errors import DataError, Location, UsageError, described, printable
from shapleymix.files import Origin
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.frames import Tabular
from shapleymix.tables.names import align
from shapleymix.tables.sizes import format_size
from shapleymix.tables.spelling import composed
from shapleymix.tables.writing import write_table

Array = TypeVar("Array", FloatArray, IntArray)

UNTRAINED = "untrained"
BUDGETS, LOSSES = (1e-25, 1e25), (1e-9, 1e9)
"""Between these N, D and losses lie: powers up to 3 of budgets, and squares of those, stay within floating point."""
UNIQUE = "tokens_unique_"
"""Beginning of the columns with the unique tokens of a source."""
PREFIXES = {"p": "p_", "tokens": "tokens_", "loss": "loss_", "unique": UNIQUE}
"""Beginnings of the columns that hold something of each language, by what they hold."""
COUNTS = tuple(f"tokens_{word}" for word in ("seen", "total", "trained", "consumed", "processed", "count"))
"""Columns that count the tokens of all sources, as D does, and begin like those of one."""
_ARRAYS = ("N", "D", "p", "loss", "weight", "lines", "unique")
_STEPS = 10_000
"""Mixtures are the same if their ratios agree to one part in this many."""


def own_columns(names: Iterable[str], role: str) -> list[str]:
    """The columns of a role by a run log's own names, such as `p_en`."""
    found = [name for name in names if name.startswith(PREFIXES[role])]
    return [name for name in found if role != "tokens" or not (name.startswith(UNIQUE) or name in COUNTS)]


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
    origin : str
        Name of the file.
    digest : str
        SHA-256 of the bytes read; for several files, the hash of their hashes.
    files : tuple of Origin
        Each file that was read, with its own hash.
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
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()
    lines: IntArray | None = None
    files: tuple[Origin, ...] = ()

    def __post_init__(self) -> None:
        for name in ("sources", "targets"):
            object.__setattr__(self, name, tuple(map(composed, getattr(self, name))))

    def summary(self) -> str:
        """How many runs of what, and where they are from, in a few lines."""
        parts = [f"RunLog of {len(set(self.runs))} runs, {len(self)} rows, from {printable(self.origin)}"]
        for name, values in (("N", self.N), ("D", self.D)):
            parts.append(f"  {name} {' to '.join(dict.fromkeys(map(format_size, (values.min(), values.max()))))}")
        parts += [f"  sources: {short(self.sources)}", f"  targets: {short(self.targets)}"]
        return "\n".join([*parts, *(cut(f"note: {notice}") for notice in self.notices[:3])])

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def trained(self) -> BoolArray:
        """(R,) rows that have seen a token."""
        return self.D > 0

    @property
    def measured(self) -> BoolArray:
        """(R, K) losses that are there."""
        return ~np.isnan(self.loss)

    @cached_property
    def mixture_keys(self) -> tuple[str, ...]:
        """(R,) texts that are equal where two rows have the same mixture to 1e-4.

        They name the sources in use in alphabetical order, so that the order of columns does not matter. A log
        without ratios has only its run ids to tell its rows apart.
        """
        if not self.sources:
            return self.runs
        order = sorted(range(len(self.sources)), key=self.sources.__getitem__)
        steps = _to_steps(np.where(self.trained[:, None], self.p, 0.0))[:, order]
        unique, inverse = np.unique(steps, axis=0, return_inverse=True)
        names = [self.sources[index] for index in order]
        keys = [_key(names, row) for row in unique.tolist()]
        return tuple(keys[index] for index in inverse.ravel().tolist())

    @cached_property
    def groups(self) -> IntArray:
        """(R,) integers, equal where two rows have the same mixture: what folds and replicates keep together."""
        return np.unique(np.array(self.mixture_keys, dtype=object), return_inverse=True)[1].ravel()

    def folds(self, count: int) -> IntArray:
        """(R,) folds 0 to count - 1 that keep each mixture together.

        Mixtures are ranked by a hash of their key and dealt out in turn: folds differ by at most one mixture, and
        neither the order of rows nor that of columns changes them.

        Raises
        ------
        UsageError
            If there are fewer than two folds.
        DataError
            If there are fewer mixtures than folds.
        """
        if count < 2:
            raise UsageError(f"{count} folds are too few", hint="at least two folds are needed")
        ranked = sorted(
            set(self.mixture_keys), key=lambda key: hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        )
        if len(ranked) < count:
            message = f"{count} folds need {count} different mixtures; the log has {len(ranked)}"
            raise DataError(message, location=Location(file=self.origin), hint="use fewer folds")
        fold = {key: rank % count for rank, key in enumerate(ranked)}
        return np.array([fold[key] for key in self.mixture_keys], dtype=np.int64)

    def select(self, rows: ArrayLike) -> RunLog:
        """The rows of a mask (R,) or of indices, in their order."""
        chosen = np.asarray(rows)
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(
            self,
            runs=_pick(self.runs, index),
            split=_pick(self.split, index),
            seed=_pick(self.seed, index),
            **{name: _take(getattr(self, name), index) for name in _ARRAYS},
        )

    def aligned(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> RunLog:
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
        unique = None if self.unique is None else self.unique[:, column]
        return replace(self, p=p, loss=loss, unique=unique, sources=tuple(sources), targets=wanted)

    def columns(self) -> dict[str, Column]:
        """The columns of the table that `read_runs` reads, in its order."""
        bare = self.targets == ("loss",)
        table: dict[str, Column] = {"run": list(self.runs), "N": self.N, "D": self.D}
        table |= {f"p_{name}": self.p[:, index] for index, name in enumerate(self.sources)}
        table |= {"loss" if bare else f"loss_{name}": self.loss[:, index] for index, name in enumerate(self.targets)}
        limits = np.empty((0, 0)) if self.unique is None else self.unique.T
        table |= {f"{UNIQUE}{name}": column for name, column in zip(self.sources, limits, strict=False)}
        extras = {"weight": self.weight, "split": self.split, "seed": self.seed}
        return table | {name: column for name, column in extras.items() if column is not None}


def _to_steps(p: FloatArray) -> IntArray:
    """Ratios in steps of 1e-4; rounded twice, so that noise in the last bits cannot move a half."""
    return np.rint(np.round(p * _STEPS, 3)).astype(np.int64)


def _key(names: list[str], steps: list[int]) -> str:
    parts = (f"{name}={step / _STEPS:.4f}" for name, step in zip(names, steps, strict=True) if step)
    return ",".join(parts) or UNTRAINED


def _pick(values: tuple[str, ...] | None, index: IntArray) -> tuple[str, ...] | None:
    return None if values is None else tuple(values[row] for row in index.tolist())


def _take(values: Array | None, index: IntArray) -> Array | None:
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
