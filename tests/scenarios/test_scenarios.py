"""What the README promises, each as a user types it: the command line in an empty folder, and the calls in Python.

A scenario asks for a truth of the answer (bounds held, a sum, another command's number), never for wording.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shapleymix as sm

BUDGET = ("-N", "97600", "-D", "2M")
SOURCES = ("en", "de", "fr", "zh", "ja")
QUICK = ("--bootstrap", "20", "--folds", "2")


def typed(*words: str, folder: Path, code: int = 0) -> str:
    """Standard output of one command, which ends with that exit code and without a traceback."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "shapleymix_cli", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def answer(*words: str, folder: Path, code: int = 0) -> dict[str, Any]:
    """The document that a command prints with `--json`."""
    return json.loads(typed(*words, "--json", folder=folder, code=code))


def ratios(document: dict[str, Any]) -> dict[str, float]:
    """The mixture of a document, by name."""
    return dict(zip(document["sources"], document["p"], strict=True))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first commands have run: example, shapley, fit, optimize."""
    folder = tmp_path_factory.mktemp("home")
    typed("example", "-o", ".", folder=folder)
    (folder / "shapleymix.toml").unlink()
    typed("shapley", "coalitions.csv", "-o", "sv.csv", folder=folder)
    printed = typed("fit", "runs.csv", *QUICK, "-o", "fit.json", "--json", folder=folder)
    (folder / "printed.json").write_text(printed)
    typed("optimize", "fit.json", *BUDGET, "--languages", "languages.csv", "-o", "mixture.json", folder=folder)
    return folder


@pytest.fixture(scope="module")
def fit(home: Path) -> sm.Fit:
    return sm.Fit.load(home / "fit.json")


def optimum(home: Path, *words: str) -> dict[str, Any]:
    """The optimum of the example's fit under further options."""
    return answer("optimize", "fit.json", *BUDGET, *words, folder=home)


# --- fits -------------------------------------------------------------------------------------------------------------


def test_json_of_fit_is_what_predict_reads(home: Path) -> None:
    asked = ("--mixture", "uniform", *BUDGET)
    one, other = (answer("predict", name, *asked, folder=home) for name in ("printed.json", "fit.json"))
    assert one["losses"] == other["losses"]


def test_laws_are_listed_and_compared(home: Path) -> None:
    names = {row["name"] for row in answer("laws", folder=home)["laws"]}
    assert {"learned-base", "shapley", "chinchilla"} <= names
    found = answer("compare", "runs.csv", "--laws", "learned-base,additive,chinchilla", "--folds", "4", folder=home)
    assert found["kind"] == "comparison"


def test_a_learning_rate_that_follows_the_size_or_the_mixture_is_told(home: Path) -> None:
    slow = {"one": 1e-3, "size": 1e-3 * (pl.col("N") / 97600) ** -0.3, "mixture": 10 ** (pl.col("p_en") - 3)}
    told = {}
    for name, rate in slow.items():
        pl.read_csv(home / "runs.csv").with_columns(learning_rate=rate).write_csv(home / f"rates-{name}.csv")
        words = ("fit", f"rates-{name}.csv", "--law", "additive", "--folds", "2", "--bootstrap", "0")
        told[name] = set(answer(*words, folder=home)["notices"])
    (by_size,), (by_mixture,) = (told[name] - told["one"] for name in ("size", "mixture"))
    assert "0.0015" in by_size, "the rate of the smallest size"
    assert by_mixture != by_size
    words = ["-N", "1k,2k", "-D", "1M", "--learning-rate", "3e-3,1e-3", "--command"]
    typed("plan", "grid", "runs.csv", *words, "t {mixture} {N} {learning_rate} {out}", "-o", "rates.jsonl", folder=home)
    plan = [json.loads(line)["command"] for line in (home / "rates.jsonl").read_text().splitlines()]
    assert {(one[2], one[3]) for one in plan} == {("1000", "0.003"), ("2000", "0.001")}


