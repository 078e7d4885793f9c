"""megatron-core 0.16 reads an exported blend, and its BlendedDataset draws what the mixture says."""

from __future__ import annotations

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


def drawn(blend: object) -> Counter[str]:
    """Samples of each language that Megatron trains on."""
    settings = GPTDatasetConfig(
        blend=blend,
        split="1,0,0",
        random_seed=1,
        sequence_length=LENGTH,
        tokenizer=NoTokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    built = BlendedMegatronDatasetBuilder(GPTDataset, (SAMPLES, 0, 0), lambda: True, settings).build()[0]
    assert len(built) >= SAMPLES
    first = {place: int(built.datasets[place][0]["tokens"][0]) for place in range(len(built.datasets))}
    return Counter(LANGUAGES[first[place] - 1] for place in built.dataset_index[:SAMPLES].tolist())


def test_the_argument_file_makes_the_mixture(prefixes: dict[str, str], tmp_path: Path) -> None:
    paths = {"language": [*prefixes], "path": [*prefixes.values()]}
    found = written("megatron", tmp_path, "blend.txt", paths=paths)
    words = (tmp_path / "blend.txt").read_text().split()  # as --data-args-path is read
    blend = get_blend_from_list(words)
    assert [list(part) for part in blend] == found.config["blend"]
    check_shares(drawn(blend))
