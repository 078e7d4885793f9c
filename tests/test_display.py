"""Results in a session: short to print, equal when they hold the same, and one tidy table each."""

from __future__ import annotations

import html
import json
import pickle
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import log_of

import shapleymix as sm
from shapleymix.display import SHOWN_ROWS, Shown, html_table, same, short
from shapleymix.errors import ShapleyMixError, UsageError
from shapleymix.fitting.comparison import compare
from shapleymix.fitting.evaluation import evaluate
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.game import Estimate, sampled_shapley, shapley_values
from shapleymix.laws import Law
from shapleymix.mixing.candidates import compare_mixtures
from shapleymix.mixing.frontier import frontier
from shapleymix.mixing.optimization import optimize
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


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    _, inputs, log = log_of("shapley-tempered", rows=30, noise=1e-2)
    found = fit(log, "shapley-tempered", inputs.transfer, bootstrap=20, folds=3, starts=2, threads=1)
    return {
        "fit": found,
        "prediction": found.predict(log.p[:3], 1e8, 3e9),
        "comparison": compare(log, ["chinchilla", "shapley"], inputs.transfer, folds=2, starts=2, threads=1),
        "evaluation": evaluate(found, log),
    }


KINDS = ["fit", "prediction", "comparison", "evaluation"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_prints_as_a_few_lines(results, kind):
    """repr(fit) had 119,505 characters."""
    text = repr(results[kind])
    assert len(text) < 1500
    assert text.count("\n") < 16
    assert text == results[kind].summary()


def test_a_fit_says_what_it_is(results):
    text = repr(results["fit"])
    assert "law shapley-tempered" in text
    assert "4 sources, 4 targets, 30 rows" in text
    assert f"{results['fit'].held_out.mean['PE']:.2%}" in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_equals_itself_from_its_file_and_no_other(results, kind, tmp_path):
    """Equality of results that hold arrays raised a ValueError."""
    one = results[kind]
    one.save(tmp_path / "one.json")
    again = type(one).load(tmp_path / "one.json")
    assert again == one
    assert one != replace(one, **_changed(one))
    assert all(one != other for name, other in results.items() if name != kind)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def _changed(one: Any) -> dict[str, Any]:
    if isinstance(one, Fit):
        return {"residuals": one.residuals + 1e-12}  # type: ignore[operator]
    return {"losses": one.losses + 1} if hasattr(one, "losses") else {"rows": one.rows + 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_a_pandas_frame_without_pyarrow(results, kind):
    """The docs promised `to_polars().to_pandas()`, which needs pyarrow: that is in no environment of ours."""
    pandas = pytest.importorskip("pandas")
    columns = results[kind].columns()
    frame = pandas.DataFrame(columns)
    assert list(frame.columns) == list(columns)
    assert len(frame) == results[kind].to_polars().height
    assert "pyarrow" in (type(results[kind]).to_polars.__doc__ or "")


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_one_tidy_table(results, kind):
    frame = results[kind].to_polars()
    columns = results[kind].columns()
    assert list(frame.columns) == list(columns)
    assert frame.height == len(next(iter(columns.values()))) > 0
    text = results[kind]._repr_html_()
    assert text.count("<tr>") == 1 + min(frame.height, SHOWN_ROWS)
    assert all(f"<th>{name}</th>" in text for name in columns)


def test_the_table_of_a_prediction_has_a_row_a_point_and_target(results):
    found = results["prediction"]
    frame = found.to_polars()
    assert frame.height == 12
    for row, (run, target, loss, p_en) in enumerate(frame.select("run", "target", "loss", "p_en").iter_rows()):
        r, j = divmod(row, 4)
        assert (run, target, loss, p_en) == (str(r), found.targets[j], found.losses[r, j], found.p[r, 0])


def test_plain_values(results):
    told = results["prediction"].to_dict()
    assert told["losses"] == results["prediction"].losses.tolist()
    assert results["fit"].to_dict()["coverage"]["mixtures"] == results["fit"].coverage.mixtures.tolist()


def test_html_is_escaped_and_ends():
    text = html_table({"a<b": ["<script>"] * 80})
    assert "<script>" not in text
    assert html.escape("<script>") in text
    assert "30 more rows" in text


def test_values_are_shortened():
    assert short(np.zeros((3, 4))) == "3 x 4 numbers"
    assert short(np.array([1.0, 2.5])) == "1, 2.5"
    assert short(tuple("abcdefgh")) == "a, b, c, d, e, f, ... (8)"
    assert short(()) == short({}) == "none"
    assert short({"a": 1.0}) == "a: 1"


@pytest.fixture(scope="module")
def mixing(results):
    """What optimisation and comparison give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = results["fit"]
        best = optimize(found, 1e8, 3e9)
        return {"mixture": best, "candidates": compare_mixtures(found, {"even": "uniform", "best": best}, 1e8, 3e9)}


@pytest.mark.parametrize("kind", ["mixture", "candidates"])
def test_a_mixture_prints_its_ratios_in_a_few_lines(mixing, kind):
    """repr(mixture) listed fields without their names' values: `p: 0.1, 0.2` and 20 more fields."""
    text = repr(mixing[kind])
    assert text.count("\n") < 16
    rows = mixing["mixture"].sources if kind == "mixture" else ("even", "best")
    assert [line.split()[0] for line in text.splitlines() if line.split()[0] in rows] == list(rows)
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "<table>" in mixing[kind]._repr_html_()
    assert mixing[kind].to_polars().height == len(rows)


def test_a_prediction_prints_its_losses(results):
    text = repr(results["prediction"])
    assert all(f"{loss:.4f}" in text for loss in results["prediction"].losses[0])


def test_a_log_prints_as_a_few_lines():
    """repr(log) held every run id and number."""
    log = log_of("learned-base", rows=200)[2]
    assert len(repr(log)) < 400
    assert "200 rows" in repr(log)


def test_an_optimum_warns_python_once_of_each_thing(results):
    """Rivals and optimum warned each on their own, and repeated tokens reached nobody in Python."""
    found = results["fit"]
    supply = dict.fromkeys(found.sources, 1000000000.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        best = optimize(found, 1e8, 8e9, available=supply, max_epochs=4)
    texts = [str(one.message) for one in told]
    assert sorted(set(texts)) == sorted(texts) == sorted(best.notices)
    assert any("repeats" in text for text in texts)
    assert {one.filename for one in told} == {__file__}


@pytest.mark.parametrize(("given", "words"), [(None, "None is no mixture"), (3, "an int is no mixture")])
def test_what_is_no_mixture_is_named(results, given, words):
    with pytest.raises(UsageError, match=words):
        results["fit"].predict(given, 1e8, 3e9)


def test_several_mixtures_may_be_spelt_differently(results):
    found = results["fit"]
    first, second = found.sources[:2]
    together = found.predict([{first: 0.5, second: 0.5}, "uniform"], 1e8, 3e9).losses
    for row, alone in zip(together, (f"{first}=0.5,{second}=0.5", "uniform"), strict=True):
        np.testing.assert_array_equal(row, found.predict(alone, 1e8, 3e9).losses[0])


def made(fixtures: Path, results: dict[str, Any]) -> dict[str, Any]:
    """One of every kind of result that a public function returns."""
    log = read_runs(fixtures / "multilingual5_runs.csv")
    fitted = fit(log, "additive", bootstrap=0, folds=0, starts=1, threads=1)
    mix = optimize(fitted, 97600, 2e6)
    return results | {
        "log": log,
        "languages": read_languages(fixtures / "multilingual5_languages.csv"),
        "matrix": shapley_values(fixtures / "multilingual5_coalitions.csv"),
        "estimate": sampled_shapley(lambda members: members.sum(axis=1), 4, 10),
        "mixture": mix,
        "candidates": compare_mixtures(fitted, ["uniform", mix], 97600, 2e6),
        "frontier": frontier(fitted, 97600, 2e6, "en:rest", points=2),
        "law": fitted.law,
        "export": sm.export(mix, "json"),
        "calibration": sm.calibrate_scores(log, fixtures / "multilingual5_scores.csv", chance=0.25),
        "design": sm.design(2, sources=["en", "de"]),
        "curve": sm.learning_curve(log, "chinchilla", folds=3, threads=1, starts=1),
    }


def test_every_public_result_is_pleasant(fixtures, results):
    """RunLog and Languages had no equality (a ValueError), no to_dict, no to_polars; TransferMatrix no summary."""
    known = made(fixtures, results)
    public = {kind for kind in map(sm.__getattribute__, sm.__all__) if isinstance(kind, type)}
    results_of = {kind for kind in public if issubclass(kind, Shown)} - {sm.Law}
    assert results_of <= set(map(type, known.values())), "a public result that is not tried here"
    for name, one in known.items():
        again = pickle.loads(pickle.dumps(one))
        assert one == again
        assert all(one != other for key, other in known.items() if key != name)
        assert repr(one) == one.summary()
        assert len(repr(one)) < 1500
        assert repr(one).count("\n") < 20
        assert html.escape(repr(one).split("\n")[0]) in one._repr_html_()
        assert set(one.to_dict()) == {field.name for field in fields(one)}
        json.dumps(one.to_dict())
        if not isinstance(one, (Law, Estimate)):
            assert one.to_polars().height == len(next(iter(one.columns().values())))
            assert one.to_polars().columns == list(one.columns())


def test_a_log_is_read_from_rows_columns_and_frames_alike(fixtures):
    """fit(log.to_polars().to_dicts()) said that the column 'run' is a str."""
    log = read_runs(fixtures / "multilingual5_runs.csv")
    rows = log.to_polars().to_dicts()
    sparse = [{key: value for key, value in row.items() if value is not None} for row in rows]
    ways: list[Any] = [rows, tuple(rows), sparse, log.to_polars(), log.columns(), [rows[:40], rows[40:]]]
    for way in ways:
        again = read_runs(way)
        for name in ("runs", "N", "D", "p", "loss", "sources", "targets"):
            assert same(getattr(again, name), getattr(log, name)), name


@pytest.mark.parametrize("wrong", [[{"run": "a", "N": [1.0]}], [{}], [3], [], [{"run": {1, 2}}], [[1, 2]]])
def test_what_is_no_log_is_refused_by_name(wrong):
    with pytest.raises(ShapleyMixError, match=r"is a|holds no|has no|cannot read|no run log"):
        read_runs(wrong)
