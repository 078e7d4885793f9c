"""`shapleymix plot`: figures of what commands wrote, their captions and numbers, and questions without an answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner
from known_fits import FakeFit

import shapleymix as sm
from shapleymix.mixing.grids import grid_of
from shapleymix.mixing.optimization import optimize_scales

pytest.importorskip("matplotlib")
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
COALITIONS, IRDS = FIXTURES / "multilingual5_coalitions.csv", FIXTURES / "multilingual5_irds_raw.csv"
RUNS = FIXTURES / "multilingual5_runs.csv"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def exact(tmp_path: Path) -> Path:
    path = tmp_path / "sv.csv"
    sm.shapley_values(COALITIONS).write(path)
    return path


def test_the_numbers_that_are_drawn_are_those_of_the_matrix(run: Run, exact: Path) -> None:
    found = run("plot", "transfer", exact, "--json").document
    assert (found["kind"], found["figure"]) == ("figure", "transfer")
    np.testing.assert_array_equal(found["numbers"]["value"], sm.read_transfer(exact).sv.ravel())
    assert found["numbers"]["stderr"] == [None] * 25


def test_the_caption_is_printed_and_the_figure_written(run: Run, exact: Path, tmp_path: Path) -> None:
    goal = tmp_path / "both.svg"
    outcome = run("plot", "transfer", exact, IRDS, "--calibrate", "--names", "exact,in-run", "-o", goal)
    assert outcome.code == 0, outcome.err
    likeness = sm.read_transfer(exact).compare(sm.read_transfer(IRDS).calibrated()).raw
    assert likeness is not None
    assert f"Cosine {likeness.cosine:.3f}" in " ".join(outcome.out.split())
    assert outcome.err == f"note: wrote {goal}\n"
    assert goal.read_bytes().startswith(b"<?xml")
    again = run("plot", "transfer", exact, "-o", goal)
    assert (again.code, "exists already" in again.err) == (2, True)


def test_calibration_is_asked_for(run: Run, exact: Path) -> None:
    raw, scaled = (
        run("plot", "agreement", exact, IRDS, "--json", *flag).document["numbers"]["y"]
        for flag in ([], ["--calibrate"])
    )
    known = sm.read_transfer(IRDS)
    np.testing.assert_array_equal(raw, known.sv.ravel())
    np.testing.assert_array_equal(scaled, known.calibrated().sv.ravel())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["transfer", "SV"], "nothing says where to draw"),
        (["transfer", "SV", "-o", "figure.gif"], "names no format of figures"),
        (["pie"], "there is no figure 'pie'"),
        (["transfers", "SV"], "did you mean 'transfer'?"),
        (["transfer", "SV", "--names", "a,b", "--json"], "2 names for 1 matrix"),
        (["agreement", "SV", "SV", "--values", "log", "--json"], "log"),
        (["mixture", "SV", "--json"], "is a table, not a mixture"),
        (["mixture", "absent.json", "--json"], "cannot be read"),
        (["design", "--json"], "Missing argument 'PLAN'"),
        (["fit", "SV", "SV", "--json"], "is a table, not a fit"),
    ],
)
def test_wrong_questions_are_answered_with_the_next_step(run: Run, exact: Path, words: list[str], told: str) -> None:
    outcome = run("plot", *(str(exact) if word == "SV" else word for word in words))
    assert outcome.code in (1, 2)
    assert told in outcome.err + outcome.out
    assert "hint" in outcome.err + outcome.out


def test_a_result_of_another_kind_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    sm.design(3, sources=["en", "de"]).save(plan)
    outcome = run("plot", "mixture", plan, "--json")
    assert outcome.code == 1
    assert "holds a design" in outcome.out
    assert run("plot", "design", plan, "--json").document["numbers"]["p_en"]


def test_a_comparison_that_was_saved_is_drawn(run: Run, tmp_path: Path) -> None:
    goal = tmp_path / "laws.json"
    call = ["compare", RUNS, "--laws", "chinchilla,hellinger", "--folds", "2", "--min-own-tokens", "20k"]
    assert run(*call, "-o", tmp_path / "laws.csv").code == 2
    printed = run(*call, "-o", goal, "--json").document
    drawn = run("plot", "compare", goal, "--json").document["numbers"]
    means = {law: PE for law, target, PE in zip(drawn["law"], drawn["target"], drawn["PE"], strict=True) if not target}
    assert means == {one["law"]: one["mean"]["PE"] for one in printed["laws"]}


def test_without_matplotlib_the_hint_comes_before_the_work(
    run: Run, exact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run("plot", "transfer", exact, "-o", "figure.png")
    assert outcome.code == 2
    assert "figures need matplotlib" in outcome.err
    assert "pip install 'matplotlib>=3.10.7'" in outcome.err


def test_what_another_figure_is_of_says_which(run: Run, tmp_path: Path) -> None:
    """A mixture is looked for in a grid, a frontier, a table, and a mixture that is damaged."""
    fit, table = FakeFit(), tmp_path / "runs.csv"
    grid_of("shapley", optimize_scales(fit, ["1B", "2B"], ["50B"])).save(tmp_path / "grid.json")
    sm.frontier(fit, "1B", "100B", "en:rest", points=3).save(tmp_path / "curve.json")
    table.write_text("run,N\na,1\n")
    (tmp_path / "mix.json").write_text('{"kind": "mixture", "schema_version": 1}')
    for name, told, hint in (
        ("grid.json", "holds a mixture-grid, expected a mixture", "optimize at one -N and -D"),
        ("curve.json", "holds a frontier, expected a mixture", "draw it by `shapleymix plot frontier`"),
        ("runs.csv", "is a table, not a mixture", "give the document that its command writes"),
        ("mix.json", "lacks the field", "write it again"),
    ):
        found = run("plot", "mixture", tmp_path / name, "-o", tmp_path / "m.png")
        assert found.code == 1
        assert told in found.err
        assert hint in found.err
