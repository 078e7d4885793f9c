"""A pretended trainer, plans for it, and the command line as a process of its own."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run
from shapleymix_sweep.grids import grid
from shapleymix_sweep.mixtures import coalitions
from shapleymix_sweep.plans import Plan, read_plan

import shapleymix as sm

ROOT = Path(__file__).resolve().parents[1]
TRAINER = """
import argparse, json, os, pathlib, signal, sys, time

read = argparse.ArgumentParser()
for name in ("mixture", "out", "N", "D", "seed"):
    read.add_argument("--" + name)
read.add_argument("--sleep", type=float, default=0.0)
read.add_argument("--fail", type=int, default=0, help="how often to fail before it works")
read.add_argument("--deaf", action="store_true", help="do not end when it is asked to")
given = read.parse_args()
out = pathlib.Path(given.out)
if given.deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with (out / "starts").open("a") as starts:
    starts.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
began = len((out / "starts").read_text().splitlines())
if began <= given.fail:
    print("out of memory")
    sys.exit(3)
for step in range(10):  # continues where it was, as a trainer with checkpoints does
    if (out / f"step-{step}").exists():
        continue
    time.sleep(given.sleep / 10)
    (out / f"step-{step}").touch()
with (out / "ends").open("a") as ends:
    ends.write("x\\n")
pairs = (part.rsplit("=", 1) for part in given.mixture.split(","))
row = {"run": "any", "N": float(given.N), "D": float(given.D)}
row |= {"loss_" + name: 3 - float(ratio) + int(given.seed) / 100 for name, ratio in pairs}
(out / "runs.partial").write_text(json.dumps(row) + "\\n")
(out / "runs.partial").rename(out / "runs.jsonl")
"""
"""Takes its time, fails as often as it is told to, and resumes; a loss is 3 - ratio + seed / 100."""


def command_of(folder: Path, *more: str) -> str:
    """The command that starts the trainer, whose file is written."""
    path = folder / "train.py"
    path.write_text(TRAINER, encoding="utf-8")
    words = "--mixture {mixture} --N {N} --D {D} --seed {seed} --out {out}"
    return f"'{sys.executable}' '{path}' {words} {' '.join(more)}"


def game_plan(folder: Path, *more: str, sources: tuple[str, ...] = ("a", "b"), seeds: tuple[int, ...] = (0,)) -> Plan:
    """A plan of all coalitions for that trainer, written as `plan.jsonl`."""
    plan = grid(coalitions(sources), 1000, 2000, seeds=seeds, command=command_of(folder, *more))
    plan.write(folder / "plan.jsonl", force=True)
    return read_plan(folder / "plan.jsonl")


def paths() -> str:
    """Where processes find this checkout."""
    folders = (ROOT, ROOT / "cli", ROOT / "adapters", os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(map(str, folders))


def start(*words: object, before: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    """The command line as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "shapleymix_cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths(), "OMP_NUM_THREADS": "1"},
        preexec_fn=before,
    )


LOCKLESS = """
import errno, fcntl
flock = fcntl.flock
def refused(file, how):
    if not file.name.startswith("/tmp/shapleymix-"):
        raise OSError(errno.ENOSYS, "Function not implemented")
    flock(file, how)
fcntl.flock = refused
"""
"""Makes flock an error, as on Lustre without that option, but for locks on the host's own disk."""


def without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the locks of file systems away, here and in processes that start later."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LOCKLESS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr("fcntl.flock", fcntl.flock)  # is undone
    exec(LOCKLESS, {})


def counts(plan: Plan, name: str) -> list[int]:
    """How many lines the program of each run has left in a file."""
    files = [plan.place(index) / "out" / name for index in range(len(plan))]
    return [len(path.read_text().splitlines()) if path.exists() else 0 for path in files]


def programs(plan: Plan) -> list[int]:
    """Process ids of the trainers that run now."""
    return running(Path(plan.file).with_name("train.py"))


def running(word: object) -> list[int]:
    """Process ids of the programs whose command line holds a word."""
    found = subprocess.run(["pgrep", "-f", str(word)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def check_log(path: Path, plan: Plan) -> None:
    """Hold a collected log to the plan: every run once, with its mixture, seed and losses."""
    log = sm.read_runs(path)
    assert sorted(log.runs) == sorted(run.label for run in plan.runs)
    for run in plan.runs:
        row = log.runs.index(run.label)
        np.testing.assert_allclose(log.p[row], list(run.mixture.values()), atol=1e-9)
        wanted = [3 - ratio + run.seed / 100 if ratio else np.nan for ratio in run.mixture.values()]
        np.testing.assert_allclose(log.loss[row, [log.targets.index(name) for name in run.mixture]], wanted)
        assert log.seed[row] == str(run.seed)


def wait_for(what: Callable[[], object], seconds: float = 30) -> None:
    """Until a condition holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def written(run: Run, engine: str, values: str, *words: object) -> str:
    """The file with which an engine trains `plan.jsonl`."""
    found = run("launch", "plan.jsonl", "--engine", engine, *(["--set", values] if values else []), *words)
    assert found.code == 0, found.err
    return found.out


def own_program(folder: Path) -> str:
    """A search path on which `shapleymix` is this checkout's."""
    program = folder / "bin" / "shapleymix"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\nPYTHONPATH='{paths()}' exec '{sys.executable}' -m shapleymix_cli \"$@\"\n")
    program.chmod(0o755)
    return os.pathsep.join([str(program.parent), os.environ["PATH"]])
