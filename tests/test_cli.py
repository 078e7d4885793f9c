"""What every command shows, as text and as JSON, on the repository's own fixtures."""

from __future__ import annotations

import io
import json
import math
import random
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import commands
from shapleymix_cli.views.fit import fit_view
from shapleymix_cli.views.tables import matrix, show

from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.game import exact_shapley
from shapleymix.laws.shapley import ShapleyTempered
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.transfer_reading import read_transfer

LANGUAGES = ("en", "de", "fr", "zh", "ja")
QUICK = ("--law", "shapley-tempered", "--bootstrap", "8")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def made(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sv.csv and fit.json, as the commands write them."""
    folder = tmp_path_factory.mktemp("made")
    sv, result = folder / "sv.csv", folder / "fit.json"
    game, runs = fixtures / "multilingual5_coalitions.csv", fixtures / "multilingual5_runs.csv"
    call = ["fit", str(runs), *QUICK, "--transfer", str(sv), "-o", str(result), "-q"]
    assert commands.main(["shapley", str(game), "-o", str(sv), "-q"], standalone_mode=False) == 0
    assert commands.main(call, standalone_mode=False) == 0
    return folder


def test_shapley_values_are_those_of_the_definition(run: Run, fixtures: Path) -> None:
    game = read_runs(fixtures / "multilingual5_coalitions.csv")
    mask = (game.p > 0) @ (1 << np.arange(5))
    loss = game.loss[np.argsort(np.where(game.D > 0, mask, 0))]
    truth = exact_shapley(loss[0] - loss)
    document = run("shapley", game.origin, "--json").document
    found = np.array([[document["sv"][i][j] for j in LANGUAGES] for i in LANGUAGES])
    nsv = np.array([[document["nsv"][i][j] for j in LANGUAGES] for i in LANGUAGES])
    np.testing.assert_allclose(found, truth, rtol=1e-12)
    np.testing.assert_allclose(nsv, np.exp(truth - truth.max(axis=0)), rtol=1e-12)
    assert document["efficiency_residual"] < 1e-12
    assert document["schema_version"] == 1


def test_shapley_writes_what_transfer_reads(run: Run, made: Path, fixtures: Path) -> None:
    shown = run("shapley", fixtures / "multilingual5_coalitions.csv", "--json").document
    read = run("transfer", made / "sv.csv", "--json").document
    assert read["sv"] == shown["sv"]
    assert read["provenance"]["method"] == "exact"


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "json"])
def test_shapley_writes_every_format(run: Run, fixtures: Path, tmp_path: Path, ending: str) -> None:
    goal = tmp_path / f"sv.{ending}"
    assert run("shapley", fixtures / "multilingual5_coalitions.csv", "-o", goal, "-q").code == 0
    matrix = read_transfer(goal)
    assert matrix.provenance["command"].startswith("shapleymix shapley ")
    game = fixtures / "multilingual5_coalitions.csv"
    assert matrix.provenance["inputs"] == {str(game): sha256(game.read_bytes()).hexdigest()}


def test_sampled_values_have_errors_and_stay_efficient(run: Run, fixtures: Path) -> None:
    log = fixtures / "multilingual5_coalitions.csv"
    document = run("shapley", log, "--sampled", "--samples", 14, "--seed", 1, "--json").document
    assert document["coalitions"] == 16
    assert document["efficiency_residual"] < 1e-9
    assert all(document["stderr"][i][j] > 0 for i in LANGUAGES for j in LANGUAGES)
    assert "±" in run("shapley", log, "--sampled", "--samples", 14, "--seed", 1).out


def test_transfer_compares_as_published(run: Run, made: Path, fixtures: Path) -> None:
    irds = fixtures / "multilingual5_irds_raw.csv"
    calibrated = run("transfer", irds, made / "sv.csv", "--calibrate", "--json").document
    assert round(calibrated["cosine"], 3) == 0.978
    assert round(calibrated["pearson"], 3) == 0.952
    assert round(calibrated["pearson_off_diagonal"], 3) == 0.845
    assert set(calibrated["targets"]) == set(LANGUAGES)
    assert run("transfer", irds, made / "sv.csv", "--json").document["cosine"] < 0.85
    assert "0.978" in run("transfer", irds, made / "sv.csv", "--calibrate").out


def test_transfer_calibrates_both_matrices_that_have_drops(run: Run, fixtures: Path, tmp_path: Path) -> None:
    """Calibrated against itself a matrix is itself, whichever of the two was calibrated before."""
    irds, done = fixtures / "multilingual5_irds_raw.csv", tmp_path / "calibrated.csv"
    assert run("transfer", irds, "--calibrate", "-o", done).code == 0
    for one, other in ((irds, irds), (irds, done), (done, irds)):
        found = run("transfer", one, other, "--calibrate", "--json").document
        assert math.isclose(found["pearson_off_diagonal"], 1.0, rel_tol=1e-9)


def test_transfer_calibrates_with_drops_from_three_places(run: Run, fixtures: Path) -> None:
    irds, game = fixtures / "multilingual5_irds_raw.csv", fixtures / "multilingual5_coalitions.csv"
    sv = run("transfer", irds, "--drops", game, "--json").document["sv"]
    untrained, grand = (read_runs(game).loss[row] for row in (0, -1))
    for place, target in enumerate(LANGUAGES):
        drop = untrained[place] - grand[place]
        assert math.isclose(sum(sv[source][target] for source in LANGUAGES), drop, rel_tol=1e-9)
    given = run("transfer", irds, "--drops", "en=1,de=2,fr=3,zh=4,ja=5", "--json").document["sv"]
    assert math.isclose(sum(given[source]["zh"] for source in LANGUAGES), 4.0, rel_tol=1e-9)


def test_fit_document_is_the_fit(run: Run, made: Path, fixtures: Path) -> None:
    log, sv = fixtures / "multilingual5_runs.csv", made / "sv.csv"
    document = run("fit", log, *QUICK, "--transfer", sv, "--json").document
    truth = fit(str(log), "shapley-tempered", str(sv), bootstrap=8)
    assert isinstance(truth.law, ShapleyTempered)
    assert truth.held_out is not None
    assert document["held_out"]["mean"]["PE"] == truth.held_out.mean["PE"]
    assert document["fitted"]["targets"]["zh"]["PE"] == truth.fitted_scores.PE[3]
    assert document["parameters"]["kappa"]["en"]["value"] == truth.law.kappa[0]
    assert document["parameters"]["gamma"]["de"]["low"] <= document["parameters"]["gamma"]["de"]["high"]
    assert document["held"].keys() == truth.held.keys()


def test_fit_saves_the_call_and_not_its_file_name(run: Run, made: Path, fixtures: Path, tmp_path: Path) -> None:
    log, sv = fixtures / "multilingual5_runs.csv", made / "sv.csv"
    assert run("fit", log, *QUICK, "--transfer", sv, "-o", tmp_path / "other.json", "--json").code == 0
    assert (tmp_path / "other.json").read_bytes() == (made / "fit.json").read_bytes()
    known = Fit.load(made / "fit.json").provenance
    assert known["command"] == f"shapleymix fit {log} --law shapley-tempered --bootstrap 8 --transfer {sv}"
    assert known["seed"] == 0
    assert known["inputs"] == {str(path): sha256(path.read_bytes()).hexdigest() for path in (log, sv)}


def test_fit_chooses_and_shows_how(run: Run, fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    log, goal = fixtures / "multilingual5_coalitions.csv", tmp_path / "fit.json"
    call = ("fit", log, "--folds", 5, "--bootstrap", 0, "--min-own-tokens", "1k", "-o", goal)
    document = run(*call, "--json").document
    laws = document["selection"]["laws"]
    scored = [law["mean"]["PE"] for law in laws if law["error"] is None]
    assert len(scored) > 3
    assert scored == sorted(scored)
    assert document["law"] == document["selection"]["preferred"]
    show(fit_view(Fit.load(goal), verbose=True))
    text = capsys.readouterr().out
    assert f"{document['law']} (chosen)" in text
    assert all(law["law"] in text for law in laws)
    assert f"{scored[0]:.2%}" in text


def test_fit_tells_bounds_from_values(run: Run, fixtures: Path) -> None:
    log = fixtures / "multilingual5_runs.csv"
    outcome = run("fit", log, "--law", "learned-base", "--min-own-tokens", "20k", "--bootstrap", 20, "--folds", 0)
    block = outcome.out.split("Parameters with")[1].split("\n\n")[0]
    assert "< " in block
    assert "alpha: the log holds two N" in outcome.out


def test_predict_gives_the_laws_own_numbers(run: Run, made: Path) -> None:
    document = run("predict", made / "fit.json", "--mixture", "en=0.5,de=0.5", "-N", "97600", "-D", "2M,4M", "--json")
    first, second = document.document["predictions"]
    truth = Fit.load(made / "fit.json").predict("en=0.5,de=0.5", 97600, 2e6)
    for name, values in (("loss", truth.losses), ("low", truth.low), ("high", truth.high)):
        known = [None if np.isnan(value) else value for value in values[0].tolist()]
        assert list(first[name].values()) == known
    assert (first["run"], first["N"], second["D"]) == ("en=0.5,de=0.5", 97600.0, 4e6)
    assert any("D lies outside" in warning for warning in document.document["warnings"])
    assert "warning: D lies outside" in document.err


def test_predict_takes_a_table_without_losses(run: Run, made: Path, fixtures: Path, tmp_path: Path) -> None:
    rows = [line.split(",")[:8] for line in (fixtures / "multilingual5_runs.csv").read_text().splitlines()]
    (tmp_path / "points.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    points = run("predict", made / "fit.json", tmp_path / "points.csv", "--json").document["predictions"]
    full = run("predict", made / "fit.json", fixtures / "multilingual5_runs.csv", "--json").document["predictions"]
    assert points == full
    assert len(points) == 76
    assert "cc-138k-1M" in run("predict", made / "fit.json", tmp_path / "points.csv").out


def test_evaluate_scores_each_target(run: Run, made: Path, fixtures: Path) -> None:
    outcome = run("evaluate", made / "fit.json", fixtures / "multilingual5_runs.csv", "--json")
    score = outcome.document["score"]
    log = read_runs(fixtures / "multilingual5_runs.csv")
    miss = np.abs(Fit.load(made / "fit.json").predict(log.p, log.N, log.D).losses - log.loss)
    assert math.isclose(score["mean"]["PE"], (miss.mean(axis=0) / log.loss.mean(axis=0)).mean())
    assert math.isclose(np.mean([score["targets"][name]["PE"] for name in LANGUAGES]), score["mean"]["PE"])
    assert set(score["mean"]) == {"PE", "R2", "spearman", "coverage"}
    assert "no held-out scores" in outcome.err


def test_compare_takes_a_users_own_laws(run: Run, fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from dataclasses import dataclass\n"
        "from shapleymix.laws.learned_base import LearnedBase\n\n"
        "class Flat:\n"
        "    def predict(self, p, N, D):\n"
        "        return np.full((len(N), 5), 2.5)\n\n"
        "@dataclass(frozen=True)\n"
        "class Own(LearnedBase):\n"
        "    kind = 'law/own-for-a-test'\n"
        "    name = 'own'\n"
    )
    names = f"chinchilla,learned-base,{tmp_path}/mine.py:Flat,{tmp_path}/mine.py:Own"
    call = ("compare", fixtures / "multilingual5_runs.csv", "--laws", names, "--folds", 2)
    document = run(*call, "--json").document
    laws = {law["law"]: law for law in document["laws"]}
    assert set(laws) == {"chinchilla", "learned-base", "Flat", "own"}
    assert laws["own"]["mean"]["PE"] == laws["learned-base"]["mean"]["PE"]
    assert laws["Flat"]["parameters"] is None
    assert document["better"]["own"]["learned-base"] == 0.5
    text = run(*call).out
    assert "Probability that the row's law" in text


def test_compare_says_where_a_law_is_undefined(run: Run, fixtures: Path) -> None:
    table = fixtures / "multilingual5_languages.csv"
    call = ("compare", fixtures / "multilingual5_runs.csv", "--laws", "family,chinchilla", "--languages", table)
    outcome = run(*call, "--folds", 4, "--min-own-tokens", 0, "--json")
    laws = {law["law"]: law for law in outcome.document["laws"]}
    assert laws["family"]["coverage"] < 1 == laws["chinchilla"]["coverage"]
    assert "undefined" in outcome.err


def test_compare_knows_other_designs(run: Run, fixtures: Path, tmp_path: Path) -> None:
    runs = fixtures / "multilingual5_runs.csv"
    lines = runs.read_text().splitlines()
    kinds = ["split", *("held-out" if row % 3 == 0 else "fit" for row in range(len(lines) - 1))]
    (tmp_path / "log.csv").write_text("\n".join(map(",".join, zip(lines, kinds, strict=True))) + "\n")
    by_size = run("compare", runs, "--laws", "chinchilla", "--leave-largest-N", "--json").document
    by_split = run("compare", tmp_path / "log.csv", "--laws", "chinchilla", "--split", "--json").document
    assert by_size["rows"] == (read_runs(runs).N == 97600).sum()
    assert by_split["rows"] == kinds.count("held-out")


def test_laws_lists_all(run: Run) -> None:
    from shapleymix.laws import BLACK_BOXES, LAWS

    document = run("laws --json").document
    assert [law["law"] for law in document["laws"]] == [*LAWS, *BLACK_BOXES]
    assert all(law["formula"] and law["reference"] for law in document["laws"])
    text = run("laws").out
    assert all(law["formula"] in " ".join(text.split()) for law in document["laws"])
    assert run("laws learned-base").out.startswith("learned-base\n")


def test_rows_in_another_order_change_nothing(run: Run, made: Path, fixtures: Path, tmp_path: Path) -> None:
    lines = (fixtures / "multilingual5_runs.csv").read_text().splitlines()
    shuffled = lines[1:]
    random.Random(3).shuffle(shuffled)
    (tmp_path / "log.csv").write_text("\n".join([lines[0], *shuffled]) + "\n")
    call = ("--law", "shapley-tempered", "--bootstrap", 5, "--transfer", made / "sv.csv")
    straight = run("fit", fixtures / "multilingual5_runs.csv", *call)
    assert run("fit", tmp_path / "log.csv", *call).out == straight.out


def test_the_same_call_gives_the_same_bytes(run: Run, made: Path, fixtures: Path) -> None:
    call = ("compare", fixtures / "multilingual5_runs.csv", "--laws", "learned-base,chinchilla", "--folds", 2, "--json")
    assert run(*call).out == run(*call).out


def test_several_logs_are_one(run: Run, fixtures: Path) -> None:
    logs = (fixtures / "multilingual5_runs.csv", fixtures / "multilingual5_coalitions.csv")
    call = ("--law", "chinchilla", "--bootstrap", 0, "--folds", 0, "--json")
    assert run("fit", *logs, *call).document["rows"] == 76 + 31


def test_standard_input_is_a_log(run: Run, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fixtures / "multilingual5_coalitions.csv"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(log.read_bytes())))
    assert run("shapley - --json").document["sv"] == run("shapley", log, "--json").document["sv"]


def test_a_log_without_ratios_needs_no_mixture(run: Run, tmp_path: Path) -> None:
    sizes, tokens = np.meshgrid(np.geomspace(1e7, 1e10, 6), np.geomspace(1e9, 1e12, 6))
    loss = 1.8 + 480 / sizes**0.35 + 2100 / tokens**0.37
    rows = zip(sizes.ravel().tolist(), tokens.ravel().tolist(), loss.ravel().tolist(), strict=True)
    lines = [f"r{row},{N},{D},{value}" for row, (N, D, value) in enumerate(rows)]
    log, goal = tmp_path / "log.csv", tmp_path / "fit.json"
    log.write_text("\n".join(["run,N,D,loss", *lines]) + "\n")
    assert run("fit", log, "--bootstrap", 0, "--folds", 3, "-o", goal, "--json").document["law"] == "chinchilla"
    (point,) = run("predict", goal, "-N", "70B", "-D", "1.4T", "--json").document["predictions"]
    truth = 1.8 + 480 / 70e9**0.35 + 2100 / 1.4e12**0.37
    assert math.isclose(point["loss"]["loss"], truth, rel_tol=1e-4)
    assert run("predict", goal, "--mixture", "uniform", "-N", "1B", "-D", "1B").code == 2


@pytest.mark.parametrize("count", [1, 3, 40])
def test_wide_matrices_are_cut_between_columns(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"language{place}" for place in range(count)]
    show(matrix("source", ["a", "b"], names, [[f"{row}.{place}" for place in range(count)] for row in "01"]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [word for line in lines if line.startswith("source") for word in line.split()[1:]] == names
    cells = [word for line in lines if line.startswith("b ") for word in line.split()[1:]]
    assert cells == [f"1.{place}" for place in range(count)]


def test_quiet_keeps_standard_error_empty(run: Run, made: Path, fixtures: Path) -> None:
    call = ("evaluate", made / "fit.json", fixtures / "multilingual5_runs.csv", "--json")
    loud, quiet = run(*call), run(*call, "-q")
    assert loud.err
    assert quiet.err == ""
    assert quiet.out == loud.out == json.dumps(loud.document, indent=2) + "\n"
