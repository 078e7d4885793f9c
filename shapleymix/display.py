"""How results look in a session: a few lines, a table in a notebook, a data frame; and when two are equal."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.files import plain

if TYPE_CHECKING:
    from polars import DataFrame


WIDTH = 100
SHOWN_FIELDS = 14
SHOWN_ITEMS = 6
SHOWN_LINES = 10

Column = np.ndarray | Sequence[object]
"""A column of a table: one value for each row."""
Columns = Mapping[str, Column]


class Shown:
    """Mixin for frozen dataclasses: a short `repr`, and equality of their fields, in which NaN equals NaN.

    Results hold arrays and cannot be hashed: compare them with `==`.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("__repr__", "__eq__", "__hash__"):  # else the dataclass would write its own
            if name not in cls.__dict__:
                setattr(cls, name, getattr(Shown, name))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in field_names(self))

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        head = f"<pre>{html.escape(self.summary())}</pre>"
        return head + self.to_polars()._repr_html_() if isinstance(self, Tabular) else head

    def summary(self) -> str:
        """What the result holds, in a few lines."""
        lines = [f"  {name}: {short(getattr(self, name))}"[:WIDTH] for name in field_names(self)]
        hidden = len(lines) - SHOWN_FIELDS
        more = [f"  ... and {hidden} more fields"] if hidden > 0 else []
        return "\n".join([type(self).__name__, *lines[:SHOWN_FIELDS], *more])


class Tabular:
    """Mixin for results that have one tidy table."""

    def columns(self) -> Columns:
        """The table's columns by name, each with one value per row."""
        raise NotImplementedError

    def headline(self) -> str:
        """What it is, in one line."""
        return type(self).__name__

    def summary(self) -> str:
        """What it is, the first rows of its table, and what to beware of."""
        more = [getattr(self, "verdict", ""), *getattr(self, "warnings", ()), *getattr(self, "notices", ())]
        return "\n".join([cut(self.headline()), *text_table(self.columns()), *map(cut, list(filter(None, more))[:4])])

    def to_polars(self) -> DataFrame:
        """The table as a Polars frame.

        For pandas, `pandas.DataFrame(result.columns())` needs nothing else; Polars' own `.to_pandas()` needs pyarrow
        as well, which is not installed with this package.
        """
        return frame_of(self.columns())


def frame_of(columns: Columns) -> DataFrame:
    """Columns as a Polars frame; NumPy's numbers are plain ones."""
    from polars import DataFrame

    def bare(values: Column) -> list[object]:
        return [value.item() if isinstance(value, np.generic) else value for value in values]

    return DataFrame({name: bare(values) for name, values in columns.items()}, strict=False)


def field_names(result: object) -> list[str]:
    """The names of the fields of a dataclass, or of an object of it."""
    return [field.name for field in dataclasses.fields(result)]  # type: ignore[arg-type]


def same(one: object, other: object) -> bool:
    """Whether two values are the same as JSON: NaN equals NaN, arrays are equal by every element."""
    return plain(one, endless=str) == plain(other, endless=str)


def short(value: object) -> str:
    """A value in at most half a line: its start, or its size."""
    if isinstance(value, Shown):
        return type(value).__name__
    if isinstance(value, np.ndarray):
        if value.size <= SHOWN_ITEMS and value.ndim <= 1:
            return short(np.atleast_1d(value).tolist())
        return f"{' x '.join(map(str, value.shape))} {'numbers' if value.dtype.kind in 'fi' else 'truth values'}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (Mapping, list, tuple)):
        pairs = isinstance(value, Mapping)
        parts = [f"{key}: {short(item)}" for key, item in value.items()] if pairs else list(map(short, value))
        more = f", ... ({len(parts)})" if len(parts) > SHOWN_ITEMS else ""
        return ", ".join(parts[:SHOWN_ITEMS]) + more or "none"
    return str(value)


def cut(text: str) -> str:
    """One indented line, whose end is left out where it is too long."""
    return f"  {text}" if len(text) + 2 <= WIDTH else f"  {text[: WIDTH - 6]} ..."


def text_table(columns: Columns) -> list[str]:
    """The first rows of a table as aligned lines, indented; its names on top."""
    rows = list(zip(*columns.values(), strict=True))
    cells = [list(columns), *([short(cell) for cell in row] for row in rows[:SHOWN_LINES])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip()[:WIDTH] for row in cells]
    return lines + ([f"  ... and {len(rows) - SHOWN_LINES} more: see to_polars()"] if len(rows) > SHOWN_LINES else [])