def test_four_runs_are_enough_for_the_default(home: Path) -> None:
    log = pl.read_csv(home / "runs.csv").filter(pl.col("N") == 97600, pl.col("D") < 1.5e6)
    log.tail(4).write_csv(home / "four.csv")
    typed("fit", "four.csv", "--bootstrap", "20", "-o", "four.json", folder=home)
    found = answer("optimize", "four.json", *BUDGET, folder=home)
    assert sum(found["p"]) == pytest.approx(1, abs=1e-9)


def test_runs_without_the_language_are_another_regime(home: Path) -> None:
    words = ("--law", "effective-data", "--bootstrap", "0", "--folds", "0")
    typed("fit", "runs.csv", "coalitions.csv", *words, "-o", "regimes.json", folder=home)
    found = answer("optimize", "regimes.json", *BUDGET, folder=home)
    even = answer("predict", "regimes.json", "--mixture", "uniform", *BUDGET, folder=home)
    mix = ",".join(f"{name}={ratio!r}" for name, ratio in ratios(found).items())
    same = answer("predict", "regimes.json", "--mixture", f"mix={mix}", *BUDGET, folder=home)
    assert found["objective"] == pytest.approx(np.mean(same["losses"]), abs=1e-9)
    assert found["objective"] <= np.mean(even["losses"])


def test_learning_curve_and_designed_runs(home: Path) -> None:
    found = answer("plan", "mixtures", "runs.csv", "--n", "4", "--caps", "zh=0.4", folder=home)
    assert all(row[found["sources"].index("zh")] <= 0.4 + 1e-9 for row in found["p"])


# --- the mixture and its bounds ---------------------------------------------------------------------------------------


def test_the_optimum_is_proved_and_beats_rivals(home: Path) -> None:
    found = optimum(home, "--compare-to", "mine=en=0.5,de=0.5")
    assert found["certificate"]["gap"] <= 1e-6
    assert all(found["objective"] <= rival["objective"] + 1e-9 for rival in found["baselines"])


def test_caps_floors_and_fixed_ratios(home: Path) -> None:
    p = ratios(optimum(home, "--caps", "ja=0.1", "--floors", "fr=0.3", "--fix", "de=0.2"))
    assert p["ja"] <= 0.1 + 1e-9
    assert p["fr"] >= 0.3 - 1e-9
    assert p["de"] == pytest.approx(0.2, abs=1e-9)


def test_groups(home: Path) -> None:
    p = ratios(optimum(home, "--groups", "zh+ja<=0.2", "--languages", "languages.csv", "--groups", "Germanic>=60%"))
    assert p["zh"] + p["ja"] <= 0.2 + 1e-7
    assert p["en"] + p["de"] >= 0.6 - 1e-7


def test_epochs_and_fewest_tokens(home: Path) -> None:
    p = ratios(optimum(home, "--available", "en=100k", "--max-epochs", "2", "--min-tokens", "zh=600k"))
    assert p["en"] <= 0.1 + 1e-9
    assert p["zh"] >= 0.3 - 1e-9


