"""The project file `shapleymix.toml`: what the commands of one folder have in common, said once.

It is looked for in the current folder alone; `--project FILE` names another, `--project none` none. Its entries become
words of the command line, which is what a result keeps as its provenance; whatever is typed wins over them.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from shapleymix.errors import DataError, Fault, Location, UsageError, described, did_you_mean
from shapleymix.files import is_table_name, read_once
from shapleymix.tables.addresses import is_address

NAME, NONE = "shapleymix.toml", "none"
TAKEN = "shapleymix_cli.project"
"""Where a call's context keeps what was taken."""
_OUT = "--project names another file, --project none asks for none"

Given = Mapping[str, object]
"""What was typed: parameters of a command by their names, those that were not left out."""
Condition = Callable[[Given], bool]
"""Whether a command takes an entry, by what else was typed."""
Takes = Mapping[str, Condition]
"""The entries that a command takes."""


class _Odd(ValueError):
    """A value that an entry cannot have; its text says what it is."""


def _one_file(value: object, folder: str) -> tuple[str, ...]:
    """A file, whose name counts from the folder of the project file."""
    if not isinstance(value, str) or not value.strip():
        raise _Odd(f"is {described(value)}" if not isinstance(value, str) else "is empty")
    if value.strip() == "-":
        raise _Odd("is standard input, which is not the same each time")
    if is_address(value):
        return (value,)
    return (os.path.join(folder or ("." if value.startswith("-") else ""), value),)


def _files(value: object, folder: str) -> tuple[str, ...]:
    """One file, or several."""
    if isinstance(value, list) and value:
        return tuple(path for one in value for path in _one_file(one, folder))
    return _one_file(value, folder)


def _weights(value: object, folder: str) -> tuple[str, ...]:
    """A word, a languages table, or numbers by name."""
    if isinstance(value, str) and is_table_name(value):
        return _one_file(value, folder)
    return _numbers(value, folder)


def _numbers(value: object, folder: str) -> tuple[str, ...]:
    """Numbers by name, as a table or as the text in which they are typed."""
    if isinstance(value, str) and value.strip():
        return (value,)
    if not isinstance(value, dict) or not value:
        raise _Odd("is empty" if value in ("", {}) else f"is {described(value)}")
    odd = [name for name in value if "," in name or not name.strip()]
    if odd:
        raise _Odd(f"names {odd[0]!r}, and a name has no comma")
    return (",".join(f"{name}={_number(name, one)}" for name, one in value.items()),)


def _caps(value: object, folder: str) -> tuple[str, ...]:
    """Ratios by name; what is none is told with its place in the file."""
    from shapleymix.tables.amounts import parse_ratio

    words = _numbers(value, folder)
    for name, one in value.items() if isinstance(value, dict) else ():
        parse_ratio(one, f"the cap of {name!r}")
    return words


def _number(name: str, value: object) -> str:
    """A number, or a text such as `50%`."""
    if isinstance(value, str) and value.strip() and "," not in value:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _Odd(f"gives {name!r} {value!r}, expected a finite number of at least 0")
    return repr(value)


def _map(value: object, folder: str) -> tuple[str, ...]:
    """A map file, or the map itself as a table: a word for each of its columns."""
    if not isinstance(value, dict):
        return _one_file(value, folder)
    from shapleymix.tables.importing.column_map import column_map

    column_map(value)
    words = tuple(word for key, one in value.items() for word in _map_words(key, one))
    if any("=" in key or key != key.strip() for key in (*value, *_inner(value))) or any(map(_is_odd_word, words)):
        raise _Odd("holds a name that the command line cannot hold: write it into a map file, and give its name")
    return words


def _inner(value: Mapping[str, object]) -> list[str]:
    return [label for one in value.values() if isinstance(one, dict) for label in one]


def _map_words(key: str, value: object) -> list[str]:
    """`KEY=VALUE`, or `KEY.LANGUAGE=VALUE` of each language."""
    if isinstance(value, dict):
        return [word for label, one in value.items() for word in _map_words(f"{key}.{label}", one)]
    return [f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}"]


def _is_odd_word(word: str) -> bool:
    """Whether a pair would be read as something else: a file, or a name without its outer spaces."""
    return word.endswith(".toml") or word.partition("=")[2] != word.partition("=")[2].strip()


def _word(value: object, folder: str) -> tuple[str, ...]:
    if not isinstance(value, str) or not value:
        raise _Odd("is empty" if value == "" else f"is {described(value)}")
    return (value,)


def _truth(value: object, folder: str) -> tuple[str, ...]:
    """A flag, which is typed or left out."""
    if not isinstance(value, bool):
        raise _Odd(f"is {described(value)}")
    return ("true",) if value else ()


def _number_or_numbers(value: object, folder: str) -> tuple[str, ...]:
    """One number for all, or numbers by name."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (_number("all", value),)
    return _numbers(value, folder)


class Entry(NamedTuple):
    """An entry: the name of the commands' parameter, its reader, and how it is written."""

    parameter: str
    read: Callable[[object, str], tuple[str, ...]]
    example: str


