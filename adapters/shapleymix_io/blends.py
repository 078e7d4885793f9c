"""A mixture as a trainer draws it: streams with weights in its unit, the epochs that they make, and bounds kept.

The mixture is of tokens. A trainer that draws documents gets the weights that make it so: `w_i ~ p_i / mean_tokens_i`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from shapleymix.display import short
from shapleymix.errors import DataError, Fault, Location, did_you_mean
from shapleymix.files import Origin
from shapleymix.tables.sheets import read_sheet
from shapleymix.tables.words import format_size

APART = 0.01
"""Relative excess over a bound that is taken for rounding."""

Paths = str | os.PathLike[str] | pl.DataFrame | Mapping[str, str]
"""A table of corpora, or a path by language."""


@dataclass(frozen=True)
class Corpus:
    """One corpus of a language: what is not known of it is NaN, or empty."""

    source: str
    path: str
    available: float = math.nan
    mean_tokens: float = math.nan
    dataset: str = ""


@dataclass(frozen=True)
class Corpora:
    """Corpora, several of a language where a table has several rows of it, and the file that they are from."""

    rows: tuple[Corpus, ...] = ()
    origin: str = "<memory>"
    files: tuple[Origin, ...] = ()

    def of(self, source: str) -> list[Corpus]:
        """The corpora of a language."""
        return [one for one in self.rows if one.source == source]

    def sources(self) -> list[str]:
        """The languages that have a corpus."""
        return list(dict.fromkeys(one.source for one in self.rows))

    def tokens(self, source: str, usual: float = math.nan) -> float:
        """Unique tokens of a language, or the usual ones where not all are known."""
        known = sum((one.available for one in self.of(source)), 0.0)
        return usual if math.isnan(known) or not self.of(source) else known


def read_corpora(paths: Paths) -> Corpora:
    """The corpora of a table `language,path[,available_tokens][,mean_tokens][,dataset]`, or a path by language.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    if isinstance(paths, Mapping):
        return Corpora(tuple(Corpus(source, path) for source, path in paths.items()))
    sheet = read_sheet(paths)
    label = "source" if "source" in sheet.columns else "language"
    sheet.need([label, "path"])
    if "split" in sheet.columns:
        sheet.fault("splits are not exported: leave it out, with paths that are not trained on", None, "split")
    sheet.raise_faults()
    names, places = sheet.texts(label), sheet.texts("path")
    sheet.once(zip(places), "the path {!r}", "path")
    available, lengths = (sheet.amounts(name) for name in ("available_tokens", "mean_tokens"))
    sheet.raise_faults()
    datasets = sheet.texts("dataset", empty=True) if "dataset" in sheet.columns else ("",) * sheet.rows
    rows = zip(names, places, available.tolist(), lengths.tolist(), datasets, strict=True)
    return Corpora(tuple(Corpus(*row) for row in rows), sheet.origin, (Origin(sheet.origin, sheet.digest),))