def test_bits_a_byte_in_and_out(home: Path) -> None:
    sizes = {"en": 4.5, "de": 4.0, "fr": 4.2, "zh": 3.0, "ja": 3.3}
    pl.DataFrame({"language": [*sizes], "bytes_per_token": [*sizes.values()]}).write_csv(home / "sizes.csv")
    factor = {name: 1 / (np.log(2) * size) for name, size in sizes.items()}
    bits = [pl.col(f"loss_{name}") * one for name, one in factor.items()]
    pl.read_csv(home / "runs.csv").with_columns(bits).write_csv(home / "bits.csv")
    read = ("--map", "unit=bpb", "--map", "bytes_per_token=sizes.csv")
    typed("import", "bits.csv", *read, "-o", "nats.csv", folder=home)
    np.testing.assert_allclose(sm.read_runs(home / "nats.csv").loss, sm.read_runs(home / "runs.csv").loss, rtol=1e-12)
    asked = ("--languages", "sizes.csv", "--unit", "bpb", "--groups", "zh+ja<=0.3")
    found = optimum(home, *asked)
    same = answer("predict", "fit.json", "--mixture", "uniform", *BUDGET, folder=home)
    told = answer("predict", "fit.json", "--mixture", "uniform", *BUDGET, *asked[:4], folder=home)
    np.testing.assert_allclose(told["losses"], np.array(same["losses"]) * [factor[name] for name in same["targets"]])
    assert (same["unit"], told["unit"]) == ("nats", found["unit"])
    assert found["objective_unit"] == found["unit"] != "nats"
    assert found["objective"] == pytest.approx(np.mean(found["losses"]))
    by_bytes = np.array(found["p"]) * [sizes[name] for name in found["sources"]]
    np.testing.assert_allclose(found["p_bytes"], by_bytes / by_bytes.sum())
    typed("optimize", "fit.json", *BUDGET, "--unit", "bpb", folder=home, code=2)


@pytest.mark.parametrize("distance", ["l1", "kl"])
def test_balls(home: Path, distance: str) -> None:
    p = np.array(optimum(home, "--near", "uniform", "--within", "0.05", "--distance", distance)["p"])
    far = np.abs(p - 0.2).sum() if distance == "l1" else float(np.sum(p * np.log(p / 0.2)))
    assert far <= 0.05 + 1e-7


def test_pull_towards_an_anchor(home: Path) -> None:
    free, pulled = (np.array(optimum(home, *words)["p"]) for words in ((), ("--anchor", "uniform", "--kl", "1")))
    assert np.abs(pulled - 0.2).sum() < np.abs(free - 0.2).sum()


def test_worst_case_and_weights(home: Path) -> None:
    worst = optimum(home, "--objective", "worst")
    assert max(worst["losses"]) == pytest.approx(worst["objective"], abs=1e-6)
    assert ratios(optimum(home, "--weights", "ja=1"))["ja"] > 0.5


def test_the_rest_of_a_run_already_begun(home: Path) -> None:
    begun = ("-D", "4M", "--after", "mixture.json", "--trained", "2M", "--available", "en=1M,de=1M,fr=1M,zh=1M,ja=1M")
    found = optimum(home, *begun, "-o", "rest.json")
    whole, read = found["p"], found["read"]
    assert all(4e6 * ratio >= tokens * (1 - 1e-9) for ratio, tokens in zip(whole, read, strict=True))
    written = answer("export", "rest.json", "--format", "json", folder=home)
    assert written["D"] == pytest.approx(2e6)
    zh = found["sources"].index("zh")
    assert written["tokens"]["zh"] == pytest.approx(4e6 * whole[zh] - read[zh])
    drawn = answer("plot", "mixture", "rest.json", folder=home)["numbers"]
    assert dict(zip(drawn["source"], drawn["rest"], strict=True)) == pytest.approx(written["mixture"])
    assert found["rest"] == pytest.approx(written["mixture"])
    later = ("-D", "4M", "--after", "rest.json", "--trained", "3M")
    further = optimum(home, *later)["read"]
    by_hand = [tokens + 1e6 * part for tokens, part in zip(read, found["rest"].values(), strict=True)]
    np.testing.assert_allclose(further, by_hand, atol=1)
    typed("optimize", "fit.json", *BUDGET[:2], *later[:-1], "1M", folder=home, code=1)


