"""What a fit may look at: filters and their counts, missing losses, what the budgets can tell."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import inputs, log_of, mixtures, simulate, true_law, with_loss

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.fitting.coverage import Coverage, coverage_of
from shapleymix.fitting.evidence import gather, own_source, own_tokens
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.fitting.symbols import Levels
from shapleymix.laws import LAWS
from shapleymix.tables.runs import RunLog


def small_log() -> RunLog:
    """Four runs of two languages and two targets, one of them no source."""
    return RunLog(
        runs=("a", "b", "c", "d"),
        N=np.full(4, 1e8),
        D=np.array([1e9, 1e9, 4e9, 0.0]),
        p=np.array([[0.5, 0.5], [1.0, 0.0], [0.1, 0.9], [0.0, 0.0]]),
        loss=np.array([[2.0, 3.0], [2.1, np.nan], [2.2, 2.8], [10.0, 10.0]]),
        sources=("en", "de"),
        targets=("de", "xx"),
    )


def test_untrained_and_missing_are_left_out_and_counted():
    found = gather(small_log(), Settings())
    assert found.log.runs == ("a", "b", "c")
    np.testing.assert_array_equal(found.weight, [[1, 1], [1, 0], [1, 1]])
    assert "left out 1 row: untrained models (D = 0)" in found.notices
    assert any(notice.startswith("1 of 6 losses") for notice in found.notices)


def test_min_own_tokens_drops_single_losses():
    found = gather(small_log(), Settings(min_own_tokens=1e6))
    assert found.log.runs == ("a", "b", "c")
    np.testing.assert_array_equal(found.weight, [[1, 1], [0, 0], [1, 1]])
    assert any(notice.startswith("left out 1 losses") and "1e+06" in notice for notice in found.notices)
    assert not any("one law" in notice for notice in found.notices)


def test_own_tokens_are_infinite_for_a_target_that_is_no_source():
    log = small_log()
    np.testing.assert_array_equal(own_source(log.sources, log.targets), [1, -1])
    np.testing.assert_array_equal(own_tokens(log), [[5e8, np.inf], [0, np.inf], [3.6e9, np.inf], [0, np.inf]])


def test_weights_of_the_log_are_used():
    found = gather(replace(small_log(), weight=np.array([2.0, 0.5, 0.0, 1.0])), Settings())
    np.testing.assert_array_equal(2 * found.weight, [[2, 2], [0.5, 0], [0, 0]])  # only their shares matter


def test_nothing_left_is_said():
    with pytest.raises(DataError, match="no trained run is left"):
        gather(small_log(), Settings(min_tokens=1e12))
    with pytest.raises(DataError, match="no usable loss for 'de'"):
        gather(small_log(), Settings(min_own_tokens=1e12))
    with pytest.raises(DataError, match="no trained run is left"):
        gather(replace(small_log(), D=np.zeros(4)), Settings())


@pytest.mark.parametrize(
    ("sizes", "tokens", "held"),
    [
        ((1e8, 2e8, 4e8), (1e9, 2e9, 4e9), {}), ((1e8,), (1e9, 2e9, 4e9), {"A": 0.0, "alpha": 0.0}),
        ((1e8, 2e8, 4e8), (1e9,), {"B": 0.0, "beta": 0.0}), ((1e8, 2e8), (1e9, 2e9, 4e9), {"alpha": 0.2}),
        ((1e8,), (1e9, 2e9), {"A": 0.0, "alpha": 0.0, "beta": 0.5}),
    ],
)  # fmt: skip
def test_what_the_budgets_cannot_tell_is_held(sizes, tokens, held):
    log = log_of("shapley", sizes=sizes, tokens=tokens)[2]
    assert Levels.of(log, slice(None)).find_fixed(LAWS["shapley"]) == held


def test_observations_are_relative_to_the_geometric_mean_and_weighted():
    given = inputs()
    log = simulate(true_law("shapley", given), given, mixtures(18, 4))
    loss = log.loss.copy()
    loss[2, 1] = np.nan
    found = gather(with_loss(log, loss), Settings())
    seen = found.observations(LAWS["shapley"], given)
    np.testing.assert_allclose(np.log(seen.N).mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.log(seen.D).mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(seen.N * found.units(LAWS["shapley"])[0], log.N, rtol=1e-12)
    assert seen.weight[2, 1] == 0
    assert np.isfinite(seen.log_loss).all()
    np.testing.assert_array_equal(seen.weight[:, 0], 1.0)
    np.testing.assert_allclose(seen.log_loss[0], np.log(loss[0]))


def sparse_log() -> RunLog:
    """Five mixtures of four sources: zz in none, yy in two, xx below 1%; untrained models at two sizes."""
    p = np.array([[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.2, 0.498, 0.3, 0.002], [0.4, 0.4, 0.196, 0.004], [0.3, 0.7, 0, 0]])
    p = np.concatenate([p, np.zeros((2, 4))])
    loss = np.concatenate([np.linspace(2, 3, 10).reshape(5, 2), [[5.5, np.nan], [5.6, 5.7]]])
    return RunLog(
        runs=("a", "b", "c", "d", "a", "u", "v"),
        N=np.array([1e8, 2e8, 4e8, 1e8, 1e8, 1e8, 2e8]),
        D=np.array([1e9, 2e9, 4e9, 8e9, 3e9, 0.0, 0.0]),
        p=p[:, [0, 1, 2, 3]],
        loss=loss,
        sources=("en", "de", "yy", "xx"),
        targets=("en", "de"),
    )


def covered(log: RunLog, filters: Settings) -> Coverage:
    found = gather(log, filters)
    return coverage_of(found.log, found.weight > 0, np.full(len(log.targets), np.nan))


def test_a_source_that_no_used_run_has_and_those_that_few_have_are_named():
    """Fault: a source that no run ever saw got 43% of the optimum without a word from fit."""
    log = sparse_log()
    assert covered(log, Settings()).unseen(log.sources) == ()
    np.testing.assert_array_equal(study_of(log, None, None, Settings(), 0).untrained, [5.6, 5.7])
    assert set(covered(log, Settings()).thin(log.sources, log.targets)) == {"yy", "xx"}
    weight = np.where(log.p[:, 2] > 0, 0.0, 1.0)
    assert covered(replace(log, weight=weight), Settings()).unseen(log.sources) == ("yy", "xx")


def test_rows_of_weight_zero_are_not_counted_as_fitted():
    """The table of held-out errors said 20 rows where 13 had a weight."""
    _, _, log = log_of("chinchilla", rows=20, noise=1e-3)
    found = sm.fit(replace(log, weight=np.where(np.arange(20) < 7, 0.0, 1.0)), "chinchilla", bootstrap=0, folds=0)
    assert found.rows == 13
