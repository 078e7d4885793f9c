"""Learning curves: what the errors leave possible, and whether intervals hold what more runs bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from simulated import inputs, mixtures, simulate, true_law

import shapleymix as sm
from shapleymix.errors import FitError
from shapleymix.laws import BlackBox, Observations
from shapleymix.planning.learning_curve import LearningCurve, _draws, learning_curve
from shapleymix.records import FloatArray, IntArray

QUICK: dict[str, Any] = {"starts": 2}


def log_of(rows: int, noise: float = 2e-2, targets: int = 4) -> sm.RunLog:
    given = inputs(4, targets)
    law = true_law("learned-base", given)
    return simulate(law, given, mixtures(rows, 4), sizes=(1e8,), tokens=(3e9,), noise=noise)


@dataclass(frozen=True)
class ByCount(BlackBox):
    """A box whose error falls by a known curve: losses of 1 are predicted as 1 + f + c n^-b."""

    kind = "law/by-count"
    name = "by-count"
    needs = ("mixture",)

    miss: float

    def targets_count(self) -> int:
        return 2

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return np.full((len(p), 2), 1 + self.miss)

    @classmethod
    def learn(cls, seen: Observations, groups: IntArray, seed: int) -> ByCount:
        return cls(known_error(len(np.unique(groups[seen.weight[:, 0] > 0]))))


def known_error(count: float) -> float:
    return 0.01 + 0.2 * count**-0.7


def ones(rows: int) -> sm.RunLog:
    p = mixtures(rows, 3)
    one = np.ones(rows)
    runs = tuple(f"r{row}" for row in range(rows))
    return sm.RunLog(runs, 1e8 * one, 1e9 * one, p, np.ones((rows, 2)), ("a", "b", "c"), ("a", "b"))


def test_a_known_curve_is_measured_exactly_and_held_by_its_intervals():
    found = learning_curve(ones(60), ByCount)
    np.testing.assert_allclose(found.mixtures, [12, 20, 40, 48])
    np.testing.assert_allclose(found.PE, [known_error(n) for n in found.mixtures], rtol=1e-9)
    assert found.now == 60
    np.testing.assert_array_equal(found.ahead, [60, 90, 120, 240])
    for count, expected, low, high in zip(found.ahead, found.expected, found.low, found.high, strict=True):
        assert low < known_error(count) < high
        assert abs(expected / known_error(count) - 1) < 0.25
    assert (np.diff(found.high / found.low) > 0).all(), "the farther ahead, the wider"
    assert found.scatter == pytest.approx(0, abs=1e-9)


def test_intervals_hold_what_more_runs_bring_on_simulated_logs():
    """Noise of 2% stays whatever the runs: its mean absolute value is the floor."""
    log = log_of(240)
    order = np.random.default_rng(0).permutation(240)
    held = []
    for start in range(0, 160, 40):
        now, aside = log.select(order[start : start + 24]), log.select(order[200:])
        found = learning_curve(now, "mariner")
        more = np.concatenate([order[start : start + 24], np.setdiff1d(order[:200], order[start : start + 24])])
        for count in (36, 96):
            fit = sm.fit(log.select(more[:count]), "mariner", bootstrap=0, folds=0)
            PE = sm.evaluate(fit, aside).scores.mean["PE"]
            place = found.ahead.tolist().index(count)
            held.append(found.low[place] < PE < found.high[place])
        noise = 0.02 * np.sqrt(2 / np.pi)
        assert found.low[-1] < 1.1 * noise
        assert found.high[-1] > 0.9 * noise
    assert np.mean(held) >= 0.75


def test_draws_are_wide_where_errors_are_and_always_the_same():
    share, PE = np.array([0.2, 0.5, 0.8]), np.log([0.05, 0.03, 0.025])
    sure, unsure = (_draws(share, PE, np.full(3, error), 0) for error in (1e-3, 0.2))
    assert np.log(unsure[:, 0]).std() > 2 * np.log(sure[:, 0]).std()
    np.testing.assert_array_equal(sure, _draws(share, PE, np.full(3, 1e-3), 0))
    assert ((sure[:, 1] >= 0) & (sure[:, 1] < 1) & (sure[:, 2] > 0)).all()


def test_sizes_that_the_law_refuses_are_left_out_and_named():
    found = learning_curve(log_of(25, targets=1), "effective-data", **QUICK)
    assert len(found.PE) == 3
    assert found.mixtures.min() > 8
    assert "no fit to 5 mixtures: law 'effective-data' fits" in found.notices[0]


def test_too_few_mixtures_are_refused():
    with pytest.raises(FitError, match="7 mixtures are too few for a learning curve"):
        learning_curve(log_of(7), "learned-base", **QUICK)


def test_losses_that_are_missing_and_rows_of_one_mixture_change_no_count(tmp_path):
    log = log_of(30)
    rows = np.repeat(np.arange(30), 2)
    twice = log.select(rows)
    runs = tuple(f"{run}-{number}" for number, run in enumerate(twice.runs))
    loss = np.where(np.arange(60)[:, None] % 11 == np.arange(4), np.nan, twice.loss)
    again = sm.RunLog(runs, twice.N, twice.D, twice.p, loss, log.sources, log.targets)
    found = learning_curve(again, "mariner")
    assert found.now == 30
    assert np.isfinite(found.PE).all()
    found.save(tmp_path / "curve.json")
    read = LearningCurve.load(tmp_path / "curve.json")
    assert (read, set(read.columns())) == (found, {"mixtures", "fitted", "PE", "low", "high"})
    assert len(read.to_polars()) == len(found.PE) + len(found.ahead)
