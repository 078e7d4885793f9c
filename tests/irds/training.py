"""How the tests start training runs: in this process, or in one that they may kill."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from shapleymix_irds.train.app import main
from shapleymix_irds.train.showing.measured import Measured

SCRIPT = Path(__file__).resolve().parents[2] / "adapters" / "irds_train.py"
RESULTS = ("runs.csv", "sv.csv", "sv_raw.csv")
QUICK = """--corpus toy --toy-size 80k --val-share .15 --test-share .15 --languages a,b,c --layers 1 --hidden 16
 --ffn 24 --heads 2 --seq 32 --batch 7 --tokens 2688 --test-windows 8 --irds-pool 8 --irds-val 2 --irds-every 2
 --checkpoint-every 4 --log-every 1 --eval-at 1k --eval-untrained""".split()  # noqa: SIM905
STEPS = 12


def train(out: Path, *more: str) -> int:
    """Run to the end in this process; the exit code."""
    return main([*QUICK, "--out", str(out), *more])


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def start(out: Path, *more: str, ranks: int = 0, restarts: int = 0) -> subprocess.Popen[bytes]:
    """Start a run of its own; under torchrun if `ranks` is given."""
    launcher = [sys.executable, str(SCRIPT)]
    if ranks:
        launcher = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", str(SCRIPT)),
        ]
    command = [*launcher, *QUICK, "--out", str(out), *more]
    with out.with_suffix(".err").open("a") as stream:
        return subprocess.Popen(command, env=environment(), stderr=stream)


def train_several(outs: dict[Path, tuple[str, ...]], ranks: int) -> None:
    """Run to the end under one torchrun: a folder and its further arguments each."""
    cases = [[*QUICK, "--out", str(out), *more] for out, more in outs.items()]
    folder = Path(__file__).resolve().parent
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *launcher, str(folder / "train_many.py"), json.dumps(cases)]
    places = os.pathsep.join(map(str, (SCRIPT.parent, SCRIPT.parents[1])))
    found = {**environment(), "PYTHONPATH": places}
    done = subprocess.run(command, env=found, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def said(out: Path) -> str:
    """What a run has said so far."""
    return out.with_suffix(".err").read_text()


def wait_for_step(run: subprocess.Popen[bytes], out: Path, step: int, seconds: float = 120) -> None:
    """Until the run has logged `step`; fails if it ends before."""
    limit = time.monotonic() + seconds
    while reached(out) < step:
        assert run.poll() is None, said(out)
        assert time.monotonic() < limit, "the run is too slow"
        time.sleep(0.002)


def reached(out: Path) -> int:
    """The last step in the metrics of a run."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        return json.loads(lines[-1])["step"] if lines else 0
    except ValueError:
        return 0


def results(out: Path) -> dict[str, bytes]:
    """The bytes of a run's results."""
    return {name: (out / name).read_bytes() for name in RESULTS if (out / name).exists()}


def measured(count: int, **more: Any) -> Measured:
    """A matrix of some languages, always the same."""
    draw = np.random.default_rng(0)
    values = 0.5 * draw.random((count, count)) - 0.1 + np.eye(count)
    names = tuple(f"l{k}" for k in range(count))
    errors = 0.1 * np.random.default_rng(1).random((count, count))
    ratios = 0.1 * draw.random(count)
    found = Measured(names, values, errors, True, ratios, evaluations=29, every=5, overhead=0.127)
    return dataclasses.replace(found, **more)


TIMES = ("tokens_per_second", "mfu", "peak_memory", "irds_overhead")  # of a line of metrics.jsonl


def tree(out: Path) -> dict[str, bytes]:
    """The bytes of every file of a run, by its name; of metrics.jsonl without times."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    if lines := files.get("metrics.jsonl"):
        plain = ({**json.loads(line), **dict.fromkeys(TIMES)} for line in lines.splitlines())
        files["metrics.jsonl"] = "\n".join(map(json.dumps, plain)).encode()
    return files


def sign(folder: Path) -> None:
    """Checksums anew, as whoever wants a file to be read would make them."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text("".join(lines))
