"""The five commands of the README on MLflow's CSV of a store; `tests/ecosystem/trackers` runs them on the store."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
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
    shutil.copy(GOLDEN, five.STORE.replace(".db", ".csv"))
    five.write_paths(tmp_path, five.truth()[1])
    commands = [[word.replace(five.STORE, "mlflow.csv") for word in words] for words in five.five_commands()]
    assert [words[0] for words in commands] == ["import", "fit", "optimize", "export", "report"]
    commands[0] += ["--map", "run=tags.mlflow.runName"]  # which a store knows to be the names of its runs
    for words in commands:
        done = run(*words, *FAST.get(words[0], []))
        assert done.code == 0, done.err
    assert five.is_log(sm.read_runs("runs.csv"))
    mixture = json.loads(Path("mixture.json").read_text())
    weights = five.blend(Path("blend.txt").read_text())
    assert weights == pytest.approx(dict(zip(mixture["sources"], mixture["p"], strict=True)))
    assert five.regret(weights) < 0.01
    assert "</html>" in Path("report.html").read_text()


def test_the_commands_are_those_below_the_heading() -> None:
    """Of the README as soon as it has the heading; a page without it shows none of them."""
    page = f"# Any\n```console\n$ shapleymix laws\n```\n## {five.HEADING}\nText.\n```console\n{five.COMMANDS}```\n"
    assert five.shown(page) == five.COMMANDS
    assert five.shown("# Any\n```console\nshapleymix laws\n```\n") == five.COMMANDS
    for name, *words in five.five_commands():
        import_module(f"shapleymix_cli.commands.{name}").command.make_context(name, words)
