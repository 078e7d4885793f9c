"""Losses that judge have no say in what is fitted apart, nor in what is scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_absent import repeating, two_regimes

import shapleymix as sm
from shapleymix.errors import FitError
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of

LAW = "additive"
HOW = {"folds": 3, "threads": 1}
APART, UNSCORED = "another regime, fitted apart", "they are not scored"


def judged(fitted: sm.RunLog, judges: sm.RunLog) -> tuple[sm.RunLog, np.ndarray]:
    """The runs of one log, of which a third judge with the losses of another, and which these are."""
    rows = np.zeros(len(fitted), dtype=bool)
    rows[np.random.default_rng(5).permutation(len(fitted))[: len(fitted) // 3]] = True
    split = tuple("held-out" if row else "fit" for row in rows.tolist())
    return replace(fitted, loss=np.where(rows[:, None], judges.loss, fitted.loss), split=split), rows


@pytest.fixture(scope="module")
def one() -> sm.RunLog:
    return two_regimes(0.0, rows=60)


@pytest.fixture(scope="module")
def two() -> sm.RunLog:
    return two_regimes(1.2, rows=60)


def sized(log: sm.RunLog, rows: np.ndarray) -> sm.RunLog:
    """The same with the rows that judge as the largest size."""
    return replace(log, split=None, N=np.where(rows, 2e8, 1e8))


@pytest.mark.parametrize("design", ["split", "leave_largest_N"])
def test_losses_that_judge_part_nothing(one: sm.RunLog, two: sm.RunLog, design: str):
    """Fault: where judges alone showed two regimes, just the losses on which every law failed were not scored."""
    log, rows = judged(one, two)
    found = sm.compare(log if design == "split" else sized(log, rows), LAW, **{design: True}, **HOW)
    assert found.entries[0].scores is not None
    np.testing.assert_array_equal(found.entries[0].scores.rows, rows.sum())
    assert found.entries[0].scores.mean["PE"] > 0.2
    assert not [text for text in found.notices if APART in text or UNSCORED in text]


def test_what_is_scored_is_the_same_whatever_the_judges_say(one: sm.RunLog, two: sm.RunLog):
    """Fault: regimes that the fitted runs show were fitted as one, where the judges had enough losses against it."""
    noise = np.exp(np.random.default_rng(0).normal(size=two.loss.shape))
    logs = [judged(two, judges) for judges in (one, replace(two, loss=two.loss * noise))]
    found = [sm.compare(log, LAW, split=True, **HOW) for log, _ in logs]
    lacking = (two.p == 0)[logs[0][1]]
    notices = [[text for text in one_of.notices if APART in text or UNSCORED in text] for one_of in found]
    assert notices[0] == notices[1]
    assert notices[0][1].startswith(f"{lacking.sum()} of {lacking.size} held-out losses are of runs without")
    for one_of in found:
        np.testing.assert_array_equal(one_of.entries[0].scores.rows, (~lacking).sum(axis=0))
    assert found[0].entries[0].scores.mean["PE"] < 0.01 < 0.2 < found[1].entries[0].scores.mean["PE"]


def test_laws_are_compared_on_the_fit_that_the_fitted_runs_have(two: sm.RunLog):
    log, rows = judged(two, two)
    (entry,) = sm.compare(log, LAW, split=True, **HOW).entries
    fit = sm.fit(log.select(~rows), LAW, bootstrap=0, **HOW)
    assert fit.absent is not None
    p, with_own = log.p[rows], (log.p > 0)[rows]
    off = np.abs(fit.predict(p, 1e8, 1e9).losses - log.loss[rows])
    expected = (off * with_own).sum(axis=0) / (log.loss[rows] * with_own).sum(axis=0)
    np.testing.assert_allclose(entry.scores.PE, expected, rtol=1e-5)


def test_cross_validation_says_what_it_does_not_score(two: sm.RunLog):
    found = sm.compare(two, "chinchilla", **HOW)
    lacking = int((two.p == 0).sum())
    assert found.notices[-1].startswith(f"{lacking} of 240 held-out losses are of runs without")
    plain = sm.compare(two, "chinchilla", min_own_tokens=0, **HOW)
    assert not [text for text in plain.notices if UNSCORED in text]


def test_judges_of_the_other_regime_alone_are_refused(two: sm.RunLog):
    log, rows = judged(two, two)
    alone = replace(log, loss=np.where(rows[:, None] & (log.p > 0), np.nan, log.loss))
    with pytest.raises(FitError, match=r"all 16 held-out losses are .* none is left to score") as told:
        sm.compare(alone, LAW, split=True, **HOW)
    assert "min_own_tokens=0" in str(told.value.hint)
    one_law = sm.compare(alone, LAW, split=True, min_own_tokens=0, **HOW)
    assert one_law.rows == (log.p == 0)[rows].any(axis=1).sum()


def test_few_fitted_runs_part_nothing(two: sm.RunLog):
    log, _ = judged(two, two)
    few = np.flatnonzero(np.array(log.split) == "fit")[:3]
    kept = log.select(np.union1d(few, np.flatnonzero(np.array(log.split) != "fit")))
    found = sm.compare(kept, "chinchilla", split=True, **HOW)
    np.testing.assert_array_equal(found.entries[0].scores.rows, 20)


def test_a_part_of_a_study_is_the_study_of_a_part():
    log = repeating(12)
    rows = np.arange(12) % 3 > 0
    whole, part = (study_of(one, None, None, Settings(bootstrap=0), 0) for one in (log, log.select(rows)))
    inside = np.isin(whole.log.runs, part.log.runs)
    found = whole.only(inside).evidence
    assert found.log.runs == part.evidence.log.runs
    np.testing.assert_array_equal(found.ratios, part.evidence.ratios)
    np.testing.assert_array_equal(found.weight > 0, part.evidence.weight > 0)
    assert not np.array_equal(found.ratios, found.log.p), "tokens are repeated"
