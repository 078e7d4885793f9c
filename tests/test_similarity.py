"""How alike two matrices are does not hang on the units of their values, be they as large or small as doubles go."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapleymix.tables.similarity import MEASURES, similarity

TARGETS = ("a", "b", "c")
OFF = ~np.eye(3, dtype=bool)
LARGEST = float(np.finfo(float).max)


def numbers(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """All measures of two matrices, with floating point errors as failures."""
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = similarity(left, right, TARGETS, OFF)
    return np.array([[getattr(found, name), *getattr(found, f"{name}_by_target")] for name in MEASURES])


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    left = np.random.default_rng(0).normal(size=(3, 3))
    return left, left + 0.3 * np.random.default_rng(1).normal(size=(3, 3))


@settings(deadline=None, max_examples=60)
@given(one=st.integers(-960, 1020), other=st.integers(-960, 1020))
def test_units_change_nothing(one: int, other: int):
    """Fault: values near 1e300 were multiplied until they overflowed, and values near 1e-200 until none was left."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 3, 3))
    np.testing.assert_array_equal(numbers(np.ldexp(left, one), np.ldexp(right, other)), numbers(left, right))


@pytest.mark.parametrize("unit", [LARGEST, 1e300, 1e-300, 1e-308])
def test_the_measures_are_those_of_numpy_at_any_scale(pair: tuple[np.ndarray, np.ndarray], unit: float):
    left, right = pair
    scaled = (left / np.abs(left).max() * unit, right / np.abs(right).max() * unit)
    found = numbers(*scaled)
    off = (left[OFF], right[OFF])
    wanted = [
        (left * right).sum() / np.linalg.norm(left) / np.linalg.norm(right),
        np.corrcoef(left.ravel(), right.ravel())[0, 1],
        (off[0] @ off[1]) / np.linalg.norm(off[0]) / np.linalg.norm(off[1]),
        np.corrcoef(*off)[0, 1],
    ]
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-12)


def test_one_value_far_above_the_others_leaves_these_their_column():
    left = np.eye(3) * LARGEST
    left[1, 0] = 1.0
    found = numbers(left, left)
    np.testing.assert_allclose(found[0], 1.0)
    assert found[2, 1] == pytest.approx(1.0), "off the diagonal the first column has a scale of its own"
    assert np.isnan(found[2, 2:]).all(), "the others have nothing there"
