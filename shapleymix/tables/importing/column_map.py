"""Which column of a table is what: names, patterns such as `eval/loss/{lang}`, and numbers that hold for all rows.

A map comes from a TOML file, from `KEY=VALUE` texts, or from a mapping; the three hold the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from shapleymix.errors import UsageError, described, did_you_mean
from shapleymix.tables.importing.patterns import LANG
from shapleymix.tables.names import check_label
from shapleymix.tables.spelling import composed

SINGLE = ("run", "N", "D", "weight", "split", "seed")
"""Roles of one column each."""
LABELLED = ("p", "tokens", "loss", "unique")
"""Roles of a column for each language."""
LONG = ("language", "name", "value")
"""Roles of a long table: the language of a row, or the name and the value of a number."""
REST = ("languages", "ignore", "tokens_per_step")
KEYS = (*SINGLE, *LABELLED, *LONG, *REST)

One = str | float
"""A column by its name, or a number for all rows."""
Columns = One | Mapping[str, One]
"""A pattern, or a column or number of each language."""


@dataclass(frozen=True)
class ColumnMap:
    """Which column is what; a role that is not named has the columns of a run log's own names.

    Attributes
    ----------
    roles : dict
        Of `SINGLE` and `LONG` roles: a column's name, or a number for all rows.
    labelled : dict
        Of `LABELLED` roles: a pattern with `{lang}`, or columns and numbers by language.
    languages : dict
        Names of languages in the table, and what they are called from here on.
    ignore : tuple of str
        Columns or patterns of columns that no pattern takes, and languages of a long table; one text holds several
        with commas between.
    tokens_per_step : float or str, optional
        What a number in the column of D counts.
    """

    roles: Mapping[str, One] = field(default_factory=dict)
    labelled: Mapping[str, Columns] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    tokens_per_step: float | str | None = None

    def __bool__(self) -> bool:
        """Whether it says anything of columns."""
        return bool(self.roles or self.labelled or self.languages or self.ignore)

    def over(self, usual: ColumnMap) -> ColumnMap:
        """This map with what it leaves open as the other has it."""
        return ColumnMap(
            {**usual.roles, **self.roles},
            {**usual.labelled, **self.labelled},
            {**usual.languages, **self.languages},
            usual.ignore + self.ignore,
            usual.tokens_per_step if self.tokens_per_step is None else self.tokens_per_step,
        )

    def rest(self) -> dict[str, object]:
        """What it says beside columns, as a mapping that `column_map` takes."""
        found = {
            "languages": dict(self.languages),
            "ignore": ",".join(self.ignore),
            "tokens_per_step": self.tokens_per_step,
        }
        return {name: value for name, value in found.items() if value}

    def called(self, label: str) -> str:
        """What a language of the table is called."""
        return self.languages.get(label, label)


def column_map(given: Mapping[str, object]) -> ColumnMap:
    """The map of a mapping such as `{"run": "Name", "loss": "eval/loss/{lang}", "N": "97.6k"}`.

    Raises
    ------
    UsageError
        If a key is unknown, or a value is of another kind.
    """
    for key in given:
        if key not in KEYS:
            raise UsageError(f"map: {key!r} is no key of a map", hint=did_you_mean(str(key), KEYS))
    return ColumnMap(
        roles={key: _one(key, given[key]) for key in (*SINGLE, *LONG) if key in given},
        labelled={key: _columns(key, given[key]) for key in LABELLED if key in given},
        languages=_renames(given.get("languages", {})),
        ignore=_names(given.get("ignore", ())),
        tokens_per_step=_steps(given.get("tokens_per_step")),
    )


def parse_pairs(texts: Sequence[str]) -> dict[str, object]:
    """`loss=eval/loss/{lang}`, `p.en=0.5` and the like as the mapping that a TOML file would hold.

    Raises
    ------
    UsageError
        If a text is no pair, or a key comes twice.
    """
    found: dict[str, object] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        name, dot, label = key.partition(".")
        if not equals or not name or not value or (dot and not label):
            raise UsageError(f"map: {text!r} is no KEY=VALUE", hint="write it like loss=eval/loss/{lang} or run=Name")
        inside = found.setdefault(name, {}) if dot else found
        place = label if dot else name
        if not isinstance(inside, dict) or place in inside:
            raise UsageError(f"map: {key} is given twice", hint="give a pattern, or each language once")
        inside[place] = value
    return found


def _is_one(value: object) -> TypeGuard[One]:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""


def _one(key: str, value: object) -> One:
    if not _is_one(value):
        hint = f'give the name of a column, such as {key} = "{key}"'
        raise UsageError(f"map: {key} is {described(value)}, expected a column", hint=hint)
    if isinstance(value, str) and LANG in value:
        raise UsageError(f"map: {key} has one column, and {LANG} stands for several", hint="give the name of a column")
    return composed(value) if isinstance(value, str) else value


def _columns(key: str, value: object) -> Columns:
    if isinstance(value, Mapping) and value and all(map(_is_one, value.values())):
        for label in value:
            if fault := check_label(str(label)):
                raise UsageError(f"map: the language {label!r} of {key} {fault}")
        return {composed(str(label)): _text(one) for label, one in value.items()}
    if not isinstance(value, str) or not value:
        hint = f"give a pattern with {LANG}, such as {key}_{LANG}, or a column of each language"
        raise UsageError(f"map: {key} is {described(value)}, expected columns", hint=hint)
    return composed(value)


def _text(value: One) -> One:
    return composed(value) if isinstance(value, str) else value


def _renames(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
        raise UsageError(f"map: languages is {described(value)}, expected names by names", hint='english = "en"')
    found = {composed(str(old)): composed(str(new)) for old, new in value.items()}
    for new in found.values():
        if fault := check_label(new):
            raise UsageError(f"map: the language {new!r} {fault}")
    return found


def _names(value: object) -> tuple[str, ...]:
    listed = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) and one for one in listed):
        raise UsageError(f"map: ignore is {described(value)}, expected names of columns")
    return tuple(map(composed, listed))


def _steps(value: object) -> float | str | None:
    if value is None or _is_one(value):
        return value
    raise UsageError(f"map: tokens_per_step is {described(value)}, expected a number of tokens")
