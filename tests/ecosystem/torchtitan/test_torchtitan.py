"""torchtitan 0.3: its trainer trains as without the tracker, and phi is that of the naive reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchtitan")

import numpy as np

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
ROUNDING = 1e-5  # torchtitan's weights have single precision
Found = dict[str, dict[str, Any]]


def run(folder: Path, ranks: int) -> list[Found]:
    """What each rank found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    script = str(Path(__file__).with_name("torchtitan_runs.py"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, script, str(folder)], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Found]]:
    """What was found by as many ranks."""
    return {ranks: run(tmp_path_factory.mktemp(f"ranks{ranks}"), ranks) for ranks in (1, 2)}


@pytest.mark.parametrize("name", ["plain", "clipped", "accumulated", "resumed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_trainer_trains_as_ever(ranks: int, name: str, found: dict[int, list[Found]]) -> None:
    for told in (rank[name] for rank in found[ranks]):
        check(told, 4 if name == "resumed" else 3)


def test_replicas_of_shards(found: dict[int, list[Found]]) -> None:
    for rank in found[2]:
        check(rank["hybrid"], 3)


def check(told: dict[str, Any], count: int) -> None:
    assert "crashed" not in told, told["crashed"]
    assert told["worst"] == [], "weights are those of an untracked run, bit for bit"
    assert told["count"] == count
    assert np.abs(np.subtract(told["phi"], told["truth"])).max() < ROUNDING * np.abs(told["truth"]).max()


@pytest.mark.parametrize(
    ("dims", "replayed", "message"),
    [
        ({"pp_enabled": True}, False, "torchtitan's pipeline parallelism is not measured"),
        ({"tp_enabled": True}, False, "torchtitan's tensor parallelism is not measured"),
        ({"cp_enabled": True}, False, "torchtitan's context parallelism is not measured"),
        ({}, True, "a step that is replayed as a CUDA graph cannot be looked at"),
    ],
)
def test_what_is_not_measured_is_refused_by_name(dims: dict[str, bool], replayed: bool, message: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[3] / "adapters"))
    from shapleymix_irds.errors import TrackerError
    from shapleymix_irds.torchtitan import check_trainer

    none = {"pp_enabled": False, "tp_enabled": False, "cp_enabled": False}
    training = SimpleNamespace(disable_cuda_graphs=not replayed)
    trainer: Any = SimpleNamespace(
        parallel_dims=SimpleNamespace(**(none | dims)), config=SimpleNamespace(training=training), loss_fn=None
    )
    with pytest.raises(TrackerError, match=message):
        check_trainer(trainer)
