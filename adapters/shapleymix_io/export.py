"""A mixture in the form that a trainer takes: `export(mix, "megatron", paths="paths.csv").write("blend.txt")`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shapleymix.errors import DataError, Fault, Location, UsageError, caution, did_you_mean
from shapleymix.files import Origin, atomic_write
from shapleymix.tables.words import amounts, format_size, parse_size
from shapleymix_io.blends import SPLITS, Asked, Blend, Corpora, Paths, Stream, blend_of, read_corpora
from shapleymix_io.formats import FORMATS, Plain

Amounts = Mapping[str, float | str] | float | str
"""Numbers or sizes by language, `en=5T,de=100B`, or one for all."""
MixtureLike = Any
"""Ratios by language, or an optimum: its `mixture` holds them, and it may have D, available, max_epochs, min_tokens."""


@dataclass(frozen=True)
class Export:
    """A mixture as a trainer takes it.

    Attributes
    ----------
    format, text : str
        Name of the format, and what its file holds.
    config : dict
        What the trainer's package takes from Python.
    blend : Blend
        The streams and their weights, and of each language its ratio, unique tokens and epochs.
    notices, notes : tuple of str
        What may make the run another than was asked for, and what was done on the way.
    files : tuple of Origin
        The tables that were read, with their hashes.
    """

    format: str
    text: str
    config: dict[str, Any]
    blend: Blend
    notices: tuple[str, ...]
    notes: tuple[str, ...]
    files: tuple[Origin, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams, in the order of the weights in `config`."""
        return tuple(self.blend.weights)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What the trainer draws from."""
        return self.blend.streams

    @property
    def epochs(self) -> dict[str, float]:
        """How often each token of a language is seen; NaN where its unique tokens are not known."""
        return self.blend.epochs

    def to_document(self, provenance: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The account: shares, tokens and epochs of all languages as JSON; what is not known is null."""
        asked, known = self.blend.asked, {"format": self.format, "unit": FORMATS[self.format].draws.unit}
        shares = {"mixture": self.blend.p, "available": self.blend.available, "epochs": self.epochs}
        tokens = {name: ratio * asked.D for name, ratio in self.blend.p.items()}
        told = {"notices": self.notices, "notes": self.notes, "provenance": dict(provenance or {})}
        made = {"streams": list(map(asdict, self.streams)), "config": self.config, "text": self.text}
        head = {"schema_version": 1, "kind": "export", **known, "D": asked.D, "seed": asked.seed}
        return _plain({**head, **shares, "tokens": tokens, **made, **told})

    def write(
        self, path: str | os.PathLike[str], *, force: bool = False, provenance: Mapping[str, object] | None = None
    ) -> None:
        """Write the trainer's file, and beside it, with `.json` behind its name, the account; each whole or not at all.

        Of the format `json` the account is the file.
        """
        account = os.fspath(path) if self.format == Plain.name else f"{os.fspath(path)}.json"
        if os.path.lexists(account) and not force:
            hint = "choose another name, or overwrite it (force)"
            raise UsageError("exists already", location=Location(account), hint=hint)
        if self.format != Plain.name:
            atomic_write(path, self.text, force=force)
        text = json.dumps(self.to_document(provenance), indent=1, ensure_ascii=False, allow_nan=False)
        atomic_write(account, text + "\n", force=force)


