"""A table as some tool left it: cells as they stand, and for each the file and line to name where one is wrong."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from shapleymix.display import short
from shapleymix.errors import DataError, Fault, Location, UsageError, did_you_mean
from shapleymix.files import Origin
from shapleymix.tables import sheets

LANG = "{lang}"
"""What stands for each language in a pattern of names."""
HIDDEN = "\0"
"""How names of columns begin that are ours."""
LINE, FILE = f"{HIDDEN}line", f"{HIDDEN}file"
"""Columns that hold the line of each row, null where it stands on none, and the file, where rows are of several."""
PATH = "path"
"""The column that a form adds where a file or a folder is a run: the part of its path that tells it from others."""
IDS = ("run", "run_id")
"""Names under which a table may hold the ids of runs."""
GROUP = "Group: "
"""How the charts of Weights & Biases begin the names of groups of runs."""
_ID = f"{HIDDEN}id"

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
        The file, folder or address; and the form in which it is written, empty for a plain table.
    usual : dict
        Of each key of a map the column that the form itself fixes, such as D in the state of a trainer.
    keys : tuple of str
        The columns by which a measurement is one in this form, such as run and step: rows that agree in them are one.
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
    usual: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    files: tuple[Origin, ...] = ()
    homes: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    swarm: Swarm | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those that are ours."""
        return [name for name in self.frame.columns if not name.startswith(HIDDEN)]

    @property
    def called(self) -> dict[str, str]:
        """Names by which a map may call columns: their own, and `table:column` of a joined table."""
        homes = {f"{Path(file).name.split('.')[0]}:{own}": name for name, (file, own, _) in self.homes.items()}
        return {**homes, **({"run": PATH} if PATH in self.columns else {}), **{name: name for name in self.columns}}

    def matching(self, pattern: str) -> dict[str, str]:
        """The columns of a pattern by language; one that is called by that of its table before it is found by that."""
        if LANG not in pattern:
            return {}
        called, (stem, colon, _) = self.called, pattern.partition(":")
        beside = bool(colon) and any(name.startswith(f"{stem}:") for name in called.keys() - {*self.columns})
        return {label: called[name] for label, name in matches(pattern, called if beside else self.columns).items()}

    def fault(self, message: str, column: str | None = None, row: int | None = None, hint: str | None = None) -> None:
        """Write down what is wrong with a cell, a row, or a column (whose name stands in line 1)."""
        origin, name, lines = self.homes.get(column or "", (self.origin, column, LINE))
        line = 1 if row is None else self.frame[lines][row]
        if row is not None and lines == LINE and FILE in self.frame.columns:
            origin = self.frame[FILE][row]
        self.faults.append(Fault(message, Location(origin, line, name), hint=hint))

    def unknown(self, name: str, what: str, hint: str | None = None) -> None:
        """Write down that there is no such column."""
        self.fault(f"has no column {name!r}, which is to be {what}", hint=hint or did_you_mean(name, self.columns))

    def need(self, names: Iterable[str], what: str) -> None:
        """A DataError with every column that is not there, and the faults so far."""
        for name in names:
            if name not in self.columns:
                self.unknown(name, what)
        self.raise_faults()

    def raise_faults(self) -> None:
        """A DataError with every fault so far."""
        if self.faults:
            raise DataError.of(self.faults, self.origin)

    def numbers(self, column: str) -> pl.Series:
        """A column as numbers, null where a cell is empty or NaN; sizes such as 97.6k are numbers too."""
        cells = self.frame[column]
        values, blank = sheets.as_numbers(cells)
        for row in (values.is_null() & ~blank).arg_true():
            self.fault(f"is not a number: {cells[row]!r:.60}", column, row, sheets.NUMBER_HINT)
        return values.fill_nan(None)

    def texts(self, column: str) -> pl.Series:
        """A column as text without blanks around it, null where a cell is empty."""
        return self.frame[column].cast(pl.String).str.strip_chars().replace("", None)


def matches(pattern: str, columns: Iterable[str]) -> dict[str, str]:
    """The columns that a pattern stands for, by the language in their names, in their order."""
    first, *rest = map(re.escape, pattern.split(LANG))
    form = re.compile(f"{first}(?P<lang>.+){'(?P=lang)'.join(rest)}" if rest else first, re.DOTALL)
    found = ((form.fullmatch(column), column) for column in columns)
    return {match.groupdict().get("lang", column): column for match, column in found if match}


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


