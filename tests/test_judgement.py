"""What an optimisation says of mixtures outside of what was fitted and of repeated tokens: optimum and rivals."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.mixing.judgement import Judgement

FIXTURES = Path(__file__).parents[1] / "fixtures"
EVERY = "en=0.2,de=0.2,fr=0.2,zh=0.2,ja=0.2"


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    """The README's fit: losses without their own language are left out, and predicted above an untrained model's."""
    sv = sm.shapley_values(sm.read_runs(FIXTURES / "multilingual5_coalitions.csv"))
    log = sm.read_runs(FIXTURES / "multilingual5_runs.csv")
    return sm.fit(log, "shapley-tempered", sv, min_own_tokens=20_000, bootstrap=20, folds=0)


def test_a_rival_outside_of_what_was_fitted_is_named_and_strict_gives_it_no_number(fit):
    rivals = {"far": "en=0.4,de=0.3,fr=0.3", "near": EVERY}
    found = sm.optimize(fit, 97_600, "2M", compare_to=rivals)
    told = [text for text in found.notices if text.startswith("the rival far: ")]
    assert any("p_zh" in text for text in told)
    assert any("p_ja" in text for text in told)
    assert not any(text.startswith("the rival near: ") for text in found.notices)
    assert all(np.isfinite(rival.gain) for rival in found.baselines)

    strict = {rival.name: rival for rival in sm.optimize(fit, 97_600, "2M", compare_to=rivals, strict=True).baselines}
    assert strict["far"].reason == "outside of what was fitted for zh, ja"
    assert np.isnan([strict["far"].objective, strict["far"].gain, strict["far"].probability]).all()
    assert strict["near"].gain > 0


def test_a_rival_above_an_untrained_models_loss_claims_no_gain(fit):
    found = sm.optimize(fit, 97_600, "2M", compare_to={"mono": "en=1"})
    mono = next(rival for rival in found.baselines if rival.name == "mono")
    assert mono.reason == "above an untrained model's loss for de, fr"
    assert np.isnan([mono.objective, mono.gain, mono.gain_low, mono.probability]).all()


def test_an_optimum_outside_of_what_was_fitted_is_refused_under_strict(fit):
    with pytest.raises(sm.DataError, match="D lies outside of the fitted range"):
        sm.optimize(fit, 97_600, "200M", strict=True)


def test_repeated_tokens_are_named_for_the_optimum_and_for_rivals(fit):
    few = dict.fromkeys(fit.sources, 100_000.0)
    found = sm.optimize(fit, 97_600, "2M", available=few, max_epochs=5)
    repeats = [text for text in found.notices if "rests on the published R* = 15.4 epochs" in text]
    assert any(text.startswith("the mixture repeats") for text in repeats)
    assert any(text.startswith("the rival uniform: it repeats en 4 times, de 4 times") for text in repeats)
    assert not any("fresh ones" in text for text in found.notices)
    plenty = sm.optimize(fit, 97_600, "2M", available=dict.fromkeys(fit.sources, "1B"))
    assert not any("repeats" in text for text in plenty.notices)


def test_python_is_warned_once(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sm.optimize(fit, 97_600, "8M")
    texts = [str(one.message) for one in caught if issubclass(one.category, ShapleyMixWarning)]
    assert sorted(texts) == sorted(set(texts))
    assert any("D lies outside" in text for text in texts)
    assert set(texts) <= set(found.notices)
    assert all(one.filename == __file__ for one in caught)


def test_what_does_not_count_takes_no_number_away(fit):
    """The first row is outside for the second target alone, whose weight is nothing; the other is above for it."""
    one = np.array([[False, True], [False, False]])
    seen = Judgement(fit.predict("uniform", 97_600, "2M"), ("a", "b"), one, one[::-1], (), strict=True)
    assert [seen.reason(row, np.array([1.0, 0.0])) for row in (0, 1)] == ["", ""]
    told = [seen.reason(row, np.ones(2)) for row in (0, 1)]
    assert told == ["outside of what was fitted for b", "above an untrained model's loss for b"]
