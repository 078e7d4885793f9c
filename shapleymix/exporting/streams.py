"""The streams that a trainer draws from: corpora with weights that sum to one exactly, in the trainer's unit.

The mixture is of tokens. A trainer that draws documents gets the weights that make it so: `w_i ~ p_i / mean_tokens_i`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shapleymix.errors import DataError, Fault, Location
from shapleymix.exporting.corpora import TRAIN, Corpora
from shapleymix.fields import POSITIVE, SHARE, Range
from shapleymix.records import FloatArray, Record
from shapleymix.tables.spelling import near

SHOWN = 8
"""Names that a message shows."""


@dataclass(frozen=True)
class Stream(Record):
    """One thing that a trainer draws from: a corpus, or all corpora of a language together.

    Attributes
    ----------
    name, source : str
        Its own name, and its language.
    dataset : str
        Name under which the trainer knows it; that of the stream where no table says another.
    paths : tuple of str
        Where it lies; none where no table says it.
    ratio : float
        Share of the run's tokens.
    weight : float
        How often it is drawn from, in the trainer's unit.
    available, mean_tokens : float
        Unique tokens, and tokens a draw; NaN where not known.
    """

    kind = "stream"
    ranges: ClassVar[Mapping[str, Range]] = {
        "ratio": SHARE, "weight": SHARE, "available": POSITIVE, "mean_tokens": POSITIVE,
    }  # fmt: skip

    name: str
    source: str
    dataset: str
    paths: tuple[str, ...]
    ratio: float
    weight: float
    available: float
    mean_tokens: float


@dataclass(frozen=True)
class Draws:
    """How a trainer draws.

    Attributes
    ----------
    unit : str
        What it draws, in the plural.
    differ : bool
        Whether draws differ in length, so that their mean lengths matter.
    packed : bool
        Whether draws that may differ are packed to one length by most, and are taken to be where nothing else is said.
    together : bool
        Whether it takes several paths as one source; else the ratio is divided among them.
    """

    unit: str
    differ: bool = False
    packed: bool = False
    together: bool = False


def exact(amounts: Sequence[float] | FloatArray) -> FloatArray:
    """Amounts (M,) in proportion, whose exact sum rounds to one; the largest takes what rounding leaves."""
    given = np.asarray(amounts, dtype=np.float64)
    found = given if math.fsum(given) == 1.0 else given / math.fsum(given)
    for _ in range(4):
        left = math.fsum([1.0, *(-found)])
        if left == 0.0 or math.fsum(found) == 1.0:
            break
        found[np.argmax(found)] += left
    return found


def listed(names: Sequence[str]) -> str:
    """Names in a row; of many the first ones and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def laid_out(
    shares: Mapping[str, float],
    supply: Mapping[str, float],
    lengths: Mapping[str, float],
    corpora: Corpora | None,
    draws: Draws,
    split: str = TRAIN,
) -> list[Stream]:
    """The streams of languages with their shares of tokens, not yet weighted."""
    if corpora is None:
        return [
            Stream(name, name, name, (), share, math.nan, supply[name], lengths[name]) for name, share in shares.items()
        ]
    _require_paths(shares, corpora, split)
    taken = set(shares)
    faults: list[Fault] = []
    found: list[Stream] = []
    for name, share in shares.items():
        rows = corpora.rows(name, split).tolist()
        if draws.together or len(rows) == 1:
            found.append(_as_one(name, share, rows, supply[name], lengths[name], corpora, draws, faults))
        else:
            found += _divided(name, share, rows, lengths[name], corpora, taken, faults)
    if faults:
        raise DataError.of(faults, corpora.origin)
    return found


def _require_paths(shares: Mapping[str, float], corpora: Corpora, split: str) -> None:
    """A fault for every language of the mixture that has no path."""
    known = corpora.of_split(split)
    spare = [name for name in known if name not in shares]
    place = Location(file=corpora.origin)
    faults = [
        Fault(f"{name!r} has no path, and {share:.4g} of the tokens", place, name, near(name, spare) if spare else None)
        for name, share in shares.items()
        if name not in known
    ]
    if faults:
        raise DataError.of(faults, corpora.origin)


def _length(row: int, usual: float, corpora: Corpora) -> float:
    """Mean tokens of a corpus: those asked for, else those of the table."""
    return float(corpora.mean_tokens[row]) if math.isnan(usual) else usual


def _as_one(
    name: str,
    share: float,
    rows: Sequence[int],
    available: float,
    length: float,
    corpora: Corpora,
    draws: Draws,
    faults: list[Fault],
) -> Stream:
    """All corpora of a language as one stream; their mean length is that of their documents together."""
    lengths = [_length(row, length, corpora) for row in rows]
    tokens = corpora.available[rows]
    mean = lengths[0]
    if draws.differ and len(set(lengths)) > 1 and not all(map(math.isnan, lengths)):
        mean = float(tokens.sum() / (tokens / lengths).sum())
        if math.isnan(mean):
            message = f"{name!r} has {len(rows)} paths whose documents differ in length"
            faults.append(_unknown(corpora, name, message, "to know their mean length together"))
    dataset = corpora.datasets[rows[0]] or name
    return Stream(name, name, dataset, tuple(corpora.paths[row] for row in rows), share, math.nan, available, mean)


def _divided(
    name: str,
    share: float,
    rows: Sequence[int],
    length: float,
    corpora: Corpora,
    taken: set[str],
    faults: list[Fault],
) -> list[Stream]:
    """A stream for each corpus of a language, in proportion to its tokens, so that all are seen equally often."""
    tokens = corpora.available[rows]
    if np.isnan(tokens).any():
        message = f"{name!r} has {len(rows)} paths, of which not all tokens are known"
        faults.append(_unknown(corpora, name, message, "by which its ratio is divided among them"))
        return []
    parts = (share * tokens / tokens.sum()).tolist()
    found = []
    for row, part in zip(rows, parts, strict=True):
        own = next(made for place in range(1, len(taken) + 2) if (made := f"{name}-{place}") not in taken)
        taken.add(own)
        known, mean = float(corpora.available[row]), _length(row, length, corpora)
        dataset = corpora.datasets[row] or own
        found.append(Stream(own, name, dataset, (corpora.paths[row],), part, math.nan, known, mean))
    return found


def _unknown(corpora: Corpora, name: str, message: str, what_for: str) -> Fault:
    return Fault(message, Location(file=corpora.origin), name, f"give available_tokens of each, {what_for}")


def weighted(streams: Sequence[Stream], draws: Draws) -> tuple[Stream, ...]:
    """The streams with their weights: shares of tokens, over the mean lengths of draws where these differ."""
    ratios = exact([stream.ratio for stream in streams])
    lengths = np.array([stream.mean_tokens for stream in streams])
    unknown = np.isnan(lengths)
    if draws.differ and unknown.any() and not unknown.all():
        names = listed([stream.name for stream, lost in zip(streams, unknown.tolist(), strict=True) if lost])
        raise DataError(f"mean_tokens is not known of {names}", hint="give it of every language, or of none")
    weights = exact(ratios / lengths) if draws.differ and not unknown.any() else ratios
    pairs = zip(streams, ratios.tolist(), weights.tolist(), strict=True)
    return tuple(replace(stream, ratio=ratio, weight=weight) for stream, ratio, weight in pairs)
