"""What the fields of a record hold, whatever they mean: labels once, lengths that agree, numbers within their range.

A record says it by `axes` and `ranges` (see `records.Record`); here it is checked of fields that a file may have given.
Of an interval, two fields whose names differ in `low` and `high` alone, the ends are in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import cast

import numpy as np

Range = tuple[float, float]
"""Lowest and highest number; a missing number (NaN) is in every range."""
Values = dict[str, object]
Odd = tuple[str, str]
"""Name of a field, and what is odd of it."""

ROUNDING = 1e-6
SHARE: Range = (-ROUNDING, 1 + ROUNDING)
AMOUNT: Range = (-ROUNDING, np.inf)
POSITIVE: Range = (np.nextafter(0, 1), np.finfo(np.float64).max)
FINITE: Range = (-np.finfo(np.float64).max, np.finfo(np.float64).max)
LABELS = ("sources", "targets")


def odd_fields(values: Values, axes: Mapping[str, str], ranges: Mapping[str, Range]) -> Iterator[Odd]:
    """What no result of ours holds; an empty array, of which JSON forgets the other lengths, gets its shape back."""
    yield from _repeated(values)
    yield from _misshapen(values, axes)
    yield from _outside(values, ranges)
    yield from _crossed(values)


def _repeated(values: Values) -> Iterator[Odd]:
    for name in LABELS:
        labels = cast("tuple[str, ...]", values.get(name) or ())
        again = next((label for label in labels if labels.count(label) > 1), None)
        if again is not None:
            yield name, f"holds {again!r} twice"


def _misshapen(values: Values, axes: Mapping[str, str]) -> Iterator[Odd]:
    lengths: dict[str, int] = {}
    for name, letters in axes.items():
        value = values[name]
        if not isinstance(value, Sized):  # None: the field is left out
            continue
        found = value.shape if isinstance(value, np.ndarray) else (len(value),)
        if len(found) == len(letters):
            for letter, length in zip(letters, found, strict=True):
                lengths.setdefault(letter, int(letter) if letter.isdigit() else length)
        shape = tuple(lengths.get(letter, 0) for letter in letters)
        if isinstance(value, np.ndarray) and value.size == 0 and 0 in shape:
            values[name] = value.reshape(shape)
        elif found != shape:
            yield name, f"has shape {found}, expected {shape}"


def _outside(values: Values, ranges: Mapping[str, Range]) -> Iterator[Odd]:
    for name, (low, high) in ranges.items():
        numbers = np.asarray(values[name] if values[name] is not None else [], dtype=np.float64)
        wrong = numbers[(numbers < low) | (numbers > high)]
        if wrong.size:
            yield name, f"holds {wrong.flat[0]:g}, expected {_worded(low, high)}"


def _worded(low: float, high: float) -> str:
    if (low, high) in (POSITIVE, FINITE):
        return "what is above 0 and finite" if low > 0 else "what is finite"
    return f"{round(low, 3) + 0.0:g} to {round(high, 3):g}" if np.isfinite(high) else f"{round(low, 3) + 0.0:g} or more"


def _crossed(values: Values) -> Iterator[Odd]:
    for name, low in values.items():
        high = values.get(name[: -len("low")] + "high") if name == "low" or name.endswith("_low") else None
        if low is None or high is None:
            continue
        lower, upper = (np.asarray(end, dtype=np.float64) for end in (low, high))
        if lower.shape != upper.shape:
            yield name, "has another shape than the upper ends"
        elif (lower > upper).any():
            yield name, "holds a lower end above its upper one"
