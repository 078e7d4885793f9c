"""levanter: its own config class takes an exported section, and its mixture deals out what that says."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("levanter")

from blends import LANGUAGES, RATIOS, written

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
BLOCKS, ADVISED = 2, 15_385


def test_blocks_hold_the_mixture(tmp_path: Path) -> None:
    """Whole samples by block, rounded down, the rest to the largest: as the export warns, fi has 2 of its 2.66."""
    import draccus
    import jax
    import yaml
    from levanter.data import ListAsyncDataset, MixtureDataset
    from levanter.data.text import LMMixtureDatasetConfig

    paths = {"language": [*LANGUAGES], "path": [f"corpora/{name}.jsonl.gz" for name in LANGUAGES]}
    found = written("levanter", tmp_path, "data.yaml", paths=paths)
    section = yaml.safe_load((tmp_path / "data.yaml").read_text(encoding="utf-8"))["data"]
    config = draccus.decode(LMMixtureDatasetConfig, section)
    assert set(config.train_weights) == set(config.configs) == set(LANGUAGES)
    assert config.configs["no"].train_urls == ["corpora/no.jsonl.gz"]
    mixture = MixtureDataset(
        {name: ListAsyncDataset([name] * 10, is_complete=True) for name in LANGUAGES},
        config.train_weights,
        stop_strategy=config.stop_strategy,
        key=jax.random.PRNGKey(0),
        block_size=config.mixture_block_size,
    )
    count = BLOCKS * config.mixture_block_size
    seen = Counter(asyncio.run(mixture.get_batch(range(count))))
    assert seen.total() == count
    for name in LANGUAGES:
        if name != "en":
            assert seen[name] == BLOCKS * int(RATIOS[name] * config.mixture_block_size), name
    assert any("fi would be seen over 5% less" in one for one in found.notices)
