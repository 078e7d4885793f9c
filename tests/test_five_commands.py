"""The five commands of the README on MLflow's CSV of a store; `tests/ecosystem/trackers` runs them on the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import five_commands as five
import pytest
from cli_tools import Run, runner

import shapleymix as sm

GOLDEN = Path(__file__).with_name("golden") / "mlflow_sweep.csv"
FAST = {"fit": ["--bootstrap", "20", "--folds", "3", "--no-learning-curve"]}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_from_an_export_to_a_blend_and_a_page(run: Run, tmp_path: Path) -> None:
    shutil.copy(GOLDEN, "mlflow.csv")
    five.write_tables(tmp_path)
    for name, *words in five.five_commands():
        if name == "import":  # a store knows the names of its runs, where an export has a column of them
            words = ["mlflow.csv", *words[1:], "--map", "run=tags.mlflow.runName"]
        done = run(name, *words, *FAST.get(name, []))
        assert done.code == 0, done.err
        assert name != "import" or five.is_log(sm.read_runs(tmp_path / "runs.csv"))
    assert five.is_blend(tmp_path)
    assert five.is_page(tmp_path)
