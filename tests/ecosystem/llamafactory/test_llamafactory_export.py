"""LLaMA-Factory 0.9 reads an exported YAML, and mixes what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("llamafactory")

import yaml
from blends import LANGUAGES, LENGTHS, check_shares, written
from datasets import Dataset

pytestmark = pytest.mark.ecosystem
DRAWS = 10_000


def test_the_arguments_make_the_mixture(tmp_path: Path) -> None:
    from llamafactory.data.data_utils import merge_dataset
    from llamafactory.hparams import DataArguments

    paths = {"language": [*LANGUAGES], "path": [*LANGUAGES], "dataset": [f"{name}_web" for name in LANGUAGES]}
    written("llama-factory", tmp_path, "train.yaml", paths=paths, mean_tokens=LENGTHS)
    arguments = DataArguments(**yaml.safe_load((tmp_path / "train.yaml").read_text()))
    assert arguments.dataset == [f"{name}_web" for name in LANGUAGES]
    parts = [
        Dataset.from_dict({"language": [name] * 1_000, "tokens": [LENGTHS[name]] * 1_000}).to_iterable_dataset()
        for name in LANGUAGES
    ]
    seen: Counter[str] = Counter()
    for _, row in zip(range(DRAWS), merge_dataset(parts, arguments, seed=1), strict=False):
        seen[row["language"]] += row["tokens"]
    check_shares(seen, DRAWS, LENGTHS)