def flatten(given: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Settings within settings as one level, with points between their names; objects in a list go by their labels."""
    found: dict[str, object] = {}
    for name, value in given.items():
        inner = value if isinstance(value, Mapping) else _labelled(value)
        found |= {f"{before}{name}": value} if inner is None else flatten(inner, f"{before}{name}.")
    return found


def _labelled(value: object) -> dict[str, object] | None:
    """The objects of a list by the first text that tells them apart, or by their places; None of anything else."""
    if not (isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value)):
        return None
    labels = labels_of(value) or map(str, range(len(value)))
    return dict(zip(labels, value, strict=True))


def labels_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first text of objects that tells them apart; none if there is no such text."""
    for name in rows[0]:
        cells = [one[name][0] if isinstance(one.get(name), list) and one[name] else one.get(name) for one in rows]
        if all(isinstance(cell, str) for cell in cells) and len({*cells}) == len(rows) > 1:
            return distinct_parts([*map(str, cells)])
    return []


def distinct_parts(paths: Sequence[str]) -> list[str]:
    """What tells paths apart: without the folders that all begin or end with, and no more of them than it takes."""
    parts = [path.split("/") for path in paths]
    for end in (0, -1):
        while len({one[end] for one in parts}) == 1 and min(map(len, parts)) > 1:
            for one in parts:
                del one[end]
    firsts = Counter("/".join(one[:n]) for one in parts for n in range(1, len(one) + 1))
    return [
        next((start for n in range(1, len(one)) if firsts[start := "/".join(one[:n])] == 1), "/".join(one))
        for one in parts
    ]


def stack(tables: Sequence[Table]) -> Table:
    """Tables of one form, as one; rows that agree in the form's keys are one measurement, whose cells must agree.

    Raises
    ------
    DataError
        If the tables are of different forms.
    """
    first = tables[0]
    if other := next((one for one in tables if one.kind != first.kind), None):
        message = (
            f"is no {first.kind or 'table'}, as {first.origin} is: import each by itself, and fit the logs together"
        )
        raise DataError(message, location=Location(other.origin))
    frames = [one.frame.with_columns(pl.lit(one.origin).alias(FILE)) for one in tables]
    frame = pl.concat(frames, how="diagonal_relaxed") if tables[1:] else first.frame
    whole = replace(
        first,
        frame=frame,
        origin=first.origin if len(tables) == 1 else f"{first.origin} and {len(tables) - 1} more",
        usual={key: name for one in tables for key, name in one.usual.items()},
        notices=tuple(dict.fromkeys(notice for one in tables for notice in one.notices)),
        files=tuple(file for one in tables for file in one.files),
    )
    return _merged(whole) if first.keys and frame.select(first.keys).is_duplicated().any() else whole


def _merged(table: Table) -> Table:
    """The table with one row for each measurement; two numbers for one cell of it are a fault."""
    names, keys = [name for name in table.columns if name not in table.keys], list(table.keys)
    different = table.frame.with_columns(pl.col(names).drop_nulls().n_unique().over(keys))
    for name in names:
        if wrong := (different[name] > 1).arg_true().to_list():
            table.fault(f"has several values for one {' and '.join(keys)}: keep the one that counts", name, wrong[-1])
    table.raise_faults()
    return replace(table, frame=table.frame.group_by(keys, maintain_order=True).agg(pl.all().drop_nulls().first()))


def join_tables(main: Table, other: Table, run: str | None, pair: tuple[str, str] | None = None) -> Table:
    """The table with the columns of a table beside its own; one that both have is called `table:column`.

    Parameters
    ----------
    main : Table
        A row for each measurement; the ids of its runs may repeat.
    other : Table
        A row for each run.
    run : str, optional
        The column with the ids, where it is not called `run`.
    pair : tuple of str, optional
        The columns with the ids in the other table and in this one, where nothing else tells them.

    Raises
    ------
    DataError
        If a table has no ids, one of them twice, or lacks a run of the first table.
    """
    there, here = (pair[0], main.called.get(pair[1], pair[1])) if pair else _shared_ids(main, other, run)
    for table, name in ((main, here), (other, there)):
        table.need([name], "the ids of runs, by which tables are joined")
    ids, wanted = other.texts(there).str.strip_prefix(GROUP), main.texts(here)
    for name in ids.filter(ids.is_duplicated()).unique():
        other.fault(f"has run {name!r} twice", there)
    other.raise_faults()
    for row in (~wanted.is_in(ids.drop_nulls().to_list()) & wanted.is_first_distinct()).arg_true():
        hint = did_you_mean(str(wanted[row]), ids.drop_nulls())
        main.fault(f"run {wanted[row]!r} is not in {other.origin}", here, row, hint)
    main.raise_faults()
    stem, line = Path(other.origin).name.split(".")[0], f"{LINE}{len(main.frame.columns)}"
    names = {name: f"{stem}:{name}" if name in main.columns else name for name in other.columns if name != there}
    if twice := {*names.values()} & {*main.columns}:
        other.fault(f"has columns of another table called {stem}: {short([*twice])}", hint="rename one of the files")
        other.raise_faults()
    beside = other.frame.with_columns(ids.alias(_ID)).select(_ID, *names, LINE).rename({**names, LINE: line})
    frame = main.frame.with_columns(wanted.alias(_ID)).join(beside, on=_ID, how="left", maintain_order="left")
    homes = {new: (other.origin, old, line) for old, new in names.items()}
    notices, files = (*main.notices, *other.notices), (*main.files, *other.files)
    if unused := sorted(map(str, {*ids} - {*wanted})):
        notices += (f"{len(unused)} runs of {other.origin} are left out, not in {main.origin}: {short(unused)}",)
    return replace(main, frame=frame.drop(_ID), notices=notices, files=files, homes={**main.homes, **homes})


def _shared_ids(main: Table, other: Table, run: str | None) -> tuple[str, str]:
    """The columns of ids in the other table and in this one: by their names, or the one pair whose cells say so."""
    named = [name for name in (run, *IDS) if name]
    heres = [name for name in (*named, PATH) if name in main.columns]
    theres = [name for name in named if name in other.columns]
    if heres and theres:
        return theres[0], heres[0]
    ids = {name: other.texts(name) for name in theres or other.columns}
    once = {name: {*one} for name, one in ids.items() if 1 < len(one) == one.drop_nulls().n_unique()}
    pairs = [(there, here) for here in heres or main.columns for there in once if {*main.texts(here)} <= once[there]]
    return pairs[0] if len(pairs) == 1 else ((theres or named)[0], (heres or named)[0])


def with_plain_errors(service: str, origin: str, ask: Callable[[], T]) -> T:
    """What a service answers; what its package, its database or the network raise becomes one plain error."""
    try:
        return ask()
    except (DataError, UsageError):
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{service} does not hand it out: {text[:200]}", location=Location(origin)) from error
