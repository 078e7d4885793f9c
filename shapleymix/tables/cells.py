"""Columns of cells as numbers or text, with a fault for every cell that is neither."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shapleymix.errors import Fault, UsageError
from shapleymix.records import FloatArray
from shapleymix.tables.reading import Sheet
from shapleymix.tables.sizes import parse_size

_EMPTY_HINT = "leave the cell empty where nothing was measured"


def numbers(sheet: Sheet, column: str, faults: list[Fault], *, empty: bool = False, sizes: bool = False) -> FloatArray:
    """A column (R,) as doubles, each the nearest to its text; NaN where a cell is empty or faulty.

    Parameters
    ----------
    faults : takes a fault for every cell that is no finite number.
    empty : whether an empty cell is allowed.
    sizes : whether `243M` is a number.
    """
    cells = sheet.columns[column]
    values = _quick(cells)
    if values is None:
        values = np.array([_number(cell, sizes) for cell in cells], dtype=np.float64)
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        problem = _problem(cells[row], empty, sizes)
        if problem:
            faults.append(sheet.fault(row, column, f"{column} {problem[0]}", problem[1]))
    values[np.isinf(values)] = np.nan
    return values


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
    wrong: Any,
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


def _number(cell: Any, sizes: bool) -> float:
    """The number in a cell; NaN if there is none."""
    text = str(cell).strip()
    try:
        return parse_size(text) if sizes and text[-1:].isalpha() else math.nan if "_" in text else float(text)
    except (ValueError, OverflowError, UsageError):
        return math.nan


def _problem(cell: Any, empty: bool, sizes: bool) -> tuple[str, str | None] | None:
    """What is wrong with a cell that is no finite number, and what to do; None if it may be empty and is."""
    text = str(cell).strip()
    if not text:
        return None if empty else ("is empty", None)
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
    if text.count(",") == 1 and text.replace(",", "").lstrip("+-").isdigit():
        return "write decimals with a point"
    return "write it like 243M, 100B, 1.5e9 or 23712" if sizes else None


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell).strip()
