"""Languages tables: what is known of each language beside its runs, unique tokens at hand, and units of losses.

Losses are stored and fitted in nats a token, whatever the unit that they are read and shown in: that is a factor for
each target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shapleymix.display import Column, Shown, Tabular, short
from shapleymix.errors import UsageError, printable
from shapleymix.files import is_table_name
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.sheets import Table, read_sheet
from shapleymix.tables.words import Amounts, amounts, parse_choice, parse_size

COLUMNS = ("language", "family", "parent", "available_tokens", "weight", "max_epochs", "bytes_per_token")


@dataclass(frozen=True)
class Languages(Tabular, Shown):
    """What is known of each language beside its runs.

    Attributes
    ----------
    names : tuple of str (L,)
        Labels.
    family : tuple of str (L,)
        Families, or parents of sources within a language; None where none is given.
    available_tokens : array (L,)
        Unique tokens that are available; NaN where not known.
    weight : array (L,), optional
        Weights of the languages' losses in the objective; None where the table has none.
    max_epochs : array (L,)
        How often the tokens may be repeated; NaN where not given.
    bytes_per_token : array (L,), optional
        Mean bytes of a token of each language's validation text; None where the table has none.
    origin, digest : str
        The file, and the SHA-256 of its bytes.
    notices : tuple of str
        Columns that were ignored.
    nested : bool
        Whether `family` is the column `parent`: languages and sources are parts of what it names.
    """

    names: tuple[str, ...]
    family: tuple[str | None, ...]
    available_tokens: FloatArray
    weight: FloatArray | None
    max_epochs: FloatArray
    bytes_per_token: FloatArray | None = None
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()
    nested: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Names that are more than a target's: where tokens are known of some, not rows of `bytes_per_token` alone."""
        known = np.isfinite(self.available_tokens)
        size = known if self.bytes_per_token is None else np.isfinite(self.bytes_per_token)
        kept = known | ~size if known.any() else ~known
        return tuple(name for name, there in zip(self.names, kept.tolist(), strict=True) if there)

    def headline(self) -> str:
        """Where they are from, and of how many the tokens are known."""
        known = int(np.isfinite(self.available_tokens).sum())
        return f"Languages from {printable(self.origin)}; available tokens known for {known}"

    def columns(self) -> dict[str, Column]:
        """The columns of the table that `read_languages` reads."""
        labels = {"language": self.names, "parent" if self.nested else "family": self.family}
        numbers = ("available_tokens", "weight", "max_epochs", "bytes_per_token")
        return labels | {name: getattr(self, name) for name in numbers if getattr(self, name) is not None}


Parents = Mapping[str, str]
"""Whose part a source is, where its name does not say so: `{"enweb": "en"}`, of a languages table's column `parent`."""


def parents_of(table: Languages | None) -> dict[str, str]:
    """The parents that a table names."""
    if table is None or not table.nested:
        return {}
    return {name: parent for name, parent in zip(table.names, table.family, strict=True) if parent}


def paths_of(sources: Sequence[str], parents: Parents, targets: Sequence[str] = ()) -> tuple[str, ...]:
    """Where each source (M,) stands: its name, such as `en/web`, or behind its parents, `en/enweb`.

    A source whose own name says of which target it is stands there, whatever a table calls its parent.
    """

    def path(name: str) -> str:
        chain = [name]
        while len(chain) <= len(parents) and chain[-1] in parents and not own_data(chain[-1:], targets).any():
            chain.append(parents[chain[-1]])
        return "/".join((*chain[:0:-1], name.rpartition("/")[2])) if len(chain) > 1 else name

    return tuple(path(name) for name in sources)


def own_data(sources: Sequence[str], targets: Sequence[str]) -> BoolArray:
    """Which sources, by their paths, are a target's own data, (M, K): that of its name, and parts, as `en/web`."""
    own = [[f"{source}/".startswith(f"{target}/") for target in targets] for source in sources]
    return np.array(own, dtype=bool).reshape(len(sources), len(targets))


