"""Lists of mixtures and designs as plans of runs: `shapleymix plan mixtures|grid`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.sweeping.listed import read_mixtures
from shapleymix.sweeping.plans import read_plan


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_listed_mixtures_become_a_grid_of_runs(run: Run, tmp_path: Path, fixtures: Path):
    languages = str(fixtures / "multilingual5_languages.csv")
    words = ("--controlled", "monolingual,uniform,families", "--random", 5, "--empirical", "natural")
    made = run("plan", "mixtures", "--languages", languages, *words, "--floor", "0.05", "-o", "mix.csv")
    assert made.code == 0, made.err
    table = read_mixtures("mix.csv")
    drawn = [row for row, name in enumerate(table.names) if name.startswith("random-")]
    assert len(drawn) == 5
    assert table.p[drawn].min() >= 0.05 - 1e-9
    grid = run(
        "plan", "grid", "mix.csv", "-N", "tiny=23712,mini=97600", "-D", "1M,2M", "--seeds", "0,1", "-o", "g.jsonl"
    )
    assert grid.code == 0, grid.err
    plan = read_plan("g.jsonl")
    assert len(plan) == len(table) * 2 * 2 * 2
    assert plan.runs[0].command[:2] == ("shapleymix-irds", "train")
    assert {run_.name for run_ in plan.runs} == set(table.names)


def test_a_design_is_written_as_runs_or_as_a_table(run: Run):
    words = ("plan", "mixtures", "--n", 4, "--sources", "a,b,c", "--run-N", "1k", "--run-D", "2k")
    assert run(*words, "-o", "table.csv").code == 0
    command = "train {mixture} {out} {seed}"
    made = run(*words, "--command", command, "--seeds", "0,1", "-o", "runs.jsonl")
    assert made.code == 0, made.err
    table, plan = sm.read_runs("table.csv", losses="optional"), read_plan("runs.jsonl")
    assert [one.name for one in plan.runs] == [*table.runs, *table.runs]
    np.testing.assert_allclose([list(one.mixture.values()) for one in plan.runs[:4]], table.p)
    assert run("plan", "mixtures", "--n", 2, "--sources", "a,b", "--command", command).code == 2, "N and D are needed"


def test_a_list_of_mixtures_counts_as_planned_for_a_design(run: Run):
    words = "--sources a,b,c --controlled monolingual,uniform --run-N 1k --run-D 1k -o listed.csv"
    assert run(f"plan mixtures {words}").code == 0
    designed = run("plan mixtures listed.csv --n 2")
    assert "after 4 mixtures" in designed.out, designed.err


def test_plans_are_documents_too(run: Run):
    found = run("plan game --sources a,b -N tiny=23712 -D 1M --json").document
    assert [one["name"] for one in found["runs"]] == ["a", "b", "a+b"]
    listed = run("plan mixtures --sources a,b --controlled uniform --json").document
    assert (listed["kind"], listed["p"]) == ("mixture-list", [[0.5, 0.5]])


def test_a_design_can_be_a_table_of_lines(run: Run):
    words = ("plan", "mixtures", "--n", 3, "--sources", "a,b,c", "--run-N", "1k", "--run-D", "1k")
    assert run(*words, "-o", "table.jsonl").code == 0
    assert run(*words, "-o", "table.csv").code == 0
    np.testing.assert_array_equal(read_mixtures("table.jsonl").p, read_mixtures("table.csv").p)


def test_the_size_of_listed_or_designed_runs_may_have_a_name(run: Run):
    command = "train {model} {mixture} {out}"
    for kind in (("--controlled", "uniform"), ("--n", 2)):
        words = ("plan", "mixtures", "--sources", "a,b,c", *kind, "--run-D", "2k", "--command", command, "--force")
        made = run(*words, "--run-N", "tiny=23712", "-o", "runs.jsonl")
        assert made.code == 0, made.err
        assert {(one.N, one.command[1]) for one in read_plan("runs.jsonl").runs} == {(23712, "tiny")}
        bare = run(*words, "--run-N", "23712")
        assert (bare.code, "name the sizes (tiny=23712" in bare.err) == (2, True)
        several = run(*words, "--run-N", "tiny=23712,mini=97600")
        assert (several.code, "is more than one size" in several.err) == (2, True)
    assert run("plan", "mixtures", "--sources", "a,b", "--n", 2, "--run-N", "t=1k", "--run-D", "2k").code == 0


def test_a_temperature_without_tokens_to_be_evened_out_is_refused(run: Run):
    words = ("plan", "mixtures", "--sources", "a,b", "--random", 3)
    refused = run(*words, "--temperature", 3)
    assert (refused.code, "--temperature does nothing" in refused.err) == (2, True)
    assert run(*words, "--temperature", 3, "--available", "a=1k", "--run-D", "1k").code == 2
    assert run(*words, "--temperature", 3, "--available", "a=1k,b=9k", "--run-D", "1k").code == 0
    assert run(*words, "--concentration", 3).code == 0
