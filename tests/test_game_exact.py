"""Exact Shapley values against enumeration, fractions, the axioms, and shapiq."""

import itertools
from fractions import Fraction
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shapleymix.errors import DataError
from shapleymix.game.exact import exact_shapley, joining_weights

PAYOFF = st.floats(-1e3, 1e3, allow_subnormal=False)


@st.composite
def games(draw: Any, targets: int = 2) -> np.ndarray:
    """Payoff tables (2**K, T) of one to six players."""
    return draw(arrays(float, (2 ** draw(st.integers(1, 6)), targets), elements=PAYOFF))


def shapley_by_permutations(payoffs: np.ndarray) -> np.ndarray:
    """The definition: the mean marginal contribution over all orders in which players can join."""
    players = len(payoffs).bit_length() - 1
    values = np.zeros((players, payoffs.shape[1]))
    for order in itertools.permutations(range(players)):
        mask = 0
        for player in order:
            values[player] += payoffs[mask | 1 << player] - payoffs[mask]
            mask |= 1 << player
    return values / factorial(players)


@settings(max_examples=40, deadline=None)
@given(games())
def test_equals_mean_over_permutations(payoffs: np.ndarray) -> None:
    np.testing.assert_allclose(exact_shapley(payoffs), shapley_by_permutations(payoffs), atol=1e-9)


def test_accuracy_against_fractions() -> None:
    players = 9
    payoffs = np.random.default_rng(0).normal(scale=10, size=(2**players, 1))
    weights = [Fraction(factorial(s) * factorial(players - s - 1), factorial(players)) for s in range(players)]
    sizes, exactly = np.bitwise_count(np.arange(2**players)), [Fraction(float(value)) for value in payoffs[:, 0]]
    values = exact_shapley(payoffs)
    for player in range(players):
        total = sum(
            weights[sizes[mask]] * (exactly[mask | 1 << player] - exactly[mask])
            for mask in range(2**players)
            if not mask >> player & 1
        )
        assert values[player, 0] == pytest.approx(float(total), abs=2e-14)


def test_joining_weights_average_over_coalitions_to_one() -> None:
    for players in (1, 2, 7, 20):
        count = np.bincount(np.bitwise_count(np.arange(2 ** (players - 1))), minlength=players)
        assert joining_weights(players) @ count == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    ("payoffs", "message"),
    [
        (np.zeros((6, 1)), "6 rows"), (np.zeros((1, 1)), "1 rows"), (np.zeros((0, 1)), "0 rows"),
        (np.zeros(8), r"shape \(8,\)"), (np.array([["a"], ["b"]]), "numeric"),
        (np.broadcast_to(np.zeros(1, dtype=np.int8), (2**25, 20)), r"25 players .* 5 GiB"),
    ],
)  # fmt: skip
def test_refuses_wrong_tables(payoffs: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        exact_shapley(payoffs)
