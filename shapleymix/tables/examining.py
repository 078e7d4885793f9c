"""What a table holds for a run log: which columns were found or may be meant, and what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from shapleymix.errors import printable
from shapleymix.keywords import checked, spelt_out
from shapleymix.tables.addresses import is_address
from shapleymix.tables.importing.column_map import LABELLED, LONG, REST, SINGLE, ColumnMap, One
from shapleymix.tables.importing.long_tables import LANGUAGES, USUAL
from shapleymix.tables.importing.patterns import LANG, found, is_pattern
from shapleymix.tables.importing.reading import LOG, Reading, ReadingKeywords, ReadingOptions
from shapleymix.tables.importing.recognising import Guess, guessed
from shapleymix.tables.importing.table_joins import joined, qualified
from shapleymix.tables.importing.unfinished import ends_told
from shapleymix.tables.importing.usual_maps import with_usual
from shapleymix.tables.runs import PREFIXES, own_columns
from shapleymix.tables.several import opened
from shapleymix.tables.sheets import Sheet, Table, listed

GIVEN, OWN, TOOL, GUESSED, MISSING = "given", "as in a run log", "as its tool writes", "may be meant", "missing"
NEEDED = ("N", "D", "p", "loss")
_MEANS = {
    "run": "the id of a run",
    "N": "non-embedding parameters",
    "D": "tokens seen",
    "p": "ratios of the languages",
    "loss": "losses of the languages",
}


@dataclass(frozen=True)
class Finding:
    """One thing of a run log, and where it stands in the table.

    Attributes
    ----------
    role : str
        What it is: `run`, `N`, `loss`.
    written : str
        The column, the pattern, or the number for all rows; empty where it is missing.
    how : str
        Whether that was given, is a run log's own name, is guessed, or is missing.
    examples : tuple of str
        Languages that the pattern stands for, or cells of the column.
    columns : dict
        The column, or the number, of each language, where they were given one by one.
    """

    role: str
    written: str
    how: str
    examples: tuple[str, ...] = ()
    columns: Mapping[str, One] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """What a table holds for a run log.

    Attributes
    ----------
    origin, digest : str
        The table's file, and its hash.
    rows : int
        Number of rows.
    kind : str
        What the table is, in words; empty where its form does not tell.
    findings : tuple of Finding
        In the order of a run log's columns.
    ignored : tuple of str
        Columns that nothing is made of.
    keywords : dict
        The keywords of `read_runs` that read it, if the guesses are right.
    notices : tuple of str
        What reading took for granted.
    parts : tuple of str
        Other files whose cells are in the table, such as the charts of other languages.
    """

    origin: str
    digest: str
    rows: int
    kind: str
    findings: tuple[Finding, ...]
    ignored: tuple[str, ...]
    keywords: Mapping[str, object]
    notices: tuple[str, ...]
    parts: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What a run log needs and the table does not have."""
        return tuple(one.role for one in self.findings if one.how == MISSING)

    def toml(self, folder: str | os.PathLike[str] = ".") -> str:
        """A map of the table, to be edited: what may be meant, and what must be filled in.

        Parameters
        ----------
        folder : path
            Where it is to lie: files are named from there.
        """
        name = printable(Path(self.origin).name)
        lines = [f"# How {name} is read as a run log: to be edited, and given in its place, or as the map of others."]
        logs = [_from(folder, one) for one in (self.origin, *self.parts) if one[:1] != "<"]
        lines += [f"{LOG} = {_toml(logs if len(logs) > 1 else logs[0])}"] if logs else []
        lines += ["", *map(_line, self.findings)]
        given = self.keywords.get("map")
        options = {key: given[key] for key in REST if key in given} if isinstance(given, Mapping) else {}
        options |= {key: value for key, value in self.keywords.items() if key != "map"}
        if "join" in options:
            options["join"] = [_from(folder, str(one)) for one in listed(options["join"])]
        lines += [f"{'# ' if value == '...' else ''}{key} = {_toml(value)}" for key, value in options.items()]
        unused = ", ".join(map(printable, self.ignored[:40])) + (", ..." if len(self.ignored) > 40 else "")
        return "\n".join([*lines, *([f"# not used: {unused}"] if unused else [])]) + "\n"


def _from(folder: str | os.PathLike[str], name: str) -> str:
    """The name of a file from a folder; an address as it is."""
    return name if is_address(name) else os.path.relpath(name, folder or ".")


def _line(one: Finding) -> str:
    if one.how in (OWN, TOOL):
        return f"# {one.role}: {one.how} ({printable(one.written)})"
    if one.how == MISSING:
        blank = f"...{LANG}" if one.role in LABELLED else "..."
        return f'# {one.role} = "{blank}"  # missing: {_MEANS[one.role]}; a column, or a number for all rows'
    return f"{one.role} = {_toml(one.columns or one.written)}"


