"""How the tests start training runs: in this process, or in one that they may kill."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shapleymix_irds.train.app import main

RESULTS = ("runs.csv", "sv.csv", "sv_raw.csv")
QUICK = """--corpus toy --toy-size 80k --val-share .15 --test-share .15 --languages toy_a,toy_b,toy_c --layers 1
 --hidden 16 --ffn 24 --heads 2 --seq 32 --batch 7 --tokens 2688 --test-windows 8 --irds-pool 8 --irds-val 2
 --irds-every 2 --checkpoint-every 4 --log-every 1 --eval-at 1k --eval-untrained""".split()  # noqa: SIM905
STEPS = 12
TIMES = ("tokens_per_second", "peak_memory")  # of a line of metrics.jsonl


def train(out: Path, *more: str) -> int:
    """Run to the end in this process; the exit code."""
    return main([*QUICK, "--out", str(out), *more])


def start(out: Path) -> BaseProcess:
    """Start a run in a process of its own, a fork of one that has imported PyTorch for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scipy.optimize", "scipy.stats", "polars", "torch.distributed.fsdp"])
    run = context.Process(target=_run, args=(out,))
    run.start()
    return run


def _run(out: Path) -> None:
    import torch

    torch.set_num_threads(1)
    sys.exit(train(out))


def launched(out: Path, *words: str, ranks: int = 0, **env: str) -> subprocess.Popen[bytes]:
    """Start a script with its arguments; if `ranks` is given under torchrun, which starts them again once."""
    launcher = [sys.executable]
    if ranks:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc-per-node={ranks}", "--max-restarts=1"]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **env}
    with out.with_suffix(".err").open("a") as stream:
        return subprocess.Popen([*launcher, *words], env=settings, stderr=stream)


def on_two_ranks(script: str, folder: Path) -> list[dict[str, Any]]:
    """What either rank of a script beside this one has written; without torchrun, which is a third process."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    words = [str(Path(__file__).with_name(script)), str(folder)]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [launched(folder / f"rank{rank}", *words, RANK=str(rank), **group) for rank in range(2)]
    codes = [one.wait(timeout=400) for one in ranks]
    assert codes == [0, 0], "".join(said(folder / f"rank{rank}")[-4000:] for rank in range(2))
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def said(out: Path) -> str:
    """What a run has said so far."""
    return out.with_suffix(".err").read_text()


def wait_for_step(run: BaseProcess, out: Path, step: int, seconds: float = 120) -> None:
    """Until the run has logged `step`; fails if it ends before."""
    limit = time.monotonic() + seconds
    while step not in steps(out):
        assert run.is_alive()
        assert time.monotonic() < limit, "the run is too slow"
        time.sleep(0.002)


def steps(out: Path) -> list[int]:
    """The steps in the metrics of a run, without a line that is being written."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


def results(out: Path) -> dict[str, bytes]:
    """The bytes of a run's results."""
    return {name: (out / name).read_bytes() for name in RESULTS if (out / name).exists()}


def tree(out: Path) -> dict[str, bytes]:
    """The bytes of every file of a run, by its name; of metrics.jsonl without times."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    lines = (json.loads(line) for line in files["metrics.jsonl"].splitlines())
    files["metrics.jsonl"] = "\n".join(json.dumps({**line, **dict.fromkeys(TIMES)}) for line in lines).encode()
    return files
