"""A mixture in the form that a trainer takes: `export(mix, "megatron", paths="paths.csv").write("blend.txt")`.

There is a class for each trainer, which states how it draws, and what of its file is its own. What goes wrong without
that is said beside it; every one was fed to the real package where it is named with a version.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pprint import pformat
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.errors import DataError, Fault, Location, UsageError, caution, did_you_mean, printable
from shapleymix.files import atomic_write, plain, require_free, write_json
from shapleymix.mixing.answers import Mixture
from shapleymix.tables.mixtures import parse_mixture
from shapleymix.tables.words import Amounts, Read, amounts, format_size, parse_budget, parse_size
from shapleymix_io.blends import Asked, Blend, Corpora, Draws, Paths, Stream, blend_of, read_corpora


class Format:
    """A form in which a trainer takes a mixture; as it stands, a YAML file that holds `config`.

    Attributes
    ----------
    name : str
        As it is asked for.
    draws : Draws
        How the trainer draws.
    placed, staged : bool
        Whether it needs paths, and whether it has a place for successive blends.
    """

    name: ClassVar[str]
    draws: ClassVar[Draws] = Draws("sequences of equal length")
    placed: ClassVar[bool] = True
    staged: ClassVar[bool] = False

    def config(self, blend: Blend) -> dict[str, Any]:
        """What the package takes from Python: keywords, or a document."""
        raise NotImplementedError

    def text(self, blend: Blend) -> str:
        """The file that the trainer reads."""
        import yaml

        return self.about(blend) + yaml.safe_dump(self.config(blend), sort_keys=False, allow_unicode=True, width=1000)

    def about(self, blend: Blend) -> str:
        """Comments: the unit, and of each language its share of tokens and how often it is seen."""
        size = "" if math.isnan(blend.asked.D) else f" of {format_size(blend.asked.D)}"
        whole = "its tokens" if blend.before is None else "the rest"
        head = f"written by shapleymix export: weights are of {self.draws.unit}, for shares of {whole}{size}"
        seen = {name: "" if math.isnan(often) else f"  {often:.3g} epochs" for name, often in blend.epochs.items()}
        lines = [head, *(f"{name}  {ratio:.4%}{seen[name]}" for name, ratio in blend.p.items())]
        return "".join(f"# {printable(line)}\n" for line in lines)

    def problem(self, stream: Stream) -> str | None:
        """Why a stream cannot be written in this form."""
        return None

    def warnings(self, blend: Blend) -> list[str]:
        """What the trainer makes of this blend that is not what was asked for."""
        return []


class Megatron(Format):
    """Megatron-LM: weights and prefixes of indexed datasets, parts of which Megatron's `--split` holds out."""

    name = "megatron"

    def config(self, blend: Blend) -> dict[str, Any]:
        """`blend` of a `BlendedMegatronDatasetConfig`."""
        return {"blend": [[one.paths[0] for one in blend.streams], [one.weight for one in blend.streams]]}

    def text(self, blend: Blend) -> str:
        """Lines of `weight path`."""
        return "".join(f"{stream.weight!r} {stream.paths[0]}\n" for stream in blend.streams)

    def problem(self, stream: Stream) -> str | None:
        """White space in a path makes Megatron drop all weights without a word; and it appends `.bin` itself."""
        path, ends = stream.paths[0], "ends in .bin or .idx: Megatron wants it without"
        blank = "holds white space, for which Megatron drops all weights: rename or link it"
        reason = blank if len(f"x{path}x".split()) > 1 else ends if path.endswith((".bin", ".idx")) else ""
        return reason and f"the path {path!r} {reason}"


class AutoModel(Format):
    """NeMo AutoModel: `paths` of a `MegatronPretraining` dataset, a list of each weight before its prefix."""

    name = "automodel"

    def config(self, blend: Blend) -> dict[str, Any]:
        """The dataset's own keywords; Megatron-Bridge takes such a list as its `data_paths`."""
        return {"paths": [word for one in blend.streams for word in (repr(one.weight), one.paths[0])]}

    problem = Megatron.problem


