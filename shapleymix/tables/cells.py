"""What a reader of a format hands on: columns of cells, and the line of each row."""

from __future__ import annotations

from dataclasses import dataclass, field

from shapleymix.errors import DataError, Fault, Location
from shapleymix.tables.names import repeated

NO_ROWS = "a table needs a header and at least one row"


@dataclass(frozen=True)
class Layout:
    """How a text table is written; None where the text itself shows it.

    Attributes
    ----------
    sep : str, optional
        The character between columns.
    decimal : str, optional
        The decimal mark, a point or a comma.
    """

    sep: str | None = None
    decimal: str | None = None


@dataclass(frozen=True)
class Cells:
    """Columns of cells, the line of each row, and what the format said besides.

    Attributes
    ----------
    columns : dict
        Cells by the name of their column: text, or numbers where the format has them.
    lines : list of int
        The line of each row.
    metadata : dict
        What the file says of itself.
    notices : tuple of str
        What the reader took for granted.
    decimal : str
        The decimal mark of numbers that are written as text.
    kind : str
        What wrote the table, where its form tells: `trainer_state`, `megatron`, or empty.
    """

    columns: dict[str, list[object]]
    lines: list[int]
    metadata: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    decimal: str = "."
    kind: str = ""


def refusal(origin: str, message: str, hint: str | None = None, line: int | None = None) -> DataError:
    """A file that is no table, and where that shows."""
    return DataError(message, hint=hint, location=Location(origin, line))


def unique_header(names: list[str], origin: str) -> list[str]:
    """Column names; a column without one (pandas writes its index so) is named by its place."""
    named = [name or f"column {place}" for place, name in enumerate(names, start=1)]
    again = repeated(named)
    if again:
        hint = "give each column its own name"
        faults = [Fault(f"column {name!r} occurs twice", Location(origin, 1, name), name, hint) for name in again]
        raise DataError.of(faults, origin)
    return named


def plain(cells: list[object]) -> list[object]:
    """Cells as text or numbers; nothing is the empty text, and anything else its text."""
    return cells if set(map(type, cells)) <= {str, int, float} else [_plain(cell) for cell in cells]


def _plain(value: object) -> str | float:
    if value is None:
        return ""
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else str(value)
