"""levanter: its own config class takes an exported section, and its mixture deals out what that says."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("levanter")

from blends import LANGUAGES, RATIOS, check_shares, written

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
BLOCKS = 4


def test_blocks_hold_the_mixture(tmp_path: Path) -> None:
    """Whole samples by block: each language is off by less than one in a block, which is what the weights allow."""
    import draccus
    import jax
    import yaml
    from levanter.data import ListAsyncDataset, MixtureDataset
    from levanter.data.text import LMMixtureDatasetConfig

    paths = {"language": [*LANGUAGES], "path": [f"corpora/{name}.jsonl.gz" for name in LANGUAGES]}
    written("levanter", tmp_path, "data.yaml", paths=paths)
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
        assert abs(seen[name] - RATIOS[name] * count) < BLOCKS, name
    check_shares(seen)
