"""How a run log is read: its layout, its units, which column is what, and which tables are joined to it.

All of it may stand in a TOML file (`map`), beside the keys of the map; what is given beside the file wins. A file that
says of which log it is the map (`log`) can be given in the place of that log.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from shapleymix.errors import Location, UsageError, described, did_you_mean
from shapleymix.files import Origin, read_once
from shapleymix.tables.addresses import is_address
from shapleymix.tables.cells import Layout
from shapleymix.tables.importing.column_map import KEYS, ColumnMap, column_map, parse_pairs
from shapleymix.tables.importing.units import BytesPerToken, Units
from shapleymix.tables.sheets import Table, listed

OPTIONS = ("long", "sep", "decimal", "unit", "ratio_unit", "bytes_per_token", "join")
LOG = "log"
"""The key of a map file that names the log, or the logs, of which it is the map."""
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "space": " "}
Map = str | os.PathLike[str] | Mapping[str, object] | Sequence[str]
"""A TOML file, a mapping, or `KEY=VALUE` texts (among which a file may stand)."""


class ReadingKeywords(TypedDict, total=False):
    """The keywords of `read_runs` that make `ReadingOptions`."""

    map: Map | None
    long: bool | None
    sep: str | None
    decimal: str | None
    unit: str | None
    ratio_unit: str | None
    bytes_per_token: BytesPerToken | None
    join: Table | Sequence[Table] | None


@dataclass(frozen=True)
class ReadingOptions:
    """How a log is to be read; what is None is as the map says, or as usual.

    Attributes
    ----------
    map : file, mapping or sequence of str, optional
        Which column is what: a TOML file, a mapping such as `{"run": "Name", "loss": "eval/loss/{lang}"}`, or texts
        such as `"run=Name"`. A number in place of a column holds for all rows. A file may hold the other options too.
    long : bool, optional
        Whether a row is of one run and one language (or one number), not of one run.
    sep : str, optional
        What separates the columns of a text.
    decimal : {".", ","}, optional
        The decimal mark.
    unit : {"nats", "bits", "bpb", "perplexity", "percent"}, optional
        Unit of the losses.
    ratio_unit : {"fraction", "percent", "weights"}, optional
        Unit of the ratios.
    bytes_per_token : float, str or mapping, optional
        Mean bytes of a token of the validation text, for all targets or by target; for bits per byte.
    join : Table or sequence of Table, optional
        Tables with a row a run, such as its N and ratios, joined by the ids of runs.
    """

    map: Map | None = None
    long: bool | None = None
    sep: str | None = None
    decimal: str | None = None
    unit: str | None = None
    ratio_unit: str | None = None
    bytes_per_token: BytesPerToken | None = None
    join: Table | Sequence[Table] | None = None


@dataclass(frozen=True)
class Reading:
    """How a run log is read.

    Attributes
    ----------
    map : ColumnMap
        Which column is what.
    long : bool
        Whether a row is of one run and one language, or one number.
    layout : Layout
        How a text table is written.
    units : Units
        Of losses, ratios and D.
    join : tuple
        Tables with a row a run, joined by its id.
    files : tuple of Origin
        Files that said so.
    logs : tuple of str
        The logs that the file of the map is the map of.
    """

    map: ColumnMap
    long: bool
    layout: Layout
    units: Units
    join: tuple[Table, ...]
    files: tuple[Origin, ...]
    logs: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: ReadingOptions) -> Reading:
        """Reading as it is asked for; an option wins over what the map says.

        Raises
        ------
        UsageError
            If the map cannot be read or holds something unknown, or an option is none.
        """
        found, files, logs = _found(asked.map)
        chosen = found | {name: value for name in OPTIONS if (value := getattr(asked, name)) is not None}
        columns = column_map({key: value for key, value in found.items() if key not in OPTIONS})
        return cls(
            map=columns,
            long=_truth(chosen.get("long", False)),
            layout=Layout(_separator(chosen.get("sep")), _decimal(chosen.get("decimal"))),
            units=Units.of(
                _word(chosen, "unit"),
                _word(chosen, "ratio_unit"),
                chosen.get("bytes_per_token"),
                columns.tokens_per_step,
            ),
            join=_tables(chosen.get("join")),
            files=files,
            logs=logs,
        )

    def options(self) -> dict[str, object]:
        """The options beside the map that say so, where they are not as usual."""
        units = self.units
        bytes_per_token = units.bytes_per_token
        if isinstance(bytes_per_token, Mapping):
            bytes_per_token = ",".join(f"{name}={value!r}" for name, value in bytes_per_token.items())
        given = {
            "long": self.long,
            "sep": self.layout.sep,
            "decimal": self.layout.decimal,
            "unit": units.loss if units.loss != "nats" else None,
            "ratio_unit": units.ratio if units.ratio != "fraction" else None,
            "bytes_per_token": bytes_per_token,
            "join": [os.fspath(one) for one in self.join if isinstance(one, (str, os.PathLike))],
        }
        return {name: value for name, value in given.items() if value}


def _found(given: Map | None) -> tuple[dict[str, object], tuple[Origin, ...], tuple[str, ...]]:
    """What a map holds, of all its texts and files, and the logs that these name; a text wins over a file."""
    if given is None:
        return {}, (), ()
    if isinstance(given, Mapping):
        return dict(given), (), ()
    parts = [given] if isinstance(given, (str, os.PathLike)) else list(given) if _is_list(given) else None
    if parts is None or not all(isinstance(part, (str, os.PathLike)) for part in parts):
        raise UsageError(f"map: {described(given)} is no map", hint="give a TOML file, a mapping, or KEY=VALUE")
    pairs = [part for part in parts if isinstance(part, str) and "=" in part and not part.endswith(".toml")]
    found: dict[str, object] = {}
    files, logs = [], list[str]()
    for path in (part for part in parts if part not in pairs):
        content, origin = _toml(path)
        logs += map(str, listed(content.pop(LOG, [])))
        found |= content
        files.append(origin)
    return found | parse_pairs(pairs), tuple(files), tuple(logs)


def _is_list(given: object) -> bool:
    return isinstance(given, (list, tuple))


def _toml(path: str | os.PathLike[str]) -> tuple[dict[str, object], Origin]:
    """The content of a map file; tables that it joins are found from its folder."""
    place = Location(file=os.fspath(path))
    try:
        data, origin = read_once(path)
        found = tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        hint = "give a TOML file, or KEY=VALUE such as loss=eval/loss/{lang}"
        raise UsageError(f"cannot be read: {error.strerror or error}", location=place, hint=hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        line = re.search(r"line (\d+)", str(error))
        where = Location(os.fspath(path), int(line[1]) if line else None)
        raise UsageError(f"is no TOML: {error}", location=where, hint='write run = "Name"') from error
    for key in found:
        if key not in (*KEYS, *OPTIONS, LOG):
            hint = did_you_mean(key, (*KEYS, *OPTIONS, LOG))
            raise UsageError(f"{key!r} is no key of a map", location=place, hint=hint)
    found |= {key: [_beside(path, key, one) for one in listed(found[key])] for key in ("join", LOG) if key in found}
    return found, origin


def _beside(path: str | os.PathLike[str], key: str, name: object) -> str:
    """A file from the folder of the map; an address as it is."""
    if not isinstance(name, str) or not name.strip():
        what = "empty" if name == "" else described(name)
        raise UsageError(f"{key} is {what}, expected a file", location=Location(file=os.fspath(path)))
    return name if is_address(name) else os.fspath(Path(path).parent / name)


def _word(chosen: Mapping[str, object], name: str) -> str | None:
    value = chosen.get(name)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} is {described(value)}, expected a word")


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    raise UsageError(f"long is {described(value)}, expected true or false")


def _separator(value: object) -> str | None:
    if value is None:
        return None
    found = _SEPARATORS.get(value, value) if isinstance(value, str) else ""
    if len(found) != 1 or found.isalnum() or found in '."\n\r-+_':
        hint = f"give one character, or one of {', '.join(_SEPARATORS)}"
        raise UsageError(f"sep: {value!r:.40} separates no columns", hint=hint)
    return found


def _decimal(value: object) -> str | None:
    words = {None: None, ".": ".", ",": ",", "point": ".", "comma": ","}
    if value is not None and not (isinstance(value, str) and value in words):
        raise UsageError(f"decimal: {value!r:.40} is no decimal mark", hint="give a point or a comma")
    return words[value]


def _tables(value: object) -> tuple[Table, ...]:
    return () if value is None else tuple(listed(value))
