"""What each target gains over another mixture, crossed over laws, bounds, supplies, pulls and begun runs."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm

pytestmark = pytest.mark.usefixtures("one_prior")

RUNS = Path(__file__).parents[1] / "fixtures" / "multilingual5_runs.csv"
ASKED = {
    "caps": {"caps": {"zh": 0.2}},
    "groups": {"groups": ["en+de<=0.3", "zh+ja>=0.4"]},
    "scarce": {"available": {"fr": "100k"}, "max_epochs": 1},
    "near": {"near": "uniform", "within": 0.3},
    "pulled": {"anchor": "uniform", "kl": 0.05},
    "begun": {"after": "en=0.7,de=0.3", "trained": "500k"},
    "worst": {"objective": "worst", "weights": {"en": 1, "de": 2, "fr": 1, "zh": 1, "ja": 1.5}},
}


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
