"""One or two transfer matrices as figures take them: of one kind of values, in one order, each with a name.

Legend: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

import numpy as np

from shapleymix.errors import DataError, UsageError, printable
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.amounts import parse_choice
from shapleymix.tables.frames import Columns
from shapleymix.tables.similarity import Similarity
from shapleymix.tables.sizes import format_size
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import Table, read_transfer

Values = Literal["raw", "normalized"]

LARGEST = 1e306
"""Larger numbers have no axis: its margins overflow."""
UNITS = {"raw": "nats", "normalized": "normalised"}


@dataclass(frozen=True)
class Matrices:
    """The values (M, K) of one or two matrices with their standard errors, where known, and their names."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kind: Values
    names: tuple[str, ...]
    values: tuple[FloatArray, ...]
    errors: tuple[FloatArray | None, ...]
    off_diagonal: BoolArray
    whole: tuple[TransferMatrix, ...]

    @property
    def unit(self) -> str:
        """The unit of the values, in a word."""
        return UNITS[self.kind]

    @property
    def long_unit(self) -> str:
        """What the values are."""
        return (
            "Shapley values in nats of loss drop" if self.kind == "raw" else "Shapley values, exp(SV - column maximum)"
        )

    def table(self) -> Columns:
        """One row per matrix, source and target."""
        shape = (len(self.names), len(self.sources), len(self.targets))
        place = np.indices(shape).reshape(3, -1)
        errors = [np.full(shape[1:], np.nan) if error is None else error for error in self.errors]
        return {
            "matrix": [self.names[i] for i in place[0]],
            "source": [self.sources[i] for i in place[1]],
            "target": [self.targets[i] for i in place[2]],
            "value": np.stack(self.values).ravel(),
            "stderr": np.stack(errors).ravel(),
        }

    def likeness(self) -> list[str]:
        """How alike two matrices are, as `compare` says; nothing of one."""
        if len(self.whole) < 2:
            return []
        found = self.whole[0].compare(self.whole[1])
        told = [("in nats", found.raw)] if self.kind == "raw" and found.raw is not None else []
        return [f"{_alike(one)} {what}." for what, one in [*told, ("of the normalised values", found)]]


def _alike(found: Similarity) -> str:
    """Cosine and Pearson, and both off the diagonal where there are entries enough."""
    off = (found.cosine_off_diagonal, found.pearson_off_diagonal)
    apart = "" if np.isnan(off).any() else f" ({off[0]:.3f} and {off[1]:.3f} off the diagonal)"
    return f"Cosine {_measure(found.cosine)}, Pearson {_measure(found.pearson)}{apart}"


def _measure(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.3f}"


def matrices_of(
    matrix: TransferMatrix | Table,
    other: TransferMatrix | Table | None,
    values: Values | None,
    names: Sequence[str] | None,
) -> Matrices:
    """Matrices of one kind of values, the second in the order of the first.

    Raises
    ------
    UsageError, DataError
        If a matrix lacks the values that are asked for, the languages differ, or there is not one name for each.
    """
    first = _read(matrix)
    whole = (first,) if other is None else (first, _paired(first, _read(other)))
    has_raw = all(one.sv is not None for one in whole)
    kind: Values = "raw" if values is None and has_raw else values or "normalized"
    parse_choice(kind, ("raw", "normalized"), "values")
    if kind == "raw" and not has_raw:
        raise DataError("a matrix holds normalised values alone", hint="draw normalised ones (values='normalized')")
    drawn = tuple(one.nsv if kind == "normalized" or one.sv is None else one.sv for one in whole)
    errors = tuple(one.stderr if kind == "raw" else None for one in whole)
    _require_axes(*drawn, *(one for one in errors if one is not None))
    return Matrices(first.sources, first.targets, kind, _names(whole, names), drawn, errors, first.off_diagonal, whole)


def _require_axes(*values: FloatArray) -> None:
    largest = max(float(np.nanmax(np.abs(one), initial=0.0)) for one in values)
    if largest > LARGEST:
        message = f"a value or standard error of {largest:g} nats is too large to draw"
        raise DataError(message, hint="check the matrix, or draw normalised values (values='normalized')")


def _read(given: TransferMatrix | Table) -> TransferMatrix:
    return given if isinstance(given, TransferMatrix) else read_transfer(given)


def _paired(first: TransferMatrix, other: TransferMatrix) -> TransferMatrix:
    """The other matrix in the order of the first; one with other languages is refused, as `compare` does."""
    first.compare(other)
    return other.aligned(first.sources, first.targets)


def _names(whole: Sequence[TransferMatrix], given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        found = [name_of(one) for one in whole]
        return (
            tuple(found) if len(set(found)) == len(found) else tuple(f"{name} ({n})" for n, name in enumerate(found, 1))
        )
    if isinstance(given, str) or len(given) != len(whole):
        matrices = "1 matrix" if len(whole) == 1 else "2 matrices"
        raise UsageError(f"{len(given)} names for {matrices}", hint="give one name for each (names)")
    if len(set(given)) < len(given):
        raise UsageError(f"two matrices have the name {given[0]}", hint="give each a name of its own (names)")
    return tuple(given)


def name_of(matrix: TransferMatrix) -> str:
    """How a matrix was made, with its budget; else the name of its file."""
    known = matrix.provenance
    origin = str(known.get("origin", "<memory>"))
    stem = printable(PurePath(origin).name.partition(".")[0]) if origin[:1] != "<" else "transfer"
    name = str(known.get("method", stem))
    budgets = [
        f"{letter} = {format_size(float(known[letter]))}" for letter in ("N", "D") if _is_size(known.get(letter))
    ]
    return f"{name} ({', '.join(budgets)})" if budgets else name


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
