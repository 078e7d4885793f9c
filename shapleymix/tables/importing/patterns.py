"""Patterns of column names: `eval/loss/{lang}` stands for a column of each language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LANG = "{lang}"


def is_pattern(text: str) -> bool:
    """Whether a name stands for a column of each language."""
    return LANG in text


def matches(pattern: str, columns: Iterable[str]) -> dict[str, str]:
    """The columns that a pattern stands for, by the language in their names, in their order."""
    form = _compiled(pattern)
    found = ((form.fullmatch(column), column) for column in columns)
    return {match["lang"]: column for match, column in found if match}


def found(pattern: str, columns: Iterable[str], qualified: Mapping[str, str]) -> dict[str, str]:
    """The columns of a pattern by language; with `table:` before it, those of that table (`qualified`)."""
    plain = matches(pattern, columns)
    if plain or ":" not in pattern.partition(LANG)[0]:
        return plain
    return {label: qualified[name] for label, name in matches(pattern, qualified).items()}


def weight(pattern: str) -> int:
    """How much of a pattern is said: of two that match a column, it belongs to the more exact one."""
    return len(pattern.replace(LANG, ""))


def _compiled(pattern: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, pattern.split(LANG))
    return re.compile(f"{first}(?P<lang>.+){'(?P=lang)'.join(rest)}" if rest else first, re.DOTALL)
