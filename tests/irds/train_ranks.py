"""Several runs, one after the other, by the same two ranks: `torchrun ... train_ranks.py FOLDER`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

from shapleymix_irds.train.app import leave, main  # noqa: E402

from tests.irds.training import QUICK  # noqa: E402

RUNS = {
    "pair": (),
    "fsdp": ("--parallel", "fsdp", "--micro-batch", "2"),
    "hsdp": ("--parallel", "hsdp", "--shard-size", "1", "--recompute"),
}

if __name__ == "__main__":
    for name, more in RUNS.items():
        if code := main([*QUICK, "--out", str(Path(sys.argv[1]) / name), *more]):
            leave(code)
        gc.collect()
    leave(0)
