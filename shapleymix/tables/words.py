"""Words as people type them: sizes such as 243M, values by name such as `en=0.5`, names of sources and targets."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from numbers import Real
from typing import Any, TypeGuard, TypeVar

import numpy as np

from shapleymix.display import short
from shapleymix.errors import DataError, Fault, Location, UsageError, described, did_you_mean
from shapleymix.records import FloatArray, IntArray

EXPONENTS = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
RECIPE = {"learning_rate": "learning_rate", "batch_tokens": "batch"}
"""What else moves a loss, and its columns."""
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
    value = double(text)
    if isinstance(text, str) and (exponent := EXPONENTS.get(text.strip()[-1:].lower())):
        value = double(f"{text.strip()[:-1].strip()}e{exponent}")
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{what}{': ' if what else ''}{text!r:.60} is not a size", hint=SIZE_HINT)
    return value


def double(given: object) -> float:
    """The nearest double to a number or to what is written; NaN if it is neither."""
    item = getattr(given, "item", None)
    value = item() if callable(item) and getattr(given, "shape", None) == () else given
    if not isinstance(value, (str, Real)) or isinstance(value, bool):
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


def format_range(values: FloatArray) -> str:
    """The least and the largest of some sizes, `243M to 1.3B`, or the one that they all are."""
    return " to ".join(dict.fromkeys(map(format_size, (values.min(), values.max()))))


def align(
    names: Sequence[str], *, to: Sequence[str], what: str = "languages", exact: bool = False, origin: str | None = None
) -> IntArray:
    """Where each label of `to` stands in `names`.

    Parameters
    ----------
    names : sequence of str
        Labels that there are.
    to : sequence of str
        Labels that are wanted, in their order.
    what : str
        What the labels are, in the plural, for the message ("sources", "targets", "languages").
    exact : bool
        Whether labels of `names` that are not in `to` are faults as well.
    origin : str, optional
        The file that holds `names`, for the message.

    Returns
    -------
    index : int array (len(to),)
        Places such that `names[index[k]] == to[k]`.

    Raises
    ------
    DataError
        If a label occurs twice, is missing, or (with `exact`) is unknown; all of them at once.
    """
    place = Location(file=origin)
    position = {name: index for index, name in enumerate(names)}
    missing, spare = [name for name in to if name not in position], [name for name in position if name not in to]
    faults = [Fault(f"{name!r} occurs more than once in the {what}", place, name) for name in find_repeated(names)]
    for name in missing:
        faults.append(Fault(f"{name!r} is missing from the {what}", place, name, did_you_mean(name, spare or position)))
    for name in spare if exact else ():
        faults.append(Fault(f"{name!r} is not one of the {what}", place, name, did_you_mean(name, to)))
    if faults:
        raise DataError.of(faults, origin or f"the set of {what}")
    return np.array([position[name] for name in to], dtype=np.int64)


def check_label(label: str) -> str | None:
    """What makes a label unusable, or None: labels are written in `en=0.5,de=0.5` and in column names."""
    if not label.strip():
        return "is empty"
    if label != label.strip() or not label.isprintable():
        return "holds white space at an end, or a character that cannot be printed"
    bad = [mark for mark in '=,"' if mark in label]
    return f"contains {', '.join(map(repr, bad))}" if bad else None


def find_repeated(names: Sequence[str]) -> list[str]:
    """Labels that occur more than once, in the order in which they first occur."""
    return [name for name, count in Counter(names).items() if count > 1]


Ratio = float | str
Value = TypeVar("Value")
Read = Callable[[float | str, str], float]
Pairs = Mapping[str, Ratio] | Sequence[str] | str
Amounts = Pairs
"""Amounts by name: a mapping, `en=5T,fi=20B`, or several such texts."""
Ratios = Pairs | Sequence[float] | FloatArray | float
"""Ratios by name, in the sources' order, or one for all."""

ROUNDING = 1e-12
"""By how much a ratio may exceed one: a sum of ratios does, by its rounding."""


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
    hint = f"write {value:g}% or {value / 100:g}" if 1 < value <= 100 else None
    raise UsageError(f"{what}: {_quote(given)} is not a ratio between 0 and 1", hint=hint)


def ratio_number(given: float | str, what: str = "the ratio") -> float:
    """The same without bounds: any finite number, or a percentage divided by a hundred."""
    if isinstance(given, str) and given.strip().endswith("%"):
        return parse_number(given.strip()[:-1], what) / 100
    return parse_number(given, what)


def parse_number(given: float | str, what: str) -> float:
    """A finite number.

    Raises
    ------
    UsageError
        If it is none.
    """
    value = double(given)
    if not math.isfinite(value):
        raise UsageError(f"{what}: {_quote(given)} is not a number")
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
        raise UsageError(f"{what}: {_quote(given)} is not a whole number of at least {least}")
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


def as_word(given: str, what: str) -> str:
    """A name, which is not empty."""
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{what}: {_quote(given)} is no name")
    return given.strip()


