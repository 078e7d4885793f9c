"""`shapleymix optimize` at several budgets: the screen, the document and the table say what the core found."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import commands

import shapleymix as sm
from shapleymix.errors import StoreError
from shapleymix.mixing.grids import MixtureGrid, grid_of, notices_over
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize_scales

LANGUAGES = ("en", "de", "fr", "zh", "ja")
SIZES, TOKENS = ("25k", "97600"), ("1M", "2M", "8M")
GRID = ("-N", ",".join(SIZES), "-D", ",".join(TOKENS))
ENDINGS = {"csv": pl.read_csv, "csv.gz": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}


@pytest.fixture(scope="module")
def saved(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("fits") / "fit.json"
    options = ["--law", "learned-base", "--min-own-tokens", "20k", "--bootstrap", "12", "--folds", "0", "-q"]
    log = fixtures / "multilingual5_runs.csv"
    assert commands.main(["fit", str(log), *options, "-o", str(goal)], standalone_mode=False) == 0
    return goal


@pytest.fixture(scope="module")
def truth(saved: Path) -> tuple[Mixture, ...]:
    """What the core finds at each budget by itself."""
    fit = sm.Fit.load(saved)
    with pytest.warns(sm.ShapleyMixWarning):
        return tuple(found for N, D in product(SIZES, TOKENS) for found in optimize_scales(fit, N, D, caps="zh=0.3"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_every_budget_shows_its_mixture_losses_intervals_and_proof(
    run: Run, saved: Path, truth: tuple[Mixture, ...]
) -> None:
    shown = run("optimize", saved, *GRID, "--cap", "zh=0.3").out
    assert max(map(len, shown.splitlines())) <= 80
    for one in truth:
        numbers = [f"{one.objective:.4f}", f"{one.objective_low:.3f} .. {one.objective_high:.3f}"]
        for values, low, high in ((one.p, one.p_low, one.p_high), (one.losses, one.losses_low, one.losses_high)):
            numbers += [f"{value:.3f}" for value in values]
            numbers += [f"{a:.3f} .. {b:.3f}" for a, b in zip(low, high, strict=True)]
        numbers += [f"{one.baselines[0].gain:.4f}"]
        assert [number for number in numbers if number not in shown] == []
    assert "relative gap" in shown
    assert shown.count("8M") >= 2 * 4  # a row at each size, in each of at least four blocks


def test_the_document_is_printed_written_and_read(
    run: Run, saved: Path, truth: tuple[Mixture, ...], tmp_path: Path
) -> None:
    goal = tmp_path / "grid.json"
    document = run("optimize", saved, *GRID, "--cap", "zh=0.3", "-o", goal, "--json").document
    assert json.loads(goal.read_text()) == document
    found = MixtureGrid.load(goal)
    assert found.provenance["inputs"].keys() == {str(saved)}
    assert found.provenance["command"].endswith("--cap zh=0.3")
    assert found.budgets == tuple(product((25e3, 97600.0), (1e6, 2e6, 8e6)))
    for one, other in zip(found.entries, truth, strict=True):
        np.testing.assert_allclose(one.p, other.p, atol=1e-8)
        np.testing.assert_allclose([one.losses_low, one.losses_high], [other.losses_low, other.losses_high], rtol=1e-7)
    again = grid_of(found.law, found.entries, found.provenance)
    assert again == found
    assert len(found.to_polars()) == len(list(found.columns()["value"]))
    assert "6 budgets" in found.summary()


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_table_has_every_number(run: Run, saved: Path, tmp_path: Path, ending: str) -> None:
    goal = tmp_path / f"grid.{ending}"
    words = ("optimize", saved, *GRID, "--cap", "zh=0.3", "--compare-to", "plan=en=0.5,zh=0.5", "-o", goal)
    entries = run(*words, "--json").document["entries"]
    table = ENDINGS[ending](goal)
    assert table.columns == ["N", "D", "kind", "name", "value", "low", "high"]
    rows = {tuple(row[:4]): tuple(row[4:]) for row in table.rows()}
    assert len(rows) == len(table)
    for one in entries:
        at = (one["N"], one["D"])
        for name in LANGUAGES:
            source, target = one["by_source"][name], one["by_target"][name]
            assert rows[(*at, "ratio", name)] == (source["ratio"], source["low"], source["high"])
            assert rows[(*at, "loss", name)] == (target["loss"], target["low"], target["high"])
        assert rows[(*at, "objective", "mean loss")][0] == one["objective"]
        assert rows[(*at, "gap", "relative")] == (one["certificate"]["relative_gap"], None, None)
        for rival in one["baselines"]:
            assert rows[(*at, "gain over", rival["name"])] == (rival["gain"], rival["gain_low"], rival["gain_high"])
    refused = run(*words)
    assert (refused.code, goal.exists()) == (2, True)
    assert "exists already" in refused.err


def test_one_budget_is_written_as_a_table_too(run: Run, saved: Path, tmp_path: Path) -> None:
    call = ("optimize", saved, "-N", "97600", "-D", "2M", "-o", tmp_path / "one.csv", "--json")
    document = run(*call).document
    assert document["kind"] == "mixture"
    ratios = pl.read_csv(tmp_path / "one.csv").filter(kind="ratio")["value"].to_list()
    assert ratios == list(document["mixture"].values())
    curve = ("optimize", saved, "-N", "97600", "-D", "2M", "--frontier", "en:rest", "--points", 3)
    entries = run(*curve, "-o", tmp_path / "curve.csv", "--json").document["entries"]
    assert pl.read_csv(tmp_path / "curve.csv")["first"].to_list() == [entry["first"] for entry in entries]


def test_warnings_are_said_once_and_name_their_budgets(run: Run, saved: Path, fixtures: Path) -> None:
    words = ("--languages", fixtures / "multilingual5_languages.csv", "--max-epochs", 4)
    told = run("optimize", saved, *GRID, *words).err.splitlines()
    assert len(told) == len(set(told))
    assert [line for line in told if line.startswith("warning: at D = 8M: D lies outside")]
    repeated = [line for line in told if "the mixture repeats" in line]
    assert repeated
    assert all(line.startswith("warning: at N = ") for line in repeated)
    everywhere = run("optimize", saved, "-N", "97600", "-D", "8M,9M", "--compare-to", "far=en=1").err.splitlines()
    assert all(not line.startswith("warning: at ") for line in everywhere if "p_en lies outside" in line)


def test_budgets_are_named_by_what_they_share(truth: tuple[Mixture, ...]) -> None:
    from dataclasses import replace

    def told(*where: int) -> str:
        marked = (replace(one, notices=("odd",) if place in where else ()) for place, one in enumerate(truth))
        (text,) = notices_over(tuple(marked))
        return text

    assert told(*range(6)) == "odd"
    assert told(2, 5) == "at D = 8M: odd"
    assert told(1, 2, 4, 5) == "at D = 2M and 8M: odd"
    assert told(0, 1, 2) == "at N = 25k: odd"
    assert told(0) == "at N = 25k, D = 1M: odd"
    assert told(0, 4) == "at N = 25k, D = 1M and at N = 97.6k, D = 2M: odd"
    assert told(0, 1, 3) == "at 3 of 6 budgets: odd"


@pytest.mark.parametrize(
    "reader",
    [
        "predict {fit} --mixture {grid} -N 97600 -D 2M",
        "predict {fit} --mixture uniform --mixture plan={grid} -N 97600 -D 2M",
        "optimize {fit} -N 97600 -D 2M --compare-to {grid}",
        "optimize {fit} -N 97600 -D 2M --near {grid} --within 0.1",
        "optimize {fit} -N 97600 -D 2M --anchor {grid} --kl 1",
        "baselines {table} -D 2M --mixture {grid}",
    ],
)
@pytest.mark.parametrize("kind", ["grid", "curve"])
def test_who_wants_one_mixture_refuses_several_by_name(
    run: Run, saved: Path, fixtures: Path, tmp_path: Path, reader: str, kind: str
) -> None:
    goal = tmp_path / "several.json"
    budgets = ("-N", "97600", "-D", "1M,2M") if kind == "grid" else ("-N", "97600", "-D", "2M", "--frontier", "en:rest")
    points = ("--points", 2) if kind == "curve" else ()
    assert run("optimize", saved, *budgets, *points, "-o", goal, "-q").code == 0
    words = reader.format(fit=saved, grid=goal, table=fixtures / "multilingual5_languages.csv")
    refused = run(words)
    assert refused.code == 1
    assert f"{goal}: holds 2 mixtures, expected one" in refused.err
    assert "hint: optimize and write the one that is meant" in refused.err


def test_a_grid_is_no_fit_and_a_fit_no_mixture(run: Run, saved: Path, tmp_path: Path) -> None:
    goal = tmp_path / "grid.json"
    assert run("optimize", saved, "-N", "97600", "-D", "1M,2M", "-o", goal, "-q").code == 0
    assert "holds a mixture-grid, expected a fit" in run("optimize", goal, "-N", "97600", "-D", "2M").err
    assert "holds a fit, expected a mixture" in run("predict", saved, "--mixture", saved, "-N", "97600", "-D", "2M").err
    document = MixtureGrid.load(goal).to_document()
    first, second = document["entries"]
    second["sources"] = ["a", "b", "c", "d", "e"]
    for derived in ("mixture", "by_source", "rivals"):
        del second[derived]
    with pytest.raises(StoreError, match="not all the same sources"):
        MixtureGrid.from_document(document | {"entries": [first, second]})
