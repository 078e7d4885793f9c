"""Ratios, percentages and amounts as people write them: `0.4`, `40%`, `en=0.5,de=20%`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.tables.spelling import composed

Ratio = float | str
Read = Callable[[float | str, str], float]

ROUNDING = 1e-12
"""By how much a ratio may exceed one: a sum of ratios does, by its rounding."""
_PAIRS_HINT = "write it like en=0.5,de=0.2"


def parse_ratio(given: float | str, what: str = "the ratio") -> float:
    """A ratio between 0 and 1 from a number, or from text such as `0.4` or `40%`.

    Raises
    ------
    UsageError
        If it is no number, or not between 0 and 1; 60 alone is asked whether it is 60%.
    """
    value = ratio_number(given, what)
    if 0 <= value <= 1 + ROUNDING:
        return min(value, 1.0)
    raise UsageError(f"{what}: {_shown(given)} is not a ratio between 0 and 1", hint=percent_hint(value))


def ratio_number(given: float | str, what: str = "the ratio") -> float:
    """The same without bounds: any finite number, or a percentage divided by a hundred."""
    if not isinstance(given, str):
        return parse_number(given, what)
    text = given.strip()
    return parse_number(text[:-1], what, given) / 100 if text.endswith("%") else parse_number(text, what)


def percent_hint(value: float) -> str | None:
    """What a number above one may have meant."""
    return f"write {value:g}% or {value / 100:g}" if 1 < value <= 100 else None


def parse_number(given: float | str, what: str, shown: float | str | None = None) -> float:
    """A finite number.

    Raises
    ------
    UsageError
        If it is none; `shown` is what the message quotes, where that is not `given`.
    """
    try:
        value = math.nan if isinstance(given, bool) or getattr(given, "ndim", 0) else float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{what}: {_shown(given if shown is None else shown)} is not a number")
    return value


def parse_whole(given: int, what: str, least: int = 0) -> int:
    """A whole number that is not below `least`.

    Raises
    ------
    UsageError
        If it is another kind of value, or below.
    """
    try:
        value = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        value = None
    if value is None or value < least:
        hint = f"give {least} or more"
        raise UsageError(f"{what}: {_shown(given)} is not a whole number of at least {least}", hint=hint)
    return value


def parse_level(given: float) -> float:
    """The probability of an interval, above 0 and below 1.

    Raises
    ------
    UsageError
        If it is none.
    """
    value = parse_number(given, "level")
    if not 0 < value < 1:
        raise UsageError(f"level {value:g} is not between 0 and 1", hint="for instance 0.9")
    return value


def parse_positive(given: float | str, what: str) -> float:
    """A finite number above zero."""
    value = parse_number(given, what)
    if not value > 0:
        raise UsageError(f"{what}: {value:g} is not above 0")
    return value


def parse_pairs(given: str | Mapping[str, float | str] | Sequence[str], read: Read, what: str) -> dict[str, float]:
    """`en=0.5,de=0.2`, several such texts, or a mapping, as numbers by name.

    Parameters
    ----------
    given : str, mapping or sequence of str
        The pairs; a name may be given once.
    read : Read
        Function that makes a number of a value; its second argument says what the value is, for messages.
    what : str
        What the numbers are, in the singular: "cap", "floor".

    Raises
    ------
    UsageError
        If a part is no pair, a name is given twice, or a value is not what `read` reads.
    """
    if isinstance(given, Mapping):
        pairs = [(str(name), value) for name, value in given.items()]
    else:
        texts = [given] if isinstance(given, str) else list(given)
        pairs = [_pair(part, what) for text in texts for part in _split(text, what)]
    found: dict[str, float] = {}
    for written, word in pairs:
        name = composed(written)
        if name in found:
            raise UsageError(f"{what}: {name!r} is given twice")
        found[name] = read(word, f"{what} of {name!r}")
    return found


def _pair(part: str, what: str) -> tuple[str, str]:
    name, equals, word = (piece.strip() for piece in part.rpartition("="))
    if not equals or not name:
        raise UsageError(f"{what}: {part.strip()!r} is no name=value", hint=_PAIRS_HINT)
    return name, word


def _split(text: object, what: str) -> list[str]:
    if not isinstance(text, str):
        raise UsageError(f"{what}: {_shown(text)} is no name=value", hint=_PAIRS_HINT)
    return text.split(",")


def _shown(given: object) -> str:
    """A value as messages quote it."""
    return f"{given:g}" if isinstance(given, float) else f"{given!r:.60}"


def parse_choice(given: str, known: Sequence[str], what: str) -> str:
    """One of several words.

    Raises
    ------
    UsageError
        If it is none of them.
    """
    if not isinstance(given, str) or given not in known:
        raise UsageError(f"unknown {what} {_shown(given)}", hint=did_you_mean(str(given), known))
    return given
