"""megatron-core 0.16: runs train as without the tracker, and phi is that of the naive reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("megatron.core")

import numpy as np

pytestmark = pytest.mark.ecosystem
EXACT = ("gpt", "tied", "llama", "llama with norms of queries", "packed", "overlapped")  # nothing is clipped
CLIPPED = ("clipped", "per token loss", "data parallel", "data parallel per token loss", "distributed optimizer")
CLOSE, ROUGH = 1e-9, 1e-6  # Megatron's norms have single precision
PARTS = ("gpt", "clipped", "tied", "llama", "packed")
Found = dict[str, dict[str, Any]]


def run(folder: Path, ranks: int) -> list[Found]:
    """What each rank found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    script = str(Path(__file__).with_name("megatron_runs.py"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, script, str(folder)], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(tmp_path_factory.mktemp("one"), 1)[0]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return run(tmp_path_factory.mktemp("two"), 2)


def error(phi: Any, truth: Any) -> float:
    return float(np.abs(np.subtract(phi, truth)).max() / np.abs(truth).max())


def check_weights(told: dict[str, Any]) -> None:
    assert "crashed" not in told, told["crashed"]
    assert told["worst"] == [], "weights are those of an untracked run, bit for bit"


@pytest.mark.parametrize("name", ["gpt", "tied", "llama", "llama with norms of queries", "packed", *CLIPPED[:2]])
def test_one_rank(name: str, alone: Found) -> None:
    check_weights(alone[name])
    assert error(alone[name]["phi"], alone[name]["truth"]) < (CLOSE if name in EXACT else ROUGH)


@pytest.mark.parametrize("name", ["overlapped", "distributed optimizer overlapped", *CLIPPED[2:]])
def test_two_data_parallel_ranks(name: str, together: list[Found]) -> None:
    for told in (rank[name] for rank in together):
        check_weights(told)
        assert error(told["phi"], told["truth"]) < (ROUGH if name in CLIPPED else CLOSE)


@pytest.mark.parametrize("name", PARTS)
def test_two_tensor_parallel_ranks_give_the_values_of_one(name: str, alone: Found, together: list[Found]) -> None:
    for told in (rank[f"tensor parallel {name}"] for rank in together):
        check_weights(told)
        assert error(told["phi"], alone[name]["truth"]) < (ROUGH if name in CLIPPED else CLOSE)


@pytest.mark.parametrize(("name", "rounding"), [("bf16", 0.02), ("fp16", 0.01)])
def test_low_precision(name: str, rounding: float, alone: Found) -> None:
    check_weights(alone[name])
    assert error(alone[name]["phi"], alone["gpt"]["truth"]) < rounding


def test_steps_that_the_scaler_skips_count_for_nothing(alone: Found) -> None:
    check_weights(alone["fp16 overflowing"])
    assert 1 <= alone["fp16 overflowing"]["count"] < 4


@pytest.mark.parametrize("name", ["pipeline", "context", "expert"])
def test_other_parallelism_is_refused_by_name(name: str, together: list[Found]) -> None:
    told = together[0]["refused"]
    assert f"Megatron's {name} parallelism of 2 ranks is not measured" in told[name]
    assert "Megatron's qk_layernorm is not measured under tensor parallelism" in told["tensor"]


@pytest.mark.filterwarnings("ignore")
def test_several_learning_rates_are_refused() -> None:
    from shapleymix_irds.errors import TrackerError
    from shapleymix_irds.megatron import common_rate

    assert common_rate([{"lr": 0.1}, {"lr": 0.1}], 3) == 0.1
    with pytest.raises(TrackerError, match=r"step 3: the optimiser has several learning rates \(0\.1, 0\.2\)"):
        common_rate([{"lr": 0.1}, {"lr": 0.2}], 3)
