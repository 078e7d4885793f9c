"""A run log in memory: trained models, their budgets, their mixtures, and their losses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.names import align

UNTRAINED = "untrained"
_STEPS = 10_000
"""Mixtures are the same if their ratios agree to one part in this many."""


@dataclass(frozen=True)
class RunLog:
    """R rows, each a model of N parameters after D tokens of a mixture of M sources, with K measured losses.

    A row with `D = 0` is an untrained model, the empty coalition.

    Parameters
    ----------
    runs : (R,) ids of training trajectories; the checkpoints of one run share its id.
    N : (R,) non-embedding parameters.
    D : (R,) tokens seen.
    p : (R, M) ratios; a row sums to one, or to zero where the model is untrained.
    loss : (R, K) nats a token; NaN = not measured.
    sources, targets : M and K labels; separate sets.
    weight : (R,) weights in fitting, or None for ones.
    split : (R,) `fit` or `held-out`, or None where the log says nothing.
    seed : (R,) seeds as written, or None.
    origin : the file.
    digest : SHA-256 of the bytes read.
    notices : what reading changed or ignored.
    lines : (R,) line of each row in its file.
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
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()
    lines: IntArray | None = None

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
        ranked = sorted(set(self.mixture_keys), key=lambda key: hashlib.sha256(key.encode()).digest())
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
            **{name: _take(getattr(self, name), index) for name in ("N", "D", "p", "loss", "weight", "lines")},
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
        return replace(self, p=p, loss=loss, sources=tuple(sources), targets=wanted)

    def with_loss(self, loss: FloatArray, targets: Sequence[str] | None = None) -> RunLog:
        """The same rows with other losses (R, K)."""
        names = self.targets if targets is None else tuple(targets)
        if loss.shape != (len(self), len(names)):
            raise ValueError(f"losses have shape {loss.shape}, expected {(len(self), len(names))}")
        return replace(self, loss=np.asarray(loss, dtype=np.float64), targets=names)

    def columns(self) -> dict[str, Any]:
        """The columns of the table that `read_runs` reads, in its order."""
        bare = self.targets == ("loss",)
        table: dict[str, Any] = {"run": list(self.runs), "N": self.N, "D": self.D}
        table |= {f"p_{name}": self.p[:, index] for index, name in enumerate(self.sources)}
        table |= {"loss" if bare else f"loss_{name}": self.loss[:, index] for index, name in enumerate(self.targets)}
        extras = {"weight": self.weight, "split": self.split, "seed": self.seed}
        return table | {name: column for name, column in extras.items() if column is not None}


def _to_steps(p: FloatArray) -> IntArray:
    """Ratios in steps of 1e-4; rounded twice, so that noise in the last bits cannot move a half."""
    return np.rint(np.round(p * _STEPS, 3)).astype(np.int64)


def _key(names: list[str], steps: list[int]) -> str:
    parts = (f"{name}={step / _STEPS:.4f}" for name, step in zip(names, steps, strict=True) if step)
    return ",".join(parts) or UNTRAINED


def _pick(values: tuple[str, ...] | None, index: IntArray) -> Any:
    return None if values is None else tuple(values[row] for row in index.tolist())


def _take(values: Any, index: IntArray) -> Any:
    return None if values is None else values[index]
