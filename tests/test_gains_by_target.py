"""What is gained over another mixture, target by target, and by other bounds and tokens: crossed over laws, bounds,
supplies, pulls and begun runs."""

import functools
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm

pytestmark = pytest.mark.usefixtures("one_prior")

RUNS = Path(__file__).parents[1] / "fixtures" / "multilingual5_runs.csv"
ASKED = {
    "caps": {"caps": {"zh": 0.2}}, "groups": {"groups": ["en+de<=0.3", "zh+ja>=0.4"]},
    "scarce": {"available": {"fr": "100k"}, "max_epochs": 1}, "near": {"near": "uniform", "within": 0.3},
    "pulled": {"anchor": "en=0.6,de=0.1,fr=0.1,zh=0.1,ja=0.1", "kl": 0.5, "caps": "en=0.3"},
    "begun": {"after": "en=0.7,de=0.3", "trained": "500k"},
    "worst": {"objective": "worst", "weights": {"en": 1, "de": 2, "fr": 1, "zh": 1, "ja": 1.5}},
}  # fmt: skip


@functools.cache
def fit_of(law: str) -> sm.Fit:
    return sm.fit(str(RUNS), law, bootstrap=10, folds=3)


@pytest.mark.parametrize("law", ["learned-base", "additive", "exponential"])
@pytest.mark.parametrize("asked", ASKED)
def test_gains_of_targets_are_differences_of_predicted_losses(law: str, asked: str):
    """Over laws, with two regimes, and bounds, supplies, pulls and begun runs: as `predict` tells these losses."""
    fit = fit_of(law)
    best = sm.optimize(fit, 97_600, "2M", **ASKED[asked])
    unique = np.where(np.isnan(best.available), np.inf, best.available)
    for one in best.baselines:
        other, own = fit.predict(np.stack([one.p, best.p]), 97_600, 2e6, unique=unique).losses
        np.testing.assert_allclose(one.gains, other - own, rtol=1e-9, atol=1e-12)
        known = ~np.isnan(one.gains)
        assert ((one.gains_low <= one.gains) & (one.gains <= one.gains_high))[known].all()
        if asked not in ("worst", "pulled"):
            assert best.weights @ one.gains == pytest.approx(one.gain, abs=1e-12)


@pytest.mark.parametrize("law", ["learned-base", "additive", "exponential"])
@pytest.mark.parametrize("asked", ASKED)
def test_more_freedom_never_costs_and_what_changes_nothing_is_a_tie(law: str, asked: str):
    """Of `zh` there is so much that more or less of it is no other question, but for rounding."""
    changes = ("fr+50k", "fr-20k", "zh+10M", "zh-1M", "fr+1M,zh+1M")
    tokens = {"available": {"fr": "100k", "zh": "30M"}, "what_if": changes}
    best = sm.optimize(fit_of(law), 97_600, "2M", **(ASKED[asked] | tokens))
    for one in best.what_if:
        assert one.gain_low <= one.gain <= one.gain_high
        assert max(one.gain, one.gain_high) <= 0 if "-" in one.name else min(one.gain, one.gain_low) >= 0
        if one.name.startswith("zh"):
            assert (one.gain, one.gain_low, one.gain_high, one.probability) == (0, 0, 0, 0.5)
    for price in best.binding:
        assert 0 <= price.saves_low <= price.saves <= price.saves_high, "more freedom costs nothing, whatever is true"
        assert price.unit == "tokens" or price.saves <= price.per_ratio * price.change * (1 + 1e-6)
