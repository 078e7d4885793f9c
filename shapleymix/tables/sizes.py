"""Sizes as people type them: `243M` parameters, `100B` tokens, `1e22` FLOPs."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Real

from shapleymix.errors import UsageError

_EXPONENT = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_SIZE = re.compile(r"\s*\+?((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*([kmbgt]?)\s*", re.IGNORECASE | re.ASCII)
_HINT = "write it like 243M, 100B, 1.5e9 or 23712"


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
    try:
        value = _number(text) if isinstance(text, str) else _real(text)
    except OverflowError:
        value = None
    if value is None or not math.isfinite(value) or value < 0:
        raise UsageError(f"{what}: {text!r:.60} is not a size" if what else f"{text!r:.60} is not a size", hint=_HINT)
    return value


def parse_budget(given: str | float, what: str) -> float:
    """A size that is at least 1: a model has a parameter, a training run a token.

    Raises
    ------
    UsageError
        If it is no size, or below.
    """
    value = parse_size(given, what)
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value:g}", hint=_HINT)
    return value


def _real(value: object) -> float | None:
    """A number, or an array that is one, and no truth value nor text; NumPy is not needed to tell."""
    item = getattr(value, "item", None)
    single = item() if callable(item) and getattr(value, "shape", None) == () else value
    return float(single) if isinstance(single, Real) and not isinstance(single, bool) else None


def parse_sizes(text: str) -> tuple[float, ...]:
    """Several sizes with commas between them: `100M,1B` -> (1e8, 1e9)."""
    return tuple(parse_size(part) for part in text.split(","))


def format_size(value: float, digits: int = 4) -> str:
    """A size in its shortest usual form, rounded to `digits` significant digits: 2.43e8 -> `243M`."""
    rounded = float(f"{value:.{digits}g}")
    if not math.isfinite(rounded) or abs(rounded) >= 1e15:
        return f"{rounded:.{digits}g}".replace("e+", "e")
    for unit, suffix in _UNITS:
        if abs(rounded) >= unit:
            return f"{rounded / unit:.12g}{suffix}"
    return f"{rounded:.12g}"


def _number(text: str) -> float | None:
    """The size as the nearest double to the decimal number, so that 1.1B is 1.1e9 exactly as typed."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    exponent = _EXPONENT[found.group(2).lower()]
    return float(Decimal(found.group(1)).scaleb(exponent))
