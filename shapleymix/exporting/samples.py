"""MosaicML Streaming (llm-foundry) and LitData, which draw samples, of equal length unless mean lengths are given."""

from __future__ import annotations

import math

import numpy as np

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.formats import Format
from shapleymix.exporting.notation import commented, described, python_text, yaml_text
from shapleymix.exporting.streams import Draws, Stream, listed
from shapleymix.files import Json

_MODULE = '''
from litdata import CombinedStreamingDataset

WEIGHTS = {weights}
PATHS = {paths}


def mixed(datasets):
    """One stream of the languages' datasets, which are given by name, such as {{"en": StreamingDataset(...)}}."""
    return CombinedStreamingDataset(
        [datasets[name] for name in WEIGHTS],
        weights=list(WEIGHTS.values()),
        iterate_over_all=False,
        seed={seed},
    )
'''


_LENGTHS = "mean_tokens (of a packed sample its length)"


class Mosaic(Format):
    """The `streams` of a StreamingDataset, each with its proportion, and the samples of an epoch."""

    name = "mosaic"
    title = "MosaicML Streaming and llm-foundry (streams, proportion)"
    draws = Draws("samples", differ=True, packed=True)

    def config(self, blend: Blend) -> dict[str, Json]:
        """Keywords of a StreamingDataset: `streams`, each the keywords of a Stream, and `epoch_size` where known."""
        streams = {stream.name: _stream(stream) for stream in blend.streams}
        size = epoch_size(blend)
        return {"streams": streams, **({} if size is None else {"epoch_size": size}), "shuffle_seed": blend.seed}

    def text(self, blend: Blend) -> str:
        """YAML, as llm-foundry has it below `dataset`."""
        return commented(described(blend, self.draws.unit)) + yaml_text(self.config(blend))

    def notes(self, blend: Blend) -> list[str]:
        """Without a size, an epoch is as many samples as there are."""
        if epoch_size(blend) is not None:
            return []
        measured = not any(math.isnan(stream.mean_tokens) for stream in blend.streams)
        lacking = (["D"] if math.isnan(blend.D) else []) + ([] if measured else [_LENGTHS])
        return [f"without {' and '.join(lacking)} no epoch_size is written"]


class LitData(Format):
    """A Python module with `mixed(datasets)`, and the keywords of a CombinedStreamingDataset."""

    name = "litdata"
    title = "LitData (CombinedStreamingDataset)"
    draws = Draws("items", differ=True, packed=True)
    placed = False

    def config(self, blend: Blend) -> dict[str, Json]:
        """Keywords of a CombinedStreamingDataset, beside the datasets in the order of the streams."""
        weights = [stream.weight for stream in blend.streams]
        return {"weights": weights, "iterate_over_all": False, "seed": blend.seed}

    def text(self, blend: Blend) -> str:
        """A module whose `mixed` makes one stream of all languages' datasets."""
        weights = {stream.name: stream.weight for stream in blend.streams}
        paths = {stream.name: stream.paths[0] for stream in blend.streams if stream.paths}
        body = _MODULE.format(weights=python_text(weights), paths=python_text(paths), seed=blend.seed)
        return commented(described(blend, self.draws.unit)) + body

    def warnings(self, blend: Blend) -> list[str]:
        """An epoch of it ends with its shortest language."""
        often = [name for name, epochs in zip(blend.sources, blend.epochs.tolist(), strict=True) if epochs > 1]
        if not often:
            return []
        return [
            f"an epoch of LitData's stream ends as soon as one language does, here {listed(often)} before D: go on "
            "with the next epoch until D tokens are seen"
        ]


def _stream(stream: Stream) -> dict[str, Json]:
    """Keywords of a Stream; what lies elsewhere is remote."""
    place = "remote" if "://" in stream.paths[0] else "local"
    return {place: stream.paths[0], "proportion": stream.weight}


def epoch_size(blend: Blend) -> int | None:
    """Samples of a run of D tokens; None where D or the lengths are not known."""
    lengths = np.array([stream.mean_tokens for stream in blend.streams])
    samples = math.fsum(np.array([stream.ratio for stream in blend.streams]) * blend.D / lengths)
    return None if math.isnan(samples) else max(round(samples), 1)
