"""Any table as cells of text with the lines they stand in: CSV (also gzipped), Parquet, JSONL, `-`, or columns.

Cells stay text here: what a cell should be is known to the table's own reader, which can then report every wrong
cell with its file, line, column and value. Numbers of Parquet, JSONL and columns stay numbers.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from numbers import Real
from types import NoneType
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import polars as pl

from shapleymix.display import Column
from shapleymix.errors import DataError, Fault, Location, UsageError, described
from shapleymix.files import Origin, read_once
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.cells import NO_ROWS, Cells, Layout, plain
from shapleymix.tables.formats import read_cells
from shapleymix.tables.names import repeated
from shapleymix.tables.sizes import parse_size
from shapleymix.tables.spelling import composed

Rows = Sequence[Mapping[str, object]]
"""Rows by the names of their columns, as `frame.to_dicts()` gives them; a row may leave out a column."""
Table = str | os.PathLike[str] | pl.DataFrame | Mapping[str, Column] | Rows
"""A path, `-` for standard input, a Polars (or pandas) frame, a mapping of columns, or a list of rows.

A cell is empty where Polars has null, pandas or a NumPy array NaN, and a list None.
"""

_EMPTY_HINT = "leave the cell empty where nothing was measured"
_WITH_COMMA = re.compile(r"[+-]?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+(?:e[+-]?\d+)?\s*[a-z]?", re.IGNORECASE)
"""A number with a decimal comma, perhaps with points between its thousands or a size's letter."""

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")


@runtime_checkable
class PandasLike(Protocol):
    """What is asked of a pandas frame, which is no dependency."""

    @property
    def columns(self) -> Iterable[object]: ...
    def notna(self) -> object: ...
    def to_dict(self, orient: str) -> dict[str, list[object]]: ...


@dataclass(frozen=True)
class Place:
    """Where a column of a sheet was written, if it was under another name, in another file or on other lines."""

    column: str
    origin: str
    lines: IntArray
    decimal: str = "."


@dataclass(frozen=True)
class Sheet:
    """A table as read: named columns of cells, one line number a row (row numbers where there are no lines).

    `places` says of the columns that were moved or renamed where they stood; `kind` what wrote the table, where its
    form tells.
    """

    origin: str
    digest: str
    columns: dict[str, list[object]]
    lines: IntArray
    metadata: dict[str, str]
    notices: tuple[str, ...] = ()
    decimal: str = "."
    kind: str = ""
    places: dict[str, Place] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def fault(self, row: int, column: str | None, message: str, hint: str | None = None) -> Fault:
        """What is wrong in a row, with its place and, if it is one cell, its value."""
        if column is None:
            return Fault(message, Location(self.origin, int(self.lines[row])), None, hint)
        place = self.place(column)
        where = Location(place.origin, int(place.lines[row]), place.column)
        return Fault(message, where, str(self.columns[column][row]), hint)

    def place(self, column: str) -> Place:
        """Where a column was written."""
        return self.places.get(column) or Place(column, self.origin, self.lines, self.decimal)

    def taken(self, rows: Sequence[int]) -> Sheet:
        """Some of its rows."""
        index = np.array(rows, dtype=np.int64)
        return replace(
            self,
            columns={name: [cells[row] for row in rows] for name, cells in self.columns.items()},
            lines=self.lines[index],
            places={name: replace(place, lines=place.lines[index]) for name, place in self.places.items()},
        )

    def header_fault(self, column: str | None, message: str, hint: str | None = None) -> Fault:
        """What is wrong with a column, or with the table as a whole."""
        known = self.places.get(column or "")
        where = Location(self.origin, 1 if column else None, column)
        return Fault(message, Location(known.origin, 1, known.column) if known else where, column, hint)


def read_sheet(table: Table, layout: Layout | None = None) -> Sheet:
    """Read a table without judging its cells. A file is read once: `digest` is the hash of the bytes that were read.

    `layout` says how a text is written, where the text itself does not.

    Raises
    ------
    DataError
        If there is no such file, it is empty, or it is no table: every ragged row, repeated column name, broken
        line or wrong byte, with its line.
    """
    if isinstance(table, (str, os.PathLike)):
        return sheet_of(*bytes_of(table), layout)
    return from_columns(_columns_of(table))


def bytes_of(path: str | os.PathLike[str]) -> tuple[bytes, Origin]:
    """The bytes of a file and their hash, or a DataError that says why it cannot be read."""
    try:
        return read_once(path)
    except OSError as error:
        place = Location(file=os.fspath(path))
        raise DataError(f"cannot be read: {error.strerror or error}", location=place) from error


