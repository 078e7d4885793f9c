"""A mixture as a trainer draws it: without zeros, over corpora, with the epochs that it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapleymix.errors import DataError
from shapleymix.exporting.corpora import SPLITS, Corpora
from shapleymix.exporting.limits import APART, OFTEN, Limits, told_of
from shapleymix.exporting.streams import Draws, Stream, exact, laid_out, listed, weighted
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.sizes import format_size


@dataclass(frozen=True)
class Asked:
    """A mixture as it was asked for: ratios p (M,) of tokens, the run's D, unique tokens (M,) and tokens a draw (M,).

    `limits` are those of the mixture, which are told but not kept where they are `ignored`. What is not known is NaN.
    """

    sources: tuple[str, ...]
    p: FloatArray
    D: float
    available: FloatArray
    mean_tokens: FloatArray
    limits: Limits
    ignored: bool = False


@dataclass(frozen=True)
class Blend:
    """The streams of a run of D tokens, drawn with a seed.

    Attributes
    ----------
    streams : tuple of Stream
        What is trained on; their weights sum to one exactly, and so do their ratios.
    sources, p, available, epochs : tuple of str (M,) and array (M,)
        Languages that are left, their ratios, unique tokens, and how often each token is seen.
    limits : Limits
        Those of the mixture.
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
    limits: Limits
    D: float
    seed: int
    splits: dict[str, tuple[Stream, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def blend_of(asked: Asked, draws: Draws, corpora: Corpora | None, seed: int, *, splits: bool = False) -> Blend:
    """A mixture as a trainer draws it, with its streams for validation and tests where it has a place for `splits`.

    Raises
    ------
    DataError
        If nothing is left, the run breaks a bound of the mixture, a language that is left has no path or no tokens, or
        what divides its ratio or its draws is not known.
    """
    kept = _kept(asked)
    tokens, told = _available(asked, kept, corpora)
    _require_tokens(asked, kept, tokens)
    beyond = told_of(asked.limits.broken(asked.sources, asked.p, asked.D, tokens), asked.ignored)
    ratios, sources = exact(asked.p[kept]), _chosen(asked.sources, kept)
    shares = dict(zip(sources, ratios.tolist(), strict=True))
    lengths = dict(zip(asked.sources, asked.mean_tokens.tolist(), strict=True))
    supply = dict(zip(asked.sources, tokens.tolist(), strict=True))
    streams = weighted(laid_out(shares, supply, lengths, corpora, draws), draws)
    warned, noted = _unmeasured(streams, draws)
    others = {} if corpora is None or not splits else _other_splits(shares, lengths, corpora, draws)
    dropped = _chosen(asked.sources, ~kept)
    return Blend(
        streams,
        sources,
        ratios,
        tokens[kept],
        epochs_of(ratios, tokens[kept], asked.D),
        asked.limits.of(kept),
        asked.D,
        seed,
        others,
        dropped,
        (*told, *_often(asked, kept, tokens), *beyond, *warned),
        (*noted, *_left_out(asked, kept), *_spare(asked, corpora), *_partial(others, sources)),
    )


def _kept(asked: Asked) -> BoolArray:
    """Languages (M,) that a run of D tokens sees a token of."""
    least = 0.0 if np.isnan(asked.D) else 1 / asked.D
    return (asked.p > 0) & (asked.p >= least)


def _require_tokens(asked: Asked, kept: BoolArray, tokens: FloatArray) -> None:
    """Refuse a run too short for one language, and languages of which there is nothing."""
    if not kept.any():
        raise DataError(f"D = {asked.D:g} is less than a token of every language", hint="give the tokens of the run")
    bare = _chosen(asked.sources, kept & (tokens == 0))
    if bare:
        message = f"no tokens are at hand of {listed(bare)}, of which the mixture holds some"
        raise DataError(message, hint="optimize within the available tokens, or correct them")


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


def _available(asked: Asked, kept: BoolArray, corpora: Corpora | None) -> tuple[FloatArray, list[str]]:
    """Unique tokens (M,): of the paths where the table knows them, else as asked; and where the optimum had others."""
    known = asked.available if corpora is None else corpora.tokens_of(asked.sources, asked.available)
    apart = kept & (np.abs(known - asked.limits.own) > APART * asked.limits.own)
    told = [
        f"{asked.sources[i]} has {format_size(known[i])} tokens, not the {format_size(asked.limits.own[i])} that the "
        "mixture was optimised for"
        for i in np.flatnonzero(apart).tolist()
    ]
    return known, told


def _often(asked: Asked, kept: BoolArray, tokens: FloatArray) -> list[str]:
    """Languages that are seen often, of an optimum that could not know it: it had no count of their tokens."""
    epochs = epochs_of(asked.p, tokens, asked.D)
    free = np.isnan(asked.limits.own) & np.isinf(asked.limits.max_epochs)  # a limit that is broken is told by itself
    found = np.flatnonzero(kept & free & (epochs > OFTEN)).tolist()
    if not found:
        return []
    seen = listed([f"{asked.sources[place]} {epochs[place]:,.1f} times" for place in found])
    return [f"the mixture knew of no limit of tokens, and this run sees {seen}"]


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
    """Streams for validation and tests: the languages that have any, in the same proportions."""
    found = {}
    for split in SPLITS[1:]:
        known = {name: shares[name] for name in corpora.of_split(split) if name in shares}
        if known:
            nothing = dict.fromkeys(known, math.nan)
            found[split] = weighted(laid_out(known, nothing, lengths, corpora, draws, split), draws)
    return found


def _partial(splits: Mapping[str, Sequence[Stream]], sources: Sequence[str]) -> list[str]:
    """Splits that lack a language."""
    lacking = {split: [one for one in sources if one not in {s.source for s in own}] for split, own in splits.items()}
    return [
        f"no {split} path of {listed(names)}: the others share its part" for split, names in lacking.items() if names
    ]
