"""`shapleymix optimize`: what it prints is the optimum, its bounds are those asked for, and bad demands are told."""

from __future__ import annotations

import json
import math
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_tools import Outcome, Run, runner
from shapleymix_cli.main import commands
from shapleymix_cli.views.optimize import mixture_view, scales_view
from shapleymix_cli.views.tables import show

from shapleymix.fitting.fits import Fit
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize as run_optimize

LANGUAGES = ("en", "de", "fr", "zh", "ja")
BUDGET = ("-N", "97600", "-D", "2M")


def fit_of(law: str, log: Path, goal: Path) -> Path:
    options = ["--law", law, "--min-own-tokens", "20k", "--bootstrap", "12", "--folds", "0", "-q"]
    assert commands.main(["fit", str(log), *options, "-o", str(goal)], standalone_mode=False) == 0
    return goal


@pytest.fixture(scope="module")
def saved(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_of("learned-base", fixtures / "multilingual5_runs.csv", tmp_path_factory.mktemp("fits") / "fit.json")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def optimize(run: Run, saved: Path):
    def call(*words: Any) -> Outcome:
        return run("optimize", saved, *BUDGET, *words)

    return call


def ratios(document: Any) -> np.ndarray:
    return np.array([document["mixture"][name] for name in LANGUAGES])


def test_no_other_mixture_is_better(optimize, saved: Path) -> None:
    document = optimize("--json").document
    p, fit = ratios(document), Fit.load(saved)
    others = np.random.default_rng(0).dirichlet(np.ones(5), size=400)
    near = 0.98 * p + 0.02 * others
    losses = [fit.predict(q, 97600, 2e6).losses.mean(axis=1) for q in (others, near)]
    assert math.isclose(p.sum(), 1.0, rel_tol=1e-12)
    assert math.isclose(fit.predict(p, 97600, 2e6).losses.mean(), document["objective"], rel_tol=1e-12)
    assert document["objective"] - document["certificate"]["gap"] <= min(map(np.min, losses))
    assert document["certificate"]["relative_gap"] <= 1e-9
    assert list(document["by_target"]) == list(LANGUAGES)


def test_the_text_rounds_what_the_json_has(optimize) -> None:
    document, text = optimize("--json").document, optimize().out
    for name in LANGUAGES:
        assert f"{document['mixture'][name]:.4f}" in text
        assert f"{document['by_target'][name]['loss']:.3f}" in text
    assert f"{document['objective']:.4f} nats" in text
    assert "Certificate: no mixture within the bounds is better by more than" in text
    assert document["baselines"][0]["name"] == "uniform"
    assert f"{document['baselines'][0]['gain']:.4f}" in text


def test_a_saved_mixture_is_a_rival_and_an_anchor(optimize, tmp_path: Path) -> None:
    goal = tmp_path / "mixture.json"
    document = optimize("-o", goal, "--json").document
    assert Mixture.load(goal).mixture == document["mixture"]
    written = json.loads(goal.read_text())
    assert written == document  # one document, printed or written
    assert Mixture.load(goal).provenance["command"].startswith("shapleymix optimize ")
    rivals = optimize("--compare-to", goal, "--compare-to", "plan=en=0.5,de=0.5", "--json").document["baselines"]
    assert [rival["name"] for rival in rivals] == ["uniform", str(goal), "plan"]
    assert abs(rivals[1]["gain"]) < 1e-12
    assert rivals[2]["gain"] > 0
    assert rivals[2]["probability"] == 1.0
    near = optimize("--anchor", goal, "--kl", 5, "--json").document
    np.testing.assert_allclose(ratios(near), ratios(document), atol=1e-6)


def test_bounds_hold_and_have_prices(optimize) -> None:
    free = optimize("--json").document
    document = optimize("--cap", "zh=0.1,ja=0.2", "--floor", "en=0.3", "--json").document
    p = dict(zip(LANGUAGES, ratios(document), strict=True))
    assert p["zh"] <= 0.1 + 1e-12
    assert p["ja"] <= 0.2 + 1e-12
    assert p["en"] >= 0.3 - 1e-12
    assert document["objective"] > free["objective"]
    assert {(cap["source"], cap["side"]) for cap in document["binding"]} == {
        ("zh", "cap"),
        ("ja", "cap"),
        ("en", "floor"),
    }
    looser = optimize("--cap", "zh=0.101,ja=0.2", "--floor", "en=0.3", "--json").document
    price = next(cap["per_ratio"] for cap in document["binding"] if cap["source"] == "zh")
    assert math.isclose((document["objective"] - looser["objective"]) / 0.001, price, rel_tol=0.02)


def test_a_languages_table_caps_and_weighs(optimize, fixtures: Path, tmp_path: Path) -> None:
    table = tmp_path / "languages.csv"
    rows = (fixtures / "multilingual5_languages.csv").read_text().splitlines()
    weights = ["weight", "1", "1", "1", "5", "1"]
    table.write_text("\n".join(map(",".join, zip(rows, weights, strict=True))) + "\n")
    outcome = optimize("--languages", table, "--max-epochs", "0.3", "--json")
    document = outcome.document
    assert math.isclose(document["by_source"]["zh"]["cap"], 1586130 * 0.3 / 2e6)
    assert math.isclose(document["by_source"]["zh"]["epochs"], 0.3, rel_tol=1e-9)
    assert math.isclose(document["by_target"]["zh"]["weight"], 5 / 9)
    assert "--weights unweighted ignores that" in outcome.err
    plain = optimize("--languages", table, "--max-epochs", "0.3", "--weights", "unweighted", "--json").document
    assert math.isclose(plain["by_target"]["zh"]["weight"], 1 / 5)
    assert [rival["name"] for rival in plain["baselines"]] == ["uniform", "smoothed (0.5)", "natural"]
    assert "epochs" in optimize("--languages", table, "--max-epochs", "0.3").out


def test_groups_and_the_worst_case(optimize) -> None:
    document = optimize("--group", "cjk: zh+ja>=0.6", "--json").document
    assert document["mixture"]["zh"] + document["mixture"]["ja"] >= 0.6 - 1e-9
    assert document["certificate"]["relative_gap"] <= 1e-6
    worst = optimize("--objective", "worst", "--json").document
    assert math.isclose(worst["objective"], max(worst["losses"]), rel_tol=1e-9)
    assert worst["objective"] <= max(document["losses"])


def test_strict_covers_the_optimum_and_names_what_is_outside(run: Run, saved: Path) -> None:
    far = ("optimize", saved, "-N", "97600", "-D", "2B")
    assert "lies outside" in run(*far).err
    refused = run(*far, "--strict")
    assert (refused.code, refused.out) == (1, "")
    assert "no prediction for" in refused.err
    assert "D lies outside" in refused.err
    both = run("optimize", saved, "-N", "1B", "-D", "2B", "--strict").err.splitlines()
    assert both[0] == "error: no prediction for en, de, fr, zh, ja:"
    assert [line.partition(" lies")[0] for line in both[1:3]] == ["N", "D"]
    assert both[-1].startswith("  hint: ")
    near = run("optimize", saved, *BUDGET, "--strict", "--compare-to", "far=en=1")
    assert near.code == 0, near.err  # a rival outside of what was fitted is no reason to refuse the optimum


def test_what_more_data_would_bring(optimize, fixtures: Path, tmp_path: Path) -> None:
    table, goal = fixtures / "multilingual5_languages.csv", tmp_path / "mixture.json"
    words = ("--languages", table, "--max-epochs", 0.3)
    outcome = optimize(*words, "--what-if", "zh+1M", "--what-if", "zh+1M,ja-100k", "-o", goal, "--json")
    first, second = outcome.document["what_if"]
    again = optimize(*words, "--available", f"zh={1586130 + 1e6}", "--json").document
    assert math.isclose(first["objective"], again["objective"], rel_tol=1e-9)
    assert math.isclose(first["gain"], outcome.document["objective"] - again["objective"], rel_tol=1e-6)
    assert first["gain_low"] <= first["gain"] <= first["gain_high"] * 1.5
    assert second["tokens"] == {"zh": 1e6, "ja": -1e5}
    assert Mixture.load(goal).what_if[1].gain == second["gain"]
    text = optimize(*words, "--what-if", "zh+1M").out
    assert "With other data at hand" in text
    assert f"{first['gain']:.4f}" in text
    assert f"zh {outcome.document['mixture']['zh']:.3f} -> {again['mixture']['zh']:.3f}" in text
    assert optimize("--what-if", "zh+1M").code == 2


def test_the_trade_off_between_two_sets_of_targets(optimize, tmp_path: Path) -> None:
    goal = tmp_path / "curve.json"
    words = ("--frontier", "zh+ja:rest", "--points", 5, "--cap", "zh=0.3")
    document = optimize(*words, "-o", goal, "--json").document
    assert json.loads(goal.read_text()) == document
    assert len(document["entries"]) == 5
    first, second = (np.array([entry[side] for entry in document["entries"]]) for side in ("first", "second"))
    assert (np.diff(first) < 0).all()
    assert (np.diff(second) > 0).all()
    asked = optimize("--weights", "zh=1,ja=1", "--cap", "zh=0.3", "--json").document
    assert math.isclose(asked["objective"], first[-1], rel_tol=1e-8)
    text = optimize(*words).out
    assert "Mean losses of zh+ja against en+de+fr" in text
    assert f"{first[0]:.4f}" in text
    assert f"{second[-1]:.4f}" in text
    for wrong, message in (("--points 5", "does nothing without"), ("--frontier en:eng", "'eng' is no target")):
        refused = optimize(*wrong.split())
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err
    assert optimize("--frontier", "en:rest", "-D", "1M,2M").code == 2


def test_compute_finds_n_and_d(run: Run, saved: Path) -> None:
    document = run("optimize", saved, "--flops", "1.2e12", "--json", "-q").document
    assert math.isclose(6 * document["N"] * document["D"], 1.2e12, rel_tol=1e-9)
    for factor in (0.8, 1.25):
        N, D = document["N"] * factor, document["D"] / factor
        assert run("optimize", saved, "-N", N, "-D", D, "--json", "-q").document["objective"] > document["objective"]


@pytest.fixture(scope="module")
def linear(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A law that is linear in the ratios, as the printed methods ask."""
    goal = tmp_path_factory.mktemp("linear") / "fit.json"
    return fit_of("effective-data", fixtures / "multilingual5_runs.csv", goal)


@pytest.mark.parametrize("method", ["closed-form", "first-order", "first-order-printed", "clipped"])
def test_printed_methods_are_measured_against_the_exact(run: Run, linear: Path, method: str) -> None:
    call = ("optimize", linear, *BUDGET)
    exact, document = run(*call, "--json").document, run(*call, "--method", method, "--json").document
    assert document["excess"] == document["objective"] - exact["objective"] >= 0
    assert document["certificate"]["gap"] >= document["excess"]
    assert math.isclose(document["distance"], np.abs(ratios(document) - ratios(exact)).sum())
    outcome = run(*call, "--method", method)
    assert "The exact optimum is lower by" in outcome.out
    assert ("wrong sign" in outcome.err) == (method == "first-order-printed")


def test_the_same_call_gives_the_same_bytes(optimize) -> None:
    assert optimize("--json").out == optimize("--json").out


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        ("--cap en=.1,de=.1,fr=.1,zh=.1,ja=.1", 1, "the caps sum to 0.5, short of 1 by 0.5", "raise the caps by 0.5"),
        ("--floor en=.6,de=.6", 1, "the floors sum to 1.2", "lower them by 0.2"),
        ("--floor en=.5 --cap en=.4", 1, "the floor 0.5 of en is above its cap", "raise its cap to 0.5"),
        ("--group a:en+de<=.2 --group b:fr+zh+ja<=.5", 1, "cannot hold", "change it to"),
        ("--cap en=.1,dee=.1", 2, "'dee' is not one of the sources", "did you mean 'de'?"),
        ("--cap en", 2, "cap: 'en' is not a number", None),
        ("--cap en=nan", 2, "cap of 'en': 'nan' is not a number", None),
        ("--cap en=.1 --cap en=.2", 2, "'en' is given twice", None),
        ("--weights normalised", 2, "unknown weights", "did you mean 'normalized'?"),
        ("--weights eng=1", 2, "which is no target", "did you mean 'en'?"),
        ("--group en+de", 2, "'en+de' is no bound", "en+de<=0.6"),
        ("--group en<=2", 2, "is not a ratio", "write 2% or 0.02"),
        ("--min-tokens abc", 2, "minimal tokens: 'abc' is not a size", "243M"),
        ("--max-epochs 2", 2, "max_epochs does nothing without", "languages"),
        ("--monolingual en=2", 2, "monolingual does nothing without", "normalized"),
        ("--monolingual eng=2 --weights normalized", 2, "'eng', which is no target", "did you mean 'en'?"),
        ("--anchor uniform", 2, "anchor does nothing without kl", None),
        ("--kl 1", 2, "needs an anchor mixture", None),
        ("--flops 1e12", 2, "--flops finds N and D itself", "leave out"),
        ("--method clozed", 2, "'clozed' is not one of", None),
        ("-o mixture.txt", 2, "names no format to write", ".json"),
        ("--compare-to nothing.json", 1, "cannot be read", None),
    ],
)
def test_bad_demands_are_told(optimize, words: str, code: int, message: str, hint: str | None) -> None:
    plain = optimize(*words.split())
    assert (plain.code, plain.out) == (code, "")
    assert message in plain.err
    assert hint is None or hint in plain.err
    found = optimize(*words.split(), "--json")
    assert found.code == code
    assert found.document["error"]["code"] in {1: ("infeasible", "bad_file"), 2: ("usage",)}[code]


@pytest.fixture(scope="module")
def without_korean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit to runs that never saw ko."""
    folder = tmp_path_factory.mktemp("unseen")
    rng = np.random.default_rng(0)
    rows = ["run,N,D,p_en,p_de,p_ko,loss_en,loss_de"]
    for place, (en, de) in enumerate(rng.dirichlet([1, 1], 30)):
        N, D = 1e4 * (1 + 9 * (place % 2)), 1e6 * 2 ** (place % 3)
        shared = (N / 1e4) ** -0.3 + 2
        rows.append(
            f"r{place},{N},{D},{en},{de},0,"
            f"{shared + (D / 1e6) ** -0.4 * (en + 0.3 * de) ** -0.2},{shared + (D / 1e6) ** -0.4 * (de + 0.2) ** -0.2}"
        )
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    words = ["--law", "learned-base", "--bootstrap", "0", "--folds", "0", "-q", "-o", str(folder / "fit.json")]
    with redirect_stdout(StringIO()):
        assert commands.main(["fit", str(folder / "log.csv"), *words], standalone_mode=False) == 0
    return folder / "fit.json"


@pytest.mark.parametrize(
    "bounds",
    [
        "--floor ko=0.1",
        "--fix ko=0.2",
        "--fix en=.3,de=.3",
        "--cap en=.4,de=.4",
        "--min-tokens 100k",
        "--group ko>=0.2",
        "--group ko=0.2",
        "--group en+de<=0.8",
        "--group en+ko>=0.5 --cap en=.3",
        "--near en=.2,de=.2,ko=.6 --within 0.3",
        "--near en=.2,de=.2,ko=.6 --within 0.3 --distance kl",
        "--anchor ko=1 --kl 1",
    ],
)
def test_who_meets_a_source_held_as_unseen_is_told_so(run: Run, without_korean: Path, bounds: str) -> None:
    call = ("optimize", without_korean, "-N", "1e5", "-D", "4M", *bounds.split())
    refused = run(*call)
    assert refused.code == 1
    assert re.search("no run of the fit ever saw (it|ko)", refused.err)
    assert "held at 0" in refused.err
    assert "(--allow-unseen)" in refused.err.rpartition("hint:")[2]
    assert "(--allow-unseen)" in run(*call, "--json").document["error"]["hint"]
    assert run(*call, "--allow-unseen").code == 0


def test_the_way_out_is_not_promised_where_it_is_none(run: Run, without_korean: Path) -> None:
    for bounds in ("--floor en=.6,de=.6", "--group en>=.5 --cap en=.4", "--floor en=.5 --cap en=.4"):
        refused = run("optimize", without_korean, "-N", "1e5", "-D", "4M", *bounds.split())
        assert refused.code == 1
        assert "allow" not in refused.err


def test_a_law_without_a_mixture_has_no_optimum(run: Run, fixtures: Path, tmp_path: Path) -> None:
    goal, log = tmp_path / "fit.json", fixtures / "multilingual5_runs.csv"
    assert run("fit", log, "--law", "chinchilla", "--bootstrap", 0, "--folds", 0, "-o", goal).code == 0
    outcome = run("optimize", goal, *BUDGET, "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (1, "cannot_solve")
    assert outcome.document["error"]["hint"]


def test_two_hundred_languages_are_readable() -> None:
    names, rng = tuple(f"l{place}" for place in range(200)), np.random.default_rng(0)
    terms = PowerTerms(np.zeros(200), rng.uniform(1, 3, 200), rng.uniform(0.02, 0.2, 200), 0.95 * np.eye(200) + 0.05)

    class Known:
        sources = targets = names

        def terms(self, N: float, D: float) -> PowerTerms:
            return terms

        def replicate_terms(self, N: float, D: float) -> None:
            return None

        def predict(self, p: Any, N: Any, D: Any, level: float = 0.9, **_: Any) -> Any:
            losses = terms.losses(np.asarray(p))
            nothing = np.zeros(losses.shape, dtype=bool)
            return SimpleNamespace(
                losses=losses, low=losses, high=losses, warnings=(), outside=nothing, above_untrained=nothing
            )

    free = run_optimize(Known(), 1e9, 1e10)
    capped = names[int(np.argmax(free.p))]
    found = run_optimize(Known(), 1e9, 1e10, caps={capped: 1e-4})
    short, whole = (list(map(str, view_lines(mixture_view(found, "any", verbose)))) for verbose in (False, True))
    assert len(short) < 100 < len(whole)
    assert any(line.startswith(f"{capped} ") for line in short), "a language at its cap is shown, however small"
    assert any("170 sources more" in line for line in short)
    largest = names[int(np.argmax(found.p))]
    assert any(line.startswith(f"{largest} ") for line in short)
    scales = view_lines(scales_view([found, free], "any", verbose=False))
    assert len(scales) < 40 < len(view_lines(scales_view([found, free], "any", verbose=True)))
    assert any("188 sources more" in line for line in scales)
    assert any(largest in line.split() for line in scales)


def view_lines(parts: Any) -> list[str]:
    with redirect_stdout(StringIO()) as screen:
        show(parts)
    return screen.getvalue().splitlines()
