"""The trainers: each class states how one draws, and what of its file is its own.

What goes wrong without it is said beside each; every one was fed to the real package where it is named with a version.
"""

from __future__ import annotations

import json
import math
from pprint import pformat
from typing import Any, ClassVar

from shapleymix.errors import printable
from shapleymix.tables.words import format_size
from shapleymix_io.blends import SPLITS, Blend, Draws, Stream, listed


class Format:
    """A form in which a trainer takes a mixture; as it stands, a YAML file that holds `config`.

    Attributes
    ----------
    name, title : str
        As it is asked for, and what takes it.
    draws : Draws
        How the trainer draws.
    placed, splits : bool
        Whether it needs paths, and whether it has a place for validation and tests.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    draws: ClassVar[Draws] = Draws("sequences of equal length")
    placed: ClassVar[bool] = True
    splits: ClassVar[bool] = False

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
        lines = [
            f"written by shapleymix export: weights are of {self.draws.unit}, for shares of the run's tokens{size}"
        ]
        for name, ratio in blend.p.items():
            epochs = blend.epochs[name]
            lines.append(f"{name}  {ratio:.4%}" + ("" if math.isnan(epochs) else f"  {epochs:.3g} epochs"))
        return "".join(f"# {printable(line)}\n" for line in lines)

    def problem(self, stream: Stream) -> str | None:
        """Why a stream cannot be written in this form."""
        return None

    def warnings(self, blend: Blend) -> list[str]:
        """What the trainer makes of this blend that is not what was asked for."""
        return []


class Megatron(Format):
    """Weights and prefixes of indexed datasets; a JSON object of them for each split where there are several."""

    name, title, splits = "megatron", "Megatron-LM (--data-args-path, or --per-split-data-args-path)", True

    def config(self, blend: Blend) -> dict[str, Any]:
        """`blend`, or `blend_per_split`, of a `BlendedMegatronDatasetConfig`."""
        pairs = [_pair(blend.parts.get(split)) for split in SPLITS]
        return {"blend_per_split": pairs} if len(blend.parts) > 1 else {"blend": pairs[0]}

    def text(self, blend: Blend) -> str:
        """Lines of `weight path`; of splits all three have to be there, null for none: an empty list fails."""
        if len(blend.parts) == 1:
            return "".join(f"{stream.weight!r} {stream.paths[0]}\n" for stream in blend.streams)
        flat = {
            split: [word for one in streams for word in (repr(one.weight), one.paths[0])]
            for split, streams in blend.parts.items()
        }
        return json.dumps({split: flat.get(split) for split in SPLITS}, indent=1, ensure_ascii=False) + "\n"

    def problem(self, stream: Stream) -> str | None:
        """White space in a path makes Megatron drop all weights without a word; and it appends `.bin` itself."""
        path = stream.paths[0]
        if any(sign.isspace() for sign in path):
            return f"the path {path!r} holds white space, for which Megatron drops all weights: rename or link it"
        ends = path.endswith((".bin", ".idx"))
        return f"the path {path!r} ends in .bin or .idx: Megatron wants it without" if ends else None


def _pair(streams: tuple[Stream, ...] | None) -> list[list[Any]] | None:
    return [[one.paths[0] for one in streams], [one.weight for one in streams]] if streams else None


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
    """`datasets.interleave_datasets`: what stops at the first end, or never repeats, makes other shares than asked."""

    name, title = "hf", "Hugging Face datasets (interleave_datasets)"
    draws = Draws("documents", differ=True, together=True)
    package, function, loader = "datasets", "interleave_datasets", "load_dataset"

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of `interleave_datasets`, beside the datasets in the order of the streams."""
        return {
            "probabilities": list(blend.weights.values()),
            "seed": blend.asked.seed,
            "stopping_strategy": "all_exhausted",
        }


