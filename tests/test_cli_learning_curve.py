"""`shapleymix fit` says at its end how far more mixtures would bring the held-out error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_tools import Run, runner
from shapleymix_cli.views.learning_curve import _reached

from shapleymix import fit, learning_curve
from shapleymix.fitting.absent import SOME

QUICK = ("--law", "mariner", "--bootstrap", 0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def log(fixtures: Path) -> Path:
    return fixtures / "multilingual5_runs.csv"


def test_the_document_is_the_librarys_curve(run: Run, log: Path) -> None:
    curve = run("fit", log, *QUICK, "--reach", 0.12, "--json").document["learning_curve"]
    found = fit(str(log), "mariner", bootstrap=0)
    error = found.held_out
    assert error is not None
    assert found.absent is not None, "runs without a language are no part of the curve"
    truth = learning_curve(str(log), "mariner", parts=(3,), held_out=error.mean["PE"], min_own_tokens=SOME)
    assert [row["mixtures"] for row in curve["measured"]] == truth.mixtures.tolist()
    assert curve["measured"][-1]["PE"] == error.mean["PE"], "the folds of the fit are one more size"
    assert [row["PE"] for row in curve["ahead"]] == truth.expected.tolist()
    assert curve["mixtures"] == truth.now == curve["ahead"][0]["mixtures"]
    wish = [None if np.isinf(count) else count for count in truth.needed(0.12)]
    assert [curve["reach"][key] for key in ("mixtures", "low", "high")] == wish


def test_it_stands_at_the_end_and_is_left_out_where_nothing_is_held_out(run: Run, log: Path) -> None:
    text = run("fit", log, *QUICK, "--reach", 0.9).out
    assert "With more mixtures" in text
    assert text.rstrip().endswith("mixtures at hand.")
    assert "With more mixtures" not in run("fit", log, *QUICK, "--folds", 0).out
    assert "With more mixtures" not in run("fit", log, *QUICK, "--no-learning-curve").out
    assert run("fit", log, *QUICK, "--folds", 0, "--json").document["learning_curve"] is None
    assert (
        run("fit", log, *QUICK, "--reach", 1e-5)
        .out.rstrip()
        .endswith("0.001% is out of reach, whatever the number of mixtures.")
    )


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1.1e6, 91, np.inf), "2% needs a million mixtures, or is never reached (90% interval 91 .. never)."),
        ((1234.4, 91, 2e6), "2% needs about 1,234 mixtures in all (90% interval 91 .. a million or more)."),
    ],
)
def test_no_number_of_seven_digits_is_told(counts: tuple[float, float, float], text: str) -> None:
    """Fault: "2% needs about 1,143,506 mixtures", of an interval that is open."""
    found = SimpleNamespace(needed=lambda *asked: counts, level=0.9, now=40)
    assert _reached(found, 0.02) == text


def test_wrong_wishes_and_few_mixtures_are_named(run: Run, log: Path, tmp_path: Path) -> None:
    refused = run("fit", log, *QUICK, "--no-learning-curve", "--reach", 0.02)
    assert refused.code == 2
    assert "--reach asks for a learning curve" in refused.err
    assert "--reach: '2' is not a number above 0 and below 1" in run("fit", log, *QUICK, "--reach", 2).err
    few = tmp_path / "few.csv"
    few.write_text("".join(log.read_text().splitlines(keepends=True)[:6]))
    found = run("fit", few, *QUICK, "--folds", 2)
    assert found.code == 0
    assert "no learning curve:" in found.err