def sheet_of(data: bytes, origin: Origin, layout: Layout | None = None) -> Sheet:
    """The sheet in the bytes of a file."""
    return _sheet(read_cells(data, origin.file, layout or Layout()), origin.file, origin.sha256)


def _sheet(cells: Cells, origin: str, digest: str) -> Sheet:
    if not cells.columns or not len(cells.lines):
        raise DataError("holds no rows", location=Location(file=origin), hint=NO_ROWS)
    lines = np.array(cells.lines, dtype=np.int64)
    columns = _composed(cells.columns, origin)
    return Sheet(origin, digest, columns, lines, cells.metadata, cells.notices, cells.decimal, cells.kind)


def _composed(columns: dict[str, list[object]], origin: str) -> dict[str, list[object]]:
    """The columns with composed names; two spellings of one name are one column given twice."""
    found = {composed(name): cells for name, cells in columns.items()}
    if len(found) < len(columns):
        again = repeated([composed(name) for name in columns])
        hint = "the name is spelt with composed and with separate accents: keep one of the columns"
        faults = [Fault(f"column {name!r} occurs twice", Location(origin, 1, name), name, hint) for name in again]
        raise DataError.of(faults, origin)
    return found


def is_rows(given: object) -> TypeGuard[Rows]:
    """Whether a list holds the rows of one table; tables in a list hold columns instead."""
    return isinstance(given, (list, tuple)) and bool(given) and all(map(_is_row, given))


def listed(given: object) -> Sequence[Any]:
    """What a list of tables or logs holds, or the one that is given alone; a list of rows is one table."""
    return given if isinstance(given, (list, tuple)) and not is_rows(given) else [given]


def _is_row(given: object) -> bool:
    plain = (str, Real, np.generic, NoneType)
    return isinstance(given, Mapping) and bool(given) and all(isinstance(value, plain) for value in given.values())


def _columns_of(table: object) -> dict[str, list[object]]:
    """Columns as lists: of a Polars frame, of a pandas frame (whose missing values are NaN), or of a mapping."""
    if isinstance(table, pl.DataFrame):
        return {name: table[name].to_list() for name in table.columns}
    if isinstance(table, PandasLike):
        return {str(name): list(map(_present, column)) for name, column in table.to_dict("list").items()}
    if isinstance(table, Mapping):
        return {str(name): _listed(str(name), column) for name, column in table.items()}
    if is_rows(table):
        return {str(name): [_scalar(row.get(name)) for row in table] for name in dict.fromkeys(chain(*table))}
    hint = "pass a path, a Polars or pandas frame, a mapping of columns, or a list of rows, each a mapping"
    raise DataError(f"cannot read a table from {described(table)}", hint=hint)


def _listed(name: str, column: object) -> list[object]:
    """A column as Python objects; in an array, which has no other sign for it, NaN is an empty cell."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    if isinstance(column, str) or not isinstance(column, Iterable):
        hint = "give every column as a list or an array, one value a row"
        raise DataError(f"the column {name!r} is {described(column)}", hint=hint)
    if isinstance(column, np.ndarray):
        return column.tolist()
    return [_scalar(value) for value in column]


def _present(value: object) -> object:
    """A cell of a pandas frame, in which NaN, NaT and NA are empty cells."""
    plain = _scalar(value)
    return None if plain is None or type(plain).__name__ in ("NAType", "NaTType") or plain != plain else plain


def _scalar(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def from_columns(columns: dict[str, list[object]], origin: str = "<memory>", kind: str = "") -> Sheet:
    """The sheet of columns that no file holds."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns differ in length: {lengths}", location=Location(file=origin))
    cells = {name: plain(column) for name, column in columns.items()}
    rows = next(iter(lengths.values()), 0)
    digest = hashlib.sha256(repr(sorted(cells.items())).encode("utf-8", "replace")).hexdigest()
    return _sheet(Cells(cells, list(range(1, rows + 1)), kind=kind), origin, digest)


def numbers(sheet: Sheet, column: str, faults: list[Fault], *, empty: bool = False, sizes: bool = False) -> FloatArray:
    """A column (R,) as doubles, each the nearest to its text; NaN where a cell is empty or faulty.

    Parameters
    ----------
    faults : list of Fault
        Gets a fault for every cell that is no finite number.
    empty : bool
        Whether an empty cell is allowed.
    sizes : bool
        Whether `243M` is a number.
    """
    cells, mixed = sheet.columns[column], set[int]()
    if sheet.place(column).decimal == ",":
        cells, mixed = _with_points(sheet, column, faults)
    values = _quick(cells)
    if values is None:
        values = np.array([_number(cell, sizes) for cell in cells], dtype=np.float64)
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        problem = None if row in mixed else _problem(cells[row], empty, sizes)
        if problem:
            faults.append(sheet.fault(row, column, f"{column} {problem[0]}", problem[1]))
    values[np.isinf(values)] = np.nan
    return values


