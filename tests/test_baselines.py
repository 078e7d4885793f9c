"""Baseline mixtures: identities of smoothing, and families."""

from __future__ import annotations

import numpy as np
import pytest

from shapleymix.errors import UsageError
from shapleymix.mixing.baselines import named, named_baselines, smoothed
from shapleymix.tables.simplex import uniform

SOURCES = ("en", "de", "fi", "sw")
AVAILABLE = np.array([100.0, 25.0, 4.0, 0.0])


def test_smoothing_goes_from_uniform_to_natural():
    np.testing.assert_allclose(smoothed(AVAILABLE[:3], 0.0), uniform(3))
    np.testing.assert_allclose(smoothed(AVAILABLE, 1.0), AVAILABLE / 129)
    np.testing.assert_allclose(named("natural", SOURCES, AVAILABLE, 1e3), AVAILABLE / 129)
    np.testing.assert_allclose(smoothed(AVAILABLE, 0.5), np.array([10, 5, 2, 0]) / 17)


def test_the_unit_of_the_sizes_does_not_matter():
    np.testing.assert_allclose(smoothed(AVAILABLE * 1e9, 0.3), smoothed(AVAILABLE, 0.3), rtol=1e-13)


def test_tables_offer_what_is_known():
    names = ("en", "de")
    unknown = named_baselines(names, np.array([1.0, np.nan]), 0.5, {"mine": "en=0.9,de=0.1"}, 1.0)
    assert list(unknown) == ["uniform", "mine"]
    known = named_baselines(names, np.array([1.0, 4.0]), 0.5, None, 1.0)
    assert list(known) == ["uniform", "smoothed (0.5)", "natural"]
    assert all(p.sum() == pytest.approx(1) for p in known.values())
    with pytest.raises(UsageError, match="available tokens"):
        smoothed(np.array([np.nan, 1.0]))