def _toml(value: object) -> str:
    """A text, a number, a truth value, or a list or mapping of them, as TOML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(one)}' for key, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@spelt_out(ReadingOptions, ReadingKeywords.__annotations__)
def examined(table: Table | Sequence[Table], **reading: Unpack[ReadingKeywords]) -> Examination:
    """What a table holds for a run log.

    Parameters
    ----------
    table : Table or sequence of Table
        As `read_runs` takes them; of several logs the first, exported charts together.
    **reading : ReadingKeywords
        What is known of how it is written.
    """
    checked("examined", reading, ReadingKeywords.__annotations__)
    first = opened(listed(table), ReadingOptions(**reading))[0]
    sheet, how = first.sheet, first.how
    run = how.map.roles.get("run")
    if first.beside:
        sheet = joined(sheet, first.beside, None if run is None else str(run))
    names, known = qualified(sheet), with_usual(how.map, sheet)
    guess = guessed(sheet, known)
    long = how.long or bool(guess.options.get("long"))
    seen = _without(sheet, [*known.ignore, *guess.map.get("ignore", "").split(",")])
    spent = {str(one) for one in known.roles.values()}
    free = {name: column for name, column in names.items() if column in seen.columns and column not in spent}
    findings = tuple(_findings(seen, free, how.map, known, guess, long))
    used = {one.written for one in findings} | {column for one in findings for column in _columns(seen, free, one)}
    return Examination(
        origin=sheet.origin,
        digest=sheet.digest,
        rows=sheet.rows,
        kind=guess.kind,
        findings=findings,
        ignored=tuple(name for name in sheet.columns if name not in used),
        keywords=_keywords(how, guess, findings),
        notices=(*sheet.notices, *ends_told(sheet)),
        parts=tuple(one.origin for one in first.parts),
    )


def _without(sheet: Sheet, names: Sequence[str]) -> Sheet:
    """The sheet without some columns."""
    return replace(sheet, columns={name: cells for name, cells in sheet.columns.items() if name not in names})


def _keywords(how: Reading, guess: Guess, findings: Sequence[Finding]) -> dict[str, object]:
    named = {one.role: one.columns or one.written for one in findings if one.how in (GIVEN, GUESSED)}
    blank = {one.role: guess.blank(one.role) for one in findings if one.how == MISSING}
    guessed_rest = {key: guess.map[key] for key in REST if key in guess.map}
    whole = {**named, **blank, **how.map.rest(), **guessed_rest}
    return {**({"map": whole} if whole else {}), **guess.options, **how.options()}


def _findings(
    sheet: Sheet, names: Mapping[str, str], asked: ColumnMap, known: ColumnMap, guess: Guess, long: bool
) -> Iterator[Finding]:
    """What was found of each role; `known` is what was asked for and what the tool calls its columns."""
    for role in (*SINGLE, *LONG, *LABELLED):
        how = known.roles.get(role, known.labelled.get(role))
        if isinstance(how, Mapping):
            yield Finding(role, ", ".join(map(str, how.values())), GIVEN, tuple(how), how)
        elif how is not None:
            given = role in asked.roles or role in asked.labelled
            yield _with_examples(sheet, names, Finding(role, str(how), GIVEN if given else TOOL))
        elif own := _own(sheet, role, long):
            yield _with_examples(sheet, names, Finding(role, own, OWN))
        elif role in guess.map:
            yield _with_examples(sheet, names, Finding(role, guess.map[role], GUESSED))
        elif role in NEEDED and role in guess.missing:
            yield Finding(role, "", MISSING)


def _own(sheet: Sheet, role: str, long: bool) -> str | None:
    """The name of a run log's own that stands in the table."""
    usual = {**USUAL, "language": LANGUAGES}.get(role, ())
    if long and (name := next((one for one in usual if one in sheet.columns), None)):
        return name
    if role in PREFIXES:
        own = own_columns(sheet.columns, role)
        return f"{PREFIXES[role]}{LANG}" if own else "loss" if role == "loss" and "loss" in sheet.columns else None
    return role if role in SINGLE and role in sheet.columns else None


def _with_examples(sheet: Sheet, names: Mapping[str, str], one: Finding) -> Finding:
    if is_pattern(one.written):
        return Finding(one.role, one.written, one.how, tuple(found(one.written, sheet.columns, names)))
    cells = sheet.columns.get(names.get(one.written, one.written), [])
    texts = dict.fromkeys(text for cell in cells if (text := str(cell).strip()))
    return Finding(one.role, one.written, one.how, tuple(texts)[:6])


def _columns(sheet: Sheet, names: Mapping[str, str], one: Finding) -> list[str]:
    """The columns of a finding."""
    if is_pattern(one.written):
        return list(found(one.written, sheet.columns, names).values())
    if one.columns:
        return [names.get(str(part), str(part)) for part in one.columns.values()]
    return [names.get(one.written, one.written)]
