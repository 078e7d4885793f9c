"""torchtitan 0.3: the loader of an exported config packs what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torchtitan")

from blends import LANGUAGES, LENGTHS, check_shares, loaded, written

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
LENGTH, DRAWS = 32, 6_000


class Words:
    """A tokenizer whose tokens are the numbers in the text."""

    def encode(self, text: str, **_: bool) -> list[int]:
        return list(map(int, text.split()))


def test_the_sources_make_the_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents differ in length between languages, sequences do not: weights are shares of tokens."""
    from datasets import Dataset
    from torchtitan.hf_datasets import DatasetConfig, text_datasets

    def documents(path: str) -> Dataset:
        name = Path(path).name
        place = str(LANGUAGES.index(name) + 1)
        return Dataset.from_dict({"text": [" ".join([place] * LENGTHS[name])] * 300})

    paths = {"language": [*LANGUAGES], "path": [f"corpora/{name}" for name in LANGUAGES]}
    written("torchtitan", tmp_path, "data.py", paths=paths, seed=5)
    for name in LANGUAGES:
        config = DatasetConfig(path="", loader=documents, sample_processor=lambda row: row["text"])
        monkeypatch.setitem(text_datasets.DATASETS, name, config)
    config = loaded(tmp_path / "data.py").dataloader(num_workers=0)
    loader = text_datasets.InterleavedHuggingFaceTextDataLoader(
        config, dp_world_size=1, dp_rank=0, tokenizer=Words(), seq_len=LENGTH, local_batch_size=1
    )
    seen: Counter[str] = Counter()
    for _, (batch, _) in zip(range(DRAWS), loader, strict=False):
        assert batch["input"].shape == (1, LENGTH)
        seen[LANGUAGES[int(batch["input"][0, 0]) - 1]] += LENGTH
    assert seen.total() == DRAWS * LENGTH, "short languages begin again"
    check_shares({name: count / LENGTH for name, count in seen.items()}, DRAWS)
