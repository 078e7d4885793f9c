"""Any table as columns of cells with the line of each row: CSV (also gzipped), Parquet, JSONL, `-`, frames, columns.

Cells are read as text and judged afterwards, so that every wrong one is told at its file, line and column at once.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from shapleymix.display import Columns, frame_of
from shapleymix.errors import DataError, Fault, Location, UsageError, described, did_you_mean
from shapleymix.files import Origin, atomic_write, file_name, read_once
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.words import EXPONENTS, SIZE_HINT, check_label, find_repeated

Table = str | os.PathLike[str] | pl.DataFrame | Columns
"""A path, `-` for standard input, a Polars (or pandas) frame, or a mapping of columns.

A cell is empty where a text is empty, Polars has null, pandas or an array NaN, and a list None.
"""

PARQUET = b"PAR1"
"""How a Parquet file begins."""

NUMBER_HINT = "write decimals with a point, without units; a loss that was not measured is an empty cell"
_RAGGED = "quote cells that contain a comma; write decimals with a point; leave missing cells empty"
_NO_ROWS = "a table needs a header and at least one row"
_SIZE = rf"^([0-9.]+)\s*([{''.join(EXPONENTS)}])$"


@dataclass(frozen=True)
class Sheet:
    """A table as read: columns of cells by name, one line number a row (row numbers where there are no lines).

    Rows of several files have their `homes`. Whoever reads a column writes down what is wrong in it; `raise_faults`
    tells all of it at once.
    """

    origin: str
    digest: str
    columns: dict[str, pl.Series]
    lines: IntArray
    faults: list[Fault] = field(default_factory=list)
    homes: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def is_empty(self, row: int, column: str) -> bool:
        """Whether a cell holds nothing."""
        cell = self.columns[column][row]
        return cell is None or cell != cell or not str(cell).strip()

    def fault(self, message: str, row: int | None = None, column: str | None = None, hint: str | None = None) -> None:
        """Write down what is wrong in a row, a cell, or (without a row) with a column or the table as a whole."""
        line = (1 if column else None) if row is None else int(self.lines[row]) or None  # 0: it stands on no line
        value = column if column is None or row is None else str(self.columns[column][row])
        home = self.homes[row] if self.homes and row is not None else self.origin
        self.faults.append(Fault(message, Location(home, line, column), value, hint))

    def raise_faults(self) -> None:
        """A DataError with every fault so far, sorted by line, as a person would go through the files."""
        if self.faults:
            order = sorted(self.faults, key=lambda fault: (fault.location.file or "", fault.location.line or 0))
            raise DataError.of(order, self.origin)

    def need(self, columns: Sequence[str], hint: str | None = None) -> None:
        """A fault for every column that is not there; by default the hint is the name that may be meant."""
        for name in columns:
            if name not in self.columns:
                self.fault(f"has no column {name!r}", None, name, hint or did_you_mean(name, self.columns))

    def once(self, keys: Iterable[tuple[object, ...]], what: str, column: str | None, hint: str | None = None) -> None:
        """A fault for every row whose key (R,), written as `what`, an earlier row has; an empty text is no key."""
        first: dict[tuple[object, ...], int] = {}
        for row, key in enumerate(keys):
            earlier = first.setdefault(key, row)
            if earlier != row and "" not in key:
                before = f"line {self.lines[earlier]}" if self.lines[earlier] else f"row {earlier + 1}"
                self.fault(f"repeats {what.format(*key)} of {before}", row, column, hint)

    def numbers(self, column: str, *, empty: bool = False, sizes: bool = False) -> FloatArray:
        """A column (R,) as doubles, each the nearest to its text; NaN where a cell is empty or faulty, or no column.

        Parameters
        ----------
        empty : bool
            Whether a cell may be empty, and the column missing.
        sizes : bool
            Whether `243M` is a number.
        """
        if empty and column not in self.columns:
            return np.full(self.rows, np.nan)
        cells = self.columns[column]
        found, blank = as_numbers(cells, sizes)
        values, blank = found.fill_null(np.nan).to_numpy().copy(), blank.to_numpy()
        for row in np.flatnonzero(~np.isfinite(values) & ~(blank & empty)).tolist():
            if blank[row]:
                self.fault(f"{column} is empty", row, column, "fill it in, or leave out the row")
            else:
                message = f"{column} is not a finite number: {str(cells[row])[:40]!r}"
                self.fault(message, row, column, SIZE_HINT if sizes else NUMBER_HINT)
        values[np.isinf(values)] = np.nan
        return values

    def amounts(self, column: str) -> FloatArray:
        """A column (R,) of sizes above zero; NaN where a cell is empty, or no column."""
        values = self.numbers(column, empty=True, sizes=True)
        self.refuse(values <= 0, column, values, "expected more than 0")
        return values

    def texts(self, column: str, *, empty: bool = False) -> tuple[str, ...]:
        """A column (R,) as text without surrounding white space; 3.0 in a column of numbers is `3`."""
        cells = self.columns[column]
        if cells.dtype.is_float() and (cells.drop_nulls() % 1 == 0).all():
            cells = cells.cast(pl.Int64)
        found = tuple(cells.cast(pl.String, strict=False).fill_null("").str.strip_chars().to_list())
        for row in [row for row, text in enumerate(found) if not (text or empty)]:
            self.fault(f"{column} is empty", row, column)
        return found

    def labels(self, column: str) -> tuple[str, ...]:
        """A column (R,) of names; a fault for the first of each that no one can write in `en=0.5,de=0.5`."""
        found = self.texts(column)
        for name in dict.fromkeys(found):
            if name and (problem := check_label(name)):
                self.fault(f"the {column} {name!r} {problem}", found.index(name), column)
        return found

    def refuse(self, wrong: BoolArray, column: str, values: FloatArray, expected: str, hint: str | None = None) -> None:
        """A fault for every row of the mask `wrong` (R,); NaN has been reported before and is passed over."""
        for row in np.flatnonzero(wrong & ~np.isnan(values)).tolist():
            self.fault(f"{column} = {values[row]:g}, {expected}", row, column, hint)


def as_list(given: object) -> Sequence[Any]:
    """What a list of tables or logs holds, or the one that is given alone."""
    return given if isinstance(given, (list, tuple)) else [given]


def read_sheet(table: Table | Sheet, origin: str = "<memory>") -> Sheet:
    """Read a table without judging its cells. A file is read once: `digest` is the hash of the bytes that were read.

    `origin` is what messages call a table that is no file.

    Raises
    ------
    DataError
        If there is no such file, it is empty, or it is no table: every ragged row, repeated column name or broken
        line, with its line.
    """
    if isinstance(table, Sheet):
        return table
    if isinstance(table, (str, os.PathLike)):
        return sheet_of(*read_once(table))
    frame = _frame(table)
    digest = hashlib.sha256(repr(frame.to_dict(as_series=False)).encode("utf-8", "replace")).hexdigest()
    return _sheet(Origin(origin, digest), frame.to_dict(), range(1, frame.height + 1))


def sheet_of(data: bytes, origin: Origin) -> Sheet:
    """The sheet in the bytes of a file, whose name and first bytes say how it is written."""
    if data[:4] == PARQUET:
        frame = parquet_of(data, origin)
        return _sheet(origin, frame.to_dict(), range(1, frame.height + 1))
    text, name = text_of(data, origin), origin.file.lower().removesuffix(".gz")
    if not (name.endswith((".jsonl", ".ndjson")) or text.lstrip()[:1] == "{"):
        return parse_csv(text, origin)
    rows = json_rows(text, origin)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    columns = {name: pl.Series(name, [row.get(name) for row in rows.values()], strict=False) for name in names}
    return _sheet(origin, columns, list(rows))


def text_of(data: bytes, origin: Origin) -> str:
    """The text in the bytes of a file, unpacked where it is packed.

    Raises
    ------
    DataError
        If it is no whole gzip file, or no UTF-8, with the line.
    """
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"is not a whole gzip file: {error}", location=Location(origin.file)) from error
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        place = Location(origin.file, data.count(b"\n", 0, error.start) + 1)
        raise DataError(message, location=place, hint="save the file as comma-separated UTF-8 text (.csv)") from error


def json_rows(text: str, origin: Origin) -> dict[int, dict[str, object]]:
    """The objects of a text with one a line, by line.

    Raises
    ------
    DataError
        With every line that holds another thing.
    """
    rows: dict[int, dict[str, object]] = {}
    faults: list[Fault] = []
    for line, content in enumerate(text.split("\n"), start=1):
        try:
            if content.strip():
                rows[line] = dict(json.loads(content).items())
        except (ValueError, AttributeError, RecursionError) as error:
            faults.append(Fault(f"is not one JSON object on a line: {error}", Location(origin.file, line)))
    if faults:
        raise DataError.of(faults, origin.file)
    return rows


def parquet_of(data: bytes, origin: Origin) -> pl.DataFrame:
    """The frame in the bytes of a Parquet file, or a DataError."""
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"is not a whole Parquet file: {reason}", location=Location(origin.file)) from error


def _sheet(origin: Origin, columns: dict[str, pl.Series], lines: Sequence[int]) -> Sheet:
    if not columns or not len(lines):
        raise DataError("holds no rows", location=Location(origin.file), hint=_NO_ROWS)
    return Sheet(origin.file, origin.sha256, columns, np.array(lines, dtype=np.int64))


def _frame(table: object) -> pl.DataFrame:
    """A frame of columns in memory; pandas, which is no dependency, is told by its methods."""
    if isinstance(table, pl.DataFrame):
        return table
    if hasattr(table, "notna") and hasattr(table, "astype"):
        table = table.astype(object).where(table.notna(), None).to_dict("list")  # type: ignore[attr-defined]
    hint = "give a path, a frame, or a mapping of columns with one value a row"
    if not isinstance(table, Mapping):
        raise DataError(f"{described(table)} is no table", hint=hint)
    try:
        return pl.DataFrame({str(name): column for name, column in table.items()}, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise DataError(
            f"is no table: {str(error).splitlines()[0]}", location=Location("<memory>"), hint=hint
        ) from error


def parse_csv(text: str, origin: Origin, mark: str = ",") -> Sheet:
    """Lines are counted as an editor counts them, also where a quoted cell has several; empty ones are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            if any(row):
                rows.append(row)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        message = f"is not valid CSV, look for a quote mark: {error}"
        raise DataError(message, location=Location(origin.file, start)) from error
    header = [name.strip() or f"column {place}" for place, name in enumerate(rows[0] if rows else (), start=1)]
    if len(header) == 1 and (marks := [mark for mark in ";\t|" if mark in header[0]]):
        message = f"has columns separated by {marks[0]!r}, expected commas; `shapleymix import` reads such tables"
        raise DataError(message, location=Location(origin.file, 1))
    faults = [
        Fault(f"column {name!r} occurs twice", Location(origin.file, 1, name), name, "give each column its own name")
        for name in find_repeated(header)
    ]
    faults += [
        Fault(f"has {len(row)} cells, the header has {len(header)}", Location(origin.file, line), None, _RAGGED)
        for row, line in zip(rows, lines, strict=True)
        if len(row) != len(header)
    ]
    if faults:
        raise DataError.of(faults, origin.file)
    cells = zip(*rows[1:], strict=True)
    columns = {name: pl.Series(name, column, pl.String) for name, column in zip(header, cells, strict=False)}
    return _sheet(origin, columns, lines[1:])


