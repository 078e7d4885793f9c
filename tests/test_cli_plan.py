"""`shapleymix plan mixtures`: what it prints and writes is the plan, and bad requests are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner

import shapleymix as sm

FIVE = ("--sources", "en,de,fr,zh,ja")
PLAN = ("plan", "mixtures")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_document_is_what_the_library_gives(run: Run, tmp_path: Path):
    outcome = run(*PLAN, "--n", 4, *FIVE, "--cap", "en=0.3", "--batches", 2, "--json", "-o", tmp_path / "plan.json")
    plan = sm.design(4, sources=("en", "de", "fr", "zh", "ja"), caps="en=0.3", batches=2)
    assert outcome.document["p"] == plan.p.tolist()
    assert outcome.document["batch"] == [1, 1, 2, 2]
    assert outcome.document["provenance"]["command"].startswith("shapleymix plan mixtures --n 4")
    np.testing.assert_array_equal(sm.Design.load(tmp_path / "plan.json").p, plan.p)
    assert "chosen for the whole region" in outcome.err


def test_the_table_is_a_run_log_that_the_next_plan_reads(run: Run, tmp_path: Path):
    goal = tmp_path / "plan.csv"
    shown = run(*PLAN, "--n", 3, *FIVE, "--run-N", "10M", "--run-D", "1B", "-o", goal)
    assert shown.code == 0
    log = sm.read_runs(goal, losses="optional")
    assert (log.runs, set(log.N), set(log.D)) == (("plan-1", "plan-2", "plan-3"), {1e7}, {1e9})
    assert all(f"{name}  " in shown.out for name in log.runs)
    assert "3 runs at N = 10M, D = 1B to know all mixtures, before any run" in shown.out
    again = run(*PLAN, goal, "--n", 2)
    assert "2 runs at N = 10M, D = 1B to know all mixtures, after 3 mixtures" in again.out
    assert "plan2-1" in again.out


def test_a_plan_is_given_back_beside_the_log_that_it_was_made_from(run: Run, fixtures: Path, tmp_path: Path):
    """It has no losses, and was refused for that: a user had to copy its rows into the log."""
    log, goal = fixtures / "multilingual5_runs.csv", tmp_path / "plan.csv"
    words = ("--law", "learned-base", "--n", 2, "--purpose", "region")
    assert run(*PLAN, log, *words, "-o", goal).code == 0
    after = run(*PLAN, log, goal, *words)
    assert after.code == 0, after.err
    assert "after 42 mixtures" in after.out
    assert "plan2-1" in after.out
    assert run("fit", log, goal).code == 1, "a fit is to runs that were trained"


def test_a_fit_says_where_the_optimum_is(run: Run, fixtures: Path, tmp_path: Path):
    log, fit = fixtures / "multilingual5_runs.csv", tmp_path / "fit.json"
    words = ("--law", "learned-base", "--min-own-tokens", "20k", "--bootstrap", 8, "--folds", 3)
    assert run("fit", log, *words, "-o", fit).code == 0
    found = run(*PLAN, log, "--fit", fit, "--n", 3, "--json")
    assert found.document["purpose"] == "optimum"
    assert found.document["targets"] == list(sm.read_runs(log).targets)
    text = run(*PLAN, log, "--fit", fit, "--n", 3).out
    assert "to find the optimum, after 40 mixtures" in text
    assert "gains" in text
    assert "optimum now" in text
    assert "N and D of the planned runs: as most mixtures so far" in text


def test_candidates_come_from_a_table(run: Run, fixtures: Path, tmp_path: Path):
    log = fixtures / "multilingual5_runs.csv"
    found = run(*PLAN, "--n", 5, *FIVE, "--candidates", log, "--json")
    given = sm.read_runs(log).aligned(("en", "de", "fr", "zh", "ja"))
    assert found.document["p"] == given.p[found.document["candidate"]].tolist()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("plan",), 0, "Usage: shapleymix plan"),
        (("plan", "mixture"), 2, "did you mean 'mixtures'?"),
        ((*PLAN, *FIVE), 2, "--n"),
        ((*PLAN, "--n", 2), 2, "nothing says what the sources are"),
        ((*PLAN, "--n", 0, *FIVE), 2, "--n"),
        ((*PLAN, "--n", 2, "--sources", "en"), 2, "2 runs of 1 candidates"),
        ((*PLAN, "--n", 2, *FIVE, "--batches", 3), 2, "3 batches of 2 runs"),
        ((*PLAN, "--n", 2, *FIVE, "--cap", "en=0.1,de=0.1,fr=0.1,zh=0.1,ja=0.1"), 1, "caps"),
        ((*PLAN, "--n", 2, *FIVE, "--available", "en=1B"), 2, "need the tokens of the run"),
        ((*PLAN, "none.csv", "--n", 2), 1, "none.csv"),
    ],
)
def test_odd_requests_are_told_by_name(run: Run, words: tuple[str | int, ...], code: int, told: str):
    outcome = run(*words)
    assert outcome.code == code, outcome.err
    assert told in outcome.out + outcome.err
