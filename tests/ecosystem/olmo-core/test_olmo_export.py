"""OLMo-core 3.0: an exported SourceMixtureList builds, and selects what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("olmo_core")

import numpy as np
import yaml
from blends import RATIOS, check_shares, written
from olmo_core.data.source_mixture import SourceMixtureDatasetConfig, SourceMixtureList
from olmo_core.data.types import NumpyDatasetDType

pytestmark = pytest.mark.ecosystem
LENGTH, BATCH = 128, 1024
D = 1000 * BATCH
SIZES = {"en": 600_000, "de": 120_000, "no": 300_000, "zh": 13_000, "fi": 50_000, "ja": 50_000}
"""Tokens of each: de and zh are seen more than twice, and have two files each."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    root = tmp_path_factory.mktemp("tokens")
    rows = []
    for name, size in SIZES.items():
        parts = 2 if name in ("de", "zh") else 1
        for part in range(parts):
            path = root / f"{name}-{part}.npy"
            np.memmap(path, mode="w+", dtype=np.uint16, shape=(size // parts,)).flush()
            rows.append({"language": name, "path": str(path), "available_tokens": size // parts})
    return rows


def build(config: dict):
    sources = SourceMixtureList.from_dict(config)
    sources.validate()
    made = SourceMixtureDatasetConfig(
        source_list=sources, requested_tokens=D, global_batch_size=BATCH, render_tables=False, quiet=True
    )
    return made.build(npdtype=NumpyDatasetDType.uint16.as_np_dtype(), sequence_length=LENGTH)


def test_the_sources_make_the_mixture(table: list[dict[str, object]], tmp_path: Path) -> None:
    found = written("olmo-core", tmp_path, "mix.yaml", paths=table, D=D)
    config = yaml.safe_load((tmp_path / "mix.yaml").read_text())
    assert config == found.config
    built = build(config)
    seen = Counter({one.name: sum(path.tokens for path in one.path_tokens) for one in built.sources})
    assert seen.total() == D
    check_shares(seen)
    for one in found.config["sources"]:
        name = one["source_name"]
        assert one["max_repetition_ratio"] >= max(RATIOS[name] * D / SIZES[name], 1)
        assert one["max_repetition_ratio"] < max(RATIOS[name] * D / SIZES[name], 1) + 0.01
