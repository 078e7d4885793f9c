"""`shapleymix collect` of several plans: one log of them all, and each plan told by its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import Run, runner
from sweep_tools import template, trainer

import shapleymix as sm
from shapleymix.sweeping.plans import read_plan


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Two plans of one game at two sizes, the first trained, of the second one run of three."""
    monkeypatch.chdir(tmp_path)
    call = runner(capsys)
    command = template(trainer(tmp_path))
    for name, size in (("small", 1000), ("large", 4000)):
        words = ("--sources", "a,b", "-N", size, "-D", "2k", "--command", command, "-o", f"{name}.jsonl")
        assert call("plan", "game", *words).code == 0
    assert call("launch", "small.jsonl").code == 0
    assert call("run", "large.jsonl", "--index", 2).code == 0
    return call


def test_several_plans_make_one_log(run: Run):
    assert run("collect", "small.jsonl", "large.jsonl", "-o", "log.csv").code == 0
    log = sm.read_runs("log.csv")
    labels = [one.label for one in (*read_plan("small.jsonl").runs, read_plan("large.jsonl").runs[2])]
    assert list(log.runs) == labels
    assert log.N.tolist() == [1000] * 3 + [4000]


def test_each_plan_is_told_by_its_file(run: Run):
    told = run("collect", "small.jsonl", "large.jsonl", "-o", "log.csv")
    assert told.out.index("small.jsonl:") < told.out.index("3 of 3 runs finished") < told.out.index("large.jsonl:")
    assert "large.jsonl: 2 of 3 runs are missing" in told.err
    document = run("collect", "small.jsonl", "large.jsonl", "--json").document
    assert [(one["plan"], one["kind"], len(one["runs"])) for one in document["plans"]] == [
        ("small.jsonl", "sweep-state", 3),
        ("large.jsonl", "sweep-state", 3),
    ]
    alone = run("collect", "large.jsonl", "-o", "one.csv").err
    assert "warning: 2 of 3 runs are missing" in alone, "of one plan as before"


def test_strict_names_the_plan_that_is_not_finished(run: Run, tmp_path: Path):
    strict = run("collect", "small.jsonl", "large.jsonl", "--strict", "-o", "log.csv")
    assert strict.code == 1
    assert "large.jsonl: 2 of 3 runs are missing" in strict.err
    assert not (tmp_path / "log.csv").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("small.jsonl small.jsonl -o log.csv", "repeats run 'a-"),
        ("small.jsonl large.jsonl --folder large-sweep", "--folder is of one plan"),
        ("small.jsonl large.jsonl -o large.jsonl", "is an input as well"),
        ("", "Missing argument"),
    ],
)
def test_what_cannot_be_one_log_is_refused(run: Run, words: str, told: str):
    outcome = run(f"collect {words}")
    assert outcome.code
    assert told in outcome.err
