"""Mixtures side by side: objectives, paired gains and probabilities against loops over the replicates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.mixing.candidates import compare_mixtures
from shapleymix.records import FloatArray

PLANS = {
    "uniform": "uniform",
    "plan": "en=0.5,de=0.2,fr=0.1,zh=0.1,ja=0.1",
    "even": "en=0.3,de=0.2,fr=0.2,zh=0.1,ja=0.2",
}
BUDGET = (97600.0, 2e6)


@pytest.fixture(scope="module")
def fitted(fixtures: Path) -> Fit:
    log = str(fixtures / "multilingual5_runs.csv")
    return fit(log, "learned-base", bootstrap=9, folds=0, min_own_tokens=20e3, threads=1)


def one_by_one(law, p: FloatArray) -> FloatArray:
    N, D = (np.array([value]) for value in BUDGET)
    return np.asarray(law(p[None], N, D))[..., 0, :]


@pytest.mark.parametrize("weights", ["unweighted", "normalized", {"en": 3, "de": 1, "fr": 0, "zh": 1, "ja": 2}])
def test_gains_are_those_of_a_loop(fitted: Fit, weights: str | dict[str, float]) -> None:
    found = compare_mixtures(fitted, PLANS, *BUDGET, weights=weights, level=0.5)
    assert [entry.name for entry in found.entries] == list(PLANS)
    w = found.weights
    first = found.entries[0]
    for entry in found.entries:
        np.testing.assert_allclose(entry.objective, one_by_one(fitted.law, entry.p) @ w, rtol=1e-13)
        own, other = (one_by_one(fitted.replicates, one.p) @ w for one in (first, entry))
        gains = sorted((own - other).tolist())
        assert entry.gain == pytest.approx(first.objective - entry.objective, abs=1e-15)
        assert (entry.gain_low, entry.gain_high) == pytest.approx((gains[2], gains[6]), abs=1e-13)
        if entry is not first:
            assert entry.probability == sum(gain > 0 for gain in gains) / 9
    assert np.isnan(first.probability)
    assert first.gain == first.gain_low == first.gain_high == 0
    assert found.best().objective == min(entry.objective for entry in found.entries)


def test_pairing_is_narrower_than_the_difference_of_intervals(fitted: Fit) -> None:
    """What the mixtures have in common cancels: a copy of the first gains exactly nothing, and wins half the time."""
    found = compare_mixtures(fitted, {"a": "uniform", "b": "uniform"}, *BUDGET)
    copy = found.entries[1]
    assert (copy.gain, copy.gain_low, copy.gain_high, copy.probability) == (0, 0, 0, 0.5)
    assert copy.objective_high > copy.objective_low


def test_the_order_decides_only_who_is_first(fitted: Fit) -> None:
    forth = compare_mixtures(fitted, {"a": PLANS["uniform"], "b": PLANS["plan"]}, *BUDGET).entries[1]
    back = compare_mixtures(fitted, {"b": PLANS["plan"], "a": PLANS["uniform"]}, *BUDGET).entries[1]
    assert forth.gain == pytest.approx(-back.gain, abs=1e-15)
    assert forth.gain_low == pytest.approx(-back.gain_high, abs=1e-15)
    assert forth.probability == pytest.approx(1 - back.probability)


def test_without_replicates_gains_have_no_intervals(fitted: Fit) -> None:
    found = sm.compare_mixtures(replace(fitted, replicates=None), PLANS, *BUDGET)
    entry = found.entries[1]
    assert found.replicates == 0
    assert np.isfinite(entry.gain)
    assert np.isnan([entry.gain_low, entry.gain_high, entry.probability, entry.objective_low]).all()


def test_baselines_by_name_rest_on_the_tokens(fitted: Fit) -> None:
    available = {"en": 4e6, "de": 2e6, "fr": 1e6, "zh": 5e5, "ja": 5e5}
    found = compare_mixtures(fitted, ["natural", "temperature:2", "unimax:1"], *BUDGET, available=available)
    share = np.array(list(available.values())) / 8e6
    np.testing.assert_allclose(found.entries[0].p, share, rtol=1e-14)
    np.testing.assert_allclose(found.entries[1].p, share**0.5 / (share**0.5).sum(), rtol=1e-14)
    np.testing.assert_allclose(found.entries[2].p, 0.2, rtol=1e-14)
    with pytest.raises(UsageError, match="natural"):
        compare_mixtures(fitted, ["natural"], *BUDGET)


def test_a_mixture_without_a_prediction_has_no_gain(fitted: Fit) -> None:
    """A loss above the untrained model's is no number, and so is what rests on it; weight 0 leaves it out."""

    class Partial:
        sources, targets, law, replicates = fitted.sources, fitted.targets, fitted.law, fitted.replicates

        def predict(self, *point, **options):
            found = fitted.predict(*point, **options)
            losses = found.losses.copy()
            losses[1, 2] = np.nan
            return replace(found, losses=losses)

    found = compare_mixtures(Partial(), PLANS, *BUDGET)
    assert np.isnan([found.entries[1].objective, found.entries[1].gain, found.entries[1].probability]).all()
    assert np.isfinite(found.entries[2].gain_low)
    assert found.best().name != "plan"
    ignoring = compare_mixtures(Partial(), PLANS, *BUDGET, weights={"en": 1, "de": 1, "fr": 0, "zh": 1, "ja": 1})
    assert np.isfinite(ignoring.entries[1].gain_low)


def test_a_comparison_is_read_back_as_written(fitted: Fit, tmp_path: Path) -> None:
    found = sm.compare_mixtures(fitted, PLANS, *BUDGET)
    found.save(tmp_path / "c.json")
    again = sm.Candidates.load(tmp_path / "c.json")
    assert again.to_document() == found.to_document()


def test_no_mixture_is_refused(fitted: Fit) -> None:
    with pytest.raises(UsageError, match="no mixture"):
        compare_mixtures(fitted, [], *BUDGET)
