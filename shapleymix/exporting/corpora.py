"""Where each language's data lie: paths, their unique tokens and mean lengths, read from a table.

A language may have several paths, a row each. A languages table with a column `path` is such a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.display import Column, Shown, short
from shapleymix.errors import DataError, Fault, did_you_mean, printable
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.frames import Tabular
from shapleymix.tables.languages import amounts_above_zero
from shapleymix.tables.names import check_label
from shapleymix.tables.sheets import Sheet, Table, read_sheet, texts

TRAIN, VALID, TEST = SPLITS = ("train", "valid", "test")
_USED = ("path", "available_tokens", "mean_tokens", "dataset", "split")
_IGNORED = ("family", "weight", "max_epochs")
"""Columns of a languages table that an export has no use for."""


@dataclass(frozen=True)
class Corpora(Tabular, Shown):
    """Corpora, a row each.

    Attributes
    ----------
    sources, paths : tuple of str (R,)
        The language of each, and where it lies.
    available, mean_tokens : array (R,)
        Unique tokens, and tokens a document; NaN where not known.
    datasets : tuple of str (R,)
        Names under which a trainer knows them, empty where it knows none.
    splits : tuple of str (R,)
        What each is for: train, valid or test.
    origin, digest : str
        The file, and the SHA-256 of its bytes.
    notices : tuple of str
        Columns that were ignored.
    """

    sources: tuple[str, ...]
    paths: tuple[str, ...]
    available: FloatArray
    mean_tokens: FloatArray
    datasets: tuple[str, ...]
    splits: tuple[str, ...]
    origin: str = "<memory>"
    digest: str = ""
    notices: tuple[str, ...] = ()

    def columns(self) -> dict[str, Column]:
        """The columns of the table that `read_corpora` reads."""
        known = {"source": self.sources, "path": self.paths, "available_tokens": self.available}
        return {**known, "mean_tokens": self.mean_tokens, "dataset": self.datasets, "split": self.splits}

    def summary(self) -> str:
        """How many paths there are, of which languages."""
        return f"{len(self.paths)} paths from {printable(self.origin)}: {short(tuple(dict.fromkeys(self.sources)))}"

    def rows(self, source: str, split: str = TRAIN) -> IntArray:
        """Places of the corpora of a language."""
        pairs = zip(self.sources, self.splits, strict=True)
        return np.array([row for row, pair in enumerate(pairs) if pair == (source, split)], dtype=np.int64)

    def tokens_of(self, sources: Sequence[str], usual: FloatArray) -> FloatArray:
        """Unique tokens (M,) of languages: the sum of their paths' where all are known, else the usual ones (M,)."""
        sums = [self.available[rows].sum() if len(rows := self.rows(name)) else np.nan for name in sources]
        return np.where(np.isnan(sums), usual, sums)

    def of_split(self, split: str) -> tuple[str, ...]:
        """Languages that have a corpus of this split, in the table's order."""
        pairs = zip(self.sources, self.splits, strict=True)
        return tuple(dict.fromkeys(source for source, own in pairs if own == split))


CorporaSpec = Corpora | Table | Mapping[str, str]
"""Wherever corpora are meant: those that were read, a path by language, or what `read_corpora` reads."""


def corpora_of(given: CorporaSpec | None) -> Corpora | None:
    """Corpora as they are, or read; None stays None."""
    if given is None or isinstance(given, Corpora):
        return given
    if isinstance(given, Mapping) and given and all(isinstance(path, str) for path in given.values()):
        return read_corpora({"language": list(given), "path": list(given.values())})
    return read_corpora(given)


def read_corpora(table: Table) -> Corpora:
    """Read a table of corpora: `language,path[,available_tokens][,mean_tokens][,dataset][,split]`.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    sheet = read_sheet(table)
    label = _label_column(sheet)
    faults: list[Fault] = []
    sources, paths = texts(sheet, label, faults), texts(sheet, "path", faults)
    splits = _words(sheet, "split", faults, TRAIN)
    faults += _cell_faults(sheet, label, sources, check_label)
    faults += _cell_faults(sheet, "path", paths, _path_problem)
    faults += [
        sheet.fault(row, "split", f"the split {split!r} is none of {', '.join(SPLITS)}")
        for row, split in enumerate(splits)
        if split not in SPLITS
    ]
    faults += _repeated_paths(sheet, sources, paths, splits)
    datasets = _words(sheet, "dataset", faults, "")
    faults += _cell_faults(sheet, "dataset", datasets, _path_problem) if "dataset" in sheet.columns else []
    found = Corpora(
        sources,
        paths,
        amounts_above_zero(sheet, "available_tokens", faults),
        amounts_above_zero(sheet, "mean_tokens", faults),
        datasets,
        splits,
        sheet.origin,
        sheet.digest,
        tuple(f"ignored the column {name!r}" for name in sheet.columns if name not in (label, *_USED, *_IGNORED)),
    )
    if faults:
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return found


def _label_column(sheet: Sheet) -> str:
    """The column that names the languages; it and the paths must be there."""
    label = next((name for name in ("source", "language") if name in sheet.columns), None)
    lacking = [name for name, there in (("language", label), ("path", sheet.columns.get("path"))) if there is None]
    if label is None or lacking:
        hint = "a table of paths is: language,path[,available_tokens][,mean_tokens][,dataset][,split]"
        near = [did_you_mean(name, sheet.columns) for name in lacking]
        hints = [guess if guess and guess.startswith("did") else hint for guess in near]
        faults = [
            sheet.header_fault(name, f"has no column {name!r}", told) for name, told in zip(lacking, hints, strict=True)
        ]
        raise DataError.of(faults, sheet.origin)
    return label


def _path_problem(path: str) -> str | None:
    """What makes a path one that no trainer's file should hold, or None."""
    return None if path.isprintable() else "holds a character that cannot be printed"


def _cell_faults(
    sheet: Sheet, column: str, cells: Sequence[str], problem_of: Callable[[str], str | None]
) -> list[Fault]:
    problems = [(row, cell, problem_of(cell)) for row, cell in enumerate(cells) if cell]
    return [sheet.fault(row, column, f"{cell!r} {told}") for row, cell, told in problems if told]


def _repeated_paths(sheet: Sheet, sources: Sequence[str], paths: Sequence[str], splits: Sequence[str]) -> list[Fault]:
    """A path that comes again would be drawn from twice."""
    first: dict[tuple[str, str], int] = {}
    faults = []
    for row, key in enumerate(zip(paths, splits, strict=True)):
        earlier = first.setdefault(key, row)
        if key[0] and earlier != row:
            message = f"repeats the path {key[0]!r} of line {sheet.lines[earlier]} ({sources[earlier]})"
            faults.append(sheet.fault(row, "path", message, "give each path once: it would be drawn from twice"))
    return faults


def _words(sheet: Sheet, column: str, faults: list[Fault], usual: str) -> tuple[str, ...]:
    """A column of words, `usual` where a cell is empty or there is no such column."""
    if column not in sheet.columns:
        return (usual,) * sheet.rows
    return tuple(word or usual for word in texts(sheet, column, faults, empty=True))
