"""Amounts of every source as people give them: by name, in the order of the sources, or one for all.

`tokens_at_hand` are the unique tokens of each, from which baselines, caps and epochs are reckoned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Literal, TypeGuard

import numpy as np

from shapleymix.errors import Fault, UsageError, described
from shapleymix.files import is_table_name
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import Read, parse_pairs
from shapleymix.tables.languages import Languages
from shapleymix.tables.sizes import parse_size
from shapleymix.tables.spelling import near

Amount = float | str
Pairs = Mapping[str, Amount] | Sequence[str] | str
Amounts = Pairs
"""Amounts by name: a mapping, `en=5T,fi=20B`, or several such texts."""
Ratios = Pairs | Sequence[float] | FloatArray | float
"""Ratios by name, in the sources' order, or one for all."""


def tokens_at_hand(sources: Sequence[str], table: Languages | None, available: Amounts | None) -> FloatArray:
    """Unique tokens (M,) of a languages table, and those that are given in their place; NaN where not known.

    Raises
    ------
    UsageError
        If a name is no source, or an amount is none.
    """
    if isinstance(available, Languages) or is_table_name(available):
        hint = "give a languages table as languages; available takes tokens by name, such as en=5T"
        raise UsageError(f"available: {described(available)} is no tokens by name", hint=hint)
    known = column_of(table, "available_tokens", sources)
    return amounts(known, available, tuple(sources), parse_tokens, "available tokens")


def column_of(
    table: Languages | None, column: Literal["available_tokens", "max_epochs"], sources: Sequence[str]
) -> FloatArray:
    """A column of a languages table for every source (M,); NaN where the table does not name it."""
    found = np.full(len(sources), np.nan)
    if table is None:
        return found
    row = {name: place for place, name in enumerate(table.names)}
    index = [place for place, name in enumerate(sources) if name in row]
    values = table.available_tokens if column == "available_tokens" else table.max_epochs
    found[index] = values[[row[sources[place]] for place in index]]
    return found


def require_names(given: Mapping[str, object], names: tuple[str, ...], what: str) -> None:
    """A UsageError for every name that is no source."""
    faults = [
        Fault(f"{what}: {name!r} is not one of the sources", value=name, hint=near(name, names))
        for name in given
        if name not in names
    ]
    if faults:
        raise UsageError.of(faults, what)


def amounts(base: FloatArray, given: Ratios | None, names: tuple[str, ...], read: Read, what: str) -> FloatArray:
    """`base` (M,) with what is given put in place: by name, in the order of the sources, or one for all.

    Raises
    ------
    UsageError
        If a name is no source, there are too few or too many values, they have no order, or one is not what `read`
        reads; `what` says what the values are.
    """
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return base
    if isinstance(given, (list, tuple)) and len(given) == 1 and isinstance(given[0], str):
        given = given[0]  # one text: of the names that it holds, or one amount for all
    if not _by_name(given):
        return np.array(_in_order(given, len(names), read, what), dtype=float)
    found = parse_pairs(given, read, what)
    require_names(found, names, what)
    return np.array([found.get(name, value) for name, value in zip(names, base.tolist(), strict=True)])


def _by_name(given: Ratios) -> TypeGuard[Pairs]:
    """Whether amounts are given by name, not in the sources' order or one for all."""
    if isinstance(given, (list, tuple)):
        return any(isinstance(part, str) and "=" in part for part in given)
    return isinstance(given, Mapping) or (isinstance(given, str) and "=" in given)


def _in_order(given: Ratios, count: int, read: Read, what: str) -> list[float]:
    """One number for every source, or numbers in the order of the sources."""
    if isinstance(given, (str, int, float)):
        return [read(given, what)] * count
    hint = f"give them by name (en=0.5,de=0.2), one for all, or {count} in the order of the sources"
    if isinstance(given, Set):
        raise UsageError(f"{what}: {described(given)} has no order", hint=hint)
    try:
        values = list(given)
    except TypeError:  # an array without axes, or nothing that holds values
        values = []
    if len(values) != count:
        raise UsageError(f"{what}: {len(values)} values for {count} sources", hint=hint)
    return [read(value, what) for value in values]


def parse_tokens(given: Amount, what: str) -> float:
    """A number of tokens: a number, or a size such as `5T`.

    Raises
    ------
    UsageError
        If it is none.
    """
    try:
        return parse_size(given)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what}: {given!r} is not a size") from error
