"""LitData 0.2: a CombinedStreamingDataset, told by an export, draws what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("litdata")

import torch
from blends import LANGUAGES, RATIOS, check_shares, loaded, written
from litdata import CombinedStreamingDataset, StreamingDataset
from litdata.streaming.cache import Cache

import shapleymix as sm

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


def test_the_keywords_do_as_the_module(folders: dict[str, str]) -> None:
    found = sm.export(RATIOS, "litdata", seed=3)
    parts = [StreamingDataset(folders[name]) for name in found.names]
    check_shares(seen(CombinedStreamingDataset(parts, **found.config)), DRAWS)


def test_the_default_of_the_package_takes_no_weights(folders: dict[str, str]) -> None:
    """Why iterate_over_all is written."""
    parts = [StreamingDataset(folders[name]) for name in LANGUAGES]
    with pytest.raises(ValueError, match="iterate_over_all"):
        CombinedStreamingDataset(parts, weights=[RATIOS[name] for name in LANGUAGES])