def as_numbers(cells: pl.Series, sizes: bool = True) -> tuple[pl.Series, pl.Series]:
    """Cells (R,) as doubles, null where one is no number, and which of them are empty; of sizes `243M` is a number."""
    if cells.dtype.is_numeric():
        values = cells.cast(pl.Float64)
        return values, values.is_nan().fill_null(True)
    text = cells.cast(pl.String, strict=False).fill_null("").str.strip_chars()
    blank = text == ""
    if sizes:  # `243M` as `243e6`, which casting reads as the nearest double
        powers = {f"e{unit}": f"e{power}" for unit, power in EXPONENTS.items()}
        text = text.str.to_lowercase().str.replace(_SIZE, "${1}e${2}").str.replace_many(powers)
    return text.cast(pl.Float64, strict=False), blank


def write_table(columns: Columns, path: str | os.PathLike[str], *, force: bool = False) -> bytes:
    """Write columns so that reading gives the same numbers bit for bit; NaN is an empty cell.

    The same columns give the same bytes, which are returned.

    Raises
    ------
    UsageError
        If the file exists and `force` is not set, or its ending names no format.
    """
    frame = pl.DataFrame(list(map(_write_cells, frame_of(columns))))
    stream, name = io.BytesIO(), file_name(path).lower()
    if name.endswith((".parquet", ".pq")):
        frame.write_parquet(stream)
    elif name.endswith((".jsonl", ".ndjson")):
        frame.write_ndjson(stream)
    elif name.endswith((".csv", ".csv.gz")):
        frame.with_columns(pl.col(pl.String).replace("", None)).write_csv(stream)
    else:
        raise UsageError(
            "names no format: end it in .csv, .csv.gz, .parquet or .jsonl", location=Location(file_name(path))
        )
    data = stream.getvalue()
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # without a time stamp
    atomic_write(path, data, force=force)
    return data


def _write_cells(column: pl.Series) -> pl.Series:
    """A column to write: NaN empty, whole numbers without `.0`."""
    if column.dtype != pl.Float64:
        return column
    found = column.fill_nan(None)
    whole = found.drop_nulls()
    return found.cast(pl.Int64) if ((whole % 1 == 0) & (whole.abs() < 1e15)).all() else found
