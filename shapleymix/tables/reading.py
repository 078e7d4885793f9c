"""Any table as cells of text with the lines they stand in: CSV (also gzipped), Parquet, JSONL, `-`, or columns.

Cells stay text here: what a cell should be is known to the table's own reader, which can then report every wrong
cell with its file, line, column and value. Numbers of Parquet, JSONL and columns stay numbers.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shapleymix.errors import DataError, Fault, Location
from shapleymix.records import IntArray
from shapleymix.tables.formats import Cells, plain, read_cells

Table = str | os.PathLike[str] | pl.DataFrame | Mapping[str, Sequence[Any]]
"""A path, `-` for standard input, a Polars (or pandas) frame, or a mapping of columns.

A cell is empty where Polars has null, pandas or a NumPy array NaN, and a list None.
"""


@dataclass(frozen=True)
class Sheet:
    """A table as read: named columns of cells, one line number a row (row numbers where there are no lines)."""

    origin: str
    digest: str
    columns: dict[str, list[Any]]
    lines: IntArray
    metadata: dict[str, str]
    notices: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def fault(self, row: int, column: str | None, message: str, hint: str | None = None) -> Fault:
        """What is wrong in a row, with its place and, if it is one cell, its value."""
        value = None if column is None else str(self.columns[column][row])
        return Fault(message, Location(self.origin, int(self.lines[row]), column), value, hint)

    def header_fault(self, column: str | None, message: str, hint: str | None = None) -> Fault:
        """What is wrong with a column, or with the table as a whole."""
        return Fault(message, Location(self.origin, 1 if column else None, column), column, hint)


def read_sheet(table: Table) -> Sheet:
    """Read a table without judging its cells.

    Raises
    ------
    DataError
        If there is no such file, it is empty, or it is no table: every ragged row, repeated column name, broken
        line or wrong byte, with its line.
    """
    if isinstance(table, (str, os.PathLike)):
        return _from_bytes(_bytes_of(table), "<stdin>" if str(table) == "-" else str(table))
    return _from_columns(_columns_of(table))


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read: {reason}", location=Location(file=str(path))) from error


def _from_bytes(data: bytes, origin: str) -> Sheet:
    cells = read_cells(data, origin)
    return _sheet(cells, origin, hashlib.sha256(data).hexdigest())


def _sheet(cells: Cells, origin: str, digest: str) -> Sheet:
    if not cells.columns or not len(cells.lines):
        hint = "a table needs a header and at least one row"
        raise DataError("holds no rows", location=Location(file=origin), hint=hint)
    lines = np.array(cells.lines, dtype=np.int64)
    return Sheet(origin, digest, cells.columns, lines, cells.metadata, cells.notices)


def _columns_of(table: Any) -> dict[str, list[Any]]:
    """Columns as lists: of a Polars frame, of a pandas frame (whose missing values are NaN), or of a mapping."""
    if isinstance(table, pl.DataFrame):
        return {name: table[name].to_list() for name in table.columns}
    if hasattr(table, "notna") and hasattr(table, "columns"):
        plain = table.astype(object).where(table.notna(), None)
        return {str(name): plain[name].tolist() for name in plain.columns}
    if isinstance(table, Mapping):
        return {str(name): _listed(column) for name, column in table.items()}
    hint = "pass a path, a Polars or pandas frame, or a mapping of columns"
    raise DataError(f"cannot read a table from a {type(table).__name__}", hint=hint)


def _listed(column: Any) -> list[Any]:
    """A column as Python objects; in an array, which has no other sign for it, NaN is an empty cell."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    return column.tolist() if hasattr(column, "tolist") else [_scalar(value) for value in column]


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _from_columns(columns: dict[str, list[Any]]) -> Sheet:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns differ in length: {lengths}", location=Location(file="<memory>"))
    cells = {name: plain(column) for name, column in columns.items()}
    rows = next(iter(lengths.values()), 0)
    digest = hashlib.sha256(repr(sorted(cells.items())).encode("utf-8", "replace")).hexdigest()
    return _sheet(Cells(cells, list(range(1, rows + 1))), "<memory>", digest)
