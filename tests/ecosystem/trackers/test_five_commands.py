"""From a store that MLflow wrote to a Megatron blend and a report, by the five commands of the README alone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import five_commands as five
import pytest

import shapleymix as sm


def write_store(folder: Path) -> None:
    """`mlflow.db`: a run for each of the truth, with its params, and metrics that were logged as it trained."""
    mlflow = pytest.importorskip("mlflow")
    log = five.truth()[1]
    mlflow.set_tracking_uri(f"sqlite:///{folder / five.STORE}")
    mlflow.set_experiment("mixtures")
    for row, name in enumerate(log.runs):
        with mlflow.start_run(run_name=name):
            ratios = {f"p_{lang}": float(log.p[row, place]) for place, lang in enumerate(log.sources)}
            mlflow.log_params({"n_params": int(log.N[row]), "lr": 3e-4, **ratios})
            mlflow.log_metric("train/loss", float(log.loss[row].mean()) + 0.1, step=900)
            losses = {f"eval/loss/{lang}": float(log.loss[row, place]) for place, lang in enumerate(log.targets)}
            mlflow.log_metrics({"tokens": float(log.D[row]), **losses}, step=1000)


def call(words: list[str], folder: Path) -> str:
    """What the program prints, as in a shell of its own."""
    done = subprocess.run([sys.executable, "-m", "shapleymix_cli", *words], cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_from_a_store_to_a_blend_and_a_page(tmp_path: Path) -> None:
    write_store(tmp_path)
    five.write_tables(tmp_path)
    commands = five.five_commands()
    shown = shlex.split(call(["import", five.STORE, "--show"], tmp_path).strip().splitlines()[-1])[1:]
    assert sorted(shown) == sorted(commands[0]), "the first command is what --show prints"
    for words in commands:
        call(words, tmp_path)
    assert five.is_log(sm.read_runs(tmp_path / "runs.csv"))
    assert five.is_blend(tmp_path)
    assert five.is_page(tmp_path)
