"""The mixture a run trains on: written out, or in a file."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import FloatArray, read_json
from shapleymix.tables.simplex import EXACT, parse_mixture

LABELS = ("sources", "languages", "names")
RATIOS = ("p", "ratios", "mixture", "weights")
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
    try:
        if path.suffix == ".csv":
            return _csv_pairs(path)
        document = tomllib.loads(path.read_text("utf-8")) if path.suffix == ".toml" else read_json(path)
        return {name: float(ratio) for name, ratio in _named(document).items()}
    except (
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        hint = 'a mixture file looks like: {"en": 0.7, "de": 0.3}'
        raise DataError(f"holds no mixture: {error}", location=Location(file=str(path)), hint=hint) from error


def _named(document: Any) -> Mapping[str, Any]:
    """Name to ratio, whether written so or as two lists."""
    names = next((document[key] for key in LABELS if isinstance(document.get(key), list)), None)
    ratios = next((document[key] for key in RATIOS if key in document), document)
    if isinstance(ratios, dict):
        return ratios
    if not names:
        raise ValueError("ratios without names")
    return dict(zip(names, ratios, strict=True))


def _csv_pairs(path: Path) -> dict[str, float]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.reader(stream) if row]
    numeric = [row for row in rows if len(row) > 1 and _is_number(row[1])]
    if len(numeric) < len(rows) - 1 or not numeric:
        raise ValueError("expected a name and a ratio in each line")
    return {row[0].strip(): float(row[1]) for row in numeric}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
