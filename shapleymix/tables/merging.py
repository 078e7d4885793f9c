"""Exported charts of several metrics as one table, with a row for each run and step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shapleymix.errors import DataError, Fault
from shapleymix.tables.panels import PANEL
from shapleymix.tables.sheets import Place, Sheet

Key = tuple[str, str]
"""A run and a step, as they are written."""


def merged(sheets: Sequence[Sheet]) -> list[tuple[Sheet, tuple[Sheet, ...]]]:
    """The sheets, those that are charts as one in the place of the first, each with the sheets that are in it.

    Raises
    ------
    DataError
        If charts have other steps than the first, or one metric of a run has two values at a step.
    """
    charts = [sheet for sheet in sheets if sheet.kind == PANEL]
    found: list[tuple[Sheet, tuple[Sheet, ...]]] = []
    for sheet in sheets:
        if sheet.kind != PANEL:
            found.append((sheet, ()))
        elif sheet is charts[0]:
            found.append((_one(charts), tuple(charts[1:])))
    return found


def _one(charts: Sequence[Sheet]) -> Sheet:
    first = charts[0]
    if len(charts) == 1:
        return first
    step = _step(first)
    faults = [_other_steps(sheet, step, first) for sheet in charts[1:] if _step(sheet) != step]
    if faults:
        raise DataError.of(faults, "the charts")
    row: dict[Key, int] = {}
    for sheet in charts:
        for key in _keys(sheet):
            row.setdefault(key, len(row))
    columns: dict[str, list[object]] = {"run": [key[0] for key in row], step: [key[1] for key in row]}
    places: dict[str, Place] = {}
    for sheet in charts:
        _put(sheet, step, row, columns, places, faults)
    if faults:
        raise DataError.of(faults, "the charts")
    lines = places["run"].lines
    notices = tuple(f"{sheet.origin}: {one}" for sheet in charts for one in sheet.notices)
    return replace(first, columns=columns, places=places, lines=lines, notices=notices)


def _step(sheet: Sheet) -> str:
    """The column of a chart's steps, which follows that of its runs."""
    return list(sheet.columns)[1]


def _other_steps(sheet: Sheet, step: str, first: Sheet) -> Fault:
    hint = "export the charts over the same steps"
    return sheet.header_fault(_step(sheet), f"is a chart over {_step(sheet)!r}, {first.origin} is over {step!r}", hint)


def _keys(sheet: Sheet) -> list[Key]:
    cells = (sheet.columns["run"], sheet.columns[_step(sheet)])
    return [(str(run), str(step)) for run, step in zip(*cells, strict=True)]


def _put(
    sheet: Sheet,
    step: str,
    row: dict[Key, int],
    columns: dict[str, list[object]],
    places: dict[str, Place],
    faults: list[Fault],
) -> None:
    """The cells of a chart in the rows of the whole."""
    rows = [row[key] for key in _keys(sheet)]
    for name in sheet.columns:
        place = places.setdefault(name, Place(name, sheet.origin, np.zeros(len(row), dtype=np.int64), sheet.decimal))
        cells = columns.setdefault(name, [""] * len(row))
        for here, there in enumerate(rows):
            cell = sheet.columns[name][here]
            if name not in ("run", step) and str(cells[there]).strip() not in ("", str(cell).strip()):
                message = f"{name} is {cell!r}, and {cells[there]!r} in {place.origin}, of one run and step"
                faults.append(sheet.fault(here, name, message, "name each chart once"))
            cells[there] = cell
            place.lines[there] = place.lines[there] or sheet.lines[here]
