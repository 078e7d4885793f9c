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
BATCH, LENGTH = 64, 1024
"""Samples of a step, and tokens of a sample."""


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


def test_both_phases_of_a_begun_run(tmp_path: Path) -> None:
    """levanter's own schedule of steps: what both phases deal out is the whole mixture, and no sample comes twice."""
    import draccus
    import jax
    import numpy as np
    import yaml
    from known_fits import KnownFit
    from levanter.data import ListAsyncDataset, MixtureDataset
    from levanter.data.mixture import rescale_mixture_schedule_for_batch_schedule
    from levanter.data.text import LMMixtureDatasetConfig
    from levanter.schedule import BatchSchedule
    from shapleymix_io import export

    import shapleymix as sm

    block = 2048 * LENGTH
    best = sm.optimize(KnownFit(), "1B", 8 * block, after="en=0.75,de=0.25", trained=4 * block, floors="fi=0.1")
    found = export(
        best, "levanter", paths={name: f"{name}.jsonl" for name in best.sources}, batch_tokens=BATCH * LENGTH
    )
    config = draccus.decode(LMMixtureDatasetConfig, yaml.safe_load(found.text)["data"])
    assert [step for step, _ in config.train_weights] == [0, 4 * 2048 // BATCH]
    names = list(config.configs)
    mixture = MixtureDataset(
        {name: ListAsyncDataset([(name, place) for place in range(20_000)], is_complete=True) for name in names},
        rescale_mixture_schedule_for_batch_schedule(config.train_weights, BatchSchedule(BATCH)),
        stop_strategy=config.stop_strategy,
        key=jax.random.PRNGKey(0),
        block_size=config.mixture_block_size,
    )
    seen = asyncio.run(mixture.get_batch(range(8 * 2048)))
    assert len(set(seen)) == len(seen)
    shares = np.array([sum(one == name for one, _ in seen) for name in best.sources]) / len(seen)
    assert shares == pytest.approx(best.p, abs=len(names) / 2048)