ENTRIES = {
    "log": Entry("logs", _files, 'log = "runs.csv", or log = ["small.csv", "large.csv"]'),
    "map": Entry("map", _map, 'map = "map.toml", or map = {run = "Name", loss = "eval/loss/{lang}"}'),
    "long": Entry("long", _truth, "long = true"),
    "join": Entry("join", _files, 'join = "design.csv"'),
    "unit": Entry("unit", _word, 'unit = "bits"'),
    "bytes_per_token": Entry("bytes_per_token", _number_or_numbers, "bytes_per_token = {en = 4.2, zh = 3}"),
    "ratio_unit": Entry("ratio_unit", _word, 'ratio_unit = "percent"'),
    "sep": Entry("sep", _word, 'sep = ";"'),
    "decimal": Entry("decimal", _word, 'decimal = ","'),
    "transfer": Entry("transfer", _one_file, 'transfer = "sv.csv"'),
    "languages": Entry("languages", _one_file, 'languages = "languages.csv"'),
    "weights": Entry("weights", _weights, 'weights = "normalized", or weights = {en = 1, de = 2}'),
    "caps": Entry("caps", _caps, 'caps = {en = 0.5, de = "30%"}'),
}
READING = ("map", "long", "join", "unit", "bytes_per_token", "ratio_unit", "sep", "decimal")
"""The entries that say how the project's log is written; they go with that log, wherever a command takes it."""
FORMER = {"sv": "transfer"}
"""Another name under which an entry may be looked for."""


def always(given: Given) -> bool:
    """The condition of an entry that a command takes whatever else is typed."""
    return True


def unless(*names: str) -> Condition:
    """The condition that none of these parameters was typed."""
    return lambda given: not any(name in given for name in names)


def having(name: str) -> Condition:
    """The condition that this parameter was typed."""
    return lambda given: name in given


@dataclass(frozen=True)
class Taken:
    """What a command takes from a project file, as words of the command line."""

    file: str = ""
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def around(self, typed: Sequence[str], at: int = 0) -> list[str]:
        """The words that were typed with these: options at a place, so that no `--` is before them, arguments last."""
        return [*typed[:at], *self.options, *typed[at:], *self.arguments]

    def told(self) -> list[str]:
        """What is taken, for people."""
        words = shlex.join([*self.options, *self.arguments])
        return [f"{self.file} adds {words}"] if words else []


@dataclass(frozen=True)
class Project:
    """What a project file says.

    Attributes
    ----------
    file : str
        The file, as it was named.
    entries : mapping of str to tuple of str
        The values of each entry, as they would be typed.
    """

    file: str
    entries: Mapping[str, tuple[str, ...]]

    def taken(self, parameters: Sequence[click.Parameter], takes: Takes, given: Given) -> Taken:
        """What a command with these parameters takes from this file: of what was not typed."""
        known = {one.name: one for one in parameters}
        options: list[str] = []
        arguments: list[str] = []
        for name, values in self.entries.items():
            parameter = known.get(ENTRIES[name].parameter)
            taken = self._reads(takes, given) if name in READING else name in takes and takes[name](given)
            if parameter is None or not taken or parameter.name in given:
                continue
            if isinstance(parameter, click.Argument):
                arguments += values
            else:
                flag, alone = max(parameter.opts, key=len), isinstance(parameter, click.Option) and parameter.is_flag
                options += [word for value in values for word in ((flag,) if alone else (flag, value))]
        return Taken(self.file, tuple(options), tuple(arguments))

    def _reads(self, takes: Takes, given: Given) -> bool:
        """Whether a call reads the project's log, taken or typed; without one, whatever log is typed."""
        if "log" not in takes:
            return False
        typed, own = given.get("logs"), self.entries.get("log")
        if not isinstance(typed, (tuple, list)):
            return own is not None and takes["log"](given)
        return own is None or {os.path.abspath(str(one)) for one in typed} <= set(map(os.path.abspath, own))


def find(named: str | None) -> Project | None:
    """The project file that is named, or the one of the current folder; None without either.

    Raises
    ------
    DataError
        If it cannot be read, or says what no project can.
    """
    if named == NONE or (named is None and not Path(NAME).exists()):
        return None
    path = named or NAME
    text = _text(path)
    entries: dict[str, tuple[str, ...]] = {}
    faults: list[Fault] = []
    for name, value in _parsed(path, text).items():
        try:
            entries[name] = _read(name, value, os.path.dirname(path))
        except UsageError as error:
            faults.append(Fault(error.message, Location(path, _line_of(name, text), name), hint=error.hint))
    if faults:
        raise DataError.of(faults, path)
    return Project(path, entries)


def _text(path: str) -> str:
    place = Location(file=path)
    try:
        return read_once(path)[0].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("is not a UTF-8 text file", hint="save it as UTF-8", location=place) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", hint=_OUT, location=place) from error


def _parsed(path: str, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # a number may be too long for an int
        told, _, place_told = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place_told)
        place = Location(file=path, line=int(line[1]) if line else None)
        raise DataError(
            f"is no TOML: {told}", hint='texts stand in quotes: log = "runs.csv"', location=place
        ) from error


def _read(name: str, value: object, folder: str) -> tuple[str, ...]:
    """The value of an entry, as it would be typed."""
    if name not in ENTRIES:
        raise UsageError("is no entry of a project file", hint=did_you_mean(FORMER.get(name, name), ENTRIES))
    try:
        return ENTRIES[name].read(value, folder)
    except _Odd as odd:
        raise UsageError(str(odd), hint=f"write {ENTRIES[name].example}") from odd


def _line_of(name: str, text: str) -> int | None:
    """The line on which an entry begins, or None where it cannot be seen, such as behind an escape."""
    begin = re.search(rf"^[ \t]*(\[[ \t]*)?[\"']?{re.escape(name)}[\"']?[ \t]*[.=\]]", text, flags=re.MULTILINE)
    return None if begin is None else text.count("\n", 0, begin.start()) + 1