class LitData(_Combining):
    """`CombinedStreamingDataset`, whose weights raise with the default `iterate_over_all=True`."""

    name, title = "litdata", "LitData (CombinedStreamingDataset)"
    draws = Draws("items", differ=True, packed=True)
    package, function, loader = "litdata", "CombinedStreamingDataset", "StreamingDataset"

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of a CombinedStreamingDataset, beside the datasets in the order of the streams."""
        return {"weights": list(blend.weights.values()), "iterate_over_all": False, "seed": blend.asked.seed}


class LlamaFactory(Format):
    """The lines of a training YAML that name datasets of `dataset_info.json` and their probabilities."""

    name, title, placed = "llama-factory", "LLaMA-Factory (dataset, interleave_probs)", False
    draws = Draws("documents", differ=True)

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
    """The `streams` of a StreamingDataset, each with its proportion (never with repeat or choose), and `epoch_size`."""

    name, title = "mosaic", "MosaicML Streaming and llm-foundry (streams, proportion)"
    draws = Draws("samples", differ=True, packed=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """Keywords of a StreamingDataset; what lies elsewhere is remote."""
        streams = {
            one.name: {"remote" if "://" in one.paths[0] else "local": one.paths[0], "proportion": one.weight}
            for one in blend.streams
        }
        samples = math.fsum(one.ratio * blend.asked.D / one.mean_tokens for one in blend.streams)
        size = {} if math.isnan(samples) else {"epoch_size": max(round(samples), 1)}
        return {"streams": streams, **size, "shuffle_seed": blend.asked.seed}


class OlmoCore(Format):
    """A `SourceMixtureList`: a source that is too small fails unless it may repeat; one of ratio 0 is drawn from."""

    name, title = "olmo-core", "OLMo-core (SourceMixtureList)"
    draws = Draws("tokens", together=True)

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
    """A Python module with `dataloader(**options)`, and the fields of each `HFDataSource`."""

    name, title, draws = "torchtitan", "torchtitan 0.3 (HFDataSource)", Draws("packed sequences")

    def config(self, blend: Blend) -> dict[str, Any]:
        """`sources`, which begin again when they end, and the seed of the draws."""
        sources = [
            {"dataset": one.dataset, "dataset_path": one.paths[0], "weight": one.weight, "infinite": True}
            for one in blend.streams
        ]
        return {"sources": sources, "seed": blend.asked.seed}

    def text(self, blend: Blend) -> str:
        """A module whose `dataloader` is the config of the loader."""
        config = self.config(blend)
        return f'''{self.about(blend)}
from torchtitan.hf_datasets.text_datasets import HFDataSource, InterleavedHuggingFaceTextDataLoader

# torchtitan knows each dataset by its name in lower case: register it in text_datasets.DATASETS
SOURCES = {pformat(config["sources"], sort_dicts=False, width=110)}


def dataloader(**options):
    """The data loader's config for `Trainer.Config(dataloader=...)`; the options are those of the loader."""
    return InterleavedHuggingFaceTextDataLoader.Config(
        sources=[HFDataSource(**source) for source in SOURCES], seed={config["seed"]}, **options
    )
'''


class Nanotron(Format):
    """The data stage of a run on folders of tokens (Nanoset)."""

    name, title = "nanotron", "nanotron (dataset_folder, dataset_weights)"

    def config(self, blend: Blend) -> dict[str, Any]:
        """`data_stages` with one stage."""
        folders, weights = ([s.paths[0] for s in blend.streams], [s.weight for s in blend.streams])
        data = {"dataset": {"dataset_folder": folders, "dataset_weights": weights}, "seed": blend.asked.seed}
        return {"data_stages": [{"name": "mixture", "start_training_step": 1, "data": data}]}


class Levanter(Format):
    """The data section of a run, which deals out whole samples to blocks of 2,048 and rounds down."""

    name, title, placed, splits = "levanter", "levanter (data.train_weights)", False, True
    draws = Draws("sequences of equal length", together=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """`data`; the configs hold the paths where they are known."""
        valid = {one.name: {"validation_urls": list(one.paths)} for one in blend.parts.get("valid", ())}
        configs = {
            one.name: {"train_urls": list(one.paths), **valid.get(one.name, {})} for one in blend.streams if one.paths
        }
        return {"data": {**({"configs": configs} if configs else {}), "train_weights": blend.weights}}

    def warnings(self, blend: Blend) -> list[str]:
        """Languages of which a block has none, or over 5% fewer than it should."""
        expected = {name: weight * 2048 for name, weight in blend.weights.items()}
        cut = {name: 2048 / size for name, size in expected.items() if math.floor(size) < 0.95 * size}
        if not cut:
            return []
        size = math.ceil(max(cut.values()) / 0.05)
        told = (
            f"levanter rounds the samples of a block of 2,048 down, and {listed(list(cut))} would be seen over 5% less"
        )
        return [f"{told}: set data.mixture_block_size to {size} or more"]


class Plain(Format):
    """The neutral document: its file is the account of the export itself."""

    name, title, placed, draws = "json", "any trainer (JSON)", False, Draws("tokens", together=True)

    def config(self, blend: Blend) -> dict[str, Any]:
        """The mixture by name."""
        return {"mixture": blend.weights}

    def text(self, blend: Blend) -> str:
        """Nothing."""
        return ""


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Megatron(), HuggingFace(), Mosaic(), OlmoCore(), LitData(), Torchtitan(), Nanotron(), Levanter(),
        LlamaFactory(), Plain(),
    )
}  # fmt: skip