def test_parts_of_languages_are_groups_that_move_as_one(home: Path, fixtures: Path) -> None:
    (home / "parts.csv").write_bytes((fixtures / "nested_runs.csv").read_bytes())
    typed("fit", "parts.csv", *QUICK, "-o", "parts.json", folder=home)
    kept = ("--keep-within", "en", "--kept", "en/clean=.6,en/noised=.2,fr/clean=.2")
    words = ("optimize", "parts.json", "-N", "23712", "-D", "1M", "--groups", "en<=0.2", *kept)
    p = ratios(answer(*words, folder=home))
    assert p["en/clean"] == pytest.approx(3 * p["en/noised"])
    assert p["en/clean"] + p["en/noised"] <= 0.2 + 1e-9
    printed = typed(*words, folder=home)
    assert all(f"{p[f'{one}/clean'] + p[f'{one}/noised']:.4f}" in printed for one in ("en", "de", "fr"))
    pl.DataFrame({"language": SOURCES, "parent": ["west"] * 3 + ["east"] * 2}).write_csv(home / "parents.csv")
    typed("fit", "runs.csv", *QUICK, "--languages", "parents.csv", "-o", "east.json", folder=home)
    asked = (("--groups", text) for text in ("east<=0.2", "zh+ja<=0.2"))
    told, same = (answer("optimize", "east.json", *BUDGET, *one, folder=home) for one in asked)
    assert told["p"] == same["p"]


def test_infeasible_bounds_are_explained(home: Path) -> None:
    found = answer("optimize", "fit.json", *BUDGET, "--caps", "0.1", folder=home, code=1)
    assert found["error"]["hint"]


def test_prices_and_what_if(home: Path) -> None:
    words = ("--available", "en=100k,zh=100k", "--max-epochs", "1", "--what-if", "zh+100k")
    found = optimum(home, *words)
    assert {price["source"] for price in found["binding"]} >= {"zh"}
    more = optimum(home, "--available", "en=100k,zh=200k", "--max-epochs", "1")
    assert found["what_if"][0]["objective"] == pytest.approx(more["objective"], abs=1e-9)


def test_compute_optimal_refuses_what_no_run_tells(home: Path) -> None:
    log = pl.read_csv(home / "runs.csv")
    log.filter(pl.col("N") == log["N"].max()).write_csv(home / "one-size.csv")
    typed("fit", "one-size.csv", "--bootstrap", "4", "--folds", "0", "-o", "one-size.json", folder=home)
    assert answer("optimize", "one-size.json", "--flops", "1e13", folder=home, code=1)["error"]


def test_a_language_without_runs_is_like_another(home: Path) -> None:
    found = answer("optimize", "fit.json", *BUDGET, "--like", "nl=de", folder=home)
    assert "nl" in found["sources"]


def test_a_project_file_and_what_is_typed_merge_by_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "shapleymix.toml").write_text("caps = {ja = 0.1}\n")
    (tmp_path / "fit.json").write_bytes((home / "fit.json").read_bytes())
    p = ratios(answer("optimize", "fit.json", *BUDGET, "--caps", "zh=0.1", folder=tmp_path))
    assert p["ja"] <= 0.1 + 1e-9
    assert p["zh"] <= 0.1 + 1e-9


# --- in and out -------------------------------------------------------------------------------------------------------


def test_import_by_a_map(home: Path) -> None:
    typed("import", "wandb.csv", "--show", folder=home)
    keys = ("run=Name", "N=97.6k", "D=tokens", "p=w_{lang}", "loss=eval/loss/{lang}", "ratio_unit=percent")
    maps = [word for key in keys for word in ("--map", key)]
    typed("import", "wandb.csv", *maps, "-o", "imported.csv", folder=home)
    assert len(sm.read_runs(home / "imported.csv")) > 3


@pytest.mark.parametrize(
    "form",
    ["megatron", "hf", "mosaic", "olmo-core", "litdata", "torchtitan", "nanotron", "levanter", "llama-factory", "json"],
)
def test_exports(home: Path, form: str) -> None:
    words = ("--format", form, "--paths", "paths.csv", "-o", f"blend-{form}", "--force")
    typed("export", "mixture.json", *words, folder=home)
    assert (home / f"blend-{form}").stat().st_size > 0