class _Combining(Format):
    """A Python module with `mixed(datasets)`, which makes one stream of all languages' datasets."""

    package: ClassVar[str]
    function: ClassVar[str]
    loader: ClassVar[str]
    placed = False

    def text(self, blend: Blend) -> str:
        """The module; the weights are the first keyword of `config`."""
        (keyword, _), *options = self.config(blend).items()
        paths = {one.name: [*one.paths] if self.draws.together else one.paths[0] for one in blend.streams if one.paths}
        given = ", ".join(f"{name}={value!r}" for name, value in options)
        return f'''{self.about(blend)}
from {self.package} import {self.function}

WEIGHTS = {pformat(blend.weights, sort_dicts=False)}
PATHS = {pformat(paths, sort_dicts=False)}


def mixed(datasets):
    """One stream of the languages' datasets, which are given by name, such as {{"en": {self.loader}(...)}}."""
    parts = [datasets[name] for name in WEIGHTS]
    return {self.function}(parts, {keyword}=list(WEIGHTS.values()), {given})
'''


class HuggingFace(_Combining):
    """Hugging Face's `interleave_datasets`, which draws other shares if it stops at the first end or never repeats."""

    name, draws = "hf", Draws("documents", differ=True, together=True)
    package, function, loader = "datasets", "interleave_datasets", "load_dataset"

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of `interleave_datasets`, beside the datasets in the order of the streams."""
        weights = list(blend.weights.values())
        return {"probabilities": weights, "seed": blend.asked.seed, "stopping_strategy": "all_exhausted"}


class LitData(_Combining):
    """LitData's `CombinedStreamingDataset`, whose weights raise with the default `iterate_over_all=True`."""

    name, draws = "litdata", Draws("items", differ=True, packed=True)
    package, function, loader = "litdata", "CombinedStreamingDataset", "StreamingDataset"

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of a CombinedStreamingDataset, beside the datasets in the order of the streams."""
        return {"weights": list(blend.weights.values()), "iterate_over_all": False, "seed": blend.asked.seed}


class LlamaFactory(Format):
    """LLaMA-Factory: the lines of a training YAML that name datasets of `dataset_info.json` and their probabilities."""

    name, placed, draws = "llama-factory", False, Draws("documents", differ=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """Arguments of a training run; those of one dataset alone have no probabilities."""
        names = {"dataset": ",".join(stream.dataset for stream in blend.streams), "streaming": True}
        if len(blend.streams) == 1:
            return names
        probabilities = ",".join(repr(stream.weight) for stream in blend.streams)
        return {**names, "mix_strategy": "interleave_over", "interleave_probs": probabilities}

    def problem(self, stream: Stream) -> str | None:
        """Names stand in a list with commas between."""
        return f"the dataset {stream.dataset!r} holds a comma" if "," in stream.dataset else None


class Mosaic(Format):
    """MosaicML: the `streams` of a StreamingDataset with proportions (never repeat or choose), and `epoch_size`."""

    name, staged, draws = "mosaic", True, Draws("samples", differ=True, packed=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of a StreamingDataset; of two phases the parts of llm-foundry's config that hold them.

        Its `max_duration` must be the sum of the durations.
        """
        (duration, dataset), *later = [(f"{one.asked.D:.0f}tok", self._dataset(one)) for _, one in blend.stages]
        if not later:
            return dataset
        schedule = [{"duration": length, "dataset": one} for length, one in later]
        callbacks = {"curriculum_learning": {"duration": duration, "schedule": schedule}}
        return {"train_loader": {"dataset": dataset}, "callbacks": callbacks}

    def _dataset(self, blend: Blend) -> dict[str, Any]:
        """Keywords of a StreamingDataset; what lies elsewhere is remote."""
        streams = {
            one.name: {"remote" if "://" in one.paths[0] else "local": one.paths[0], "proportion": one.weight}
            for one in blend.streams
        }
        samples = math.fsum(one.ratio * blend.asked.D / one.mean_tokens for one in blend.streams)
        size = {} if math.isnan(samples) else {"epoch_size": max(round(samples), 1)}
        return {"streams": streams, **size, "shuffle_seed": blend.asked.seed}


