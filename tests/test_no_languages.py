"""Averages, totals, auxiliary losses and steps are never taken for languages or tokens without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.tables.examining import examined
from shapleymix.tables.importing.summaries import summaries

ROWS = ((0.25, 0.75, 3.5, 2.5), (0.5, 0.5, 3.0, 3.0), (0.75, 0.25, 2.5, 3.5))
NAMED = {"run": "Name", "N": "params", "D": "tokens", "p": "w_{lang}", "loss": "eval/loss/{lang}"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def table(**more: object) -> dict[str, Any]:
    """An export of percentages, with columns after those of the languages."""
    en, de, loss_en, loss_de = (list(column) for column in zip(*ROWS, strict=True))
    head = {"Name": ["a", "b", "c"], "State": ["finished"] * 3, "params": [97600] * 3, "tokens": [2e6] * 3}
    ratios = {"w_en": [100 * one for one in en], "w_de": [100 * one for one in de]}
    extra = {name.replace("__", "/"): [value] * 3 for name, value in more.items()}
    return head | ratios | {"eval/loss/en": loss_en, "eval/loss/de": loss_de} | extra


def written(path: Path, columns: dict[str, Any]) -> Path:
    rows = [columns, *zip(*columns.values(), strict=True)]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    return path


def command_of(run: Run, path: Path, *more: object) -> str:
    """The command that `--show` prints, writing beside the table."""
    shown = run("import", path, "--show", *more).out.strip().splitlines()[-1]
    return shown.removeprefix("shapleymix ").replace("-o runs.csv", f"-o {path.parent}/runs.csv")


WITH_SUMMARIES = {
    "averages": table(eval__loss__mean=3.0, eval__loss__std=0.1, eval__loss__en_std=0.2),
    "weight decay": table(w_decay=0.1, w_total=100),
}


@pytest.mark.parametrize("name", WITH_SUMMARIES)
def test_the_printed_command_ignores_what_is_no_language(run: Run, name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "wandb.csv", WITH_SUMMARIES[name])
    assert run(command_of(run, path)).code == 0
    log = sm.read_runs(tmp_path / "runs.csv")
    assert (log.sources, log.targets) == (("en", "de"), ("en", "de"))
    assert log.p.tolist() == [list(row[:2]) for row in ROWS]
    assert run("import", path, "--write-map", tmp_path / "map.toml").code == 0
    assert sm.read_runs(tmp_path / "map.toml").targets == ("en", "de")


def test_a_pattern_that_meets_an_average_is_refused_by_name() -> None:
    columns = table(eval__loss__mean=3.0, eval__loss__aux=0.1)
    with pytest.raises(DataError, match="'mean' seems to be an average, a total or the like") as caught:
        sm.read_runs(columns, map=NAMED, ratio_unit="percent")
    assert 'map="ignore=eval/loss/mean,eval/loss/aux"' in str(caught.value)
    ignoring = {**NAMED, "ignore": "eval/loss/mean,eval/loss/aux"}
    assert sm.read_runs(columns, map=ignoring, ratio_unit="percent").targets == ("en", "de")


def test_a_language_that_is_called_so_is_named() -> None:
    """Minangkabau is `min`, Allar is `all`."""
    columns = table(eval__loss__min=3.0)
    listed = {**NAMED, "loss": {name: f"eval/loss/{name}" for name in ("en", "min")}}
    assert sm.read_runs(columns, map=listed, ratio_unit="percent").targets == ("en", "min")
    known = {**NAMED, "languages": {"min": "min"}}
    assert sm.read_runs(columns, map=known, ratio_unit="percent").targets == ("en", "de", "min")
    assert examined(columns, map=known).keywords["map"] == known
    renamed = {**NAMED, "languages": {"min": "Minangkabau"}}
    assert sm.read_runs(columns, map=renamed, ratio_unit="percent").targets == ("en", "de", "Minangkabau")


def test_one_pattern_is_not_of_ratios_and_losses() -> None:
    """The word `weight` before the losses made them ratios too."""
    found = examined({"N": [1e6], "D": [1e7], "weight/loss_en": [3.0], "weight/loss_de": [2.0]})
    assert found.keywords["map"] == {"loss": "weight/loss_{lang}", "p": "...{lang}"}


def test_names_that_are_summaries() -> None:
    assert summaries(["en", "lb", "lr", "zh-min", "Z_loss", "weight decay", "other"], {}) == [
        "lr",
        "Z_loss",
        "weight decay",
    ]
    assert summaries(["en", "en.min", "mean/en", "de_std", "std_fr"], {}) == ["en.min", "mean/en"]


LONG = {
    "run": ["a", "a", "a", "b", "b", "b"],
    "N": [97600] * 6,
    "D": [2e6] * 6,
    "language": ["en", "de", "avg"] * 2,
    "ratio": [0.25, 0.75, None, 0.5, 0.5, None],
    "loss": [3.5, 2.5, 3.0, 3.0, 2.0, 2.5],
}


def test_an_average_among_the_rows_of_a_long_table(run: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'avg' seems to be an average") as caught:
        sm.read_runs(LONG, long=True)
    assert 'map="ignore=avg"' in str(caught.value)
    found = sm.read_runs(LONG, long=True, map=["ignore=avg"])
    assert found.targets == ("en", "de")
    assert "left out 2 rows of languages that are ignored" in found.notices
    path = tmp_path / "long.json"
    path.write_text(json.dumps(LONG))
    assert run(command_of(run, path)).code == 0
    assert sm.read_runs(tmp_path / "runs.csv").loss.tolist() == [[3.5, 2.5], [3.0, 2.0]]


def test_a_log_of_ours_is_read_as_it_is_written_with_a_note() -> None:
    log = sm.read_runs({"N": [1e6] * 2, "D": [1e7] * 2, "p_en": [1, 1], "loss_en": [3, 2], "loss_mean": [3, 2]})
    assert log.targets == ("en", "mean")
    assert [one for one in log.notices if "'mean' is taken for a language" in one and "ignore loss_mean (map)" in one]
    assert not [one for one in sm.read_runs({"N": [1e6], "D": [1e7], "loss": [3]}).notices if "taken for" in one]


def state(path: Path, *more: str) -> Path:
    """The state of a trainer that measured losses of two languages, and some more."""
    names = ("en", "de", *more)
    history = [{"step": step, **{f"eval_{name}_loss": 3 - step / 1000 for name in names}} for step in (100, 200)]
    path.mkdir()
    (path / "trainer_state.json").write_text(json.dumps({"global_step": 200, "log_history": history}))
    return path / "trainer_state.json"


def test_auxiliary_losses_and_steps_of_a_trainer(run: Run, tmp_path: Path) -> None:
    states = [state(tmp_path / "r1"), state(tmp_path / "r2", "mean", "aux")]
    design = tmp_path / "design.csv"
    design.write_text("run,N,p_en,p_de\nr1,97600,.5,.5\nr2,97600,.25,.75\n")
    joined = ("import", *states, "--join", design)
    steps = run(*joined, "--map", "D=step")
    assert steps.code == 1
    assert "'step' counts steps by its name, and D counts tokens" in steps.err
    assert "--map tokens_per_step=" in steps.err.replace('"', "")
    told = run(*joined, "--map", "tokens_per_step=1k")
    assert "'aux' seems to be an average" in told.err
    ignored = ("--map", "ignore=eval_mean_loss,eval_aux_loss")
    found = run(*joined, "--map", "tokens_per_step=1k", *ignored, "--json").document
    assert (found["targets"], found["D"]) == (["en", "de"], [1e5, 2e5])
    assert run(*joined, "--map", "D=step", "--map", "tokens_per_step=1", *ignored).code == 0
    shown = command_of(run, states[1])
    assert "'ignore=eval_mean_loss,eval_aux_loss'" in shown
    assert "'D=step'" in shown
    assert "tokens_per_step=..." in shown
