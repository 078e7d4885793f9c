"""Predictions: points, intervals, warnings; and whether the intervals keep their word."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from simulated import inputs, log_of, mixtures, simulate, true_law

from shapleymix.errors import DataError, UsageError
from shapleymix.fitting.fit import Fit, evaluate, fit
from shapleymix.mixing.optimize import optimize

FIVE = Path(__file__).parents[1] / "fixtures" / "multilingual5_runs.csv"


@pytest.fixture(scope="module")
def fitted() -> Fit:
    _, given, log = log_of("shapley-tempered", rows=40, noise=1e-2)
    return fit(log, "shapley-tempered", given.transfer, bootstrap=50, folds=5)


def test_points_in_every_spelling_are_the_same_point(fitted):
    p = np.array([0.5, 0.2, 0.2, 0.1])
    expected = fitted.law(p[None], np.array([2.43e8]), np.array([1e10])) * np.exp(fitted.residual.mean(p[None]))
    spellings: list[tuple[Any, Any, Any]] = [
        (p, 2.43e8, 1e10), (p[None], np.array([2.43e8]), np.array([1e10])),
        ("en=0.5,de=0.2,fr=0.2,zh=0.1", "243M", "10B"), ({"zh": 0.1, "fr": 0.2, "de": 0.2, "en": 0.5}, "2.43e8", 1e10),
    ]  # fmt: skip
    for spelling in spellings:
        np.testing.assert_array_equal(fitted.predict(*spelling).losses, expected)
        np.testing.assert_array_equal(fitted.at(2.43e8, 1e10).mean(spelling[0]), expected)


def test_a_mixture_and_its_file_are_points(fitted, tmp_path):
    mix = optimize(fitted, 1e8, 3e9)
    mix.save(tmp_path / "mix.json")
    expected = fitted.predict(mix.p, 1e8, 3e9)
    for spelling in (mix, tmp_path / "mix.json", str(tmp_path / "mix.json"), mix.mixture):
        assert fitted.predict(spelling, 1e8, 3e9) == expected
    assert mix.to_polars()["p"].to_list() == mix.p.tolist()


def test_points_of_different_lengths_are_refused(fitted):
    with pytest.raises(UsageError, match=r"N has 3, expected 1 or 4|p has 4|N has 3"):
        fitted.predict(mixtures(4, 4), [1e8, 2e8, 3e8], 1e10)
    with pytest.raises(UsageError, match="2 names for 4 points"):
        fitted.predict(mixtures(4, 4), 1e8, 1e10, runs=("a", "b"))


def test_sizes_broadcast_over_one_mixture(fitted):
    found = fitted.predict(np.full(4, 0.25), np.array([1e8, 2e8, 4e8]), 1e10)
    assert found.losses.shape == (3, 4)
    assert (np.diff(found.losses, axis=0) < 0).all()
    np.testing.assert_array_equal(found.D, 1e10)
    np.testing.assert_array_equal(found.p, np.full((3, 4), 0.25))
    assert found.runs == ("0", "1", "2")


@pytest.mark.parametrize(("N", "D"), [(0.0, 1e10), (1e8, np.nan), ("12X", 1e10)])
def test_wrong_budgets_are_refused(fitted, N, D):
    with pytest.raises(UsageError):
        fitted.predict([0.25] * 4, N, D)


@pytest.mark.parametrize(
    "p", [[0.5, 0.5], [0.5, 0.2, 0.2, 0.2], [1.2, -0.2, 0.0, 0.0], "en=1,xx=0", None, 3, np.zeros((1, 1, 4))]
)
def test_what_is_no_mixture_is_refused_by_a_fit_and_its_surfaces(fitted, p):
    surface = fitted.at(1e8, 1e10)
    for asked in (lambda p: fitted.predict(p, 1e8, 1e10), surface.mean, surface.sample):
        with pytest.raises((UsageError, DataError)):
            asked(p)


def test_intervals_hold_the_prediction_and_grow_with_the_level(fitted):
    p = mixtures(20, 4, seed=3)
    widths = []
    for level in (0.5, 0.8, 0.95):
        found = fitted.predict(p, 1e8, 1e10, level)
        assert (found.low <= found.losses).all()
        assert (found.losses <= found.high).all()
        assert found.level == level
        widths.append(np.log(found.high / found.low))
    assert (np.diff(widths, axis=0) > 0).all()


def test_an_undefined_law_predicts_nan_and_says_so():
    _, given, log = log_of("family", rows=30, noise=1e-2)
    found = fit(log, "family", None, given.languages, bootstrap=5, folds=3)
    predicted = found.predict([0.0, 0.0, 0.5, 0.5], 1e8, 3e9)
    np.testing.assert_array_equal(np.isnan(predicted.losses[0]), [True, True, False, False])
    np.testing.assert_array_equal(np.isnan(predicted.low), np.isnan(predicted.losses))
    assert "the law is undefined for 2 of 4 losses" in predicted.warnings


def test_evaluation_scores_a_log_in_any_order_of_labels(fitted):
    _, _, log = log_of("shapley-tempered", rows=30, noise=1e-2)
    turned = log.align(log.sources[::-1], log.targets[::-1])
    one, other = evaluate(fitted, log), evaluate(fitted, turned)
    assert one.scores.targets == other.scores.targets == fitted.targets
    np.testing.assert_array_equal(one.scores.PE, other.scores.PE)
    assert one.rows == 30
    assert one.scores.mean["PE"] < 0.02
    chosen = np.arange(30) % 3 == 0
    judged = evaluate(fitted, log.select(chosen)).scores.PE
    labels = tuple(np.where(chosen, "held-out", "fit").tolist())
    for marked in ({"weight": chosen.astype(float)}, {"split": labels}):
        np.testing.assert_array_equal(evaluate(fitted, replace(log, **marked)).scores.PE, judged)
    renamed = replace(log, sources=("en", "de", "fr", "xx"))
    with pytest.raises(DataError, match=r"xx|zh"):
        evaluate(fitted, renamed)


# statistical truth


def within(hits: int, trials: int, level: float, slack: float) -> bool:
    """Whether a count is one that a coverage within `slack` of `level` gives with probability above 1e-3."""
    low, high = max(level - slack, 0.0), min(level + slack, 1.0)
    return bool(binom.ppf(5e-4, trials, low) <= hits <= binom.ppf(1 - 5e-4, trials, high))


def test_prediction_intervals_hold_nine_of_ten_new_runs():
    hits = trials = 0
    for seed in range(8):
        truth, given, log = log_of("shapley-tempered", rows=40, noise=1e-2, seed=seed)
        found = fit(log, "shapley-tempered", given.transfer, bootstrap=40, folds=5, starts=3, seed=seed)
        fresh = simulate(truth, given, mixtures(60, 4, seed=1000 + seed), noise=1e-2, seed=2000 + seed)
        predicted = found.predict(fresh.p, fresh.N, fresh.D)
        hits += int(((fresh.loss >= predicted.low) & (fresh.loss <= predicted.high)).sum())
        trials += fresh.loss.size
    assert trials == 8 * 60 * 4
    assert within(hits, trials, level=0.9, slack=0.06), hits / trials


@pytest.mark.parametrize("delta", [np.inf, 1e-3])
def test_bootstrap_intervals_cover_the_truth_at_about_their_level(delta):
    """gamma and the loss at a new budget, over simulated logs; a bootstrap is a little narrow with 60 runs."""
    given = inputs()
    truth = true_law("shapley", given)
    p, N, D = np.full((1, 4), 0.25), np.array([1e9]), np.array([5e10])
    exact, hits = truth(p, N, D)[0], np.zeros(2)
    for seed in range(16):
        log = simulate(truth, given, mixtures(60, 4, seed), noise=1e-2, seed=seed)
        found = fit(log, "shapley", given.transfer, bootstrap=60, folds=0, starts=2, seed=seed, delta=delta)
        drawn = found.replicates
        for index, (values, true) in enumerate(((drawn.gamma, truth.gamma), (drawn(p, N, D)[:, 0], exact))):
            low, high = np.quantile(values, [0.05, 0.95], axis=0)
            hits[index] += ((low <= true) & (true <= high)).sum()
    for count in hits:
        assert within(int(count), 64, level=0.87, slack=0.08), hits
