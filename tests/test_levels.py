"""Budgets that are one but for the rounding of token counts to batches."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import log_of

import shapleymix as sm
from shapleymix.fitting.magnitudes import SAME, levels, levels_of


@given(st.lists(st.floats(1e3, 1e13), min_size=1, max_size=40))
def test_a_level_is_narrow_and_the_next_begins_beyond_it_wherever_they_lie(values):
    budgets = np.array(values)
    number = levels_of(np.log(budgets))
    assert (np.unique(number) == np.arange(number.max() + 1)).all()
    for level in range(number.max() + 1):
        assert np.ptp(np.log(budgets[number == level])) <= 2 * SAME + 1e-9
    found = levels(budgets)
    assert len(found) == number.max() + 1
    assert (np.diff(np.log(found)) > 2 * SAME - 1e-9).all()


@pytest.mark.parametrize("tokens", [1e8, 1.00936e8, 3e9])
def test_token_counts_rounded_to_batches_are_one_and_tell_nothing_of_D(tokens):
    """Faults: D that alternates by .06% counted as two levels, and a grid of cells split it: 1.3 [0, 112942] at 2 D."""
    _, _, log = log_of("learned-base", rows=60, noise=2e-3, tokens=(tokens,))
    rounded = replace(log, D=log.D * np.where(np.arange(60) % 2, 1.0003, 0.9997))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sm.ShapleyMixWarning)
        fits = [sm.fit(one, "learned-base", bootstrap=20, folds=3, threads=1) for one in (log, rounded)]
        one, two = (fit.predict("uniform", 1e8, 2 * tokens) for fit in fits)
    assert set(fits[0].held) == set(fits[1].held)
    assert {"B", "beta", "zeta"} <= set(fits[1].held)
    assert "drawn in replicates" in fits[1].held["zeta"]
    np.testing.assert_allclose(two.losses, one.losses, rtol=0.02)
    np.testing.assert_allclose(np.log(two.high / two.low), np.log(one.high / one.low), rtol=0.5)
