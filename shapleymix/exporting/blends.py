"""What a trainer draws from: a mixture over corpora, without zeros, with weights that sum to one exactly.

The mixture is of tokens. A trainer that draws documents gets the weights that make it so: `w_i ~ p_i / mean_tokens_i`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from shapleymix.errors import DataError, Fault, Location
from shapleymix.exporting.corpora import SPLITS, TRAIN, Corpora
from shapleymix.fields import POSITIVE, SHARE, Range
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.sizes import format_size
from shapleymix.tables.spelling import near

APART = 0.01
"""Relative difference of two counts of a language's tokens above which it is told."""
SHOWN = 8
"""Languages that a notice names."""


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
class Asked:
    """A mixture as it was asked for: ratios p (M,) of tokens, D (NaN where not known), unique tokens (M,)."""

    sources: tuple[str, ...]
    p: FloatArray
    D: float
    available: FloatArray
    mean_tokens: FloatArray


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


@dataclass(frozen=True)
class Blend:
    """The streams of a run of D tokens, drawn with a seed.

    Attributes
    ----------
    streams : tuple of Stream
        What is trained on; their weights sum to one exactly, and so do their ratios.
    sources, p, available, epochs : tuple of str (M,) and array (M,)
        Languages that are left, their ratios, unique tokens, and how often each token is seen.
    D, seed : float and int
        Tokens of the run, NaN where not known, and the seed of the draws.
    splits : dict of str to tuple of Stream
        Streams for validation and tests, by the same ratios, where the table of corpora has any.
    dropped, warnings, notes : tuple of str
        Languages without tokens, what may make the blend another than was asked for, and what was done on the way.
    """

    streams: tuple[Stream, ...]
    sources: tuple[str, ...]
    p: FloatArray
    available: FloatArray
    epochs: FloatArray
    D: float
    seed: int
    splits: dict[str, tuple[Stream, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


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


def blend_of(asked: Asked, draws: Draws, corpora: Corpora | None, seed: int) -> Blend:
    """A mixture as a trainer draws it.

    Raises
    ------
    DataError
        If a language that is left has no path, or what divides its ratio or its draws is not known.
    """
    kept = _kept(asked)
    tokens, told = _available(asked, corpora)
    ratios, sources = exact(asked.p[kept]), _chosen(asked.sources, kept)
    shares = dict(zip(sources, ratios.tolist(), strict=True))
    lengths = dict(zip(asked.sources, asked.mean_tokens.tolist(), strict=True))
    supply = dict(zip(asked.sources, tokens.tolist(), strict=True))
    streams = _weighted(_laid_out(shares, supply, lengths, corpora, draws), draws)
    warned, noted = _unmeasured(streams, draws)
    others = {} if corpora is None else _other_splits(shares, lengths, corpora, draws)
    dropped = _chosen(asked.sources, ~kept)
    return Blend(
        streams,
        sources,
        ratios,
        tokens[kept],
        epochs_of(ratios, tokens[kept], asked.D),
        asked.D,
        seed,
        others,
        dropped,
        (*told, *warned),
        (*noted, *_left_out(asked, kept), *_spare(asked, corpora)),
    )


def _kept(asked: Asked) -> BoolArray:
    """Languages (M,) that a run of D tokens sees a token of."""
    least = 0.0 if np.isnan(asked.D) else 1 / asked.D
    return (asked.p > 0) & (asked.p >= least)


def _chosen(names: Sequence[str], mask: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, wanted in zip(names, mask.tolist(), strict=True) if wanted)


def _left_out(asked: Asked, kept: BoolArray) -> list[str]:
    none, tiny = _chosen(asked.sources, asked.p <= 0), _chosen(asked.sources, ~kept & (asked.p > 0))
    pairs = (("of ratio 0", none), ("less than a token of D", tiny))
    return [f"left out, {why}: {listed(names)}" for why, names in pairs if names]


def _spare(asked: Asked, corpora: Corpora | None) -> list[str]:
    """Languages of the table that the mixture does not know."""
    spare = [] if corpora is None else [name for name in dict.fromkeys(corpora.sources) if name not in asked.sources]
    return [f"not in the mixture, and left out: {listed(spare)}"] if spare else []


def listed(names: Sequence[str]) -> str:
    """Names in a row; of many the first ones and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _available(asked: Asked, corpora: Corpora | None) -> tuple[FloatArray, list[str]]:
    """Unique tokens (M,): of the paths where the table knows them, else as the mixture was asked for."""
    if corpora is None:
        return asked.available, []
    known = corpora.tokens_of(asked.sources, asked.available)
    apart = np.abs(known - asked.available) > APART * asked.available
    told = [
        f"{asked.sources[i]} has {format_size(known[i])} tokens in the paths, not {format_size(asked.available[i])} as "
        "where its ratio is from"
        for i in np.flatnonzero(apart).tolist()
    ]
    return known, told


def _laid_out(
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


def _weighted(streams: Sequence[Stream], draws: Draws) -> tuple[Stream, ...]:
    """The streams with their weights: shares of tokens, over the mean lengths of draws where these differ."""
    ratios = exact([stream.ratio for stream in streams])
    lengths = np.array([stream.mean_tokens for stream in streams])
    unknown = np.isnan(lengths)
    if draws.differ and unknown.any() and not unknown.all():
        names = listed(_chosen([stream.name for stream in streams], unknown))
        raise DataError(f"mean_tokens is not known of {names}", hint="give it of every language, or of none")
    weights = exact(ratios / lengths) if draws.differ and not unknown.any() else ratios
    pairs = zip(streams, ratios.tolist(), weights.tolist(), strict=True)
    return tuple(replace(stream, ratio=ratio, weight=weight) for stream, ratio, weight in pairs)


def _unmeasured(streams: Sequence[Stream], draws: Draws) -> tuple[list[str], list[str]]:
    """The warning, or the note, that draws of unknown length are taken to be of one."""
    if not draws.differ or len(streams) == 1 or not all(math.isnan(stream.mean_tokens) for stream in streams):
        return [], []
    if draws.packed:
        return [], [f"{draws.unit} are taken to be of one length; where they are not, give mean_tokens"]
    return [
        f"{draws.unit} are drawn, and no mean_tokens say how long they are: a language with longer ones gets more "
        "tokens than the mixture says"
    ], []


def _other_splits(
    shares: Mapping[str, float], lengths: Mapping[str, float], corpora: Corpora, draws: Draws
) -> dict[str, tuple[Stream, ...]]:
    """Streams for validation and tests, by the same ratios of the same languages."""
    nothing = dict.fromkeys(shares, math.nan)
    return {
        split: _weighted(_laid_out(shares, nothing, lengths, corpora, draws, split), draws)
        for split in SPLITS[1:]
        if corpora.of_split(split)
    }
