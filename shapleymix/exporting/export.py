"""The formats by their names, and a mixture in one of them.

>>> mix = sm.optimize(fit, "243M", "100B")
>>> plan = mix.export("hf", mean_tokens={"en": 810, "de": 640})
>>> datasets.interleave_datasets([corpora[name] for name in plan.names], **plan.config)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict, Unpack

import numpy as np

from shapleymix.errors import UsageError, caution, did_you_mean
from shapleymix.exporting.blends import Asked, Blend, blend_of
from shapleymix.exporting.configs import Levanter, Nanotron, Plain
from shapleymix.exporting.corpora import SPLITS, TRAIN, Corpora, CorporaSpec, corpora_of
from shapleymix.exporting.formats import Format
from shapleymix.exporting.hugging_face import HuggingFace, LlamaFactory
from shapleymix.exporting.limits import limits_of
from shapleymix.exporting.megatron import Megatron
from shapleymix.exporting.olmo_core import OlmoCore
from shapleymix.exporting.samples import LitData, Mosaic
from shapleymix.exporting.streams import Stream, listed
from shapleymix.exporting.torchtitan import Torchtitan
from shapleymix.fields import AMOUNT, SHARE, Range
from shapleymix.files import Json, atomic_write, file_name
from shapleymix.keywords import checked
from shapleymix.records import FloatArray, Record
from shapleymix.tables.amounts import parse_positive, parse_whole
from shapleymix.tables.baselines import is_name, mixture_of
from shapleymix.tables.by_source import Amounts, amounts, tokens_at_hand
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.languages import Languages, LanguagesSpec, languages_of
from shapleymix.tables.names import labels_of, require_labels
from shapleymix.tables.simplex import EXACT, HasMixture, MixtureSpec, is_file_name
from shapleymix.tables.sizes import format_size, parse_budget
from shapleymix.tables.spelling import composed

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Megatron(),
        HuggingFace(),
        Mosaic(),
        OlmoCore(),
        LitData(),
        Torchtitan(),
        Nanotron(),
        Levanter(),
        LlamaFactory(),
        Plain(),
    )
}


class ExportKeywords(TypedDict, total=False):
    """Keywords of `export`."""

    paths: CorporaSpec | None
    mean_tokens: Amounts | float | None
    available: Amounts | None
    languages: LanguagesSpec | None
    D: float | str | None
    seed: int
    ignore_bounds: bool


@dataclass(frozen=True)
class Export(Tabular, Record):
    """A mixture as a trainer takes it.

    Attributes
    ----------
    format, unit : str
        Name of the format, and what its weights are of.
    sources : tuple of str (M,)
        Languages that are trained on.
    p, tokens, available, epochs : array (M,)
        Their shares of the run's tokens, their tokens, how many unique ones there are, and how often each is seen; NaN
        where not known.
    streams : tuple of Stream
        What the trainer draws from, with its weights.
    dropped : tuple of str
        Languages of ratio 0.
    D, seed : float and int
        Tokens of the run, NaN where not known, and the seed of the trainer's draws.
    config : dict
        What the trainer's package takes from Python.
    text : str
        What its file holds; empty for the format `json`, whose file is this document.
    max_epochs, min_tokens : array (M,), optional
        How often the mixture allows each language to be seen, and its fewest tokens; infinite and 0 for no bound.
    notices, notes : tuple of str
        What may make the run another than was asked for, and what was done on the way.
    """

    kind = "export"
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "p": "M", "tokens": "M", "available": "M", "epochs": "M",
        "max_epochs": "M", "min_tokens": "M",
    }  # fmt: skip
    ranges: ClassVar[Mapping[str, Range]] = {
        "p": SHARE, "tokens": AMOUNT, "available": AMOUNT, "epochs": AMOUNT,
        "max_epochs": AMOUNT, "min_tokens": AMOUNT,
    }  # fmt: skip

    format: str
    unit: str
    sources: tuple[str, ...]
    p: FloatArray
    tokens: FloatArray
    available: FloatArray
    epochs: FloatArray
    streams: tuple[Stream, ...]
    dropped: tuple[str, ...]
    D: float
    seed: int
    config: dict[str, Json]
    text: str
    notices: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Json]
    max_epochs: FloatArray | None = None
    min_tokens: FloatArray | None = None

    def __post_init__(self) -> None:
        if abs(self.p.sum() - 1) > EXACT or abs(sum(stream.weight for stream in self.streams) - 1) > EXACT:
            raise ValueError("the shares of tokens, or the weights, do not sum to 1")
        if {stream.source for stream in self.streams} != set(self.sources) or self.format not in FORMATS:
            raise ValueError("the streams are not those of the sources, or there is no such format")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams, in the order of the weights in `config`."""
        return tuple(stream.name for stream in self.streams)

    @property
    def weights(self) -> FloatArray:
        """Weights (E,) of the streams, in the trainer's unit."""
        return np.array([stream.weight for stream in self.streams])

    @property
    def mixture(self) -> dict[str, float]:
        """Share of tokens of each language."""
        return dict(zip(self.sources, self.p.tolist(), strict=True))

    def columns(self) -> Columns:
        """One row a stream, with its language's share, tokens and epochs."""
        place = {name: row for row, name in enumerate(self.sources)}
        rows = [place[stream.source] for stream in self.streams]
        return {
            "stream": self.names,
            "source": [stream.source for stream in self.streams],
            "weight": [stream.weight for stream in self.streams],
            "ratio": [stream.ratio for stream in self.streams],
            "tokens": [stream.ratio * self.D for stream in self.streams],
            "available": [stream.available for stream in self.streams],
            "epochs": self.epochs[rows].tolist(),
        }

    def summary(self) -> str:
        """What takes it, and how much of each language it makes."""
        size = "" if np.isnan(self.D) else f", D = {format_size(self.D)}"
        shares = listed([f"{name} {share:.4g}" for name, share in self.mixture.items()])
        return f"Export for {FORMATS[self.format].title}{size}: {shares}; weights are of {self.unit}"

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the trainer's file, whole or not at all; an existing file is kept unless `force`.

        Beside it, with `.json` behind the name, goes this account of it: shares, tokens and epochs of all languages. Of
        the format `json` the account is the file.
        """
        if self.format == Plain.name:
            self.save(path, force=force)
            return
        account = f"{file_name(path)}.json"
        if not force and os.path.lexists(account):
            raise UsageError(f"{account} exists already", hint="choose another name, or overwrite it (force)")
        atomic_write(path, self.text, force=force)
        self.save(account, force=force)


def export(mixture: MixtureSpec, format: str, **keywords: Unpack[ExportKeywords]) -> Export:
    """A mixture of tokens in the form that a trainer takes.

    Parameters
    ----------
    mixture : MixtureSpec
        A `Mixture`, ratios by name, or a baseline's name such as `natural` for the languages of the table.
    format : str
        megatron, hf, mosaic, olmo-core, litdata, torchtitan, nanotron, levanter, llama-factory or json.
    paths : CorporaSpec, optional
        Where each language's data lie: a path by language, or a table
        `language,path[,available_tokens][,mean_tokens][,dataset][,split]`.
    mean_tokens : Amounts or float, optional
        Tokens a document (or a sample), by language or one for all; in place of the table's.
    available, languages : Amounts and LanguagesSpec, optional
        Unique tokens, in place of those that the mixture was optimised for; those of the table of paths go first.
    D : float or str, optional
        Tokens of the run, in place of those the mixture was optimised for.
    seed : int
        Of the trainer's draws, where the format has a place for it; 0 unless given.
    ignore_bounds : bool
        Warn where the run breaks the mixture's own bounds (epochs, fewest tokens), as it may on other tokens than those
        it was optimised for; else that is an error.

    Raises
    ------
    UsageError
        If there is no such format, or it needs paths and none are given.
    DataError
        If a language has no path, a path cannot be written in this form, or the run breaks a bound of the mixture.
    """
    checked("export", keywords, ExportKeywords.__annotations__)
    found = exported(mixture, format, **keywords)
    caution(found.notices)
    return found


def exported(mixture: MixtureSpec, format: str, **keywords: Unpack[ExportKeywords]) -> Export:
    """The same without warnings: they are in its `notices`."""
    form = format_of(format)
    corpora = corpora_of(keywords.get("paths"))
    asked = _asked(mixture, keywords, corpora)
    if corpora is None and form.placed:
        hint = "give paths=paths.csv, a table: language,path[,available_tokens][,mean_tokens][,dataset][,split]"
        raise UsageError(f"{form.name} holds paths, and none are given", hint=hint)
    blend = blend_of(asked, form.draws, corpora, parse_whole(keywords.get("seed", 0), "seed"), splits=form.splits)
    form.check(blend, "<memory>" if corpora is None else corpora.origin)
    return _made(form, blend, _other_tokens(mixture, asked), _unused(form, blend, corpora))


def format_of(name: str) -> Format:
    """The format of a name.

    Raises
    ------
    UsageError
        If there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r:.60}", hint=did_you_mean(str(name), FORMATS))
    return FORMATS[name]


