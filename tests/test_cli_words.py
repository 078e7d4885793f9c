"""What the command line says beside its results: in its own flags, and true of what it shows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from cli_tools import Run, runner
from shapleymix_cli.views.numbers import fixed, interval, percent

PLAIN = ("--bootstrap", 0, "--folds", 0, "--no-learning-curve")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_notes_name_flags_and_documents_keywords(run: Run, fixtures: Path) -> None:
    """Only errors did: a note told users of the command line of `min_own_tokens`."""
    found = run("fit", fixtures / "multilingual5_runs.csv", "--law", "chinchilla", *PLAIN, "--json")
    assert "(--min-own-tokens)" in found.err
    assert "min_own_tokens" not in found.err
    assert any("(min_own_tokens)" in notice for notice in found.document["notices"])


def test_what_rounds_to_zero_has_no_sign() -> None:
    """`--what-if` of what brings nothing showed -0.0000."""
    assert (fixed(-0.0, 4), fixed(-4e-5, 4), fixed(-6e-5, 4)) == ("0.0000", "0.0000", "-0.0001")
    assert interval(-0.0, 0.0) == "0.000 .. 0.000"
    assert percent(-1e-9) == "0.00%"


def test_a_purpose_beside_a_named_law_is_refused(run: Run, fixtures: Path) -> None:
    """It was passed over in silence: only `auto` chooses by it."""
    words = ("fit", fixtures / "multilingual5_runs.csv", *PLAIN, "--purpose", "beyond", "--law", "chinchilla")
    found = run(*words)
    assert found.code == 2
    assert "the law is named" in found.err
    assert "(--purpose)" in found.err


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_a_law_without_replicates_has_intervals_of_runs_and_says_so(run: Run, fixtures: Path, tmp_path: Path) -> None:
    """A kernel ridge showed intervals of the objective and of gains, and said that there are none."""
    goal, words = tmp_path / "fit.json", ("--min-own-tokens", "20k", "--no-learning-curve", "-o", tmp_path / "fit.json")
    assert run("fit", fixtures / "multilingual5_runs.csv", "--law", "hellinger", "--folds", 3, *words).code == 0
    found = run("optimize", goal, "-N", 97600, "-D", "2M", "--allow-nonconvex")
    assert "90% interval" in found.out
    assert "No intervals of ratios; those of the objective and gains hold how held-out runs" in " ".join(
        found.out.split()
    )


def test_unique_tokens_are_said_once(run: Run, fixtures: Path, tmp_path: Path) -> None:
    """`--available` beside a table that has them for each point changed nothing, in silence."""
    log, goal, points = fixtures / "repetition_runs.csv", tmp_path / "fit.json", tmp_path / "points.csv"
    assert run("fit", log, "--law", "learned-base", *PLAIN, "-o", goal).code == 0
    pl.read_csv(log).head(2).write_csv(points)
    assert run("predict", goal, points).code == 0
    refused = run("predict", goal, points, "--available", "en=1M")
    assert refused.code == 2
    assert "says itself which unique tokens each point has" in refused.err
    table = tmp_path / "languages.csv"
    table.write_text("language,family,available_tokens\nen,,1e6\nde,,1e6\nfr,,1e6\nja,,1e6\n")
    noted = run("predict", goal, points, "--languages", table)
    assert noted.code == 0
    assert "do not count" in noted.err
