"""The mixture a run trains on: written out, or in a file."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shapleymix.errors import DataError, Location, ShapleyMixError, UsageError
from shapleymix.files import read_json
from shapleymix.records import FloatArray
from shapleymix.tables.names import repeated
from shapleymix.tables.simplex import EXACT, parse_mixture

LABELS = ("sources", "languages", "names")
RATIOS = ("p", "ratios", "mixture", "weights")
EXAMPLE = 'a mixture file looks like: {"en": 0.7, "de": 0.3}'
FILE_ENDINGS = (".json", ".toml", ".csv")


class Mixture(NamedTuple):
    """The ratios (M,) of a mixture, which sum to one, and what they summed to as they were given."""

    ratios: FloatArray
    total: float

    @property
    def rescaled(self) -> bool:
        """Whether the ratios are not those that were given."""
        return abs(self.total - 1) > EXACT


def read_mixture(text: str, languages: tuple[str, ...]) -> Mixture:
    """The mixture that is `uniform`, `en=.7,de=.3`, or in a file: JSON (also what `shapleymix optimize` saves), TOML,
    or CSV with a name and a ratio in each line. A sum within 0.005 of one is taken for rounding.

    Raises
    ------
    UsageError
        If the ratios do not sum to one or a name is unknown.
    DataError
        If the file holds no mixture.
    """
    if text == "uniform":
        return Mixture(parse_mixture(text, languages), 1.0)
    if "=" in text and not text.endswith(FILE_ENDINGS):
        ratios = parse_mixture(text, languages)
        return Mixture(ratios, sum(float(part.rpartition("=")[2]) for part in text.split(",")))
    path = Path(text)
    if not path.is_file():
        hint = "write it as uniform, as en=.7,de=.3, or give a .json, .toml or .csv file"
        raise UsageError(f"{text!r} is no mixture and no file", hint=hint)
    pairs = _pairs(path)
    return Mixture(parse_mixture(pairs, languages), sum(pairs.values()))


def _pairs(path: Path) -> dict[str, float]:
    """Name to ratio, as the file has them."""
    try:
        if path.suffix == ".csv":
            return _csv_pairs(path)
        document = tomllib.loads(path.read_text("utf-8-sig")) if path.suffix == ".toml" else read_json(path)
        pairs = dict(_named(document))
    except ShapleyMixError:
        raise
    except (
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise DataError(f"holds no mixture: {error}", location=Location(file=str(path)), hint=EXAMPLE) from error
    for name, ratio in pairs.items():
        if isinstance(ratio, bool) or not isinstance(ratio, int | float):
            message = f"holds no mixture: {name!r} has {ratio!r}, expected a number"
            raise DataError(message, location=Location(file=str(path)), hint=EXAMPLE)
    return {name: float(ratio) for name, ratio in pairs.items()}


def _named(document: Any) -> Mapping[str, Any]:
    """Name to ratio, whether written so or as two lists."""
    names = next((document[key] for key in LABELS if isinstance(document.get(key), list)), None)
    ratios = next((document[key] for key in RATIOS if key in document), document)
    if isinstance(ratios, dict):
        return ratios
    if not names:
        raise ValueError("ratios without names")
    if twice := repeated(names):
        raise ValueError(f"{twice[0]!r} comes twice")
    return dict(zip(names, ratios, strict=True))


def _csv_pairs(path: Path) -> dict[str, float]:
    """A name and a ratio in each line; the first line may be a heading."""
    pairs: dict[str, float] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    if rows and not _is_pair(rows[0][1]):
        del rows[0]
    for line, row in rows:
        place = Location(file=str(path), line=line)
        if not _is_pair(row):
            raise DataError(f"is {','.join(row)!r}, expected a name and a ratio", location=place)
        name = row[0].strip()
        if name in pairs:
            raise DataError(f"gives {name!r} twice", location=place, hint="keep one of them")
        pairs[name] = float(row[1])
    if not pairs:
        raise ValueError("expected a name and a ratio in each line")
    return pairs


def _is_pair(row: list[str]) -> bool:
    try:
        float(row[1])
    except (IndexError, ValueError):
        return False
    return len(row) == 2