def _made(form: Format, blend: Blend, warnings: list[str], notes: list[str]) -> Export:
    return Export(
        form.name,
        form.draws.unit,
        blend.sources,
        blend.p,
        blend.p * blend.D,
        blend.available,
        blend.epochs,
        blend.streams,
        blend.dropped,
        blend.D,
        blend.seed,
        form.config(blend),
        form.text(blend),
        (*warnings, *blend.warnings, *form.warnings(blend)),
        (*notes, *blend.notes, *form.notes(blend)),
        {},
        blend.limits.max_epochs,
        blend.limits.min_tokens,
    )


def _asked(mixture: MixtureSpec, keywords: ExportKeywords, corpora: Corpora | None) -> Asked:
    """What was asked for, in numbers."""
    table, given = languages_of(keywords.get("languages")), keywords.get("D")
    D = float(getattr(mixture, "D", np.nan)) if given is None else parse_budget(given, "D")
    sources = _sources(mixture, table, corpora)
    require_labels(sources, "the mixture")  # they go into files that are run
    tokens = tokens_at_hand(sources, table, keywords.get("available"))
    nothing = np.full(len(sources), np.nan)
    limits = limits_of(mixture, len(sources))
    tokens = np.where(np.isnan(tokens), limits.own, tokens)
    at_hand = tokens if corpora is None else corpora.tokens_of(sources, tokens)
    p = mixture_of(mixture, sources, at_hand, D)
    lengths = amounts(nothing, keywords.get("mean_tokens"), sources, parse_positive, "mean tokens")
    return Asked(sources, p, D, tokens, lengths, limits, keywords.get("ignore_bounds", False))


