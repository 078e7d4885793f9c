"""Repeated tokens from log to mixture: a rate that was simulated is found, and every answer takes it into account."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from repeating import QUICK, RATE, SUPPLY, D, N, log_with

from shapleymix import Fit, evaluate, fit
from shapleymix.errors import UsageError
from shapleymix.laws.pieces import effective
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_with(RATE)


@pytest.fixture(scope="module")
def found(log: RunLog) -> Fit:
    return fit(log, "learned-base", **QUICK)


def test_taking_repetition_into_account_predicts_new_runs_better(log: RunLog, found: Fit):
    fresh = log_with(RATE, seed=2)
    blind = fit(replace(log, unique=None), "learned-base", **QUICK)
    assert evaluate(found, fresh).scores.mean["PE"] < 0.002
    assert evaluate(blind, replace(fresh, unique=None)).scores.mean["PE"] > 0.005


def test_tokens_of_the_languages_table_are_those_of_every_run(log: RunLog):
    known = np.array([2e7, 1e8, np.nan])
    nothing = np.full(3, np.nan)
    table = Languages(log.sources, (None,) * 3, known, None, nothing)
    by_table = fit(replace(log, unique=None), "learned-base", languages=table, **{**QUICK, "bootstrap": 0})
    by_log = fit(replace(log, unique=np.tile(known, (60, 1))), "learned-base", **{**QUICK, "bootstrap": 0})
    assert by_table.repetition == by_log.repetition or by_table.repetition.rate == by_log.repetition.rate
    blank = replace(log, unique=np.full((60, 3), np.nan))  # a log that says "no limit" is believed
    assert not fit(blank, "learned-base", languages=table, **{**QUICK, "bootstrap": 0}).repetition.told


def test_a_saved_fit_predicts_as_before(found: Fit, tmp_path):
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    one, other = (each.predict("uniform", N, D, available=SUPPLY) for each in (found, again))
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.high, other.high)


def test_predictions_are_the_law_at_effective_ratios(found: Fit):
    p = np.array([[0.3, 0.3, 0.4], [0.1, 0.5, 0.4]])
    unique = np.array([[2e7, np.nan, np.nan], [np.nan, 1e8, 5e8]])
    q = effective(p, np.where(np.isnan(unique), np.inf, unique) / D, found.repetition.rate)
    by_hand = found.law(q, np.full(2, N), np.full(2, D))
    np.testing.assert_allclose(found.predict(p, N, D, unique=unique).losses, by_hand, rtol=1e-13)
    named = found.predict(p, N, D, available={"en": 2e7}).losses[0]
    np.testing.assert_allclose(named, by_hand[0], rtol=1e-13)
    scarce, plenty = (found.predict(p, N, D, available=supply) for supply in ({"en": 1e6}, {"en": 1e12}))
    assert (scarce.losses > plenty.losses).all()
    np.testing.assert_array_equal(plenty.losses, found.predict(p, N, D).losses)


@pytest.mark.parametrize("unique", [[[1.0, 2.0]], "many", [[0.0, 1.0, 1.0]]])
def test_wrong_unique_tokens_are_refused_by_name(found: Fit, unique: object):
    with pytest.raises(UsageError, match="unique tokens"):
        found.predict("uniform", N, D, unique=unique)  # type: ignore[arg-type]


def warned(run) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return "\n".join(str(one.message) for one in caught)


def test_other_epochs_than_those_of_the_runs_are_told(found: Fit):
    told = warned(lambda: found.predict("uniform", N, D, available={"en": 1e6}))
    assert "repeats en 333 times; the fitted runs repeat en at most 32" in told
    assert "fresh ones" not in told
    assert "every token counts as fresh" in warned(lambda: found.predict("uniform", N, D))
    assert "repeat" not in warned(lambda: found.predict("uniform", N, D, available={"en": 1e8}))
    plain = fit(log_with(RATE, repeats=False), "learned-base", **QUICK)
    assert "R* = 15.4" in warned(lambda: plain.predict("uniform", N, D, available={"en": 1e8}))


@pytest.mark.parametrize("part", [{"rate": -1.0}, {"rate": np.nan}, {"rates": np.array([np.inf])}])
def test_rates_that_no_fit_gives_are_refused(found: Fit, part: dict):
    assert found.repetition is not None
    with pytest.raises(ValueError, match="rates of repetition"):
        replace(found.repetition, **part)
    with pytest.raises(ValueError, match="epochs of shape"):
        replace(found, repetition=replace(found.repetition, epochs=np.ones((2, 2))))
