"""Scores against SciPy and their definitions."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, spearmanr, ttest_1samp

from shapleymix.fitting.held_out import judge, mean_of, score


def arrays(seed: int, missing: float = 0.2):
    rng = np.random.default_rng(seed)
    loss = rng.uniform(1, 4, (30, 3))
    predicted = loss + rng.normal(size=loss.shape) * 0.3
    loss[rng.random(loss.shape) < missing] = np.nan
    predicted[rng.random(loss.shape) < missing / 2] = np.nan
    return loss, predicted


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_every_score_is_its_definition_on_the_rows_that_are_there(seed):
    loss, predicted = arrays(seed)
    found = score(("a", "b", "c"), loss, predicted, predicted - 0.2, predicted + 0.4)
    for j in range(3):
        there = np.isfinite(loss[:, j]) & np.isfinite(predicted[:, j])
        y, f = loss[there, j], predicted[there, j]
        assert found.rows[j] == there.sum()
        assert found.PE[j] == pytest.approx(np.abs(y - f).mean() / y.mean(), rel=1e-12)
        assert found.R2[j] == pytest.approx(1 - ((y - f) ** 2).sum() / ((y - y.mean()) ** 2).sum(), rel=1e-9)
        assert found.spearman[j] == pytest.approx(spearmanr(y, f).statistic, rel=1e-9)
        assert found.coverage[j] == pytest.approx(((y >= f - 0.2) & (y <= f + 0.4)).mean())
    assert found.mean["PE"] == pytest.approx(found.PE.mean())


def test_a_loss_without_an_interval_is_no_miss():
    loss, low = np.array([[1.0], [2.0], [3.0]]), np.array([[0.9], [np.nan], [3.1]])
    assert score(("a",), loss, loss, low, low + 1).coverage[0] == 0.5
    assert np.isnan(score(("a",), loss, loss, np.full((3, 1), np.nan), np.full((3, 1), np.nan)).coverage[0])


def test_ties_take_their_mean_rank():
    loss, predicted = np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([[2.0], [1.0], [1.0], [4.0]])
    assert score(("a",), loss, predicted).spearman[0] == pytest.approx(spearmanr(loss[:, 0], predicted[:, 0]).statistic)


def test_nothing_to_score_is_nan_without_a_warning():
    loss = np.array([[np.nan, 2.0], [np.nan, 2.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score(("a", "b"), loss, np.full((2, 2), 2.0))
    assert np.isnan([found.PE[0], found.R2[0], found.spearman[0]]).all()
    assert found.PE[1] == 0
    assert np.isnan([found.R2[1], found.spearman[1]]).all()
    np.testing.assert_array_equal(found.rows, [0, 2])
    assert np.isnan(mean_of(np.array([np.nan])))
    assert mean_of(np.array([1.0, np.nan, 3.0])) == 2.0


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 12), shift=st.floats(-3, 3))
def test_a_mean_is_surely_off_zero_where_the_t_test_says_so(seed, count, shift):
    differences = np.random.default_rng(seed).normal(shift, 1.0, count)
    error = float(differences.std(ddof=1) / np.sqrt(count))
    told = ttest_1samp(differences, 0.0)
    wanted = int(np.sign(told.statistic)) if told.pvalue < 2 * norm.sf(2.0) else 0
    assert judge(float(differences.mean()), error, count) == wanted


def test_one_difference_is_never_sure_and_many_are_at_two_standard_errors():
    assert judge(0.0, 0.0, 1) == judge(0.0, 0.0, 5) == 0
    assert (judge(1e-9, 0.0, 5), [judge(mean, 1.0, 10**9) for mean in (1.999, 2.001)]) == (1, [0, 1])
    assert [judge(mean, 1.0, 4) for mean in (3.306, -3.307)] == [0, -1]