def _sources(mixture: MixtureSpec, table: Languages | None, corpora: Corpora | None) -> tuple[str, ...]:
    """Languages of a mixture: those that it names, else those of the tables."""
    if isinstance(mixture, os.PathLike) or (isinstance(mixture, str) and is_file_name(mixture)):
        hint = "read it first: Mixture.load(path).export(format)"
        raise UsageError(f"{os.fspath(mixture)} is a file, expected a mixture", hint=hint)
    if isinstance(mixture, HasMixture):
        return tuple(mixture.mixture)
    if isinstance(mixture, Mapping):
        return tuple(composed(str(name)) for name in mixture)
    if isinstance(mixture, str) and "=" in mixture:
        return labels_of(",".join(part.rpartition("=")[0] for part in mixture.split(",")), "the mixture")
    if isinstance(mixture, str) and not is_name(mixture, ()):
        hint = "give an optimised mixture, ratios such as en=0.5,de=0.5, or natural, uniform, temperature:T, unimax:E"
        raise UsageError(f"{mixture!r:.60} is no mixture", hint=hint)
    known = corpora.of_split(TRAIN) if table is None and corpora is not None else table.names if table else ()
    if not known:
        raise UsageError("nothing says what the languages are", hint="give languages, paths, or ratios by name")
    return known


def _other_tokens(mixture: MixtureSpec, asked: Asked) -> list[str]:
    """A run of other tokens than the mixture was optimised for."""
    own = float(getattr(mixture, "D", np.nan))
    if np.isnan(own) or own == asked.D:
        return []
    return [f"the mixture was optimised for D = {format_size(own)}, and is exported for {format_size(asked.D)}"]


def _unused(form: Format, blend: Blend, corpora: Corpora | None) -> list[str]:
    """What was given, and has no place in the format."""
    lengths = not form.draws.differ and any(stream.mean_tokens == stream.mean_tokens for stream in blend.streams)
    told = [f"mean_tokens change nothing: {form.name} draws {form.draws.unit}"] if lengths else []
    if corpora is None:
        return told
    splits = [] if form.splits else [split for split in SPLITS[1:] if corpora.of_split(split)]
    more = [f"{form.name} has no place for the {' and '.join(splits)} paths"] if splits else []
    return [*corpora.notices, *told, *more]