@dataclass(frozen=True)
class Stream:
    """One thing that a trainer draws from: a corpus, or all corpora of a language together.

    Attributes
    ----------
    name, source : str
        Its own name, and its language.
    dataset : str
        Name under which the trainer knows it.
    paths : tuple of str
        Where it lies; none where no table says it.
    ratio, weight : float
        Share of the run's tokens, and how often it is drawn from, in the trainer's unit.
    available, mean_tokens : float
        Unique tokens, and tokens a draw; NaN where not known.
    """

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
    differ, packed : bool
        Whether draws differ in length, so that their mean lengths matter; and whether most people pack them to one.
    together : bool
        Whether it takes several paths as one source; else the ratio is divided among them by their tokens.
    """

    unit: str
    differ: bool = False
    packed: bool = False
    together: bool = False


@dataclass(frozen=True)
class Asked:
    """What was asked for, by language: ratios of tokens, unique tokens (NaN where not known), and known tokens a draw.

    `own`, `max_epochs` and `min_tokens` are the unique tokens that the mixture was optimised for, and its bounds, which
    count what was `read` before.
    """

    p: Mapping[str, float]
    D: float
    seed: int
    available: Mapping[str, float]
    mean_tokens: Mapping[str, float]
    own: Mapping[str, float]
    max_epochs: Mapping[str, float]
    min_tokens: Mapping[str, float]
    ignore_bounds: bool = False
    read: Mapping[str, float] = field(default_factory=dict)

    def tokens(self, name: str, ratio: float) -> float:
        """Tokens of a language in all: those of its ratio, and what a run already begun has read."""
        return ratio * self.D + self.read.get(name, 0.0)


@dataclass(frozen=True)
class Blend:
    """The streams of a run.

    Attributes
    ----------
    asked : Asked
        What was asked for.
    streams : tuple of Stream
        What is drawn from; the weights sum to one exactly, and so do the ratios.
    p, available, epochs : dict
        By language: its ratio, unique tokens, and how often each token is seen; NaN where not known.
    warnings, notes : list of str
        What may make the run another than was asked for, and what was done on the way.
    before, steps : Blend and int, optional
        What a run already begun has read, and in how many steps, where both phases are to be written.
    """

    asked: Asked
    streams: tuple[Stream, ...]
    p: dict[str, float]
    available: dict[str, float]
    epochs: dict[str, float]
    warnings: list[str]
    notes: list[str]
    before: Blend | None = None
    steps: int = 0

    @property
    def stages(self) -> list[tuple[int, Blend]]:
        """The phases that are to be written, and the steps after which they begin."""
        return [(0, self)] if self.before is None else [(0, self.before), (self.steps, self)]

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each stream by its name."""
        return {stream.name: stream.weight for stream in self.streams}


def blend_of(asked: Asked, draws: Draws, corpora: Corpora) -> Blend:
    """A mixture as a trainer draws it; without corpora, its streams have no paths.

    Raises
    ------
    DataError
        If nothing is left, the run breaks a bound of the mixture, a language that is left has no path or no tokens, or
        what divides its ratio or its draws is not known.
    """
    least = 0.0 if math.isnan(asked.D) else 1 / asked.D
    kept = {name: ratio for name, ratio in asked.p.items() if ratio > 0 and ratio >= least}
    if not kept:
        raise DataError(f"D = {asked.D:g} is less than a token of every language", hint="give the tokens of the run")
    available = {name: corpora.tokens(name, asked.available[name]) for name in kept}
    p = dict(zip(kept, exact(list(kept.values())), strict=True))
    epochs = {name: asked.tokens(name, p[name]) / available[name] if available[name] else math.inf for name in kept}
    warnings = _broken(asked, p, epochs)
    dropped = [name for name in asked.p if name not in p]
    notes = [f"left out, of ratio 0 or under a token of D: {short(dropped)}"] if dropped else []
    if spare := [name for name in corpora.sources() if name not in asked.p]:
        notes.append(f"not in the mixture, and left out: {short(spare)}")
    streams = _streams(p, available, asked, corpora, draws)
    if whole := _rounded_over(streams, asked, epochs):
        notes.append(f"a trainer that rounds to whole {draws.unit} begins one more epoch of {short(whole)}")
    unknown = all(math.isnan(one.mean_tokens) for one in streams)
    if draws.differ and not draws.packed and unknown and len(p) > 1:
        warnings += [f"{draws.unit} are taken to be of one length: without mean_tokens, longer ones get more tokens"]
    return Blend(asked, streams, p, available, epochs, warnings, notes)


def _rounded_over(streams: Sequence[Stream], asked: Asked, epochs: Mapping[str, float]) -> list[str]:
    """Languages that rounding takes over a whole number of epochs: by 1%, or by a draw where its length is known.

    Megatron asks each corpus for 0.5% more samples than its share, and every trainer for whole ones.
    """
    often = {one.source: epochs[one.source] for one in streams if math.isfinite(epochs[one.source])}
    draw = {one.source: one.mean_tokens / asked.tokens(one.source, one.ratio) for one in streams}
    over = {name: max(APART, 0.0 if math.isnan(draw[name]) else draw[name]) for name in often}
    return [name for name, seen in often.items() if math.floor(seen * (1 + over[name])) >= math.ceil(seen - 1e-9)]


