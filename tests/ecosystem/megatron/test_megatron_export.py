"""megatron-core 0.16 reads an exported blend, and its BlendedDataset draws what the mixture says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

import numpy as np
import torch
from blends import LANGUAGES, check_shares, written
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_idx_path
from megatron.core.datasets.utils import get_blend_from_list

pytestmark = pytest.mark.ecosystem
LENGTH, SAMPLES = 16, 20_000


class NoTokenizer:
    """What a GPTDataset asks of a tokenizer whose tokens are there already."""

    eod, pad, vocab_size, unique_identifiers = 0, 0, 100, {"class": "none"}


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An indexed dataset of each language, whose tokens are its number, above 0."""
    folder = tmp_path_factory.mktemp("corpora")
    for place, name in enumerate((*LANGUAGES, "ja"), start=1):
        builder = IndexedDatasetBuilder(f"{folder / name}.bin", dtype=np.int32)
        for size in (31, 7, 90) * 20:
            builder.add_document(torch.full((size,), place, dtype=torch.int32), [size])
        builder.finalize(get_idx_path(str(folder / name)))
    return {name: str(folder / name) for name in (*LANGUAGES, "ja")}


def drawn(config: dict[str, object], split: int, samples: int) -> Counter[str]:
    """Samples of each language in a split that Megatron builds."""
    sizes = tuple(samples if place == split else 0 for place in range(3))
    settings = GPTDatasetConfig(
        random_seed=1,
        sequence_length=LENGTH,
        tokenizer=NoTokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        **config,
    )
    built = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, settings).build()[split]
    assert len(built) >= samples
    first = {place: int(built.datasets[place][0]["tokens"][0]) for place in range(len(built.datasets))}
    return Counter(LANGUAGES[first[place] - 1] for place in built.dataset_index[:samples].tolist())


def test_the_argument_file_makes_the_mixture(prefixes: dict[str, str], tmp_path: Path) -> None:
    paths = {"language": [*prefixes], "path": [*prefixes.values()]}
    found = written("megatron", tmp_path, "blend.txt", paths=paths)
    words = (tmp_path / "blend.txt").read_text().split()  # as --data-args-path is read
    blend = get_blend_from_list(words)
    assert [list(part) for part in blend] == found.config["blend"]
    check_shares(drawn({"blend": blend, "split": "1,0,0"}, 0, SAMPLES))


def test_every_split_has_its_own_file_and_the_same_ratios(prefixes: dict[str, str], tmp_path: Path) -> None:
    names = list(LANGUAGES)
    rows = [(name, prefixes[name], "train") for name in names]
    links = {name: str(tmp_path / f"valid-{name}") for name in names}
    for name, link in links.items():
        for ending in (".bin", ".idx"):
            Path(link + ending).symlink_to(prefixes[name] + ending)
    rows += [(name, links[name], "valid") for name in names]
    table = [dict(zip(("language", "path", "split"), row, strict=True)) for row in rows]
    written("megatron", tmp_path, "blends.json", paths=table)
    lists = json.loads((tmp_path / "blends.json").read_text())  # as --per-split-data-args-path is read
    assert list(lists) == ["train", "valid", "test"]
    blends = [get_blend_from_list(lists[split]) for split in lists]
    for split in (0, 1):
        check_shares(drawn({"blend_per_split": blends}, split, SAMPLES))
