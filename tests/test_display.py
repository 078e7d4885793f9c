"""Results in a session: short to print, equal when they hold the same, and one tidy table each."""

import html
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import log_of

import shapleymix as sm
from shapleymix.display import Shown, same
from shapleymix.fitting.comparison import compare
from shapleymix.fitting.fit import evaluate, fit
from shapleymix.game.coalitions import shapley_values
from shapleymix.game.exact import members_of
from shapleymix.game.kriging import Estimate, estimate_shapley
from shapleymix.laws import Law
from shapleymix.mixing.optimize import compare_mixtures, frontier, optimize
from shapleymix.records import FloatArray, IntArray, Record
from shapleymix.tables.languages import read_languages
from shapleymix.tables.run_reading import read_runs


@dataclass(frozen=True)
class Sample(Record):
    kind = "test/sample"

    values: FloatArray
    number: float
    names: tuple[str, ...]
    table: dict[str, Any]


@dataclass(frozen=True)
class Longer(Sample):
    kind = "test/longer"

    counts: IntArray


def sample(**changes: Any) -> Sample:
    known = {"values": np.array([1.0, np.nan]), "number": float("nan"), "names": ("a", "b"), "table": {"x": [1.0]}}
    return Sample(**(known | changes))


def test_every_field_counts_in_equality():
    assert sample() == sample()
    for changes in (
        {"values": np.array([1.0, 2.0])},
        {"values": np.array([1.0])},
        {"number": 0.0},
        {"names": ("a",)},
        {"table": {"x": [2.0]}},
    ):
        assert sample(**changes) != sample()
    assert Longer(**vars(sample()), counts=np.array([1])) != sample()
    assert sample() != 3


values = st.recursive(
    st.floats() | st.integers() | st.text(max_size=3) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(one=values, other=values)
def test_sameness_is_that_of_the_printed_values(one, other):
    """Of plain values, the text tells NaN from the rest, and hides only -0.0, true and 1, and 1.0 and 1."""
    assert same(one, one)
    assert same(one, other) == same(other, one)
    if repr(one) == repr(other):
        assert same(one, other)


def made(fixtures: Path) -> dict[str, Any]:
    """One of every kind of result that a public function returns."""
    _, inputs, noisy = log_of("shapley-tempered", rows=30, noise=1e-2)
    drawn = fit(noisy, "shapley-tempered", inputs.transfer, bootstrap=20, folds=3, starts=2)
    log = read_runs(fixtures / "multilingual5_runs.csv")
    fitted = fit(log, "additive", bootstrap=0, folds=0, starts=1)
    mix = optimize(fitted, 97600, 2e6)
    return {
        "fit": drawn, "prediction": drawn.predict(noisy.p[:3], 1e8, 3e9),
        "comparison": compare(noisy, ["chinchilla", "shapley"], inputs.transfer, folds=2, starts=2),
        "evaluation": evaluate(drawn, noisy), "log": log,
        "languages": read_languages(fixtures / "multilingual5_languages.csv"),
        "matrix": shapley_values(fixtures / "multilingual5_coalitions.csv"),
        "estimate": estimate_shapley(members_of(np.arange(16), 4), np.arange(16.0)[:, None]), "mixture": mix,
        "candidates": compare_mixtures(fitted, ["uniform", mix], 97600, 2e6),
        "frontier": frontier(fitted, 97600, 2e6, "en:rest", points=2), "law": fitted.law,
        "calibration": sm.calibrate_scores(log, fixtures / "multilingual5_scores.csv", chance=0.25),
        "design": sm.design(2, sources=["en", "de"]), "curve": sm.learning_curve(log, "chinchilla", folds=3, starts=1),
    }  # fmt: skip


def test_every_public_result_is_pleasant(fixtures):
    """RunLog and Languages had no equality (a ValueError), no to_polars; TransferMatrix no summary."""
    known = made(fixtures)
    public = {kind for kind in map(sm.__getattribute__, sm.__all__) if isinstance(kind, type)}
    results_of = {kind for kind in public if issubclass(kind, Shown)} - {sm.Law}
    assert results_of <= set(map(type, known.values())), "a public result that is not tried here"
    for name, one in known.items():
        again = pickle.loads(pickle.dumps(one))
        assert one == again
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        assert all(one != other for key, other in known.items() if key != name)
        assert repr(one) == one.summary()
        assert len(repr(one)) < 1500
        assert repr(one).count("\n") < 20
        assert html.escape(repr(one).split("\n")[0]) in one._repr_html_()
        if not isinstance(one, (Law, Estimate)):
            assert one.to_polars().height == len(next(iter(one.columns().values())))
            assert one.to_polars().columns == list(one.columns())