def export(
    mixture: MixtureLike,
    format: str,
    *,
    paths: Paths | Corpora | None = None,
    mean_tokens: Amounts | None = None,
    available: Amounts | None = None,
    D: float | str | None = None,
    seed: int = 0,
    ignore_bounds: bool = False,
) -> Export:
    """A mixture of tokens in the form that a trainer takes.

    Parameters
    ----------
    mixture : MixtureLike
        An optimised `Mixture`, or ratios by language.
    format : str
        megatron, hf, mosaic, olmo-core, litdata, torchtitan, nanotron, levanter, llama-factory or json.
    paths : Paths or Corpora, optional
        Where each language's data lie: a path by language, or a table (a file or a polars.DataFrame)
        `language,path[,available_tokens][,mean_tokens][,dataset][,split]`.
    mean_tokens : Amounts, optional
        Tokens a document (or a sample), in place of the table's.
    available : Amounts, optional
        Unique tokens, instead of those that the mixture was optimised for. The table of paths takes precedence.
    D : float or str, optional
        Tokens of the run, in place of those the mixture was optimised for.
    seed : int
        Seed of the trainer's draws, where the format has a place for it.
    ignore_bounds : bool
        Warn where the run breaks the mixture's own bounds (epochs, fewest tokens), as it may on other tokens than those
        it was optimised for; else that is an error.

    Raises
    ------
    UsageError
        If there is no such format, it needs paths and none are given, or the ratios are no mixture.
    DataError
        If a language has no path, a path cannot be written in this form, or the run breaks a bound of the mixture.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r:.60}", hint=did_you_mean(str(format), FORMATS))
    form, p = FORMATS[format], _ratios(getattr(mixture, "mixture", mixture))
    corpora = paths if isinstance(paths, Corpora) else read_corpora({} if paths is None else paths)
    if form.placed and not corpora.rows:
        hint = "give paths=paths.csv, a table: language,path[,available_tokens][,mean_tokens][,dataset][,split]"
        raise UsageError(f"{form.name} holds paths, and none are given", hint=hint)
    own, most, least = (_of_mixture(mixture, p, name, usual) for name, usual in _BOUNDS)
    own_D = getattr(mixture, "D", math.nan)
    budget = own_D if D is None else parse_size(D, "D")
    known = {**own, **_amounts(available, p, "available")}
    lengths = _amounts(mean_tokens, p, "mean_tokens")
    asked = Asked(p, budget, seed, known, lengths, own, most, least, ignore_bounds)
    blend = blend_of(asked, form.draws, corpora, splits=form.splits)
    streams = [stream for part in blend.parts.values() for stream in part]
    faults = [Fault(told, Location(corpora.origin), one.name) for one in streams if (told := form.problem(one))]
    if faults:
        raise DataError.of(faults, corpora.origin)
    notices = (*blend.warnings, *form.warnings(blend))
    if own_D == own_D and own_D != budget:
        sizes = f"the mixture was optimised for D = {format_size(own_D)}, and is exported for {format_size(budget)}"
        notices = (sizes, *notices)
    splits = [split for split in SPLITS[1:] if corpora.sources(split) and not form.splits]
    notes = [*blend.notes, *([f"{format} has no place for the {' and '.join(splits)} paths"] if splits else [])]
    caution(notices)
    return Export(format, form.text(blend), form.config(blend), blend, notices, tuple(notes), corpora.files)


_BOUNDS = (("available", math.nan), ("max_epochs", math.inf), ("min_tokens", 0.0))
"""What an optimum may say of each language, and what holds where it does not."""


def _ratios(given: object) -> dict[str, float]:
    """Ratios by language, of which rounding may have left a sum that is not one."""
    if not isinstance(given, Mapping) or not given:
        hint = "give an optimised mixture, or ratios by language such as {'en': 0.6, 'de': 0.4}"
        raise UsageError(f"{given!r:.60} is no mixture", hint=hint)
    p = {str(name): float(ratio) for name, ratio in given.items()}
    total = math.fsum(p.values())
    if not (min(p.values()) >= 0 and abs(total - 1) <= 5e-3):
        raise UsageError(f"the ratios sum to {total:.6g}, expected 1 and none below 0", hint="give parts of one")
    if odd := [name for name in p if not name.isprintable() or not name.strip()]:
        raise UsageError(f"{odd[0]!r} is no name of a language", hint="it goes into a file that is run")
    return p if abs(total - 1) <= 1e-9 else {name: ratio / total for name, ratio in p.items()}


def _of_mixture(mixture: object, p: Mapping[str, float], name: str, usual: float) -> dict[str, float]:
    values = getattr(mixture, name, None)
    return dict(zip(p, [usual] * len(p) if values is None else map(float, values), strict=True))


def _amounts(given: Amounts | None, p: Mapping[str, float], what: str) -> dict[str, float]:
    """Sizes by language, of those that are given."""
    values = amounts(np.full(len(p), np.nan), given, tuple(p), parse_size, what).tolist()
    found = {name: value for name, value in zip(p, values, strict=True) if not math.isnan(value)}
    if what == "mean_tokens" and 0.0 in found.values():
        raise UsageError("mean_tokens: 0 is no mean length", hint="give tokens a document, such as en=800")
    return found


def _plain(value: object) -> Any:
    """A value as JSON: a number that is not known, or has no end, is null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
