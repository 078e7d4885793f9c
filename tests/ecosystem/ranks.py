"""A script of a trainer's family on one or two ranks, and what each rank found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def found_by(ranks: int, script: Path, folder: Path) -> list[dict[str, dict[str, Any]]]:
    """What `torchrun SCRIPT FOLDER` leaves in rank0.json, rank1.json: what became of each case."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "ACCELERATE_USE_CPU": "1"}
    words = [*command, str(script), str(folder)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def check(found: Iterable[dict[str, dict[str, Any]]], rounding: float) -> None:
    """Every case on every rank: weights bit for bit those of an untracked run, phi that of the naive reference."""
    for rank in found:
        for name, told in rank.items():
            assert told["worst"] == [], f"{name}: weights differ from those of an untracked run"
            error = np.abs(np.subtract(told["phi"], told["truth"])).max() / np.abs(told["truth"]).max()
            assert error < rounding, f"{name}: phi differs from the naive reference by {error:.2g}"
