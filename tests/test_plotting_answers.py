"""Figures of answers: mixtures, comparisons, learning curves, frontiers and designs hold the library's numbers."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from plotting_tools import FIXTURES, RUNS, overlaps

import shapleymix as sm
from shapleymix.display import same
from shapleymix.errors import UsageError


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return sm.fit(RUNS, "learned-base", bootstrap=8, folds=2, min_own_tokens=20_000)


def test_a_mixtures_figure_has_its_ratios_bounds_and_gains(fit: sm.Fit) -> None:
    mix = sm.optimize(fit, 97_600, "8M", languages=FIXTURES / "multilingual5_languages.csv", caps={"ja": 0.2})
    found = sm.plot_mixture(mix)
    upper, lower = found.figure.axes
    bars = next(one for one in upper.containers if type(one).__name__ == "BarContainer")
    np.testing.assert_array_equal([bar.get_height() for bar in bars], mix.p)
    rivals = {line.get_label(): line.get_ydata() for line in upper.lines if not line.get_label().startswith("_")}
    for rival in mix.baselines:
        np.testing.assert_array_equal(rivals[rival.name], rival.p)
        assert f"{rival.name} {rival.gain:z.4f}" in found.caption
    caps = next(one for one in upper.collections if one.get_label() == "cap")
    assert [segment[0, 1] for segment in caps.get_segments()] == [0.2]
    gains = [container.lines[0].get_xdata()[0] for container in lower.containers]
    assert gains == [rival.gain for rival in mix.baselines]
    assert overlaps(found) == []


def test_bands_without_a_runs_scatter_do_not_claim_to_hold_runs(fit: sm.Fit) -> None:
    """Fault: of a fit without held-out residuals the caption said 90%, and that 46% of the runs lay within."""
    assert "bands hold a new run's loss with probability 90%." in sm.plot_fit(fit, RUNS).caption
    bare = sm.plot_fit(replace(fit, residuals=None, cells=None), RUNS).caption
    assert "bands are intervals of 90%; intervals hold how uncertain the law is, and not how a new run scatters" in bare


def test_a_mixture_without_rivals_or_intervals_is_bars_alone(fit: sm.Fit) -> None:

    mix = sm.optimize(fit, 97_600, "2M")
    blank = np.full(5, np.nan)
    found = sm.plot_mixture(replace(mix, baselines=(), p_low=blank, p_high=blank))
    assert len(found.figure.axes) == 1
    assert overlaps(found) == []
    itself = replace(mix, baselines=(replace(mix.baselines[0], name="own", p=mix.p),))
    assert "It is own itself." in sm.plot_mixture(itself).caption


def test_a_comparisons_figure_has_the_errors_in_order() -> None:
    compared = sm.compare(RUNS, ["chinchilla", "hellinger"], folds=2, min_own_tokens=20_000)
    found = sm.plot_compare(compared)
    container = found.figure.axes[0].containers[0]
    best = compared.best()
    assert found.figure.axes[0].get_yticklabels()[0].get_text() == best
    errors = sorted(one.scores.mean["PE"] for one in compared.entries if one.scores)
    np.testing.assert_allclose(container.lines[0].get_xdata(orig=False), 100 * np.array(errors))
    assert f"{errors[0]:.2%} ± " in found.caption
    assert overlaps(found) == []


def test_a_comparison_without_scores_is_refused() -> None:

    compared = sm.compare(RUNS, ["hellinger"], folds=2, min_own_tokens=20_000)
    none = np.zeros((0, 0))
    lost = [replace(one, scores=None, error="too few runs") for one in compared.entries]
    with pytest.raises(sm.DataError, match="no law of this comparison has scores") as raised:
        sm.plot_compare(replace(compared, entries=tuple(lost), better=none, gap=none, gap_error=none))
    assert raised.value.hint == "too few runs"


def test_a_learning_curves_figure_goes_on_where_the_runs_end() -> None:
    curve = sm.learning_curve(RUNS, "hellinger", folds=3, min_own_tokens=20_000)
    found = sm.plot_learning_curve(curve)
    lines = {line.get_marker(): line for line in found.figure.axes[0].lines}
    np.testing.assert_array_equal(lines["s"].get_xdata(), curve.ahead)
    np.testing.assert_allclose(lines["s"].get_ydata(), 100 * curve.expected)
    fitted = found.figure.axes[0].containers[0].lines[0]
    np.testing.assert_allclose(fitted.get_ydata(), 100 * curve.PE)
    assert overlaps(found) == []


def test_a_frontiers_figure_has_its_points_and_their_mixtures(fit: sm.Fit) -> None:
    curve = sm.frontier(fit, 97_600, "2M", "zh+ja:rest", points=4)
    found = sm.plot_frontier(curve)
    line = found.figure.axes[0].containers[0].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), [one.first for one in curve.entries])
    np.testing.assert_array_equal(line.get_ydata(), [one.second for one in curve.entries])
    np.testing.assert_array_equal(found.figure.axes[1].images[0].get_array(), np.array([o.p for o in curve.entries]).T)
    assert overlaps(found) == []


@pytest.mark.parametrize("count", [2, 40])
def test_a_designs_figure_has_a_column_for_each_run(count: int) -> None:
    plan = sm.design(count, sources=["en", "de", "fr"], batches=2)
    found = sm.plot_design(plan)
    np.testing.assert_array_equal(found.figure.axes[1].images[0].get_array(), plan.p.T)
    np.testing.assert_allclose(found.figure.axes[0].lines[0].get_ydata(), 100 * plan.region_error)
    assert overlaps(found) == []


OWN = {name: f"plot_{name.lower()}" for name in ("Design", "Downstream", "Fit", "Frontier", "Mixture")}
OWN |= {"Comparison": "plot_compare", "LearningCurve": "plot_learning_curve", "TransferMatrix": "plot_transfer"}


@pytest.mark.parametrize("kind", OWN)
def test_a_result_draws_itself_by_the_public_function(kind: str) -> None:
    """With its words and its signature, so that `help(fit.plot)` tells what may be asked."""
    function, method = getattr(sm, OWN[kind]), getattr(sm, kind).plot
    assert method is function
    made = object.__new__(getattr(sm, kind))
    parameters = list(inspect.signature(function).parameters)
    assert list(inspect.signature(made.plot).parameters) == parameters[1:]
    assert made.plot.__doc__ == function.__doc__


def test_every_figure_of_one_result_is_a_method_of_it() -> None:
    functions = {name for name in sm.__all__ if name.startswith("plot_")}
    assert functions - set(OWN.values()) == {"plot_agreement"}, "which is of two matrices"


def test_the_method_draws_what_the_function_draws() -> None:
    plan = sm.design(3, sources=["en", "de"])
    by_method, by_function = plan.plot(), sm.plot_design(plan)
    assert by_method.caption == by_function.caption
    assert by_method.to_polars().equals(by_function.to_polars(), null_equal=True)


def test_a_fit_is_drawn_with_its_own_log_if_that_is_unchanged(fit: sm.Fit, tmp_path: Path) -> None:
    """`fit.plot()` raised a TypeError."""
    assert sm.plot_fit(fit).columns() == sm.plot_fit(fit, RUNS).columns()
    copy = tmp_path / "runs.csv"
    copy.write_bytes(Path(RUNS).read_bytes())
    bits, ours = (
        sm.fit(sm.read_runs(copy, unit=unit), "chinchilla", bootstrap=0, folds=0) for unit in ("bits", "nats")
    )
    assert same(ours.plot().columns(), ours.plot(copy).columns())
    with pytest.raises(UsageError, match="in other units or by a map"):
        bits.plot()
    copy.write_text(copy.read_text().replace("3.", "4."))
    with pytest.raises(UsageError, match="is not what it was") as told:
        ours.plot()
    assert "fit.plot(log)" in str(told.value)
    with pytest.raises(UsageError, match="cannot be read as it stands"):
        sm.fit(pl.read_csv(RUNS), "chinchilla", bootstrap=0, folds=0).plot()


def test_a_tasks_figure_has_its_runs_its_line_and_its_band(tmp_path) -> None:
    """What is drawn is what was calibrated: nine of ten runs lie in the band, and a saved one draws the same."""
    tasks = sm.calibrate_scores(RUNS, FIXTURES / "multilingual5_scores.csv", chance=0.25)
    found = tasks.plot()
    for axes, one in zip(found.figure.axes, tasks.calibrations, strict=False):
        line, runs = axes.lines[:2]
        np.testing.assert_array_equal(runs.get_xdata(), one.run_losses)
        np.testing.assert_array_equal(runs.get_ydata(), one.run_scores)
        np.testing.assert_allclose(line.get_ydata(), one.score(line.get_xdata()))
        assert f"held-out R2 {one.held_out_R2:.3f}" in found.caption
    table = found.to_polars().filter(what="line", task="choice/zh")
    zh = tasks.calibration("choice/zh")
    low, high = (np.interp(zh.run_losses, table["loss"], table[name]) for name in ("low", "high"))
    assert 0.8 <= np.mean((low <= zh.run_scores) & (zh.run_scores <= high)) <= 1
    assert overlaps(found) == []
    tasks.save(tmp_path / "tasks.json")
    assert sm.plot_downstream(tmp_path / "tasks.json").to_bytes("png") == found.to_bytes("png")
    assert len(sm.plot_downstream(tasks, tasks=["cloze/en"]).figure.axes) == 1
    with pytest.raises(sm.UsageError, match="no calibration of 'cloze/fi'"):
        sm.plot_downstream(tasks, tasks=["cloze/fi"])
    many = replace(tasks, calibrations=tuple(replace(zh, target=f"l{i}") for i in range(14)))
    assert "2 further tasks are not drawn" in many.plot().caption
