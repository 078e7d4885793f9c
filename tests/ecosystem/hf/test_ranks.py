"""Trainers on two ranks, under DDP and FSDP2: each case trains as without the tracker, or is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

SCRIPT = Path(__file__).with_name("hf_ranks.py")
STEPS = {"trl": 4, "trl packed": 2}
REFUSED = {"trl fsdp": "parameters used in calls that are not covered: lm_head.weight"}
CASES = (
    "ddp",
    "ddp with means of ranks",
    "ddp with checkpointing",
    "ddp resumed",
    "fsdp",
    "fsdp resumed",
    "trl",
    "trl packed",
    "trl fsdp",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case on either rank."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "CI": "1"}
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder)], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_a_case_trains_as_without_the_tracker_or_is_refused_by_name(case: str, found: list[dict[str, Any]]) -> None:
    for rank in found:
        result = rank[case]
        assert "crashed" not in result, result["crashed"]
        if case in REFUSED:
            assert REFUSED[case] in result["refused"]
            continue
        assert "refused" not in result, result["refused"]
        assert result["weights"] == 1.0
        assert result["phi"] < (1e-12 if "resumed" in case else 1e-4), "in float32"
        assert result["steps"] == STEPS.get(case, 4)
        assert result.get("shards", 1) > 0


def test_every_case_is_looked_at(found: list[dict[str, Any]]) -> None:
    assert set(found[0]) == set(CASES)
