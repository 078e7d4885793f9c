"""Repeated tokens on the command line: what the log told, what repetition costs, and what more tokens would save."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import commands

import shapleymix as sm

SUPPLY = "en=20k,de=100k,fr=3M"
BUDGET = ("-N", "23712", "-D", "1M")


@pytest.fixture(scope="module")
def log(fixtures: Path) -> Path:
    return fixtures / "repetition_runs.csv"


@pytest.fixture(scope="module")
def saved(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("fits") / "fit.json"
    options = ["--law", "learned-base", "--bootstrap", "6", "--folds", "0", "--no-learning-curve", "-q"]
    assert commands.main(["fit", str(log), *options, "-o", str(goal)], standalone_mode=False) == 0
    return goal


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_real_runs_tell_a_rate_near_the_published_one(saved: Path) -> None:
    known = sm.Fit.load(saved).repetition
    assert known is not None
    assert known.told
    assert 5 < 1 / known.rate < 80


def test_a_fit_says_what_its_log_told(run: Run, log: Path) -> None:
    words = ("--law", "learned-base", "--bootstrap", 4, "--folds", 0, "--no-learning-curve")
    assert "Repeated tokens: worth little beyond R* = " in run("fit", log, *words).out
    document = run("fit", log, *words, "--json").document["repetition"]
    assert document["told"]
    assert document["low"] <= document["high"]
    assert document["epochs"]["en"][1] == pytest.approx(32, rel=0.05)  # whole sequences


def test_an_optimum_shows_what_repetition_costs(run: Run, saved: Path) -> None:
    shown = run("optimize", saved, *BUDGET, "--available", SUPPLY)
    for text in ("epochs", "10k more save", "Repeated tokens cost", "by repetition"):
        assert text in shown.out
    assert "fresh ones" not in shown.err
    document = run("optimize", saved, *BUDGET, "--available", SUPPLY, "--json").document
    source, target = document["by_source"], document["by_target"]
    assert source["en"]["epochs"] > 1
    assert source["en"]["token_worth"] > source["de"]["token_worth"] >= 0
    by_targets = sum(one["repetition"] * one["weight"] for one in target.values())
    assert document["repetition_cost"] == pytest.approx(by_targets, rel=1e-9)
    plenty = run("optimize", saved, *BUDGET, "--available", "en=1B,de=1B,fr=1B,ja=1B")
    assert "Repeated" not in plenty.out
    assert "by repetition" not in plenty.out


def test_epochs_are_capped_on_request_only(run: Run, saved: Path) -> None:
    words = (*BUDGET, "--available", "en=5k,de=100k,fr=3M", "--json")
    free = run("optimize", saved, *words).document["by_source"]["en"]
    capped = run("optimize", saved, *words, "--max-epochs", 4).document["by_source"]["en"]
    assert free["epochs"] > 4
    assert math.isclose(capped["epochs"], 4, rel_tol=1e-9)


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_a_table_of_points_says_its_own_unique_tokens(run: Run, saved: Path, log: Path, tmp_path: Path) -> None:
    rows = pl.read_csv(log).head(4)
    rows.write_csv(tmp_path / "points.csv")
    told = run("predict", saved, tmp_path / "points.csv", "--json").document["predictions"]
    found = np.array([list(point["loss"].values()) for point in told])
    points, fit = sm.read_runs(tmp_path / "points.csv"), sm.Fit.load(saved)
    by_hand = fit.predict(points.p, points.N, points.D, unique=points.unique).losses
    fresh = fit.predict(points.p, points.N, points.D).losses
    assert found == pytest.approx(by_hand, rel=1e-12)
    assert (fresh[1:] < by_hand[1:]).any()


def test_a_grid_lists_what_repetition_costs(run: Run, saved: Path, tmp_path: Path) -> None:
    run("optimize", saved, "-N", "23712", "-D", "500k,1M", "--available", SUPPLY, "-o", tmp_path / "grid.csv")
    table = pl.read_csv(tmp_path / "grid.csv").filter(pl.col("kind") == "loss by repetition")
    costs = table.filter(pl.col("name") == "en").sort("D")["value"].to_list()
    assert len(costs) == 2
    assert 0 < costs[0] < costs[1]