def harm_map(sources: Sequence[str], targets: Sequence[str]) -> FloatArray:
    """(M, K) 1 where repeats of a source harm a target.

    Those are its own data; every source of a target that has none; and a source that is no target's harms all.
    """
    own = own_data(sources, targets)
    return (own | ~own.any(axis=0) | ~own.any(axis=1, keepdims=True)).astype(np.float64)


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
    """Read a languages table: `language,family,available_tokens[,weight][,max_epochs][,bytes_per_token]`.

    The column `family` may be called `parent`: then it says of what a source is a part, as `en/web` does of `en`.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    sheet = read_sheet(table)
    sheet.need(["language"])
    sheet.raise_faults()
    names = sheet.labels("language")
    sheet.once(zip(names), "the language {!r}", "language", "give each language once")
    group = next((name for name in ("parent", "family") if name in sheet.columns), None)
    if group == "parent" and "family" in sheet.columns:
        sheet.fault("languages are grouped by family or by parent, not both", None, "family", "keep one column")
    families = sheet.texts(group, empty=True) if group else ("",) * sheet.rows
    weight = sheet.numbers("weight") if "weight" in sheet.columns else None
    size = sheet.amounts("bytes_per_token") if "bytes_per_token" in sheet.columns else None
    if weight is not None:
        sheet.refuse(weight < 0, "weight", weight, "expected 0 or more")
    found = Languages(
        names=names,
        family=tuple(family or None for family in families),
        available_tokens=sheet.amounts("available_tokens"),
        weight=weight,
        max_epochs=sheet.amounts("max_epochs"),
        bytes_per_token=size,
        origin=sheet.origin,
        digest=sheet.digest,
        notices=tuple(f"ignored the column {name!r}" for name in sheet.columns if name not in COLUMNS),
        nested=group == "parent",
    )
    sheet.raise_faults()
    return found


def tokens_at_hand(sources: Sequence[str], table: Languages | None, available: Amounts | None) -> FloatArray:
    """Unique tokens (M,) of a languages table, and those that are given in their place; NaN where not known.

    Raises
    ------
    UsageError
        If a name is no source, or an amount is none.
    """
    if isinstance(available, Languages) or is_table_name(available):
        raise UsageError("available takes tokens by name, such as en=5T", hint="give a languages table as languages")
    known = column_of(table, "available_tokens", sources)
    return amounts(known, available, tuple(sources), parse_size, "available")


def column_of(table: Languages | None, column: str, labels: Sequence[str]) -> FloatArray:
    """A column of a languages table for every label (M,); NaN where the table does not name it."""
    known = None if table is None else getattr(table, column)
    values = {} if table is None or known is None else dict(zip(table.names, known.tolist(), strict=True))
    return np.array([values.get(name, np.nan) for name in labels], dtype=np.float64)


class Unit(NamedTuple):
    """A unit of losses: its name, and what a nat a token of each target (K,) is in it."""

    name: str = "nats"
    per_nat: FloatArray | float = 1.0


NATS = Unit()


def unit_of(given: str, table: Languages | None, targets: Sequence[str], parents: Parents) -> Unit:
    """The unit of a word: `nats`, or `bpb` for bits a byte, which needs the table's `bytes_per_token`.

    Raises
    ------
    UsageError
        If it is another word, or the bytes per token of a target are not known.
    """
    if parse_choice(given, ("nats", "bpb"), "unit") == "nats":
        return NATS
    size = column_of(table, "bytes_per_token", targets)
    if table is not None:  # of a language in parts, those of its parts in the mean
        each = column_of(table, "bytes_per_token", table.names)
        paths = paths_of(table.names, {**parents, **parents_of(table)}, targets)
        own = own_data(paths, targets) & np.isfinite(each)[:, None]
        mean = np.nan_to_num(each) @ own / np.maximum(own.sum(axis=0), 1)
        size = np.where(np.isnan(size) & (mean > 0), mean, size)
    if unknown := np.array(targets)[np.isnan(size)].tolist():
        raise UsageError(
            f"the bytes per token of {short(unknown)} are not known", hint="give a languages table with them"
        )
    return Unit("bits a byte", 1 / (np.log(2) * size))
