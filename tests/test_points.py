"""Mixtures by their usual names wherever one is meant, and tokens at hand wherever they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import log_of

import shapleymix as sm
from shapleymix.errors import InfeasibleError, ShapleyMixWarning, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.demands import Demands
from shapleymix.tables.languages import read_languages

N = 1e8
TOKENS = {"en": 8e9, "de": 4e9, "fr": 3e9, "zh": 1e9}
pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.fixture(scope="module")
def fitted() -> Fit:
    _, _, log = log_of("additive", rows=20, noise=1e-3)
    return fit(log, "additive", bootstrap=0, folds=0, starts=1, threads=1)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "languages.csv"
    lines = [f"{name},{tokens:.0f}" for name, tokens in TOKENS.items()]
    path.write_text("\n".join(["language,available_tokens", *lines]) + "\n", encoding="utf-8")
    return path


def spellings(table: Path) -> dict[str, dict[str, Any]]:
    """Every way to tell how many tokens there are."""
    columns = {"language": list(TOKENS), "available_tokens": list(TOKENS.values())}
    return {
        "path": {"languages": table},
        "text": {"languages": str(table)},
        "read": {"languages": read_languages(table)},
        "columns": {"languages": columns},
        "mapping": {"available": TOKENS},
        "pairs": {"available": "en=8B,de=4B,fr=3B,zh=1B"},
        "texts": {"available": ["en=8B,de=4B", "fr=3B,zh=1B"]},
        "both": {"languages": {**columns, "available_tokens": [1.0] * 4}, "available": TOKENS},
    }


def at_natural(fitted: Fit) -> np.ndarray:
    sizes = np.array([TOKENS[name] for name in fitted.sources])
    return sizes / sizes.sum()


@pytest.mark.parametrize("how", ["path", "text", "read", "columns", "mapping", "pairs", "texts", "both"])
def test_natural_is_predicted_from_tokens_in_every_spelling(fitted, table, how):
    """fit.predict("natural") could not be given tokens."""
    found = fitted.predict("natural", N, 3e9, **spellings(table)[how])
    np.testing.assert_allclose(found.p, at_natural(fitted)[None], rtol=1e-12)
    np.testing.assert_array_equal(found.losses, fitted.predict(found.p, N, 3e9).losses)


def test_a_baseline_that_depends_on_the_tokens_is_made_anew_for_each_count(fitted):
    counts = [1e9, 8e9, 1.5e10]
    found = fitted.predict("unimax:1", N, counts, available=TOKENS)
    alone = [fitted.predict("unimax:1", N, D, available=TOKENS).p[0] for D in counts]
    np.testing.assert_array_equal(found.p, np.stack(alone))
    assert not np.allclose(found.p[0], found.p[2])
    listed = fitted.predict(["unimax:1", "uniform", {"en": 1.0}], N, counts, available=TOKENS)
    np.testing.assert_array_equal(listed.p[0], alone[0])
    np.testing.assert_array_equal(listed.p[2], fitted.predict("en=1", N, 1e9).p[0])


def test_without_tokens_the_hint_says_what_to_give(fitted):
    with pytest.raises(UsageError, match="'natural' needs the available tokens") as caught:
        fitted.predict("natural", N, 3e9)
    assert "languages table" in (caught.value.hint or "")


def test_repeated_tokens_are_named_by_source(fitted):
    with pytest.warns(ShapleyMixWarning, match="the mixture repeats zh 3 times"):
        fitted.predict("en=0.4,de=0.2,fr=0.1,zh=0.3", N, 1e10, available=TOKENS)
    many = fitted.predict("zh=1", N, np.linspace(2e9, 9e9, 9), available=TOKENS).warnings
    assert sum("repeats zh" in text for text in many) == 5
    assert "4 more points repeat tokens" in many
    assert not [text for text in fitted.predict("zh=1", N, 9e9).warnings if "repeat" in text]


@pytest.mark.parametrize("kind", ["path", "text", "read"])
def test_a_table_that_is_given_for_amounts_is_hinted_at(fitted, table, kind):
    """available="languages.csv" said that it is not a size."""
    given = spellings(table)[kind]["languages"]
    for call in (
        lambda: fitted.predict("natural", N, 3e9, available=given),
        lambda: Bounds(available=given).at(fitted.sources, 3e9),
        lambda: Demands(available=given).bounds(fitted.sources, 3e9),
    ):
        with pytest.raises(UsageError, match="no tokens by name") as caught:
            call()
        assert "as languages" in (caught.value.hint or "")


@pytest.mark.parametrize("field", ["caps", "floors", "fix", "max_epochs", "min_tokens", "available"])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_no_order(fitted, field, kind):
    """A set of caps was taken in the order in which it happens to be kept."""
    wrong = kind([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(UsageError, match="has no order") as caught:
        Bounds(**{field: wrong}).at(fitted.sources, 3e9)
    assert "by name" in (caught.value.hint or "")


@pytest.mark.parametrize("wrong", [{0.1, 0.2, 0.3, 0.4}, frozenset({0.1, 0.2, 0.3, 0.4})])
def test_a_set_is_no_mixture_and_no_set_of_weights(fitted, wrong):
    with pytest.raises(UsageError, match=r"no mixture|not numbers"):
        fitted.predict(wrong, N, 3e9)
    with pytest.raises(UsageError, match="has no order"):
        Demands(weights=wrong).weights_for(fitted, None)


def test_an_optimised_mixture_brings_its_budget(fitted: Fit):
    mix = sm.optimize(fitted, N, "2B")
    np.testing.assert_array_equal(fitted.predict(mix).losses, fitted.predict(mix.p, N, 2e9).losses)
    np.testing.assert_array_equal(fitted.predict(mix, D="1B").losses, fitted.predict(mix.p, N, 1e9).losses)
    for left in ({"D": 1e9}, {"N": N}):
        with pytest.raises(UsageError, match=f"{'N' if 'D' in left else 'D'} is missing"):
            fitted.predict("uniform", **left)


def test_budgets_are_asked_once_and_an_infeasible_one_is_named(fitted: Fit):
    once = sm.optimize_scales(fitted, ["100M", 1e8], ["1B", 1e9, "2B"])
    assert [(one.N, one.D) for one in once] == [(1e8, 1e9), (1e8, 2e9)]
    with pytest.raises(InfeasibleError, match=r"^at N = 100M, D = 900B: the caps sum to"):
        sm.optimize_scales(fitted, N, ["1B", "900B"], available=TOKENS, max_epochs=1)
    with pytest.raises(InfeasibleError, match=r"^the caps sum to"):
        sm.optimize(fitted, N, "900B", available=TOKENS, max_epochs=1)


@pytest.mark.parametrize("radius", [0, 1e-12, 1e-10, float("nan")])
def test_a_ball_too_small_for_arithmetic_is_refused(fitted: Fit, radius: float):
    """At 1e-12 the answer lay 20 times outside of the ball."""
    with pytest.raises(UsageError, match="within"):
        sm.optimize(fitted, N, "2B", near="uniform", within=radius, distance="kl")
    least = sm.optimize(fitted, N, "2B", near="uniform", within=1e-9, distance="kl")
    assert float(np.sum(least.p * np.log(least.p * 4))) <= 1.5e-9


def test_a_keyword_that_is_misspelt_is_named(fitted: Fit):
    _, _, log = log_of("additive", rows=20, noise=1e-3)
    calls: dict[str, Callable[..., object]] = {
        "optimize": lambda **wrong: sm.optimize(fitted, N, 1e9, **wrong),
        "optimize_scales": lambda **wrong: sm.optimize_scales(fitted, N, 1e9, **wrong),
        "optimize_compute": lambda **wrong: sm.optimize_compute(fitted, 1e18, **wrong),
        "frontier": lambda **wrong: sm.frontier(fitted, N, 1e9, "en:rest", **wrong),
        "fit": lambda **wrong: fit(log, "additive", **wrong),
        "compare": lambda **wrong: sm.compare(log, ["additive"], **wrong),
    }
    for name, call in calls.items():
        wrong, meant = ("delto", "delta") if name in ("fit", "compare") else ("cap", "caps")
        with pytest.raises(UsageError, match=rf"{name}\(\) has no keyword '{wrong}'\s+hint: did you mean '{meant}'"):
            call(**{wrong: 0.1})


def test_only_a_loose_proof_is_told(fitted: Fit):
    assert not any("certificate" in notice for notice in sm.optimize(fitted, N, "2B").notices)
