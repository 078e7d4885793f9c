"""Megatron-LM and megatron-core: weights and prefixes, for training alone or a split each.

The file of `--data-args-path` holds them with white space between. Where a path holds white space, Megatron takes every
word for a path, and says nothing of the weights that it drops. Its samples are sequences of equal length, so that
weights are shares of tokens; a weight of zero fails.
"""

from __future__ import annotations

import json

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.corpora import SPLITS, TRAIN
from shapleymix.exporting.formats import Format
from shapleymix.exporting.streams import Draws, Stream
from shapleymix.files import Json


class Megatron(Format):
    """Prefixes of indexed datasets (`.bin` and `.idx`) with their weights.

    Where there are paths for validation or tests, the file is that of `--per-split-data-args-path`.
    """

    name = "megatron"
    title = "Megatron-LM (--data-args-path)"
    draws = Draws("sequences of equal length")
    splits = True

    def config(self, blend: Blend) -> dict[str, Json]:
        """`blend`, or `blend_per_split`, of a `BlendedMegatronDatasetConfig`."""
        if not blend.splits:
            return {"blend": _pair(blend.streams)}
        parts = {TRAIN: blend.streams, **blend.splits}
        return {"blend_per_split": [_pair(parts[split]) if split in parts else None for split in SPLITS]}

    def text(self, blend: Blend) -> str:
        """Lines of `weight path`, or a JSON object with such a list for each split.

        All three splits have to be there; of a list that is empty Megatron fails, of null it makes no dataset.
        """
        if not blend.splits:
            return "".join(f"{stream.weight!r} {stream.paths[0]}\n" for stream in blend.streams)
        parts = {TRAIN: blend.streams, **blend.splits}
        lists = {split: _flat(parts[split]) if split in parts else None for split in SPLITS}
        return json.dumps(lists, indent=1, ensure_ascii=False) + "\n"

    def problems(self, stream: Stream) -> list[str]:
        """White space, and the endings that Megatron appends itself."""
        told = [(path, _problem(path)) for path in stream.paths]
        return [f"the path {path!r} of {stream.source} {problem}" for path, problem in told if problem]

    def notes(self, blend: Blend) -> list[str]:
        """Megatron wants all three splits."""
        if not blend.splits:
            return []
        lacking = [split for split in SPLITS[1:] if split not in blend.splits]
        told = ["the file is for --per-split-data-args-path"]
        return told + ([f"no path is for {' or '.join(lacking)}: Megatron makes no dataset of it"] if lacking else [])


def _pair(streams: tuple[Stream, ...]) -> Json:
    return [[stream.paths[0] for stream in streams], [stream.weight for stream in streams]]


def _flat(streams: tuple[Stream, ...]) -> list[str]:
    return [word for stream in streams for word in (repr(stream.weight), stream.paths[0])]


def _problem(path: str) -> str | None:
    if any(sign.isspace() for sign in path):
        return "holds white space, for which Megatron drops all weights: rename it, or link to it"
    return "ends in .bin or .idx: Megatron takes the prefix without it" if path.endswith((".bin", ".idx")) else None
