"""Patterns of column names: `eval/loss/{lang}` stands for a column of each language."""

from __future__ import annotations

import re
from collections.abc import Iterable

LANG = "{lang}"


def is_pattern(text: str) -> bool:
    """Whether a name stands for a column of each language."""
    return LANG in text


def matches(pattern: str, columns: Iterable[str]) -> dict[str, str]:
    """The columns that a pattern stands for, by the language in their names, in their order."""
    form = _compiled(pattern)
    found = ((form.fullmatch(column), column) for column in columns)
    return {match["lang"]: column for match, column in found if match}


def weight(pattern: str) -> int:
    """How much of a pattern is said: of two that match a column, it belongs to the more exact one."""
    return len(pattern.replace(LANG, ""))


def _compiled(pattern: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, pattern.split(LANG))
    return re.compile(f"{first}(?P<lang>.+){'(?P=lang)'.join(rest)}" if rest else first, re.DOTALL)