def _with_points(sheet: Sheet, column: str, faults: list[Fault]) -> tuple[list[object], set[int]]:
    """The cells with a decimal point for their comma, and the rows that hold a point already: a fault, and empty."""
    found: list[object] = []
    mixed: set[int] = set()
    for row, cell in enumerate(sheet.columns[column]):
        text = cell.strip() if isinstance(cell, str) else cell
        if isinstance(text, str) and _WITH_COMMA.fullmatch(text):
            text = text.replace(".", "").replace(",", ".")
        elif isinstance(text, str) and "." in text and math.isfinite(_number(text, sizes=True)):
            message = f"{column} is {text!r}, in a table that writes decimals with commas"
            faults.append(sheet.fault(row, column, message, _MIXED))
            mixed.add(row)
            text = ""
        found.append(text)
    return found, mixed


_MIXED = "write all decimals in one way, and say which (decimal)"


def texts(sheet: Sheet, column: str, faults: list[Fault], *, empty: bool = False) -> tuple[str, ...]:
    """A column (R,) as text without surrounding white space."""
    found = tuple(_text(cell) for cell in sheet.columns[column])
    if not empty and "" in found:
        blank = (row for row, text in enumerate(found) if not text)
        faults.extend(sheet.fault(row, column, f"{column} is empty") for row in blank)
    return found


def require(
    sheet: Sheet,
    column: str,
    values: FloatArray,
    wrong: BoolArray,
    message: str,
    faults: list[Fault],
    hint: str | None = None,
) -> None:
    """A fault for every row of the mask `wrong`; NaN has been reported before and is passed over."""
    for row in np.flatnonzero(np.asarray(wrong) & ~np.isnan(values)).tolist():
        faults.append(sheet.fault(row, column, f"{column} = {values[row]:g}, {message}", hint))


def _quick(cells: list[Any]) -> FloatArray | None:
    """All cells at once, or None if one of them needs a closer look (`float` would take 1_000 for 1000)."""
    try:
        values = np.array([math.nan if cell == "" else float(cell) for cell in cells], dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    written = cells if set(map(type, cells)) == {str} else [cell for cell in cells if isinstance(cell, str)]
    return None if "_" in "".join(written) else values


def _number(cell: object, sizes: bool) -> float:
    """The number in a cell; NaN if there is none."""
    text = str(cell).strip()
    try:
        return parse_size(text) if sizes and text[-1:].isalpha() else math.nan if "_" in text else float(text)
    except (ValueError, OverflowError, UsageError):
        return math.nan


def _problem(cell: object, empty: bool, sizes: bool) -> tuple[str, str | None] | None:
    """What is wrong with a cell that is no finite number, and what to do; None if it may be empty and is."""
    text = str(cell).strip()
    if not text:
        return None if empty else ("is empty", "fill it in, or leave out the row" if sizes else None)
    try:
        kind = "NaN" if math.isnan(float(text)) and "_" not in text else "infinite"
    except (ValueError, OverflowError):
        return f"is not a number: {text[:40]!r}", _number_hint(text, sizes)
    if "_" in text:
        return f"is not a number: {text[:40]!r}", "write digits without underscores"
    return f"is {kind}, expected a finite number", _EMPTY_HINT if empty else None


def _number_hint(text: str, sizes: bool) -> str | None:
    if text.lower() in ("na", "n/a", "null", "none", "-", "--", "?", "missing"):
        return _EMPTY_HINT
    if text.endswith("%"):
        return "write it without its sign, and read percentages with ratio_unit='percent', or unit='percent' for losses"
    if _THOUSANDS.fullmatch(text) and text.count(",") > 1:
        return f"leave out the commas between thousands: {text.replace(',', '')}"
    if text.count(",") == 1 and text.replace(",", "").lstrip("+-").isdigit():
        plain = f", thousands without a mark ({text.replace(',', '')})" if sizes and _THOUSANDS.fullmatch(text) else ""
        return f"write decimals with a point{plain}, or say that commas are decimal marks: decimal='comma'"
    return "write it like 243M, 100B, 1.5e9 or 23712" if sizes else None


def _text(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return composed(str(cell).strip())
