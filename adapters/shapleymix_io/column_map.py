"""Which column of a table is what: `KEY=VALUE` texts or a mapping, both with the same keys.

A key is `run`, `N`, `D`, ... with a column, a column times a size (`N=params_m*1M`), or a number for all rows
(`N=97.6k`); or `p`, `tokens`, `loss`, `unique` with a pattern (`p=params.w_{lang}`), or a column of each language
(`p.en=w_en`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shapleymix.errors import UsageError, described, did_you_mean
from shapleymix.files import is_table_name
from shapleymix.tables.languages import column_of, read_languages
from shapleymix.tables.sheets import as_list
from shapleymix.tables.words import RECIPE, parse_size
from shapleymix_io.table import flatten, matches

PHASES = {f"p{n}": f"D{n}" for n in range(1, 10)}
"""Keys of the ratios of runs in phases, and of their tokens."""
SINGLE = ("run", "N", "D", *PHASES.values(), "weight", "split", "seed", "tokenizer", *RECIPE.values())
"""Keys of one column."""
PREFIXES = {key: f"{key}_" for key in ("p", *PHASES, "tokens", "loss")} | {"unique": "tokens_unique_"}
"""Keys of a column for each language, and what its name in a run log begins with."""
LONG = ("language", "name", "value")
"""Keys of a long table: the language of a row, or the name and the value of a number."""
NEEDED = {"N": ("N",), "D": ("D", "D1", "tokens"), "p": ("p", "p1", "tokens"), "loss": ("loss",)}
"""What a log needs, and the keys that say it."""
UNITS = {"unit": ("nats", "bits", "bpb", "perplexity"), "ratio_unit": ("fraction", "percent", "weights")}
"""The units of losses and of ratios, the usual first."""
KEYS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*SINGLE, *LONG), (str, int, float)),
    **dict.fromkeys(PREFIXES, (str, dict)),
    **dict.fromkeys(UNITS, (str,)),
    "bytes_per_token": (str, int, float, dict),
    "languages": (dict,),
    "ignore": (str, list, tuple),
}
"""Every key, and the kinds of its values."""
_EXAMPLES = {"p": "p=w_{lang}", "loss": "loss=eval/{lang}", "languages": "languages.english=en"}

One = str | float
Map = str | Mapping[str, object] | Sequence[str]
"""A mapping, or `KEY=VALUE` texts."""


@dataclass(frozen=True)
class ColumnMap:
    """Which column is what.

    Attributes
    ----------
    columns : dict
        Of `SINGLE` and `LONG` keys a column or a number for all rows; of `PREFIXES` a pattern with `{lang}`, one column
        of a long table, or columns by language.
    languages : dict
        Names of languages in the table, and what they are called from here on.
    ignore : tuple of str
        Columns or languages that are none.
    unit, ratio_unit : str
        The units of losses (nats where it is empty) and of ratios.
    bytes_per_token : float or dict, optional
        Mean bytes of a token of the validation text, for all targets or each; for bits per byte, which are nats a byte
        without them. A map says them itself, or names a languages table.
    """

    columns: Mapping[str, One | Mapping[str, One]] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    unit: str = ""
    ratio_unit: str = "fraction"
    bytes_per_token: float | Mapping[str, float] | None = None

    @classmethod
    def of(cls, given: Map | None) -> ColumnMap:
        """The map that is meant.

        Raises
        ------
        UsageError
            If a text is no `KEY=VALUE`, a key is unknown, or a value is of a different kind.
        """
        found: dict[str, Any] = dict(given) if isinstance(given, Mapping) else _pairs(as_list(given or ()))
        for key, value in found.items():
            if key not in KEYS:
                raise UsageError(f"map: {key!r} is no key of a map", hint=did_you_mean(str(key), KEYS))
            if isinstance(value, bool) or not isinstance(value, KEYS[key]) or not value:
                message = f"map: {key} is {described(value)}, expected {' or '.join(one.__name__ for one in KEYS[key])}"
                raise UsageError(message, hint=f"write it like {_EXAMPLES.get(key, f'{key}=COLUMN')}")
        for key, known in UNITS.items():
            if found.get(key, known[0]) not in known:
                raise UsageError(f"map: {key} is {found[key]!r}", hint=f"it is one of {' '.join(known)}")
        size = found.get("bytes_per_token")
        if is_table_name(size):
            table = read_languages(size)
            known = column_of(table, "bytes_per_token", table.names).tolist()
            size = {name: one for name, one in zip(table.names, known, strict=True) if one > 0}
        elif isinstance(size, dict):
            size = {name: parse_size(one, f"bytes_per_token.{name}") for name, one in size.items()}
        elif size is not None:
            size = parse_size(size, "bytes_per_token")
        made = cls(
            {key: found[key] for key in (*SINGLE, *LONG, *PREFIXES) if key in found},
            {str(old): str(new) for old, new in found.get("languages", {}).items()},
            tuple(name.strip() for one in as_list(found.get("ignore", ())) for name in str(one).split(",")),
            **{key: found.get(key, "" if key == "unit" else known[0]) for key, known in UNITS.items()},
            bytes_per_token=size,
        )
        if made.unit != "bpb" and made.bytes_per_token is not None:
            raise UsageError("map: bytes_per_token goes with bits per byte", hint="give unit=bpb as well")
        return made


def factors(text: str) -> list[str]:
    """What a map multiplies: columns and numbers."""
    return [part.strip(" ()") if "+1" in part else part.strip() for part in text.split("*")]


def is_named(column: str, entries: Iterable[One | Mapping[str, One]]) -> bool:
    """Whether entries of a map name a column: as it is, in a product, or by a pattern."""
    texts = [str(text) for one in entries for text in (one.values() if isinstance(one, Mapping) else [one])]
    return any(matches(part, [column]) for text in texts for part in (text, *factors(text)))


def write_entries(entries: Mapping[str, object]) -> list[str]:
    """The entries of a map as `KEY=VALUE` texts."""
    return [f"{key}={','.join(map(str, as_list(one)))}" for key, one in flatten(entries).items()]


def _pairs(texts: Sequence[str]) -> dict[str, Any]:
    """The map of texts such as `run=Name` and `p.en=w_en`."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        name, dot, label = key.partition(".")
        inside = found.setdefault(name, {}) if dot else found
        place = label if dot else name
        if not (equals and place and value):
            raise UsageError(f"map: {text!r} is no KEY=VALUE", hint="write it like loss=eval/loss/{lang} or run=Name")
        if not isinstance(inside, dict) or inside.get(place, value) != value:
            raise UsageError(f"map: {key} is given twice", hint="give a pattern, or each language once")
        inside[place] = value
    return found
