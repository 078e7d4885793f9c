"""How results look in a session: a few lines, a table in a notebook, a figure, plain values; and when two are equal."""

from __future__ import annotations

import dataclasses
import html
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np

from shapleymix.files import Json

if TYPE_CHECKING:
    from shapleymix.plotting.pictures import Picture

WIDTH = 100
SHOWN_FIELDS = 14
SHOWN_ROWS = 50
SHOWN_ITEMS = 6
SHOWN_LINES = 10


Column = np.ndarray | Sequence[object]
"""A column of a table: one value for each row."""


@runtime_checkable
class HasColumns(Protocol):
    """A result with one tidy table."""

    def columns(self) -> Mapping[str, Column]: ...


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
        return head + html_table(self.columns()) if isinstance(self, HasColumns) else head

    def summary(self) -> str:
        """What the result holds, in a few lines."""
        lines = [f"  {name}: {short(getattr(self, name))}"[:WIDTH] for name in field_names(self)]
        hidden = len(lines) - SHOWN_FIELDS
        more = [f"  ... and {hidden} more fields"] if hidden > 0 else []
        return "\n".join([type(self).__name__, *lines[:SHOWN_FIELDS], *more])

    def to_dict(self) -> dict[str, Json]:
        """The fields as plain Python values: lists for arrays, dictionaries for results within."""
        return {name: plain(getattr(self, name)) for name in field_names(self)}


class Drawn:
    """A result's method `plot`: the public function that draws it, which is loaded when it is asked for.

    `plot = Drawn("fits.plot_fit")` in a class makes `fit.plot(log)` what `plot_fit(fit, log)` is, with its signature
    and its words. Figures come after results, so that this is the one place where something is called that lies below.
    """

    def __init__(self, home: str) -> None:
        self._module, _, self._name = f"shapleymix.plotting.{home}".rpartition(".")

    def __get__(self, result: object | None, owner: type | None = None) -> Callable[..., Picture]:
        function = getattr(importlib.import_module(self._module), self._name)
        return function if result is None else MethodType(function, result)


def field_names(record: object) -> list[str]:
    """Names of a dataclass's fields, in order."""
    return [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]


def same(one: object, other: object) -> bool:
    """Whether two values are equal, NaN equalling NaN, arrays by shape and every element."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return type(one) is type(other) and one.dtype.kind == other.dtype.kind and _same_array(one, other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and one != one and other != other:
        return True
    return bool(one == other)


def _same_array(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def plain(value: object) -> Json:
    """A value without arrays and results."""
    if isinstance(value, Shown):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return cast(Json, value)


def short(value: object) -> str:
    """A value in at most half a line: its start, or its size."""
    if isinstance(value, Shown):
        return type(value).__name__
    if isinstance(value, np.ndarray):
        return _short_array(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return _listed([f"{key}: {short(item)}" for key, item in list(value.items())[:SHOWN_ITEMS]], len(value))
    if isinstance(value, (list, tuple)):
        return _listed([short(item) for item in value[:SHOWN_ITEMS]], len(value))
    return str(value)


def _short_array(value: np.ndarray) -> str:
    if value.size <= SHOWN_ITEMS and value.ndim <= 1:
        return _listed([short(item) for item in np.atleast_1d(value).tolist()], value.size)
    return f"{' x '.join(map(str, value.shape))} {'numbers' if value.dtype.kind in 'fi' else 'truth values'}"


def _listed(parts: Sequence[str], count: int) -> str:
    if count == 0:
        return "none"
    text = ", ".join(parts)
    return text if count <= len(parts) else f"{text}, ... ({count})"


def cut(text: str) -> str:
    """One indented line, whose end is left out where it is too long."""
    return f"  {text}" if len(text) + 2 <= WIDTH else f"  {text[: WIDTH - 6]} ..."


def text_table(columns: Mapping[str, Column], most: int = SHOWN_LINES) -> list[str]:
    """The first rows of a table as aligned lines, indented; its names on top."""
    rows = list(zip(*columns.values(), strict=True))
    cells = [list(columns), *([short(cell) for cell in row] for row in rows[:most])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip()[:WIDTH] for row in cells]
    return lines + ([f"  ... and {len(rows) - most} more: see to_polars()"] if len(rows) > most else [])


def html_table(columns: Mapping[str, Column]) -> str:
    """An HTML table of the first rows."""
    rows = list(zip(*columns.values(), strict=True))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(short(cell))}</td>' for cell in row)}</tr>" for row in rows[:SHOWN_ROWS]
    )
    more = f"<p>{len(rows) - SHOWN_ROWS} more rows: see to_polars()</p>" if len(rows) > SHOWN_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
