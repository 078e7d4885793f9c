"""Tables as other tools really leave them: crashed runs, percent signs, counts beside ratios, files called log.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


LOSSES, RATIOS = [[3.5, 3.25], [3.75, 2.5]], [[0.5, 0.5], [0.25, 0.75]]
MLFLOW = """run_id,experiment_id,status,metrics.eval/loss_en,metrics.eval/loss_de,params.n,params.mix.en,params.mix.de,params.tokens
c0ffee,1,FAILED,,,,,,
a,1,FINISHED,3.5,3.25,97600,0.5,0.5,2000000
b,1,FINISHED,3.75,2.5,97600,0.25,0.75,2000000
"""
WANDB = """"Name","State","n_params","tokens","mix.en","mix.de","eval/loss/en","eval/loss/de"
"a","finished","97600","2000000","0.5","0.5","3.5","3.25"
"b","finished","97600","2000000","0.25","0.75","3.75","2.5"
"c","crashed","97600","","0.25","0.75","","NaN"
"""


def read_as_printed(run: Run, path: Path) -> sm.RunLog:
    """The log that the command gives which `import --show` prints."""
    command = run("import", path, "--show").out.strip().splitlines()[-1]
    goal = path.parent / "as_printed.csv"
    done = run(command.removeprefix("shapleymix ").replace("-o runs.csv", f"-o '{goal}' --force"))
    assert done.code == 0, f"{command}\n{done.err}"
    return sm.read_runs(goal)


def is_the_log(log: sm.RunLog) -> bool:
    found = log.aligned(("en", "de"), ("en", "de"))
    return found.loss.tolist() == LOSSES and found.p.tolist() == RATIOS and set(found.D) == {2e6}


@pytest.mark.parametrize("text", [MLFLOW, WANDB], ids=["MLflow", "W&B"])
def test_a_crashed_run_is_left_out_with_a_note(run: Run, text: str, tmp_path: Path) -> None:
    """One crashed run gave "write 0 for a source not in use", or "D is empty"."""
    path = tmp_path / "runs of theirs.csv"
    path.write_text(text)
    assert is_the_log(read_as_printed(run, path))
    shown = run("import", path, "--show").out.strip().splitlines()[-1]
    assert "left out 1 row without a loss" in run(shown.removeprefix("shapleymix ").partition(" -o ")[0]).err


def test_a_log_of_ours_stays_strict() -> None:
    """Rows without losses are planned runs there; and points to be predicted have none."""
    table = {"run": ["a", "b"], "N": [97600, ""], "D": [2e6, 2e6], "p_en": [1, 1], "loss_en": [3.5, ""]}
    with pytest.raises(DataError, match="N is empty"):
        sm.read_runs(table)
    named = {**table, "N": [97600, 97600]}
    assert len(sm.read_runs(named, map={"run": "run"}, losses="optional")) == 2
    assert len(sm.read_runs(named, map={"run": "run"})) == 1
