"""Cells such as `62%`, in the unit that their column is read in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from shapleymix.tables.sheets import Sheet

SIGN = "%"
WIDEST = 300
"""Digits before or after the mark, beyond which a cell is no ratio."""


def without_signs(sheet: Sheet, columns: Iterable[str], whole: float) -> Sheet:
    """The sheet with `62%` of these columns as a number: 62 where the whole is 100, 0.62 where it is 1."""
    signed = {name: sheet.columns[name] for name in columns if any(map(_is_signed, sheet.columns[name]))}
    shift = 0 if whole == 100 else -2
    read = {
        name: [_shifted(str(cell), shift, sheet.place(name).decimal) if _is_signed(cell) else cell for cell in cells]
        for name, cells in signed.items()
    }
    return replace(sheet, columns={**sheet.columns, **read}) if read else sheet


def _is_signed(cell: object) -> bool:
    return isinstance(cell, str) and cell.rstrip().endswith(SIGN)


def _shifted(cell: str, shift: int, decimal: str) -> str:
    """The number before the sign, its decimal mark moved; the cell as it is where there is no number."""
    try:
        number = Decimal(cell.strip().removesuffix(SIGN).strip().replace(decimal, "."))
    except InvalidOperation:
        return cell
    if not number.is_finite() or abs(number.adjusted()) > WIDEST:
        return cell
    return format(number.scaleb(shift), "f").replace(".", decimal)
