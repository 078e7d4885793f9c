"""`shapleymix predict` and `baselines`: several mixtures, grids, files, names, and many languages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_tools import Outcome, Run, runner
from shapleymix_cli.main import commands
from shapleymix_cli.views.baselines import view as baselines_view
from shapleymix_cli.views.fit import fit_view
from shapleymix_cli.views.predict import prediction_view
from shapleymix_cli.views.tables import show

import shapleymix as sm
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.prediction import Prediction
from shapleymix.mixing.candidates import compare_mixtures
from shapleymix.tables.baselines import Baseline
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog

LANGUAGES = ("en", "de", "fr", "zh", "ja")
PLAN = "en=0.4,de=0.2,fr=0.2,zh=10%,ja=0.1"
BUDGET = ("-N", "97600", "-D", "1.9M")


@pytest.fixture(scope="module")
def saved(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("fits") / "fit.json"
    words = [
        "--law",
        "learned-base",
        "--min-own-tokens",
        "20k",
        "--bootstrap",
        "12",
        "--folds",
        "0",
        "-q",
        "-o",
        str(goal),
    ]
    assert commands.main(["fit", str(fixtures / "multilingual5_runs.csv"), *words], standalone_mode=False) == 0
    return goal


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def predict(run: Run, saved: Path) -> Callable[..., Outcome]:
    return lambda *words: run("predict", saved, *words)


def test_several_mixtures_are_compared_as_the_core_does(predict: Callable[..., Outcome], saved: Path) -> None:
    words = ("--mixture", "uniform", "--mixture", f"plan={PLAN}", *BUDGET, "--weights", "en=2,de=1,fr=1,zh=1,ja=1")
    (found,) = predict(*words, "--json").document["comparisons"]
    truth = compare_mixtures(
        Fit.load(saved), {"uniform": "uniform", "plan": PLAN}, 97600, 1.9e6, weights="en=2,de=1,fr=1,zh=1,ja=1"
    )
    assert found["against"] == "uniform"
    for shown, entry in zip(found["candidates"], truth.entries, strict=True):
        assert shown["name"] == entry.name
        assert shown["objective"] == entry.objective
        assert (shown["gain"], shown["gain_low"], shown["gain_high"]) == (entry.gain, entry.gain_low, entry.gain_high)
    text = predict(*words).out
    assert "P(better)" in text
    assert f"{truth.entries[1].gain:.4f}" in text


def test_a_grid_shows_losses_with_intervals(predict: Callable[..., Outcome], saved: Path) -> None:
    words = ("--mixture", f"plan={PLAN}", "-N", "25k,97600", "-D", "1M,1.9M")
    text = predict(*words).out
    truth = Fit.load(saved).predict(PLAN, [25e3, 25e3, 97600, 97600], [1e6, 1.9e6, 1e6, 1.9e6])
    for row in range(4):
        for column in range(5):
            assert f"{truth.losses[row, column]:.3f}" in text
            assert f"{truth.low[row, column]:.3f} .. {truth.high[row, column]:.3f}" in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(predict(*words, "--json").document["comparisons"]) == 0


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
def test_predictions_are_written_as_tables(predict: Callable[..., Outcome], tmp_path: Path, ending: str) -> None:
    goal = tmp_path / f"p.{ending}"
    words = ("--mixture", "uniform", "--mixture", f"plan={PLAN}", "-N", "25k,97600", "-D", "1.9M", "-o", goal)
    points = predict(*words, "--json").document["predictions"]
    read = {"parquet": pl.read_parquet, "jsonl": pl.read_ndjson}.get(ending, pl.read_csv)
    rows = read(goal).to_dicts()
    assert len(rows) == len(points) == 4
    for row, point in zip(rows, points, strict=True):
        assert (row["run"], row["N"], row["D"]) == (point["run"], point["N"], point["D"])
        for name in LANGUAGES:
            wanted = (point["mixture"][name], point["loss"][name], point["low"][name], point["high"][name])
            assert (row[f"p_{name}"], row[f"loss_{name}"], row[f"low_{name}"], row[f"high_{name}"]) == wanted


def test_the_written_document_is_the_printed_one(predict: Callable[..., Outcome], saved: Path, tmp_path: Path) -> None:
    words = ("--mixture", "uniform", "--mixture", f"plan={PLAN}", *BUDGET, "-o", tmp_path / "p.json")
    printed = predict(*words, "--json").document
    written = json.loads((tmp_path / "p.json").read_text())
    provenance = written["provenance"]
    assert written == printed
    assert provenance["inputs"].keys() == {str(saved)}
    assert "p.json" not in provenance["command"]


def test_baselines_have_names_everywhere(predict: Callable[..., Outcome], run: Run, fixtures: Path) -> None:
    table = fixtures / "multilingual5_languages.csv"
    names = ["natural", "temperature:3", "unimax:1", "uniform"]
    asked = [word for name in names for word in ("--mixture", name)]
    points = predict(*asked, "-N", "97600", "-D", "8M", "--languages", table, "--json").document["predictions"]
    shown = run("baselines", table, "-D", "8M", *asked, "--json").document["baselines"]
    assert [one["name"] for one in shown] == [point["run"] for point in points] == names
    assert [one["mixture"] for one in shown] == [point["mixture"] for point in points]
    tokens = dict(pl.read_csv(table).select("language", "available_tokens").iter_rows())
    for one in shown:
        for name, epochs in one["epochs"].items():
            assert epochs == pytest.approx(one["mixture"][name] * 8e6 / tokens[name], rel=1e-12)
    assert predict("--mixture", "natural", *BUDGET).code == 2


def test_a_saved_optimum_is_a_mixture(predict: Callable[..., Outcome], saved: Path, tmp_path: Path) -> None:
    goal = tmp_path / "mix.json"
    sm.optimize(Fit.load(saved), 97600, 1.9e6).save(goal)
    (point,) = predict("--mixture", f"best={goal}", *BUDGET, "--json").document["predictions"]
    assert point["run"] == "best"
    assert point["mixture"] == json.loads(goal.read_text())["mixture"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_baselines_are_written(run: Run, fixtures: Path, tmp_path: Path, ending: str) -> None:
    goal = tmp_path / f"b.{ending}"
    outcome = run("baselines", fixtures / "multilingual5_languages.csv", "-D", "8M", "-o", goal, "--json")
    if ending == "json":
        assert json.loads(goal.read_text())["baselines"] == outcome.document["baselines"]
        return
    rows = (pl.read_csv if ending == "csv" else pl.read_parquet)(goal).to_dicts()
    flat = [
        (one["name"], name, ratio) for one in outcome.document["baselines"] for name, ratio in one["mixture"].items()
    ]
    assert [(row["mixture"], row["language"], row["ratio"]) for row in rows] == flat


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--mixture", "a=en=1", "--mixture", "a=de=1", *BUDGET), "two mixtures are named 'a'", "NAME=MIX"),
        (("--mixture", "en=1", *BUDGET, "--weights", "normalized"), "--weights does nothing", "--weights"),
        (("--mixture", "unimax:0", *BUDGET), "tokens of", "languages table"),
        (("--mixture", "en=1", "-N", "1B", "-D", "1.9M", "--strict"), "N", "fitted"),
        (("--mixture", "en=1", *BUDGET, "-o", "p.xyz"), "names no format", ".parquet"),
    ],
)
def test_bad_calls_are_told(predict: Callable[..., Outcome], words: tuple[str, ...], message: str, hint: str) -> None:
    outcome = predict(*words)
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert message in outcome.err
    assert hint in outcome.err


def test_a_loss_that_no_trained_model_has_is_no_number(run: Run, fixtures: Path, tmp_path: Path) -> None:
    """Issue 6, 1.2: the filtered fit predicted 29 nats for fr at en=1, where an untrained model has 5.5."""
    goal = tmp_path / "fit.json"
    words = ("--law", "learned-base", "--min-own-tokens", "20k", "--bootstrap", 5, "--folds", 0, "-o", goal)
    assert run("fit", fixtures / "multilingual5_runs.csv", *words, "--vocabulary", 8).code == 0
    outcome = run("predict", goal, "--mixture", "uniform", "--mixture", "en=1", *BUDGET, "--json")
    point = outcome.document["predictions"][1]
    assert point["above_untrained"]["fr"]
    assert point["outside"]["fr"]
    assert point["loss"]["fr"] is None
    assert "fr" in outcome.err
    assert outcome.document["comparisons"][0]["candidates"][1]["gain"] is None
    assert run("predict", goal, "--mixture", "en=1", *BUDGET, "--strict").code == 1
    best = run("optimize", goal, *BUDGET, "--floor", "en=0.99").out
    assert "Certificate" not in best
    assert "No proof: where the law gives more than an untrained model's loss" in " ".join(best.split())


def test_200_languages_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"language{place}" for place in range(200))
    rng = np.random.default_rng(0)
    p = np.full((6, 200), 1 / 200)
    losses = rng.uniform(2, 4, (6, 200))
    there = np.zeros((6, 200), dtype=bool)

    def points(count: int) -> Prediction:
        rows = slice(0, count)
        return Prediction(
            tuple(f"run{row}" for row in range(count)), names, names, np.full(count, 1e9), np.full(count, 1e10),
            p[rows], losses[rows], losses[rows] * 0.9, losses[rows] * 1.1, 0.9, there[rows], there[rows], (),
        )  # fmt: skip

    for count in (1, 6):
        show(prediction_view(points(count), verbose=False))
        text = capsys.readouterr().out
        assert len(text.splitlines()) < 60
        assert max(map(len, text.splitlines())) <= 80
        assert names[int(np.argmax(losses[0]))] in text
        assert "more targets" in text
        show(prediction_view(points(count), verbose=True))
        text = capsys.readouterr().out
        assert all(name in text for name in names)
    unknown = np.full(200, np.nan)
    table = Languages(names, (None,) * 200, np.arange(1.0, 201.0) * 1e9, None, unknown)
    show(baselines_view([Baseline("uniform", p[0], unknown)], table, 1e10, verbose=False))
    text = capsys.readouterr().out
    assert "language199" in text
    assert "160 smaller languages" in text
    assert len(text.splitlines()) < 100


def test_examples_are_kept_unless_they_are_ours(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "folder"
    files = run("example", "-o", folder, "--json").document["files"]
    assert all(Path(name).stat().st_size > 0 for name in files)
    assert run("example", "-o", folder).code == 0
    (folder / "runs.csv").write_text("mine")
    assert run("example", "-o", folder).code == 2
    assert (folder / "runs.csv").read_text() == "mine"
    assert run("example", "-o", folder, "--force").code == 0
    assert (folder / "runs.csv").read_text().startswith("run,")


def test_a_fit_of_200_languages_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"language{place}" for place in range(200))
    rng = np.random.default_rng(1)
    rows = 24
    loss = rng.uniform(2, 4, (rows, 200))
    log = RunLog(
        tuple(f"run{row}" for row in range(rows)),
        np.repeat([1e7, 1e8, 1e9, 1e10], 6),
        np.tile(np.geomspace(1e9, 1e11, 6), 4),
        rng.dirichlet(np.ones(200), rows),
        loss,
        names,
        names,
    )
    found = sm.fit(log, "chinchilla", bootstrap=0, folds=0, threads=1)
    show(fit_view(found, verbose=False))
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if line.startswith("language")]
    assert len(tables) <= 31 + sum(one.advice != "" for one in found.status)
    assert any("170 more targets with lower errors" in line for line in lines)
    show(fit_view(found, verbose=True))
    assert all(name in capsys.readouterr().out for name in names[:1])


def test_what_is_repeated_is_said_of_mixtures_and_of_a_table_as_the_core_says_it(
    predict: Callable[..., Outcome], saved: Path, fixtures: Path, tmp_path: Path
) -> None:
    """With a TABLE, --languages did nothing and said nothing."""
    languages = fixtures / "multilingual5_languages.csv"
    words = ("-N", "25k,97600", "-D", "400M", "--languages", languages)
    mixed = predict("--mixture", "uniform", *words).err
    shares = {f"p_{name}": [0.2] for name in LANGUAGES}
    pl.DataFrame({"run": ["uniform"], "N": [97600], "D": [400_000_000]} | shares).write_csv(tmp_path / "points.csv")
    tabled = predict(tmp_path / "points.csv", "--languages", languages).err
    found = Fit.load(saved).predict("uniform", "97600", "400M", runs=("uniform",), languages=languages)
    (truth,) = (text for text in found.warnings if "repeats" in text)
    for told in (mixed, tabled):
        assert told.count(f"warning: {truth}") == 1
