"""LitData 0.2: a CombinedStreamingDataset, told by an export, draws what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("litdata")

import torch
from blends import LANGUAGES, check_shares, loaded, written
from litdata import CombinedStreamingDataset, StreamingDataset
from litdata.streaming.cache import Cache

pytestmark = pytest.mark.ecosystem
DRAWS = 5_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Items of each language: more than are drawn."""
    root = tmp_path_factory.mktemp("streams")
    for place, name in enumerate(LANGUAGES):
        cache = Cache(str(root / name), chunk_size=1_000)
        for index in range(4_000):
            cache[index] = {"language": torch.tensor(place)}
        cache.done()
        cache.merge()
    return {name: str(root / name) for name in LANGUAGES}


def seen(stream: CombinedStreamingDataset) -> Counter[str]:
    found: Counter[str] = Counter()
    for place, item in enumerate(stream):
        if place == DRAWS:
            break
        found[LANGUAGES[int(item["language"])]] += 1
    return found


def test_the_module_makes_the_mixture(folders: dict[str, str], tmp_path: Path) -> None:
    paths = {"language": [*folders], "path": [*folders.values()]}
    written("litdata", tmp_path, "mixing.py", paths=paths, seed=3)
    module = loaded(tmp_path / "mixing.py")
    parts = {name: StreamingDataset(path) for name, path in module.PATHS.items()}
    check_shares(seen(module.mixed(parts)), DRAWS)