def exact(amounts: Sequence[float]) -> list[float]:
    """Amounts in proportion, whose exact sum rounds to one; the largest takes what rounding leaves."""
    total = math.fsum(amounts)
    found = [one / total for one in amounts] if total != 1.0 else list(amounts)
    for _ in range(4):
        if left := math.fsum([1.0, *(-one for one in found)]):
            found[found.index(max(found))] += left
    return found


def _broken(asked: Asked, p: Mapping[str, float], epochs: Mapping[str, float]) -> list[str]:
    """What to warn of: bounds that the optimum could not keep, or that are hardly broken.

    Raises
    ------
    DataError
        By name, if others are broken and are not to be ignored, or there are no tokens of a language.
    """
    found: list[tuple[str, bool]] = []
    for name in p:
        most, least, tokens = asked.max_epochs[name], asked.min_tokens[name], asked.tokens(name, p[name])
        if epochs[name] == math.inf:
            found.append((f"the mixture needs {name}, of which no tokens are available", True))
        elif epochs[name] > most * (1 + 1e-9):
            message = f"{name} is seen {epochs[name]:.6g} times, but the mixture allows {most:.6g}"
            found.append((message, epochs[name] > most * (1 + APART) and not math.isnan(asked.own[name])))
        if tokens < least * (1 - 1e-9):
            message = f"{name} gets {format_size(tokens)} tokens, but the mixture asks for {format_size(least)} or more"
            found.append((message, tokens < least * (1 - APART)))
    hint = "optimize again for the tokens of this run, or ignore the bounds"
    if firm := [Fault(message, hint=hint) for message, is_firm in found if is_firm and not asked.ignore_bounds]:
        raise DataError.of(firm, "the run")
    return [message for message, _ in found]


def _streams(
    shares: Mapping[str, float], available: Mapping[str, float], asked: Asked, corpora: Corpora, draws: Draws
) -> tuple[Stream, ...]:
    """The streams of languages with their shares of tokens, and weights in the trainer's unit.

    Of several corpora of a language, each is a stream in proportion to its tokens, so that all are seen equally often.
    """
    found: list[Stream] = []
    faults: list[Fault] = []
    for name, share in shares.items():
        bare = () if corpora.rows else (Corpus(name, "", available[name]),)
        rows, place = corpora.of(name) or bare, Location(corpora.origin)
        total = sum(row.available for row in rows)
        if not rows:
            faults.append(Fault(f"{name!r} has no path", place, name, did_you_mean(name, corpora.sources())))
        elif draws.together or len(rows) == 1:
            paths = tuple(row.path for row in rows if row.path)
            length = asked.mean_tokens.get(name, _mean(rows))
            found.append(Stream(name, name, rows[0].dataset or name, paths, share, share, available[name], length))
        elif math.isnan(total):
            faults.append(Fault(f"{name!r} has {len(rows)} paths: give available_tokens of each", place, name))
        else:
            for number, row in enumerate(rows, start=1):
                own, part = f"{name}-{number}", share * row.available / total
                length = asked.mean_tokens.get(name, row.mean_tokens)
                found.append(Stream(own, name, row.dataset or own, (row.path,), part, part, row.available, length))
    if faults:
        raise DataError.of(faults, corpora.origin)
    return _weighted(found, draws)


def _mean(rows: Sequence[Corpus]) -> float:
    """Mean tokens of the documents of all corpora together; NaN where that is not known."""
    if len(rows) == 1:
        return rows[0].mean_tokens
    return sum(row.available for row in rows) / sum(row.available / row.mean_tokens for row in rows)


def _weighted(streams: Sequence[Stream], draws: Draws) -> tuple[Stream, ...]:
    """The streams with their weights: shares of tokens, over the mean lengths of draws where these differ."""
    ratios = exact([one.ratio for one in streams])
    unknown = [one.name for one in streams if math.isnan(one.mean_tokens)]
    if draws.differ and 0 < len(unknown) < len(streams):
        raise DataError(f"mean_tokens is missing for {short(unknown)}", hint="give it for all languages, or for none")
    pairs = list(zip(streams, ratios, strict=True))
    weights = ratios if unknown or not draws.differ else exact([ratio / one.mean_tokens for one, ratio in pairs])
    return tuple(replace(one, ratio=ratio, weight=weight) for (one, ratio), weight in zip(pairs, weights, strict=True))
