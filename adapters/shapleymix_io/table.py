"""A table as some tool left it: cells as they stand, and for each the file and line to name where one is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from shapleymix.errors import DataError, Fault, Location, UsageError, did_you_mean
from shapleymix.files import Origin
from shapleymix.tables import sheets

HIDDEN = "\0"
"""How names of columns begin that are ours."""
LINE, FILE = f"{HIDDEN}line", f"{HIDDEN}file"
"""Columns that hold the line of each row, null where it stands on none, and the file, where rows are of several."""

T = TypeVar("T")


@dataclass(frozen=True)
class Swarm:
    """What the configuration of a swarm says beside its runs.

    Attributes
    ----------
    tokens, prior : dict of str to float
        Unique tokens of each source, and ratios towards which the mixture is pulled; empty where it does not say.
    target, kl : float
        Tokens of the run that they are for (NaN where it does not say), and how strong the pull is, in the unit of the
        losses.
    options : dict of str to str
        Options of `optimize` that ask what the configuration asks.
    N, D : float
        Parameters and tokens of each run; NaN where no configuration says them.
    unit : str
        Unit of the metrics; empty where nothing says it.
    bytes_per_token : dict of str to float
        Of each target, where losses were read as bits a byte.
    """

    tokens: Mapping[str, float]
    prior: Mapping[str, float]
    target: float
    kl: float
    options: Mapping[str, str]
    N: float = math.nan
    D: float = math.nan
    unit: str = ""
    bytes_per_token: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Cells, and where they are from; whoever reads a column writes down what is wrong in it.

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
    swarm : Swarm, optional
        What a configuration beside the runs says.
    faults : list of Fault
        What is wrong so far, here and in tables that are made of this one; `raise_faults` tells all of it at once.
    """

    frame: pl.DataFrame
    origin: str
    kind: str = ""
    notices: tuple[str, ...] = ()
    files: tuple[Origin, ...] = ()
    homes: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    swarm: Swarm | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those that are ours."""
        return [name for name in self.frame.columns if not name.startswith(HIDDEN)]

    def fault(self, message: str, column: str | None = None, row: int | None = None, hint: str | None = None) -> None:
        """Write down what is wrong with a cell, a row, or a column (whose name stands in line 1)."""
        origin, name, lines = self.homes.get(column or "", (self.origin, column, LINE))
        line = 1 if row is None else self.frame[lines][row]
        if row is not None and lines == LINE and FILE in self.frame.columns:
            origin = self.frame[FILE][row]
        self.faults.append(Fault(message, Location(origin, line, name), hint=hint))

    def unknown(self, name: str, what: str, hint: str | None = None) -> None:
        """Write down that there is no such column."""
        message = f"has no column {name!r}, which is to be {what}"
        self.fault(message, hint=hint or did_you_mean(name, self.columns))

    def raise_faults(self) -> None:
        """A DataError with every fault so far."""
        if self.faults:
            raise DataError.of(self.faults, self.origin)

    def numbers(self, column: str) -> pl.Series:
        """A column as numbers, null where a cell is empty or NaN; sizes such as 97.6k are numbers too."""
        cells = self.frame[column]
        values, blank = sheets.as_numbers(cells)
        for row in (values.is_null() & ~blank).arg_true():
            self.fault(f"is not a number: {cells[row]!r:.60}", column, row)
        return values.fill_nan(None)

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
        texts = [None if cell is None else str(cell) for cell in cells]
        columns.append(pl.Series(name, cells if plain else texts, strict=False))
    line = pl.Series(LINE, list(lines) if lines is not None else [None] * len(rows), pl.Int64)
    return Table(pl.DataFrame([*columns, line]), origin, kind)


def flat(given: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Settings within settings as one level, with points between their names."""
    found: dict[str, object] = {}
    for name, value in given.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


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


def parse_json(text: str, origin: Origin) -> Table:
    """An array of objects, or an object a line; an object within one is columns such as `config.lr`.

    Raises
    ------
    DataError
        If it is another thing.
    """
    if not text.lstrip().startswith("["):
        rows = sheets.json_rows(text, origin)
        return table_of([flat(row) for row in rows.values()], origin.file, lines=list(rows))
    rows = loaded(text, origin.file)
    if not all(isinstance(row, dict) for row in rows):
        raise DataError("is no array of JSON objects", location=Location(origin.file))
    return table_of([flat(row) for row in rows], origin.file)


def loaded(text: str, origin: str) -> Any:
    """The content of JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        place = Location(origin, getattr(error, "lineno", None))
        raise DataError(f"is not valid JSON: {error}", location=place) from error


def with_plain_errors(service: str, origin: str, ask: Callable[[], T]) -> T:
    """What a service answers; what its package, its database or the network raise becomes one plain error."""
    try:
        return ask()
    except (DataError, UsageError):
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{service} does not hand it out: {text[:200]}", location=Location(origin)) from error
