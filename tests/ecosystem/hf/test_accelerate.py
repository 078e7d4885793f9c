"""A plain loop with `Accelerator` on one rank and on two: the same weights, the values of the naive reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

from accelerate_ranks import compared

SCRIPT = Path(__file__).with_name("accelerate_ranks.py")


def test_a_plain_loop_trains_as_without_the_tracker() -> None:
    assert compared() == {"weights": 1.0, "phi": pytest.approx(0, abs=1e-4), "steps": 6.0}


def test_two_ranks_do_so_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(
        [*command, str(SCRIPT), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for rank in range(2):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert found == {"weights": 1.0, "phi": pytest.approx(0, abs=1e-4), "steps": 6.0}
