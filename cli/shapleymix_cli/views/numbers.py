"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

MISSING = "-"

Form = Callable[[float], str]
"""How a number is written."""


def fixed(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals: losses, ratios; what rounds to zero has no sign."""
    return _or_missing(value, f"z.{digits}f")


def significant(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits: parameters."""
    return _or_missing(value, f"z.{digits}g")


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction as percent."""
    return _or_missing(value, f"z.{digits}%")


def size(value: float | None) -> str:
    """Parameters or tokens as people write them: 243M."""
    from shapleymix.tables.sizes import format_size

    return MISSING if _absent(value) else format_size(float(value))  # type: ignore[arg-type]


def interval(low: float | None, high: float | None, form: Form = fixed) -> str:
    """`low .. high`, or nothing where there is none."""
    return "" if low is None or high is None or _absent(low) or _absent(high) else f"{form(low)} .. {form(high)}"


def each(values: Iterable[float], form: Form = fixed) -> list[str]:
    """A row of numbers in one form."""
    return [form(float(value)) for value in values]


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _or_missing(value: float | None, form: str) -> str:
    return MISSING if _absent(value) else format(float(value), form)  # type: ignore[arg-type]


def _absent(value: float | None) -> bool:
    return value is None or math.isnan(value)