@pytest.mark.parametrize(
    "words", [("transfer", "sv.csv"), ("fit", "fit.json", "runs.csv"), ("mixture", "mixture.json")]
)
def test_figures(home: Path, words: tuple[str, ...]) -> None:
    typed("plot", *words, "-o", f"{words[0]}.svg", "--force", folder=home)
    assert "<title>" in (home / f"{words[0]}.svg").read_text()
    assert answer("plot", *words, folder=home)["numbers"]


def test_the_page(home: Path) -> None:
    typed("report", "fit.json", "--mixture", "mixture.json", "--log", "runs.csv", "-o", "report.html", folder=home)
    text = (home / "report.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "<table" in text


def test_from_a_swarm_of_olmix_to_a_blend(home: Path) -> None:
    typed("example", folder=home)
    typed("import", "example/olmix", "-o", "swarm.csv", folder=home)
    typed("fit", "swarm.csv", "--bootstrap", "0", "-o", "swarm.json", folder=home)
    asked = ("-N", "30M", "-D", "6T", "--max-epochs", "4", "--languages", "swarm.languages.csv", "--unit", "bpb")
    found = answer("optimize", "swarm.json", *asked, "-o", "topics.json", folder=home)
    assert max(found["epochs"]) == pytest.approx(4)
    natural = next(one for one in found["baselines"] if one["name"] == "natural")
    assert found["objective"] < natural["objective"] < 4, "bits a byte"
    paths = ("--paths", "example/olmix/paths.csv", "-o", "blend.txt")
    typed("export", "topics.json", "--format", "megatron", *paths, folder=home)
    weights = [float(line.split()[0]) for line in (home / "blend.txt").read_text().splitlines()]
    np.testing.assert_allclose(weights, found["p"], atol=1e-9)


# --- sweeps and refusals ----------------------------------------------------------------------------------------------


TRAINER = """
import pathlib, sys
mixture, N, D, out = sys.argv[1:]
shares = [part.rsplit("=", 1) for part in mixture.split(",")]
losses = ",".join(f"loss_{name}" for name in "ab")
row = ",".join(str(3 - dict(shares).get(name, "0").__len__() / 10) for name in "ab")
pathlib.Path(out, "runs.csv").write_text(f"run,N,D,{losses}\\nx,{N},{D},{row}\\n")
"""


def test_a_sweep_is_planned_launched_and_collected(home: Path) -> None:
    (home / "trainer.py").write_text(TRAINER)
    command = f"{sys.executable} trainer.py {{mixture}} {{N}} {{D}} {{out}}"
    words = ("-N", "1M", "-D", "1M", "--command", command)
    typed("plan", "game", "--sources", "a,b", *words, "-o", "game.jsonl", folder=home)
    typed("launch", "game.jsonl", "--jobs", "2", folder=home)
    typed("launch", "game.jsonl", "--jobs", "2", folder=home)  # again: nothing is left to do
    typed("collect", "game.jsonl", "-o", "swept.csv", folder=home)
    assert len(sm.read_runs(home / "swept.csv")) == 3


@pytest.mark.parametrize(("cell", "word"), [("O.62", "number"), ("1.7", "")])
def test_a_wrong_log_is_one_plain_error(home: Path, cell: str, word: str) -> None:
    lines = (home / "runs.csv").read_text().splitlines()
    column = lines[0].split(",").index("p_en")
    cells = lines[3].split(",")
    cells[column] = cell
    lines[3] = ",".join(cells)
    (home / "broken.csv").write_text("\n".join(lines) + "\n")
    error = answer("fit", "broken.csv", folder=home, code=1)["error"]
    assert error["location"]["line"] == 4
    assert word in error["message"]


def test_wrong_usage_is_told_from_wrong_data(home: Path) -> None:
    assert answer("optimize", "fit.json", *BUDGET, "--weights", "xx=1", folder=home, code=2)["error"]["hint"]
    typed("fit", "no-such-file.csv", folder=home, code=1)
    typed("optimize", "--no-such-option", folder=home, code=2)
