"""Several runs, one after the other, by the same two ranks: `torchrun --max-restarts=1 ... train_ranks.py FOLDER`.

The second rank is killed in one of them, and asked to stop in another; the last is refused.
"""

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

from shapleymix_irds.train.app import leave, main  # noqa: E402
from shapleymix_irds.train.loop import Run  # noqa: E402

from tests.irds.training import QUICK  # noqa: E402

RUNS = {
    "pair": (), "killed": (), "fsdp": ("--parallel", "fsdp", "--micro-batch", "2"),
    "hsdp": ("--parallel", "hsdp", "--shard-size", "1", "--recompute"), "stopped": ("--parallel", "fsdp"),
    "refused": ("--micro-batch", "1"),
}  # fmt: skip
STRUCK = {"killed": (signal.SIGKILL, 6), "stopped": (signal.SIGTERM, 5)}


def strike(out: Path, plain: Any = Run._backward) -> None:
    """Let a signal reach the second rank in a step of a run, once."""

    def backward(self: Run, pieces: Any) -> Any:
        if os.environ["RANK"] == "1" and self.step == step and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signum)
        return plain(self, pieces)

    (signum, step), mark = STRUCK.get(out.name, (0, -1)), out.with_suffix(".struck")
    Run._backward = backward


if __name__ == "__main__":
    for name, more in RUNS.items():
        strike(out := Path(sys.argv[1]) / name)
        if (code := main([*QUICK, "--out", str(out), *more])) != (128 + signal.SIGTERM if name == "stopped" else 0):
            leave(code)
        gc.collect()