class OlmoCore(Format):
    """OLMo-core's `SourceMixtureList`: too small a source fails unless it may repeat; one of ratio 0 is drawn from."""

    name, draws = "olmo-core", Draws("tokens", together=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """The fields of a `SourceMixtureList`; repetitions are rounded up, but never above what the mixture allows."""
        sources = []
        for one in blend.streams:
            source = {"source_name": one.name, "target_ratio": one.weight, "paths": list(one.paths)}
            often, most = one.ratio * blend.asked.D / one.available, blend.asked.max_epochs[one.source]
            needed = max(1.0, math.ceil(100 * often) / 100) if often == often else math.nan
            limit = needed if often > most * (1 + 1e-9) else min(needed, max(1.0, most))
            sources.append(source if math.isnan(needed) else {**source, "max_repetition_ratio": limit})
        return {"sources": sources}

    def about(self, blend: Blend) -> str:
        """The same, and how it is built."""
        size = "" if math.isnan(blend.asked.D) else f"={round(blend.asked.D)} or near it,"
        return f"{super().about(blend)}# requested_tokens{size} a multiple of global_batch_size keeps the ratios\n"


class Torchtitan(Format):
    """torchtitan: a module with `dataloader(**options)`, for the loader of 0.3 and for Grain's, which follows it."""

    name, draws = "torchtitan", Draws("packed sequences")

    def config(self, blend: Blend) -> dict[str, Any]:
        """`sources` and the seed of the draws; in both loaders a source that ends begins again."""
        sources = [
            {"dataset": one.dataset, "dataset_path": one.paths[0], "weight": one.weight} for one in blend.streams
        ]
        return {"sources": sources, "seed": blend.asked.seed}

    def text(self, blend: Blend) -> str:
        """A module whose `dataloader` is the config of the loader."""
        config = self.config(blend)
        return f'''{self.about(blend)}
from torchtitan.hf_datasets import text_datasets as texts

# version 0.3 knows each dataset by its name in lower case: register it in text_datasets.DATASETS
SOURCES = {pformat(config["sources"], sort_dicts=False, width=110)}


def dataloader(**options):
    """The data loader's config for `Trainer.Config(dataloader=...)`; the options are those of the loader."""
    try:
        from torchtitan.components import data
    except ImportError:  # 0.3
        sources = [texts.HFDataSource(**one, infinite=True) for one in SOURCES]
        return texts.InterleavedHuggingFaceTextDataLoader.Config(sources=sources, seed={config["seed"]}, **options)

    def packed(one):  # before they are mixed, so that weights count sequences
        dataset = texts.DATASETS.get(one["dataset"].lower()) or data.SingleDatasetConfig(
            source=data.HuggingFaceStreamingSource.Config(path=one["dataset_path"], split="train"),
            processor=texts.TextProcessor.Config(),
        )
        return data.WeightedDataset(dataset=data.ConcatThenSplitPackingConfig(dataset=dataset), weight=one["weight"])

    mixed = data.DatasetMixConfig(datasets=tuple(packed(one) for one in SOURCES))
    return data.GrainDataLoader.Config(dataset=mixed, seed={config["seed"]}, **options)
'''


class Nanotron(Format):
    """The data stage of a run on folders of tokens (Nanoset)."""

    name, staged = "nanotron", True

    def config(self, blend: Blend) -> dict[str, Any]:
        """`data_stages`, whose names differ, and whose steps count from 1."""
        stages = []
        for steps, one in blend.stages:
            folders, weights = ([s.paths[0] for s in one.streams], [s.weight for s in one.streams])
            data = {"dataset": {"dataset_folder": folders, "dataset_weights": weights}, "seed": one.asked.seed}
            name = "rest" if steps else "mixture"
            stages.append({"name": name, "start_training_step": steps + 1, "data": data})
        return {"data_stages": stages}


class Levanter(Format):
    """The data section of a run, which deals out whole samples to blocks of 2,048 and rounds down."""

    name, placed, staged, draws = "levanter", False, True, Draws("sequences of equal length", together=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """`data`; the configs hold the paths where they are known, and weights of two phases stand behind steps."""
        streams = [one for _, stage in blend.stages for one in stage.streams if one.paths]
        configs = {one.name: {"train_urls": list(one.paths)} for one in streams}
        (_, weights), *later = stages = [[steps, one.weights] for steps, one in blend.stages]
        return {"data": {**({"configs": configs} if configs else {}), "train_weights": stages if later else weights}}

    def warnings(self, blend: Blend) -> list[str]:
        """Languages of which a block has none, or over 5% fewer than it should."""
        expected = {name: weight * 2048 for name, weight in blend.weights.items()}
        cut = {name: 2048 / size for name, size in expected.items() if math.floor(size) < 0.95 * size}
        size = math.ceil(max(cut.values(), default=0.0) / 0.05)
        message = f"levanter rounds the samples of a block of 2,048 down: {short(list(cut))} would be seen over 5% less"
        return [f"{message}; set data.mixture_block_size to {size} or more"] if cut else []


class Plain(Format):
    """The neutral document: its file is the account of the export itself."""

    name, placed, draws = "json", False, Draws("tokens", together=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """The mixture by name."""
        return {"mixture": blend.weights}

    def text(self, blend: Blend) -> str:
        """Nothing."""
        return ""


_ALL = (
    Megatron, AutoModel, HuggingFace, Mosaic, OlmoCore, LitData, Torchtitan, Nanotron, Levanter, LlamaFactory, Plain,
)  # fmt: skip
FORMATS: dict[str, Format] = {one.name: one() for one in _ALL}
"""The formats by name."""


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
    """

    format: str
    text: str
    config: dict[str, Any]
    blend: Blend
    notices: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams, in the order of the weights in `config`."""
        return tuple(self.blend.weights)

    def to_document(self, provenance: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The account: shares, tokens and epochs of all languages as JSON; what is not known is null."""
        asked, known = self.blend.asked, {"format": self.format, "unit": FORMATS[self.format].draws.unit}
        shares = {"mixture": self.blend.p, "available": self.blend.available, "epochs": self.blend.epochs}
        tokens = {name: ratio * asked.D for name, ratio in self.blend.p.items()}
        remarks = {"notices": self.notices, "notes": self.notes, "provenance": dict(provenance or {})}
        made = {"streams": list(map(asdict, self.blend.streams)), "config": self.config, "text": self.text}
        head = {"schema_version": 1, "kind": "export", **known, "D": asked.D, "seed": asked.seed}
        return plain({**head, **shares, "tokens": tokens, **made, **remarks})

    def write(
        self, path: str | os.PathLike[str], *, force: bool = False, provenance: Mapping[str, object] | None = None
    ) -> None:
        """Write the trainer's file, and beside it, with `.json` behind its name, the account; each whole or not at all.

        Of the format `json` the account is the file.
        """
        account = os.fspath(path) if self.format == Plain.name else f"{os.fspath(path)}.json"
        require_free(account, force=force)
        if self.format != Plain.name:
            atomic_write(path, self.text, force=force)
        write_json(self.to_document(provenance), account, force=force)


def export(
    mixture: MixtureLike,
    format: str,
    *,
    paths: Paths | Corpora | None = None,
    mean_tokens: Amounts | float | None = None,
    available: Amounts | float | None = None,
    D: float | str | None = None,
    batch_tokens: float | str | None = None,
    seed: int = 0,
    ignore_bounds: bool = False,
) -> Export:
    """A mixture of tokens in the form that a trainer takes.

    Parameters
    ----------
    mixture : MixtureLike
        An optimised `Mixture`, or ratios by language.
    format : str
        megatron, automodel, hf, mosaic, olmo-core, litdata, torchtitan, nanotron, levanter, llama-factory or json.
    paths : Paths or Corpora, optional
        Where each language's data lie: a path by language, or a table (a file or a polars.DataFrame)
        `language,path[,available_tokens][,mean_tokens][,dataset]`.
    mean_tokens : Amounts or float, optional
        Tokens a document (or a sample), by language or one for all, in place of the table's.
    available : Amounts or float, optional
        Unique tokens, instead of those that the mixture was optimised for. The table of paths takes precedence.
    D : float or str, optional
        Tokens of the run, in place of those the mixture was optimised for.
    batch_tokens : float or str, optional
        Tokens of a step. Of a run already begun what it has read and the rest are then written as phases, where the
        trainer takes such (nanotron, levanter, mosaic for llm-foundry); else the rest alone.
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
    if isinstance(mixture, Mixture):
        mixture = SimpleNamespace(**mixture.remaining(mixture.p))
    form, p = FORMATS[format], _ratios(getattr(mixture, "mixture", mixture))
    corpora = paths if isinstance(paths, Corpora) else read_corpora({} if paths is None else paths)
    if form.placed and not corpora.rows:
        hint = "give paths, a table: language,path[,available_tokens][,mean_tokens][,dataset]"
        raise UsageError(f"{form.name} holds paths, and none are given", hint=hint)
    own, most, least, had = (_of_mixture(mixture, p, name, usual) for name, usual in _USUAL.items())
    read = np.nan_to_num(np.array([*had.values()]))
    own_D = getattr(mixture, "D", math.nan)
    budget = own_D if D is None else parse_size(D, "D") - read.sum()
    if budget <= 0:
        raise UsageError(f"D counts the tokens of the whole run, which has read {format_size(read.sum())} already")
    known = {**own, **_amounts(available, p, "available", parse_size)}
    lengths = _amounts(mean_tokens, p, "mean_tokens", parse_budget)
    asked = Asked(p, budget, seed, known, lengths, own, most, least, ignore_bounds, had)
    blend = blend_of(asked, form.draws, corpora)
    if batch_tokens is not None and not read.any():
        raise UsageError("batch_tokens divides the phases of a run already begun: this mixture is of a whole one")
    steps = round(read.sum() / parse_size(batch_tokens, "batch_tokens")) if batch_tokens is not None else 0
    if steps and form.staged:
        ratios, free = dict(zip(p, (read / read.sum()).tolist(), strict=True)), dict.fromkeys(p, math.inf)
        first = replace(asked, p=ratios, D=read.sum(), max_epochs=free, min_tokens=dict.fromkeys(p, 0.0), read={})
        other = replace(asked, seed=seed + 1)  # by the same seed a corpus would give the same samples again
        blend = replace(blend, asked=other, before=blend_of(first, form.draws, corpora), steps=steps)
    elif read.any():
        blend.notes.append("the file holds what is still to be read, for a run that goes on from its checkpoint")
    streams = [stream for _, stage in blend.stages for stream in stage.streams]
    faults = [Fault(reason, Location(corpora.origin), one.name) for one in streams if (reason := form.problem(one))]
    if faults:
        raise DataError.of(faults, corpora.origin)
    notices = (*blend.warnings, *form.warnings(blend))
    if own_D == own_D and own_D != budget:
        whole = [format_size(one + read.sum()) for one in (own_D, budget)]
        sizes = f"the mixture was optimised for D = {whole[0]}, and is exported for {whole[1]}"
        notices = (sizes, *notices)
    caution(notices)
    return Export(format, form.text(blend), form.config(blend), blend, notices, tuple(blend.notes))


_USUAL = {"available": math.nan, "max_epochs": math.inf, "min_tokens": 0.0, "read": 0.0}
"""What an optimum may say of each language, and what holds where it does not."""


def _ratios(given: object) -> dict[str, float]:
    """Ratios by language."""
    if not isinstance(given, Mapping) or not given:
        raise UsageError(f"{given!r:.60} is no mixture", hint="give ratios by language, such as {'en': 0.6, 'de': 0.4}")
    names = tuple(map(str, given))
    if odd := [name for name in names if not name.isprintable() or not name.strip()]:
        raise UsageError(f"{odd[0]!r} is no name of a language", hint="it goes into a file that is run")
    return dict(zip(names, parse_mixture(given, names).tolist(), strict=True))


def _of_mixture(mixture: object, p: Mapping[str, float], name: str, usual: float) -> dict[str, float]:
    values = getattr(mixture, name, None)
    return dict(zip(p, [usual] * len(p) if values is None else map(float, values), strict=True))


def _amounts(given: Amounts | float | None, p: Mapping[str, float], what: str, parse: Read) -> dict[str, float]:
    """Sizes by language, of those that are given."""
    values = amounts(np.full(len(p), np.nan), given, tuple(p), parse, what).tolist()
    return {name: value for name, value in zip(p, values, strict=True) if not math.isnan(value)}
