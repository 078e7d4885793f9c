"""Tables with a row a run, joined to the table with the losses by the ids of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shapleymix.errors import DataError, Fault, did_you_mean
from shapleymix.tables.sheets import Place, Sheet, texts
from shapleymix.tables.training_logs import ONE_RUN

IDS = ("run", "run_id")
"""Names under which a joined table may hold the ids of runs."""

Qualified = Mapping[str, str]
"""Columns by `table:column`, where the table is called as its file."""


def qualified(sheet: Sheet) -> Qualified:
    """The columns by their names with that of the table in which they were written."""
    places = {name: sheet.place(name) for name in sheet.columns}
    return {f"{stem(place.origin)}:{place.column}": name for name, place in places.items()}


def joined(main: Sheet, others: Sequence[Sheet], run: str | None) -> Sheet:
    """The table with the columns of the others beside its own.

    A column whose name is in several tables is called `table:column`.

    Parameters
    ----------
    main : Sheet
        A row for each measurement; the ids of its runs may repeat.
    others : sequence of Sheet
        A row for each run.
    run : str, optional
        The column with the ids, where it is not called `run`.

    Raises
    ------
    DataError
        If a table has no ids, one of them twice, or lacks a run of the first table.
    """
    for other in others:
        main = _beside(main, other, run)
    return main


def _beside(main: Sheet, other: Sheet, run: str | None) -> Sheet:
    ids, key = texts(main, _key(main, run), []), _key(other, run)
    row = _rows(other, key)
    faults = list(_missing(main, _key(main, run), ids, row, other))
    if faults:
        raise DataError.of(faults, main.origin)
    index = np.array([row[name] for name in ids], dtype=np.int64)
    table = stem(other.origin)
    names = {name: name if name not in main.columns else f"{table}:{name}" for name in other.columns if name != key}
    columns = {new: [other.columns[old][place] for place in index.tolist()] for old, new in names.items()}
    lines = other.lines[index]
    places = {new: Place(old, other.origin, lines, other.decimal) for old, new in names.items()}
    spare = [name for name in row if name not in set(ids)]
    told = (
        [f"{other.origin}: {len(spare)} runs have no row in {main.origin}: {_listed(spare)}"]
        if spare and main.kind not in ONE_RUN
        else []
    )
    return replace(
        main,
        columns={**main.columns, **columns},
        places={**main.places, **places},
        notices=(*main.notices, *(f"{other.origin}: {one}" for one in other.notices), *told),
    )


def _key(sheet: Sheet, run: str | None) -> str:
    """The column with the ids of runs."""
    names = [run, *IDS] if run else list(IDS)
    known = next((name for name in names if name in sheet.columns), None)
    if known is None:
        message = f"has no column {names[0]!r}, by whose ids tables are joined"
        hint = did_you_mean(names[0], sheet.columns)
        raise DataError.of([sheet.header_fault(names[0], message, hint)], sheet.origin)
    return known


def _rows(sheet: Sheet, key: str) -> dict[str, int]:
    """The row of each run."""
    faults: list[Fault] = []
    found: dict[str, int] = {}
    for row, name in enumerate(texts(sheet, key, faults)):
        earlier = found.setdefault(name, row)
        if earlier != row and name:
            message = f"repeats run {name!r} of line {sheet.lines[earlier]}"
            faults.append(sheet.fault(row, key, message, "a joined table has one row for each run"))
    if faults:
        raise DataError.of(faults, sheet.origin)
    return found


def _missing(main: Sheet, key: str, ids: Sequence[str], rows: Mapping[str, int], other: Sheet) -> Iterator[Fault]:
    """A fault for each run that the joined table lacks, where it occurs first."""
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if name not in rows and name not in seen:
            seen.add(name)
            yield main.fault(row, key, f"run {name!r} is not in {other.origin}", did_you_mean(name, rows))


def stem(origin: str) -> str:
    """What a table is called: its file without folder and ending."""
    return Path(origin).name.split(".")[0] or origin


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
