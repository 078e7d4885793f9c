"""Sizes as people type them: `243M` parameters, `100B` tokens, `1e22` FLOPs."""

from __future__ import annotations

import math
from numbers import Real

from shapleymix.errors import UsageError

EXPONENTS = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
SIZE_HINT = "write it like 243M, 100B, 1.5e9 or 23712"


def parse_size(text: str | float, what: str = "") -> float:
    """The number that a size stands for.

    Suffixes are k, M, B (or G) and T, for 1e3, 1e6, 1e9 and 1e12, in either case; a number passes through.

    Parameters
    ----------
    text : str or float
        The size.
    what : str
        What the size is of, for the message.

    Raises
    ------
    UsageError
        If it is no size: another kind of value, negative, or not finite.
    """
    value = _number(text)
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{what}{': ' if what else ''}{text!r:.60} is not a size", hint=SIZE_HINT)
    return value


def _number(given: object) -> float:
    """The nearest double to what is written, so that 1.1B is 1.1e9 exactly as typed; NaN if it is no number."""
    item = getattr(given, "item", None)
    value = item() if callable(item) and getattr(given, "shape", None) == () else given
    if isinstance(value, str):
        text = value.strip().lower()
        exponent = EXPONENTS.get(text[-1:])
        value = text if exponent is None else f"{text[:-1].strip()}e{exponent}"
    elif not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return math.nan if isinstance(value, str) and ("_" in value or not value.isascii()) else float(value)
    except (ValueError, OverflowError):
        return math.nan


def parse_budget(given: str | float, what: str) -> float:
    """A size that is at least 1: a model has a parameter, a training run a token.

    Raises
    ------
    UsageError
        If it is no size, or below.
    """
    value = parse_size(given, what)
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value:g}", hint=SIZE_HINT)
    return value


def format_size(value: float, digits: int = 4) -> str:
    """A size in its shortest usual form, rounded to `digits` significant digits: 2.43e8 -> `243M`."""
    rounded = float(f"{value:.{digits}g}")
    if not math.isfinite(rounded) or abs(rounded) >= 1e15:
        return f"{rounded:.{digits}g}".replace("e+", "e")
    for unit, suffix in _UNITS:
        if abs(rounded) >= unit:
            return f"{rounded / unit:.12g}{suffix}"
    return f"{rounded:.12g}"
