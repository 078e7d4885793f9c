"""A game of two languages, planned, trained by the script that sweeps start by default, killed, resumed, and solved."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from cli_tools import Run
from shapleymix_sweep.grids import DEFAULT
from shapleymix_sweep.plans import read_plan
from sweep_tools import start, wait_for

import shapleymix as sm

pytest.importorskip("torch")


SMALL = "--layers 1 --hidden 16 --ffn 32 --heads 2 --toy-size 40k --batch 8 --seq 64 --test-windows 16"


def test_a_game_is_trained_killed_resumed_and_solved(run: Run, tmp_path: Path):
    script = Path(__file__).resolve().parents[2] / "adapters" / "irds_train.py"
    command = (
        DEFAULT.replace("shapleymix-irds train", f"'{sys.executable}' '{script}'") + f" {SMALL} --checkpoint-every 5"
    )
    path = tmp_path / "game.jsonl"
    how = ("--corpus", "toy", "--command", command, "-o", path)
    made = run("plan", "game", "--sources", "toy_a,toy_b", "-N", "tiny=2576", "-D", "20k", *how)
    assert made.code == 0, made.err
    plan = read_plan(path)
    launcher = start("launch", path, "--jobs", 1)
    first = tmp_path / "game-sweep" / plan.runs[0].id / "out" / "checkpoints"
    wait_for(first.is_dir, 120)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=120)
    assert launcher.returncode == 130
    assert "3 of 3 runs finished" in run("launch", path, "--jobs", 1).out
    assert run("collect", path, "-o", tmp_path / "log.csv", "--strict").code == 0
    log = sm.read_runs(tmp_path / "log.csv")
    assert (log.D > 0).sum() == 3
    assert (log.D == 0).sum() == 1, "all runs of one seed begin as the same model"
    values = sm.shapley_values(log)
    assert values.sv.shape == (2, 2)
    for one in plan.runs:
        metrics = (tmp_path / "game-sweep" / one.id / "out" / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in metrics]
        assert len(steps) == len(set(steps)), "no step is twice"
    assert os.path.getsize(tmp_path / "game-sweep" / plan.runs[0].id / "log.txt") > 0
