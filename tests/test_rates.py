"""The rate at which repeated tokens lose their worth: what is simulated is found, what is not told is the prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from repeating import QUICK, RATE, D, log_with

from shapleymix import Fit, compare, fit
from shapleymix.fitting.repetition import Told
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.laws import EffectiveData, Exponential, LearnedBase
from shapleymix.laws.pieces import PUBLISHED, PUBLISHED_SPREAD
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_with(RATE)


@pytest.fixture(scope="module")
def found(log: RunLog) -> Fit:
    return fit(log, "learned-base", **QUICK)


def test_the_rate_of_the_simulation_is_found(found: Fit):
    known = found.repetition
    assert known is not None
    assert known.told
    assert abs(np.log(known.rate / RATE)) < 0.1
    assert abs(np.log(np.median(known.rates) / RATE)) < 0.1
    assert np.std(np.log(known.rates)) < PUBLISHED_SPREAD / 3
    assert ("lambda", None, "*", known.rate) == found.parameters()[-1][:4]
    assert f"R* = {1 / known.rate:.3g} epochs" in found.summary()


def test_no_two_rates_of_a_profile_are_about_one(log: RunLog):
    """Where two steps led to one rate but for rounding, the spline through both swung far beside them."""
    study = study_of(log, None, None, Settings(**QUICK), 0)
    for law in (EffectiveData, LearnedBase):
        profile = Told.of(study, law).profile
        assert profile is not None
        assert np.diff(profile.log_rates).min() > 0.01


def test_a_log_without_repetition_leaves_the_published_rate_with_its_spread():
    plain = log_with(RATE, repeats=False)
    limited = replace(plain, unique=np.full(plain.p.shape, 2 * D))
    one, other = (fit(each, "learned-base", **{**QUICK, "bootstrap": 200}) for each in (plain, limited))
    for symbol in ("gamma", "u", "a", "E"):
        np.testing.assert_array_equal(getattr(one.law, symbol), getattr(other.law, symbol))
    known = other.repetition
    assert known is not None
    assert not known.told
    assert known.rate == PUBLISHED
    assert 0.8 < np.std(np.log(known.rates)) / PUBLISHED_SPREAD < 1.2
    assert one.summary() == other.summary()


@pytest.mark.parametrize("runs", [2, 4])
def test_a_log_that_barely_repeats_leaves_the_rate_to_the_prior(runs: int):
    plain = log_with(RATE, repeats=False, noise=0.01)
    unique = np.full(plain.p.shape, np.nan)
    unique[:runs, 0] = plain.p[:runs, 0] * D / 1.6
    known = fit(replace(plain, unique=unique), "learned-base", **{**QUICK, "bootstrap": 100}).repetition
    assert known is not None
    assert known.told == (runs == 4)
    assert abs(np.log(known.rate / PUBLISHED)) < 0.3
    assert 0.7 < np.std(np.log(known.rates)) / PUBLISHED_SPREAD < 1.3


def test_laws_are_compared_at_the_worth_of_tokens_that_the_log_tells(log: RunLog):
    told, blind = (
        compare(each, "learned-base", folds=4, starts=2).entries[0].scores.mean["PE"]
        for each in (log, replace(log, unique=None))
    )
    assert told < 0.5 * blind


def test_the_rate_is_told_by_named_rows_alone(log: RunLog):
    study = study_of(log, None, None, Settings(**QUICK), 0)
    seen = np.arange(len(log)) < 40
    odd = study_of(replace(log, loss=np.where(seen[:, None], log.loss, 9.9)), None, None, Settings(**QUICK), 0)
    rows = np.isin(study.log.runs, log.runs[:40])
    one, other = (Told.of(each, LearnedBase, rows).rate for each in (study, odd))
    assert one == pytest.approx(other, rel=1e-6)
    assert Told.of(study, Exponential).profile is None


def test_replicates_tell_how_firmly_the_runs_hold_the_rate(fixtures):
    """Fault: fits along the grid that ended early kept the start's digits, and every replicate had the same rate."""
    log = read_runs(fixtures / "repetition_runs.csv")
    found = fit(log, "learned-base", bootstrap=20, folds=0)
    assert found.repetition is not None
    assert found.repetition.rates is not None
    assert 0.15 < np.std(np.log(found.repetition.rates)) < 0.6
