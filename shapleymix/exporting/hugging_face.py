"""Hugging Face datasets and LLaMA-Factory, which draw documents: `interleave_datasets` and `interleave_probs`.

Both begin a language again when it ends, until the last has ended (`all_exhausted`): what stops at the first, or never
repeats, ends with other shares than it was given.
"""

from __future__ import annotations

import numpy as np

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.formats import Combining, Format
from shapleymix.exporting.notation import commented, described, yaml_text
from shapleymix.exporting.streams import Draws, Stream, listed
from shapleymix.files import Json

STRATEGY = "all_exhausted"


class HuggingFace(Combining):
    """A Python module with `mixed(datasets)`, and the keywords of `datasets.interleave_datasets`."""

    name = "hf"
    title = "Hugging Face datasets (interleave_datasets)"
    draws = Draws("documents", differ=True, together=True)
    package, function, loader = "datasets", "interleave_datasets", "load_dataset"

    def config(self, blend: Blend) -> dict[str, Json]:
        """Keywords of `interleave_datasets`, beside the datasets in the order of the streams."""
        weights = [stream.weight for stream in blend.streams]
        return {"probabilities": weights, "seed": blend.seed, "stopping_strategy": STRATEGY}

    def warnings(self, blend: Blend) -> list[str]:
        """The stream ends with its longest language."""
        return too_short(blend)


class LlamaFactory(Format):
    """The lines of a training YAML that name datasets of `dataset_info.json` and their probabilities."""

    name = "llama-factory"
    title = "LLaMA-Factory (dataset, interleave_probs)"
    draws = Draws("documents", differ=True)
    placed = False

    def config(self, blend: Blend) -> dict[str, Json]:
        """Arguments of a training run; those of one dataset alone have no probabilities."""
        names = {"dataset": ",".join(stream.dataset for stream in blend.streams)}
        if len(blend.streams) == 1:
            return {**names, "streaming": True}
        probabilities = ",".join(repr(stream.weight) for stream in blend.streams)
        return {**names, "streaming": True, "mix_strategy": "interleave_over", "interleave_probs": probabilities}

    def text(self, blend: Blend) -> str:
        """YAML."""
        return commented(described(blend, self.draws.unit)) + yaml_text(self.config(blend))

    def problems(self, stream: Stream) -> list[str]:
        """Names stand in a list with commas between."""
        comma = "," in stream.dataset
        return [f"the dataset {stream.dataset!r} holds a comma, which separates names here"] if comma else []

    def warnings(self, blend: Blend) -> list[str]:
        """The stream ends with its longest language."""
        return too_short(blend)


def too_short(blend: Blend) -> list[str]:
    """Where all languages are repeated, a stream that ends with the last of them ends before the run does."""
    if np.isnan(blend.epochs).any() or not (blend.epochs > 1).all():
        return []
    often = int(np.ceil(blend.epochs.max()))
    return [
        f"all languages ({listed(blend.sources)}) are seen more than once, and the stream ends when each has been: "
        f"repeat every dataset {often} times before it is mixed"
    ]