def parse_choice(given: str, known: Sequence[str], what: str) -> str:
    """One of several words.

    Raises
    ------
    UsageError
        If it is none of them.
    """
    if not isinstance(given, str) or given not in known:
        raise UsageError(f"unknown {what} {_quote(given)}", hint=did_you_mean(str(given), known))
    return given


def parse_pairs(
    given: Pairs, read: Callable[[Any, str], Value], what: str, hint: str = "write it like en=0.5,de=0.2"
) -> dict[str, Value]:
    """`en=0.5,de=0.2`, several such texts, or a mapping, as numbers by name.

    Parameters
    ----------
    given : str, mapping or sequence of str
        The pairs; a name may be given once.
    read : Read
        Function that makes a number of a value; its second argument says what the value is, for messages.
    what : str
        What the numbers are given as, for messages: "caps", "floors".
    hint : str
        How such pairs are written.

    Raises
    ------
    UsageError
        If a part is no pair, a name is given twice, or a value is not what `read` reads.
    """
    given = by_index(given)
    if isinstance(given, Mapping):
        pairs = [(str(name), value) for name, value in given.items()]
    else:
        written = [given] if isinstance(given, str) else list(given)
        pairs = [_pair(part, what, hint) for text in written for part in str(text).split(",")]
    found: dict[str, Value] = {}
    for name, word in pairs:
        if name in found:
            raise UsageError(f"{what}: {name!r} is given twice")
        found[name] = read(word, f"{what} of {name!r}")
    return found


def _pair(part: str, what: str, hint: str) -> tuple[str, str]:
    name, equals, word = (piece.strip() for piece in part.rpartition("="))
    if not equals or not name:
        raise UsageError(f"{what}: {part.strip()!r} is no name=value", hint=hint)
    return name, word


def amounts(
    base: FloatArray, given: Ratios | None, names: tuple[str, ...], read: Read, what: str, sums: Collection[str] = ()
) -> FloatArray:
    """`base` (M,) with what is given put in place: by name, in the order of the sources, or one for all.

    `sums` are names of groups, which an error sends to where sums are bounded.

    Raises
    ------
    UsageError
        If a name is no source, there are too few or too many values, they have no order, or one is not what `read`
        reads; `what` says what the values are.
    """
    given = by_index(given)
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return base
    if isinstance(given, Real) or (isinstance(given, str) and "=" not in given):
        return np.full(len(names), read(given if isinstance(given, str) else float(given), what))
    if not _by_name(given):
        return in_order(given, names, read, what)
    found = parse_pairs(given, read, what)
    require_names(found, names, what, sums)
    return np.array([found.get(name, value) for name, value in zip(names, base.tolist(), strict=True)])


def _by_name(given: object) -> TypeGuard[Pairs]:
    """Whether amounts are given by name, not in the sources' order."""
    parts = given if isinstance(given, (list, tuple)) else ()
    return isinstance(given, (str, Mapping)) or any(isinstance(part, str) and "=" in part for part in parts)


def by_index(given: Any) -> Any:
    """What is given; a Series of pandas, which is no dependency, whose index has names as the mapping that it is."""
    index = getattr(given, "index", None)
    if is_frame(given) or not hasattr(given, "to_dict") or not np.iterable(index):
        return given
    labels = list(index)
    names = [name for name in labels if isinstance(name, str)]
    if names and len({*names}) < len(labels):
        raise UsageError("a Series whose index names some values not at all, or two alike", hint="name each once")
    return given.to_dict() if names else given


def is_frame(given: object) -> bool:
    """Whether it is a table of columns with names, as those of pandas and Polars are."""
    return np.iterable(getattr(given, "columns", None))


def in_order(given: Any, names: Sequence[str], read: Read, what: str) -> FloatArray:
    """Numbers (M,) that are given in the order of the names.

    Raises
    ------
    UsageError
        If they have no order, are too few or too many, or one is not what `read` reads.
    """
    unordered = isinstance(given, Set) or is_frame(given) or not np.iterable(given)
    values = [] if unordered else list(given)
    if len(values) != len(names):
        hint = f"give them by name (en=0.5,de=0.2), or {len(names)} in the order {', '.join(names[:5])}"
        raise UsageError(f"{what}: {len(values)} values for {len(names)} sources in {described(given)}", hint=hint)
    return np.array([read(value, what) for value in values], dtype=float)


def require_names(given: Mapping[str, object], names: Sequence[str], what: str, sums: Collection[str] = ()) -> None:
    """A UsageError for every name that is none of the names, nor of the sums, which are bounded elsewhere."""
    faults = []
    for name in given:
        if name in sums:
            hint = f"bound their sum by groups, such as '{name}<=0.5', '{name}>=0.1' or '{name}=0.3'"
            faults.append(Fault(f"{what}: {name!r} stands for several sources", value=name, hint=hint))
        elif name not in names:
            hint = did_you_mean(name, names)
            faults.append(Fault(f"{what}: {name!r} is none of {short(names)}", value=name, hint=hint))
    if faults:
        raise UsageError.of(faults, what)


def _quote(given: object) -> str:
    """A value as messages quote it."""
    return f"{given:g}" if isinstance(given, float) else f"{given!r:.60}"
