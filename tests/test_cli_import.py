"""`shapleymix import` and its switches, which every command that reads a log takes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from cli_tools import Run, runner

import shapleymix as sm

SWITCHES = ("--map", "--long", "--join", "--unit", "--bytes-per-token", "--ratio-unit", "--sep", "--decimal")
READERS = ("fit", "compare", "evaluate", "predict", "shapley", "transfer", "plan mixtures", "plot fit")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def tidy(fixtures: Path, tmp_path: Path) -> Path:
    """The example log as a tidy table of percentages and perplexities, with decimal commas."""
    log = sm.read_runs(fixtures / "multilingual5_runs.csv")
    rows = [
        {"run": log.runs[row], "N": log.N[row], "D": log.D[row], "language": name, "ratio": 100 * log.p[row, place]}
        | {"loss": 2.718281828459045 ** log.loss[row, place]}
        for row in range(len(log))
        for place, name in enumerate(log.sources)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "tidy.csv", separator=";", decimal_comma=True)
    return tmp_path / "tidy.csv"


TIDY = ("--long", "--unit", "perplexity", "--ratio-unit", "percent")
QUICK = ("--law", "chinchilla", "--bootstrap", 0, "--folds", 0, "--no-learning-curve", "--json")


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_reads_a_log_takes_the_switches(run: Run, command: str) -> None:
    told = run(f"{command} --help").out
    assert [switch for switch in SWITCHES if f"  {switch} " not in told] == []
    assert "How LOG is written:" in told


def test_the_same_log_gives_the_same_fit(run: Run, fixtures: Path, tidy: Path) -> None:
    wanted = run("fit", fixtures / "multilingual5_runs.csv", *QUICK).document
    found = run("fit", tidy, *TIDY, *QUICK).document
    for target, scores in wanted["fitted"]["targets"].items():
        assert found["fitted"]["targets"][target]["PE"] == pytest.approx(scores["PE"], rel=1e-6)


def test_a_hint_names_flags(run: Run, tidy: Path) -> None:
    found = run("fit", tidy, "--long", "--unit", "perplexity", *QUICK)
    assert found.code == 1
    assert found.document["error"]["hint"] == "the ratios are percentages: read them with --ratio-unit percent"


WANDB = """"Name","State","Notes","Runtime","params","w_en","w_de","eval/loss/en","eval/loss/de","train/loss","tokens"
"mix-01","finished","-","3600","97600","50","50","3.5","3.25","3.1","2000000"
"mix-02","finished","-","3610","97600","25","75","3.75","2.5","3.0","2000000"
"""
PLAIN = "run,N,D,p_en,p_de,{0},{1}\na,97600,2M,.5,.5,3.5,3.25\nb,97600,2M,.25,.75,3.75,2.5\n"
TRIES = {
    "W&B": WANDB,
    "tidy": "run,N,D,language,ratio,loss\na,97600,2M,en,.5,3.5\na,97600,2M,de,.5,3.25\n"
    "b,97600,2M,en,.25,3.75\nb,97600,2M,de,.75,2.5\n",
    "tidy, other names": "Name,params,tokens,lang,w,nll\na,97600,2M,en,.5,3.5\na,97600,2M,de,.5,3.25\n"
    "b,97600,2M,en,.25,3.75\nb,97600,2M,de,.75,2.5\n",
    "tidy losses beside wide ratios": "run,N,D,language,p_en,p_de,loss\na,97600,2M,en,.5,.5,3.5\n"
    "a,97600,2M,de,.5,.5,3.25\nb,97600,2M,en,.25,.75,3.75\nb,97600,2M,de,.25,.75,2.5\n",
    "a row a number": "run,N,D,p_en,p_de,metric,value\na,97600,2M,.5,.5,eval/loss/en,3.5\n"
    "a,97600,2M,.5,.5,eval/loss/de,3.25\n"
    "b,97600,2M,.25,.75,eval/loss/en,3.75\nb,97600,2M,.25,.75,eval/loss/de,2.5\n",
    "slashes": PLAIN.format("eval/loss/en", "eval/loss/de"),
    "suffixes": PLAIN.format("en_loss", "de_loss"),
    "before and after": PLAIN.format("val_en_loss", "val_de_loss"),
    "MLflow": "run_id,experiment_id,metrics.val/loss_en,metrics.val/loss_de,params.n_params,params.w_en,params.w_de,"
    "params.tokens,tags.mlflow.runName\na,1,3.5,3.25,97600,0.5,0.5,2000000,x\nb,1,3.75,2.5,97600,0.25,0.75,2000000,y\n",
}


@pytest.mark.parametrize("name", TRIES)
def test_a_table_of_another_kind_is_told_with_the_command_that_reads_it(run: Run, name: str, tmp_path: Path) -> None:
    """A W&B export gave "is 'Runtime' meant?", a tidy table one fault for each of its rows."""
    path = tmp_path / "their table.csv"
    path.write_text(TRIES[name])
    told = run("fit", path, *QUICK)
    assert told.code == 1
    hint = told.document["error"]["hint"]
    command = hint.partition("read it with: shapleymix ")[2].replace("-o runs.csv", f"-o {tmp_path}/runs.csv")
    assert run(command).code == 0
    found = sm.read_runs(tmp_path / "runs.csv")
    assert found.loss.tolist() == [[3.5, 3.25], [3.75, 2.5]]
    assert found.p.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    shown = run("import", path, "--show")
    assert shown.out.strip().splitlines()[-1].startswith("shapleymix import")
    goal = tmp_path / "map.toml"
    assert run("import", path, "--write-map", goal).code == 0
    again = sm.read_runs(path, map=goal)
    assert (again.loss.tolist(), again.p.tolist(), again.D.tolist()) == (
        found.loss.tolist(),
        found.p.tolist(),
        found.D.tolist(),
    )


@pytest.mark.parametrize(("column", "unit"), [("bpb_", "bpb"), ("ppl/", "perplexity"), ("bits_per_byte.", "bpb")])
def test_units_are_seen_in_names(run: Run, column: str, unit: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(PLAIN.format(f"{column}en", f"{column}de"))
    hint = run("shapley", path, "--json").document["error"]["hint"]
    assert f"--unit {unit}" in hint
    assert ("--bytes-per-token ..." in hint) == (unit == "bpb")


def test_what_is_missing_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("Name,eval/loss/en,eval/loss/de\na,3,3\n")
    shown = run("import", path, "--show", "--json").document
    assert shown["missing"] == ["N", "D", "p"]
    assert run("import", path, "--write-map", tmp_path / "map.toml").code == 0
    text = (tmp_path / "map.toml").read_text()
    assert '# N = "..."  # missing: non-embedding parameters' in text
    assert run("import", path, "--write-map", tmp_path / "map.toml").code == 2
    assert run("import", path, "--write-map", tmp_path / "map.txt").code == 2


def test_an_import_shows_and_writes_a_log(run: Run, tidy: Path, tmp_path: Path) -> None:
    found = run("import", tidy, *TIDY)
    assert found.code == 0
    assert "76 rows" in found.out
    assert run("import", tidy, *TIDY, "--json").document["sources"] == ["en", "de", "fr", "zh", "ja"]
    assert run("import", tidy, *TIDY, "-o", tmp_path / "log.parquet").code == 0
    assert len(sm.read_runs(tmp_path / "log.parquet")) == 76
