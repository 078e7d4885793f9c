"""nanotron, levanter, and plain JSON: mixtures in their configs as their sources and documents say."""

from __future__ import annotations

import math

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.formats import Format
from shapleymix.exporting.notation import commented, described, yaml_text
from shapleymix.exporting.streams import Draws, Stream, listed
from shapleymix.files import Json

BLOCK = 2048
"""Samples in a block of levanter's mixture, in each of which every dataset has the same number."""
CUT = 0.05
"""Of a language's samples may be lost to rounding before it is said."""


class Nanotron(Format):
    """The data stage of a run on folders of tokens (Nanoset)."""

    name = "nanotron"
    title = "nanotron (dataset_folder, dataset_weights)"
    draws = Draws("sequences of equal length")

    def config(self, blend: Blend) -> dict[str, Json]:
        """`data_stages` with one stage."""
        dataset: dict[str, Json] = {
            "dataset_folder": [stream.paths[0] for stream in blend.streams],
            "dataset_weights": [stream.weight for stream in blend.streams],
        }
        stage = {"name": "mixture", "start_training_step": 1, "data": {"dataset": dataset, "seed": blend.seed}}
        return {"data_stages": [stage]}

    def text(self, blend: Blend) -> str:
        """YAML."""
        return commented(described(blend, self.draws.unit)) + yaml_text(self.config(blend))


class Levanter(Format):
    """The data section of a run: a config a language, and `train_weights`."""

    name = "levanter"
    title = "levanter (data.train_weights)"
    draws = Draws("sequences of equal length", together=True)
    placed = False
    splits = True

    def config(self, blend: Blend) -> dict[str, Json]:
        """`data`; the configs hold the paths where they are known."""
        weights = {stream.name: stream.weight for stream in blend.streams}
        valid = {stream.name: stream for stream in blend.splits.get("valid", ())}
        configs = {stream.name: _urls(stream, valid.get(stream.name)) for stream in blend.streams if stream.paths}
        return {"data": {**({"configs": configs} if configs else {}), "train_weights": weights}}

    def text(self, blend: Blend) -> str:
        """YAML."""
        return commented(described(blend, self.draws.unit)) + yaml_text(self.config(blend))

    def warnings(self, blend: Blend) -> list[str]:
        """Languages so rare that a block has none of them, or clearly fewer than it should."""
        expected = {stream.name: stream.weight * BLOCK for stream in blend.streams}
        rare = [name for name, samples in expected.items() if samples < 1]
        cut = [name for name, samples in expected.items() if 1 - math.floor(samples) / samples > CUT and samples >= 1]
        told = []
        if rare:
            size = math.ceil(BLOCK / min(expected.values()))
            told.append(
                f"levanter deals out whole samples to blocks of {BLOCK}, of which {listed(rare)} would have less than "
                f"one: set data.mixture_block_size to {size} or more"
            )
        if cut:
            size = math.ceil(BLOCK / CUT / min(expected[name] for name in cut))
            told.append(
                f"levanter rounds the samples of a block of {BLOCK} down, by which {listed(cut)} would be seen over "
                f"{CUT:.0%} less than asked, and the largest more: set data.mixture_block_size to {size} or more"
            )
        return told


def _urls(stream: Stream, valid: Stream | None) -> dict[str, Json]:
    return {"train_urls": list(stream.paths), **({} if valid is None else {"validation_urls": list(valid.paths)})}


class Plain(Format):
    """The neutral document: shares of tokens, tokens, unique tokens and epochs of each language, and its paths."""

    name = "json"
    title = "any trainer (JSON)"
    draws = Draws("tokens", together=True)
    placed = False

    def config(self, blend: Blend) -> dict[str, Json]:
        """`mixture` by name, and what is known of each language."""
        rows = zip(blend.streams, blend.epochs.tolist(), strict=True)
        sources = {stream.name: _known(stream, blend.D, epochs) for stream, epochs in rows}
        mixture = {stream.name: stream.weight for stream in blend.streams}
        return {"unit": self.draws.unit, "D": _number(blend.D), "mixture": mixture, "by_source": sources}

    def text(self, blend: Blend) -> str:
        """Nothing: the file is the account of the export itself."""
        return ""


def _known(stream: Stream, D: float, epochs: float) -> dict[str, Json]:
    numbers = {"tokens": stream.ratio * D, "available": stream.available, "epochs": epochs}
    return {
        "ratio": stream.weight,
        **{name: _number(value) for name, value in numbers.items()},
        "paths": [*stream.paths],
    }


def _number(value: float) -> float | None:
    """A number, or None where it is not known."""
    return None if math.isnan(value) else value
