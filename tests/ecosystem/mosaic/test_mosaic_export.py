"""MosaicML Streaming 0.13: a StreamingDataset of exported streams draws what the mixture says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("streaming")

import yaml
from blends import LANGUAGES, check_shares, written
from known_fits import KnownFit
from shapleymix_io import export
from streaming import MDSWriter, Stream, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

import shapleymix as sm

pytestmark = pytest.mark.ecosystem
TOKENS = 64
SAMPLES = 10_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Samples of each language, all of one length, of some languages fewer than the run sees."""
    clean_stale_shared_memory()
    root = tmp_path_factory.mktemp("streams")
    for place, name in enumerate((*LANGUAGES, "ja")):
        with MDSWriter(out=str(root / name), columns={"language": "str"}) as writer:
            for _ in range(1_000 * (place + 1)):
                writer.write({"language": name})
    return {name: str(root / name) for name in (*LANGUAGES, "ja")}


def dataset_of(config: dict) -> StreamingDataset:
    streams = [Stream(**one) for one in config["streams"].values()]
    rest = {name: value for name, value in config.items() if name != "streams"}
    return StreamingDataset(streams=streams, batch_size=1, shuffle=True, num_canonical_nodes=1, **rest)


def test_the_streams_make_the_mixture(folders: dict[str, str], tmp_path: Path) -> None:
    paths = {"language": [*folders], "path": [*folders.values()]}
    found = written("mosaic", tmp_path, "mix.yaml", paths=paths, D=SAMPLES * TOKENS, mean_tokens=TOKENS, seed=7)
    config = yaml.safe_load((tmp_path / "mix.yaml").read_text())
    assert config == found.config
    assert config["epoch_size"] == SAMPLES
    dataset = dataset_of(config)
    assert len(dataset) == SAMPLES
    seen = Counter(sample["language"] for sample in dataset)
    assert seen.total() == SAMPLES
    check_shares({name: count * TOKENS for name, count in seen.items()})


def test_both_phases_of_a_begun_run(folders: dict[str, str]) -> None:
    """The datasets of llm-foundry's schedule draw the whole mixture together, each as many tokens as it lasts."""
    best = sm.optimize(
        KnownFit(), "1B", SAMPLES * TOKENS, after="en=0.75,de=0.25", trained=SAMPLES * TOKENS / 2, floors="fi=0.1"
    )
    paths = dict(zip(best.sources, list(folders.values()), strict=False))
    config = export(best, "mosaic", paths=paths, mean_tokens=TOKENS, batch_tokens=TOKENS).config
    (later,) = config["callbacks"]["curriculum_learning"]["schedule"]
    seen: Counter[str] = Counter()
    for duration, one in (
        (config["callbacks"]["curriculum_learning"]["duration"], config["train_loader"]["dataset"]),
        (later["duration"], later["dataset"]),
    ):
        clean_stale_shared_memory()
        dataset = dataset_of(one)
        assert len(dataset) * TOKENS == int(duration.removesuffix("tok"))
        seen += Counter(sample["language"] for sample in dataset)
    names = {Path(path).name: name for name, path in paths.items()}
    shares = dict.fromkeys(best.sources, 0.0) | {names[name]: count / SAMPLES for name, count in seen.items()}
    assert shares == pytest.approx(best.mixture, abs=2e-3)
