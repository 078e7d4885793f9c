"""Long tables, with a row for each run and language or for each number, as wide ones with a row for each run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import DataError, Fault, UsageError
from shapleymix.tables.importing.column_map import LABELLED, SINGLE, ColumnMap
from shapleymix.tables.importing.patterns import is_pattern, matches
from shapleymix.tables.importing.summaries import how_to_ignore, no_language, summaries
from shapleymix.tables.names import check_label
from shapleymix.tables.runs import PREFIXES
from shapleymix.tables.sheets import Place, Sheet, texts
from shapleymix.tables.sizes import parse_size

LANGUAGES = ("language", "lang")
NAMES, VALUES = ("metric", "key", "name", "variable"), ("value",)
USUAL = {"p": ("p", "ratio"), "tokens": ("tokens",), "unique": ("tokens_unique",), "loss": ("loss",)}
"""Names that columns of a long table have where the map does not say."""


def widened(sheet: Sheet, map: ColumnMap) -> tuple[Sheet, ColumnMap]:
    """The wide table of a long one, and what of the map is left to do.

    Rows of one run and D belong together; without ids of runs, rows that agree in all other columns of a log. A
    source that a run has no row for has ratio 0.

    Raises
    ------
    DataError
        If a run has a language twice, or its rows disagree about what holds for the run.
    """
    name = map.roles.get("name") or (None if _first(sheet, map, "language", LANGUAGES) else _any(sheet, NAMES))
    if name is not None:
        return _by_name(sheet, map, str(name))
    language = _first(sheet, map, "language", LANGUAGES)
    if language is None or language not in sheet.columns:
        hint = 'say which column holds them, map="language=lang", or the names of numbers, map="name=metric"'
        fault = sheet.header_fault("language", "has no column of languages: a long table needs one", hint)
        raise DataError.of([fault], sheet.origin)
    return _by_language(sheet, map, language)


@dataclass(frozen=True)
class _Groups:
    """Which rows belong together: the group of each row, and the first row of each group."""

    of: list[int]
    first: list[int]


def _by_language(sheet: Sheet, map: ColumnMap, language: str) -> tuple[Sheet, ColumnMap]:
    values = {role: column for role in LABELLED if (column := _value_column(sheet, map, role)) is not None}
    faults: list[Fault] = []
    sheet = _without_ignored(sheet, map, language)
    labels = [map.called(label) for label in texts(sheet, language, faults)]
    faults.extend(_bad_languages(sheet, map, language, labels))
    groups = _grouped(sheet, map, {language, *values.values()})
    cell = _cells_of(sheet, language, labels, groups, faults)
    faults.extend(_disagreements(sheet, groups, _kept(sheet, map, {language, *values.values()})))
    if faults:
        raise DataError.of(faults, sheet.origin)
    columns = {
        f"{PREFIXES[role]}{label}": (column, rows) for role, column in values.items() for label, rows in cell.items()
    }
    found, absent = _spread(sheet, groups, columns, {language, *values.values()})
    told = [f"{absent} ratios of languages that a run has no row for are 0"] if absent else []
    kept = {role: how for role, how in map.labelled.items() if role not in values}
    rest = replace(map, labelled=kept, roles=_without(map.roles, "language"))
    return replace(found, notices=(*found.notices, *told)), rest


def _without_ignored(sheet: Sheet, map: ColumnMap, language: str) -> Sheet:
    """The sheet without the rows of languages that the map ignores."""
    kept = [row for row, cell in enumerate(sheet.columns[language]) if str(cell).strip() not in map.ignore]
    if len(kept) in (0, sheet.rows):
        return sheet
    told = f"left out {sheet.rows - len(kept)} rows of languages that are ignored"
    return replace(sheet.taken(kept), notices=(*sheet.notices, told))


def _bad_languages(sheet: Sheet, map: ColumnMap, language: str, labels: Sequence[str]) -> Iterator[Fault]:
    """Labels that cannot be used, in every row, and averages and the like, where they come first."""
    doubtful = summaries(dict.fromkeys(labels), map.languages)
    for row, label in enumerate(labels):
        if label and (problem := check_label(label)):
            yield sheet.fault(row, language, f"the language {label!r} {problem}")
    for label in doubtful:
        yield sheet.fault(labels.index(label), language, no_language(label), how_to_ignore(doubtful, label))


def _by_name(sheet: Sheet, map: ColumnMap, name: str) -> tuple[Sheet, ColumnMap]:
    """A row for each number: its name becomes a column."""
    value = _first(sheet, map, "value", VALUES)
    for role, column in (("name", name), ("value", value)):
        if column is None or column not in sheet.columns:
            fault = sheet.header_fault(
                column or role, f"has no column {column or role!r}", f'say which it is: map="{role}=..."'
            )
            raise DataError.of([fault], sheet.origin)
    assert value is not None
    faults: list[Fault] = []
    labels = texts(sheet, name, faults)
    groups = _grouped(sheet, map, {name, value})
    cell = _cells_of(sheet, name, labels, groups, faults)
    if faults:
        raise DataError.of(faults, sheet.origin)
    found, _ = _spread(sheet, groups, {label: (value, rows) for label, rows in cell.items()}, {name, value})
    return found, replace(map, roles=_without(map.roles, "name", "value"))


def _grouped(sheet: Sheet, map: ColumnMap, apart: set[str]) -> _Groups:
    """Rows of one run and D together; without ids of runs, rows that agree in all that holds for a run."""
    kept = _kept(sheet, map, apart)
    run, D = (_first(sheet, map, role, (role,)) for role in ("run", "D"))
    key = [column for column in (run, D) if column in kept] if run in kept else kept
    of, first = [], []
    known: dict[tuple[object, ...], int] = {}
    cells = [_worth(sheet.columns[column], column, (run,)) for column in key if column is not None]
    for row in range(sheet.rows):
        place = known.setdefault(tuple(column[row] for column in cells), len(first))
        if place == len(first):
            first.append(row)
        of.append(place)
    return _Groups(of, first)


def _worth(cells: Sequence[object], column: str | None, names: Collection[str | None]) -> list[object]:
    """The cells of a column as numbers where they are, so that 1M is 1000000.0; columns of `names` hold none."""
    if column in names:
        return list(cells)
    known: dict[object, object] = {}
    for cell in cells:
        if cell not in known:
            known[cell] = _number(cell)
    return [known[cell] for cell in cells]


def _number(cell: object) -> object:
    try:
        return parse_size(cell) if isinstance(cell, (str, int, float)) else cell
    except UsageError:
        return cell


def _kept(sheet: Sheet, map: ColumnMap, apart: set[str]) -> list[str]:
    """The columns that hold for a run as a whole: what the map names, and a log's own."""
    named = {str(column) for role, column in map.roles.items() if role in SINGLE}
    own = {role for role in SINGLE if role not in map.roles}
    wide = tuple(PREFIXES[role] for role in LABELLED if role not in map.labelled)
    patterns = [how for how in map.labelled.values() if isinstance(how, str) and is_pattern(how)]
    wanted = named | own | {column for how in patterns for column in matches(how, sheet.columns).values()}
    return [name for name in sheet.columns if name not in apart and (name in wanted or name.startswith(wide))]


