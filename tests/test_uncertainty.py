"""Intervals that lack one of their two parts say so, in the fit's notices and with every prediction."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import log_of

from shapleymix.fitting.evaluation import evaluate
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.uncertainty import QUANTILES, Spread

NAMES = ("en", "de", "fr", "zh")
PARTS = {
    (9, 3): "",
    (9, 0): "intervals hold how uncertain the law is, and not how a new run scatters about it",
    (0, 3): "intervals hold how held-out runs scatter about the law, and not how uncertain the law itself is",
    (0, 0): "there are no intervals: the fit has neither bootstrap replicates nor held-out residuals",
}


def fitted(bootstrap: int, folds: int, law: str = "chinchilla") -> Fit:
    log = log_of("shapley", rows=30, noise=1e-2)[2]
    return fit(log, law, bootstrap=bootstrap, folds=folds, starts=1, threads=1)


@pytest.mark.parametrize(("bootstrap", "folds"), PARTS)
def test_what_intervals_lack_is_said_by_the_fit_its_predictions_and_evaluations(bootstrap, folds):
    """Fault: with folds = 0 or bootstrap = 0, intervals were too narrow without a word."""
    found, words = fitted(bootstrap, folds), PARTS[bootstrap, folds]
    told = found.predict("uniform", 1e8, 3e9)
    said = {
        "fit": [text for text in found.notices if "intervals" in text],
        "predict": [text for text in told.warnings if "intervals" in text],
        "evaluate": [text for text in evaluate(found, log_of("shapley", rows=30)[2]).warnings if "intervals" in text],
    }
    expected = {"fit": bool(words), "predict": bool(bootstrap) != bool(folds), "evaluate": bool(words)}
    assert {key: len(texts) for key, texts in said.items()} == expected
    assert all(text.startswith(words) for texts in said.values() for text in texts)
    assert np.isfinite(told.low).any() == bool(bootstrap or folds)


def test_a_black_box_says_what_its_intervals_lack():
    found = fitted(9, 3, "gbm")
    assert any(text.startswith(PARTS[0, 3]) for text in found.notices)


def test_targets_without_held_out_residuals_are_named():
    residuals = np.outer(np.linspace(-1, 1, len(QUANTILES)), [1.0, 0.0, 1.0, 0.0])
    (text,) = Spread(fitted(2, 0).replicates, residuals).lacks(NAMES)
    assert text.startswith("intervals of de, zh hold how uncertain the law is")
