"""`optimize --cautious`, and what cannot be told: first on the screen, in the JSON, on standard error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_tools import Outcome, Run, runner
from shapleymix_cli.main import commands

from shapleymix.fitting.fits import Fit
from shapleymix.mixing.mixtures import Mixture

BUDGET = ("-N", "97600", "-D", "2M")
UNTOLD = "no mixture within the bounds is better than uniform"


@pytest.fixture(scope="module")
def saved(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit with held-out losses, whose misfit is larger than the gain over uniform."""
    goal = tmp_path_factory.mktemp("fits") / "fit.json"
    options = ["--law", "learned-base", "--min-own-tokens", "20k", "--bootstrap", "12", "--folds", "3", "-q"]
    words = ["fit", str(fixtures / "multilingual5_runs.csv"), *options, "-o", str(goal)]
    assert commands.main(words, standalone_mode=False) == 0
    return goal


@pytest.fixture
def optimize(capsys: pytest.CaptureFixture[str], saved: Path):
    run: Run = runner(capsys)

    def call(*words: Any) -> Outcome:
        return run("optimize", saved, *BUDGET, *words)

    return call


def test_what_cannot_be_told_comes_first(optimize) -> None:
    shown, document = optimize(), optimize("--json").document
    assert " ".join(shown.out.split()).startswith(UNTOLD[0].upper() + UNTOLD[1:])
    assert document["verdict"].startswith(UNTOLD)
    assert document["notices"][0] == document["verdict"]
    assert f"warning: {UNTOLD}" in " ".join(shown.err.split())
    rival = document["baselines"][0]
    assert rival["gain_low"] <= 0 < rival["gain_high"]
    for name in ("promised", "gain"):
        assert f"{rival[name]:.4f}" in shown.out
    grid = optimize("-D", "1M,2M").out
    assert " ".join(grid.split()).startswith(UNTOLD[0].upper() + UNTOLD[1:])


def test_the_fit_keeps_its_misfit(saved: Path) -> None:
    fit = Fit.load(saved)
    assert fit.misfit is not None
    assert (fit.misfit.scale > 0).all()
    assert fit.misfit.runs == 76


def test_caution_falls_back_to_the_baseline(optimize, tmp_path: Path) -> None:
    goal = tmp_path / "wary.json"
    shown = optimize("--cautious", "-o", goal)
    assert "this is uniform itself" in " ".join(shown.out.split())
    assert "Cautious mixture, against uniform," in " ".join(shown.out.split())
    assert Mixture.load(goal).cautious == "uniform"
    worse = optimize("--cautious", "en=0.8,de=0.1,fr=0.04,zh=0.03,ja=0.03", "--json").document
    assert worse["baselines"][-1]["gain_low"] > 0
    assert worse["method"] == "cautious"


def test_the_bound_that_was_found_is_said(optimize, fixtures: Path) -> None:
    plan = "en=0.8,de=0.1,fr=0.04,zh=0.03,ja=0.03"
    text = " ".join(optimize("--cautious", plan, "--languages", fixtures / "multilingual5_languages.csv").out.split())
    assert f"Its gain over {plan} is at least" in text
    assert "not proved" in text
    assert "The exact optimum is lower by" in text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--kl", "0.1", "--anchor", "uniform"), "KL penalty"),
        (("--method", "closed-form"), "method 'closed-form'"),
        (("--frontier", "en:rest"), "cautious"),
    ],
)
def test_what_caution_cannot_meet_is_refused_by_name(optimize, words: tuple[str, ...], named: str) -> None:
    refused = optimize("--cautious", *words)
    assert refused.code == 1 or refused.code == 2
    assert named in refused.err
