"""A pretended trainer, plans for it, and the command line as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from shapleymix.sweeping.games import coalitions
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.plans import Plan

TRAINER = """
import argparse, json, os, pathlib, signal, sys, time

read = argparse.ArgumentParser()
for name in ("mixture", "out", "N", "D", "seed"):
    read.add_argument("--" + name)
read.add_argument("--sleep", type=float, default=0.0)
read.add_argument("--fail", type=int, default=0, help="how often to fail before it works")
read.add_argument("--form", default="jsonl")
given = read.parse_args()
out = pathlib.Path(given.out)
with (out / "starts").open("a") as starts:
    starts.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
began = len((out / "starts").read_text().splitlines())
print("step 1 of 2", flush=True)
if began <= given.fail:
    print("out of memory")
    sys.exit(3)
for step in range(10):  # goes on where it was, as a trainer with checkpoints does
    if (out / f"step-{step}").exists():
        continue
    time.sleep(given.sleep / 10)
    (out / f"step-{step}").touch()
with (out / "ends").open("a") as ends:
    ends.write("x\\n")
pairs = (part.rsplit("=", 1) for part in given.mixture.split(","))
ratios = {name: float(ratio) for name, ratio in pairs}
row = {"run": "any name: 'quoted', \\u00e9", "N": float(given.N), "D": float(given.D)}
row |= {"loss_" + name: 3 - ratio + int(given.seed) / 100 for name, ratio in ratios.items()}
partial = out / "runs.partial"
partial.write_text(json.dumps(row) + "\\n")
partial.rename(out / "runs.jsonl")
"""
"""Takes its time, dies when it is told to, and resumes; losses are 3 - ratio + seed / 100, of languages with tokens."""


def trainer(folder: Path, name: str = "train.py") -> Path:
    """The file of the pretended trainer."""
    path = folder / name
    path.write_text(TRAINER, encoding="utf-8")
    return path


def template(path: Path, *more: str) -> str:
    """The command that starts it."""
    words = "--mixture {mixture} --N {N} --D {D} --seed {seed} --out {out}"
    return f"'{sys.executable}' '{path}' {words} {' '.join(more)}"


def game_plan(path: Path, *more: str, sources: tuple[str, ...] = ("a", "b"), seeds: tuple[int, ...] = (0,)) -> Plan:
    """A plan of all coalitions for that trainer, written beside it as `plan.jsonl`."""
    plan = grid(coalitions(sources), 1000, 2000, seeds=seeds, command=template(path, *more))
    plan.write(path.parent / "plan.jsonl", force=True)
    return plan


def start(
    *words: object, terminal: int | None = None, preexec_fn: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    """The command line as a process; `terminal` is what it has for standard error."""
    root = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(root), str(root / "cli"), str(root / "adapters"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "shapleymix_cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if terminal is None else terminal,
        text=True,
        env=env,
        preexec_fn=preexec_fn,
    )


def lines_of(folder: Path, run: str, name: str) -> list[str]:
    """Lines that a run's program has left in a file of its folder."""
    path = folder / run / "out" / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def expected(plan: Plan) -> dict[str, dict[str, float]]:
    """What each run's log must say of its losses, by its id."""
    return {
        run.id: {name: 3 - ratio + run.seed / 100 for name, ratio in run.mixture.items() if ratio > 0}
        for run in plan.runs
    }


def check_log(path: Path, plan: Plan) -> None:
    """Hold a collected log to the plan: every run once, with its mixture, seed and losses."""
    import shapleymix as sm

    log = sm.read_runs(path)
    assert sorted(log.runs) == sorted(f"{run.name}-{run.id}" for run in plan.runs)
    rows = {run: row for row, run in enumerate(log.runs)}
    for run in plan.runs:
        row = rows[run.label]
        np.testing.assert_allclose(log.p[row], list(run.mixture.values()), atol=1e-9)
        found = dict(zip(log.targets, log.loss[row].tolist(), strict=True))
        wanted = expected(plan)[run.id]
        assert {name for name, loss in found.items() if loss == loss} == set(wanted)
        assert all(abs(found[name] - loss) < 1e-9 for name, loss in wanted.items())
        assert log.seed is not None
        assert log.seed[row] == str(run.seed)


def document(text: str) -> object:
    """The JSON document on standard output."""
    return json.loads(text)


def wait_for(what: Callable[[], object], seconds: float = 30) -> None:
    """Until a condition holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def end_all(launchers: Iterable[subprocess.Popen[str]]) -> None:
    """Kill what is left of the launchers that a test started."""
    for one in launchers:
        if one.poll() is None:
            one.kill()
        one.communicate()