def _cells_of(
    sheet: Sheet, column: str, labels: Sequence[str], groups: _Groups, faults: list[Fault]
) -> dict[str, list[int]]:
    """The row in which each group has each label, -1 where it has none."""
    found: dict[str, list[int]] = {}
    for row, (label, group) in enumerate(zip(labels, groups.of, strict=True)):
        rows = found.setdefault(label, [-1] * len(groups.first))
        if rows[group] >= 0:
            message = f"{label!r} comes twice for one run and D, first in line {sheet.lines[rows[group]]}"
            hint = 'say which column holds the ids of runs, map="run=...", or remove the row'
            faults.append(sheet.fault(row, column, message, hint))
        rows[group] = row
    return found


def _disagreements(sheet: Sheet, groups: _Groups, columns: Sequence[str]) -> Iterator[Fault]:
    """Rows of one run that say different things of it."""
    for column in columns:
        cells = sheet.columns[column]
        worth = _worth(cells, column, ("run", "split"))
        for row, group in enumerate(groups.of):
            first = groups.first[group]
            if worth[row] != worth[first]:
                message = f"{column} is {str(cells[row])[:40]!r}, and {str(cells[first])[:40]!r} in line "
                hint = "rows of one run and D agree in all but the language"
                yield sheet.fault(row, column, f"{message}{sheet.lines[first]} of the same run", hint)


def _spread(
    sheet: Sheet, groups: _Groups, wanted: Mapping[str, tuple[str, list[int]]], spent: set[str]
) -> tuple[Sheet, int]:
    """The sheet with a row for each group, without the columns that are `spent`, and how many ratios were absent.

    A column of ratios or tokens in which no row says anything is of a language that is no source.
    """
    first = np.array(groups.first, dtype=np.int64)
    kept = [name for name in sheet.columns if name not in spent]
    columns = {name: [sheet.columns[name][row] for row in groups.first] for name in kept}
    places = {name: replace(sheet.place(name), lines=sheet.place(name).lines[first]) for name in kept}
    absent = 0
    for name, (column, rows) in wanted.items():
        shares = name.startswith((PREFIXES["p"], PREFIXES["tokens"])) and not name.startswith(PREFIXES["unique"])
        cells = [sheet.columns[column][row] if row >= 0 else "" for row in rows]
        if shares and not any(str(cell).strip() for cell in cells):
            continue
        if shares:
            absent += sum(row < 0 for row in rows)
            cells = [cell if row >= 0 else 0.0 for cell, row in zip(cells, rows, strict=True)]
        place = sheet.place(column)
        lines = place.lines[np.where(np.array(rows) >= 0, rows, first)]
        columns[name], places[name] = cells, Place(place.column, place.origin, lines, place.decimal)
    return replace(sheet, columns=columns, lines=sheet.lines[first], places=places), absent


def _value_column(sheet: Sheet, map: ColumnMap, role: str) -> str | None:
    """The column that holds a role's numbers of all languages, if one does."""
    how = map.labelled.get(role)
    if how is None:
        return _any(sheet, [name for name in USUAL[role] if name not in map.roles.values()])
    return how if isinstance(how, str) and how in sheet.columns else None


def _first(sheet: Sheet, map: ColumnMap, role: str, usual: Sequence[str]) -> str | None:
    """The column of a role: as the map says, or by a usual name."""
    how = map.roles.get(role)
    return _any(sheet, usual) if how is None else str(how)


def _any(sheet: Sheet, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in sheet.columns), None)


def _without(roles: Mapping[str, str | float], *names: str) -> dict[str, str | float]:
    return {role: how for role, how in roles.items() if role not in names}
