"""A table as some tool left it: cells as they stand, and for each the file and line to name where one is wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from shapleymix.errors import DataError, Fault, Location, UsageError, did_you_mean
from shapleymix.files import Origin
from shapleymix.tables import sheets
from shapleymix.tables.words import parse_size

HIDDEN = "\0"
"""How names of columns begin that are ours."""
LINE, FILE = f"{HIDDEN}line", f"{HIDDEN}file"
"""Columns that hold the line of each row, null where it stands on none, and the file, where rows are of several."""

T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """Cells, and where they are from.

    Attributes
    ----------
    frame : polars.DataFrame
        Columns of text or numbers, and `LINE`; of several files also `FILE`.
    origin, kind : str
        The file, folder or address; and which tool wrote it, empty where it may be any.
    notices : tuple of str
        What reading it brought up.
    files : tuple of Origin
        The files that were read, with their hashes.
    homes : dict
        Of a column that was joined to the others: its file, its name there, and the column with its lines.
    """

    frame: pl.DataFrame
    origin: str
    kind: str = ""
    notices: tuple[str, ...] = ()
    files: tuple[Origin, ...] = ()
    homes: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those that are ours."""
        return [name for name in self.frame.columns if not name.startswith(HIDDEN)]

    def fault(self, message: str, column: str | None = None, row: int | None = None, hint: str | None = None) -> Fault:
        """What is wrong with a cell, a row, or a column (whose name stands in line 1)."""
        origin, name, lines = self.homes.get(column or "", (self.origin, column, LINE))
        line = 1 if row is None else self.frame[lines][row]
        if row is not None and lines == LINE and FILE in self.frame.columns:
            origin = self.frame[FILE][row]
        return Fault(message, Location(origin, line, name), hint=hint)

    def unknown(self, name: str, what: str) -> Fault:
        """That there is no such column."""
        return self.fault(f"has no column {name!r}, which is to be {what}", hint=did_you_mean(name, self.columns))

    def numbers(self, column: str, faults: list[Fault], decimal: str = ".") -> pl.Series:
        """A column as numbers, null where a cell is empty or NaN; sizes such as 97.6k are numbers too."""
        cells = self.frame[column]
        if cells.dtype.is_numeric():
            return cells.cast(pl.Float64).fill_nan(None)
        text = cells.cast(pl.String).str.strip_chars()
        if decimal == ",":
            text = text.str.replace(",", ".", literal=True)
        values = text.cast(pl.Float64, strict=False).to_list()
        for row, (value, cell) in enumerate(zip(values, text.to_list(), strict=True)):
            if value is None and cell:
                try:
                    values[row] = parse_size(cell)
                except UsageError:
                    hint = "map decimal=, reads decimal commas" if "," in cell else None
                    faults.append(self.fault(f"is not a number: {cell!r:.60}", column, row, hint))
        return pl.Series(column, values, pl.Float64).fill_nan(None)

    def texts(self, column: str) -> pl.Series:
        """A column as text without blanks around it, null where a cell is empty."""
        return self.frame[column].cast(pl.String).str.strip_chars().replace("", None)


def table_of(
    rows: Sequence[Mapping[str, object]], origin: str, kind: str = "", lines: Sequence[int | None] | None = None
) -> Table:
    """A table of rows by name; what a row lacks is null, and what is neither a number nor a text is its text."""
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        cells = [row.get(name) for row in rows]
        plain = all(type(cell) in (int, float, type(None)) for cell in cells)
        columns.append(pl.Series(name, cells if plain else list(map(_text, cells)), strict=False))
    line = pl.Series(LINE, list(lines) if lines is not None else [None] * len(rows), pl.Int64)
    return Table(pl.DataFrame([*columns, line]), origin, kind)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def flat(given: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Settings within settings as one level, with points between their names."""
    found: dict[str, object] = {}
    for name, value in given.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def text_of(data: bytes, origin: str) -> str:
    """The text of a file, unpacked where it is packed.

    Raises
    ------
    DataError
        If it is no UTF-8.
    """
    try:
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        hint = "save it as UTF-8, or as Parquet"
        raise DataError(f"is no text in UTF-8: {error}", location=Location(origin), hint=hint) from error


def parse_csv(text: str, origin: Origin) -> Table:
    """Text with commas, semicolons or tabs between its columns, whichever its header has most of.

    Raises
    ------
    DataError
        With every row that has more or fewer cells than the header, or a name that comes twice.
    """
    mark = max(",;\t", key=text.partition("\n")[0].count)
    sheet = sheets.parse_csv(text, origin, mark)
    filled = pl.DataFrame(sheet.columns).with_columns(pl.all().replace("", None))
    kept = pl.any_horizontal(pl.all().is_not_null())
    return Table(filled.with_columns(pl.Series(LINE, sheet.lines)).filter(kept), origin.file)


def parse_json(text: str, origin: str) -> Table:
    """An array of objects, or an object a line; an object within one is columns such as `config.lr`.

    Raises
    ------
    DataError
        If it is another thing.
    """
    if text.lstrip().startswith("["):
        numbered = [(None, row) for row in loaded(text, origin)]
    else:
        lines = enumerate(text.splitlines(), start=1)
        numbered = [(line, loaded(content, origin, line)) for line, content in lines if content.strip()]
    for line, row in numbered:
        if not isinstance(row, dict):
            raise DataError("is not a JSON object", location=Location(origin, line), hint="write an object a line")
    return table_of([flat(row) for _, row in numbered], origin, lines=[line for line, _ in numbered])


def loaded(text: str, origin: str, line: int | None = None) -> Any:
    """The content of JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        place = line or getattr(error, "lineno", None)
        raise DataError(f"is not valid JSON: {error}", location=Location(origin, place)) from error


def told(service: str, origin: str, ask: Callable[[], T]) -> T:
    """What a service answers; what its package, its database or the network raise becomes one plain error."""
    try:
        return ask()
    except (DataError, UsageError):
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{service} does not hand it out: {text[:200]}", location=Location(origin)) from error
