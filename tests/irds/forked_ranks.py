"""Runs of a few ranks forked off one process that has torch loaded, since starting it takes longer than such a run.

Reads a line of JSON for each run from standard input, {"ranks": 2, "arguments": [...], "err": PATH, "slow": SECONDS,
"full": RANK}; answers with the ranks' process ids, and when they have ended with their exit codes. A checkpoint takes
`slow` seconds to write; the disk of rank `full` takes none but the first two.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "adapters")]

import shapleymix_irds.tracker  # noqa: E402
import shapleymix_irds.train.launch  # noqa: E402, F401
import torch.distributed.fsdp  # noqa: E402, F401
from shapleymix_irds.train.app import main  # noqa: E402
from shapleymix_irds.train.saving import checkpoint  # noqa: E402


def hinder(rank: int, slow: float, full: int | None) -> None:
    """Make this rank's disk slow, or full."""
    write = checkpoint.write_blocks
    written: list[Path] = []

    def hindered(path: Path, *rest: Any) -> str:
        written.append(path)
        if rank == full and len(written) > 2:
            raise OSError(28, "No space left on device")
        time.sleep(slow / 2)
        found = write(path, *rest)
        time.sleep(slow / 2)
        return found

    checkpoint.write_blocks = hindered


def fork(rank: int, port: int, order: dict[str, Any]) -> int:
    """Start a rank; its process id."""
    if pid := os.fork():
        return pid
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(order["ranks"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with open(order["err"], "a") as stream:
        os.dup2(stream.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    hinder(rank, order.get("slow", 0.0), order.get("full"))
    code = 70
    try:
        code = main(order["arguments"])
    finally:
        sys.stderr.flush()
        os._exit(code)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


if __name__ == "__main__":
    for line in sys.stdin:
        order, port = json.loads(line), free_port()
        pids = [fork(rank, port, order) for rank in range(order["ranks"])]
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
