"""The languages table: families, available tokens, weights, and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.display import Column, Shown, short
from shapleymix.errors import DataError, Fault, did_you_mean, printable
from shapleymix.records import FloatArray
from shapleymix.tables.frames import Tabular
from shapleymix.tables.names import align, check_label
from shapleymix.tables.sheets import Sheet, Table, numbers, read_sheet, require, texts
from shapleymix.tables.spelling import SAME_NAME, composed, lookalikes, twin_fault

COLUMNS = ("language", "family", "available_tokens", "weight", "max_epochs")


@dataclass(frozen=True)
class Languages(Tabular, Shown):
    """What is known of each language beside its runs.

    Attributes
    ----------
    names : tuple of str (L,)
        Labels.
    family : tuple of str (L,)
        Families; None where no family is given.
    available_tokens : array (L,)
        Unique tokens that are available; NaN where not known.
    weight : array (L,), optional
        Weights of the languages' losses in the objective; None where the table has none.
    max_epochs : array (L,)
        How often the tokens may be repeated; NaN where not given.
    origin, digest : str
        The file, and the SHA-256 of its bytes.
    notices : tuple of str
        Columns that were ignored.
    """

    names: tuple[str, ...]
    family: tuple[str | None, ...]
    available_tokens: FloatArray
    weight: FloatArray | None
    max_epochs: FloatArray
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(composed, self.names)))

    def summary(self) -> str:
        """Which languages, where they are from, and of how many the tokens are known."""
        known = int(np.isfinite(self.available_tokens).sum())
        return f"Languages from {printable(self.origin)}: {short(self.names)}; available tokens known for {known}"

    def columns(self) -> dict[str, Column]:
        """The columns of the table that `read_languages` reads."""
        weight = {} if self.weight is None else {"weight": self.weight}
        known = {"language": self.names, "family": self.family, "available_tokens": self.available_tokens}
        return {**known, **weight, "max_epochs": self.max_epochs}

    def aligned(self, names: Sequence[str], what: str = "languages table") -> Languages:
        """The rows of the given languages, in their order.

        Raises
        ------
        DataError
            If the table lacks a language; all of them at once, with what may be meant.
        """
        index = align(self.names, to=names, what=what, origin=self.origin)
        return Languages(
            names=tuple(names),
            family=tuple(self.family[row] for row in index.tolist()),
            available_tokens=self.available_tokens[index],
            weight=None if self.weight is None else self.weight[index],
            max_epochs=self.max_epochs[index],
            origin=self.origin,
            digest=self.digest,
            notices=self.notices,
        )


LanguagesSpec = Languages | Table
"""Wherever a languages table is meant: one that was read, or what `read_languages` reads."""


def languages_of(given: LanguagesSpec | None) -> Languages | None:
    """A languages table as it is, or read; None stays None.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    return given if given is None or isinstance(given, Languages) else read_languages(given)


def read_languages(table: Table) -> Languages:
    """Read a languages table: `language,family,available_tokens[,weight][,max_epochs]`.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    sheet = read_sheet(table)
    faults: list[Fault] = []
    if "language" not in sheet.columns:
        hint = did_you_mean("language", sheet.columns)
        raise DataError.of([sheet.header_fault("language", "has no column 'language'", hint)], sheet.origin)
    names = texts(sheet, "language", faults)
    faults.extend(_label_faults(sheet, names))
    found = Languages(
        names=names,
        family=_families(sheet, faults),
        available_tokens=amounts_above_zero(sheet, "available_tokens", faults),
        weight=_weights(sheet, faults),
        max_epochs=amounts_above_zero(sheet, "max_epochs", faults),
        origin=sheet.origin,
        digest=sheet.digest,
        notices=tuple(f"ignored the column {name!r}" for name in sheet.columns if name not in COLUMNS),
    )
    if faults:
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return found


def _label_faults(sheet: Sheet, names: Sequence[str]) -> list[Fault]:
    faults = []
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        problem = check_label(name) if name else None
        if problem:
            faults.append(sheet.fault(row, "language", f"the language {name!r} {problem}"))
        earlier = first.setdefault(name, row)
        if name and earlier != row:
            message = f"repeats the language {name!r} of line {sheet.lines[earlier]}"
            faults.append(sheet.fault(row, "language", message, "give each language once"))
    faults += [
        sheet.fault(first[name], "language", f"the language {twin_fault(name, twin)}", SAME_NAME)
        for name, twin in lookalikes(names).items()
    ]
    return faults


def _families(sheet: Sheet, faults: list[Fault]) -> tuple[str | None, ...]:
    if "family" not in sheet.columns:
        return (None,) * sheet.rows
    return tuple(family or None for family in texts(sheet, "family", faults, empty=True))


def amounts_above_zero(sheet: Sheet, column: str, faults: list[Fault]) -> FloatArray:
    """A column (L,) of amounts above zero; NaN where the table does not know."""
    if column not in sheet.columns:
        return np.full(sheet.rows, np.nan)
    values = numbers(sheet, column, faults, empty=True, sizes=True)
    require(sheet, column, values, values <= 0, "expected more than 0", faults)
    return values


def _weights(sheet: Sheet, faults: list[Fault]) -> FloatArray | None:
    if "weight" not in sheet.columns:
        return None
    weight = numbers(sheet, "weight", faults)
    require(sheet, "weight", weight, weight < 0, "expected 0 or more", faults)
    return weight
