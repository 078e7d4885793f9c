"""The search for laws without convexity: its draws are mixtures within the bounds, however tight these are."""

from __future__ import annotations

import numpy as np
import pytest

from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.engine.search import _moved

NAMES = ("a", "b", "c", "d", "e")
DRAWS = np.random.default_rng(0).dirichlet(np.ones(5), 200)


@pytest.mark.parametrize("room", [1.0, 1.0001, 1.01, 1.1, 2.0])
@pytest.mark.parametrize("floored", [False, True])
def test_draws_become_mixtures_within_caps_and_floors(room, floored):
    witness = np.random.default_rng(1).dirichlet(np.ones(5))
    caps = dict(zip(NAMES, np.minimum(witness * room, 1.0).tolist(), strict=True))
    floors = dict(zip(NAMES, (witness / room**2).tolist(), strict=True)) if floored else None
    bounds = Bounds(caps=caps, floors=floors).at(NAMES, 1e9)
    found = _moved(DRAWS, bounds)
    assert len(found) == len(DRAWS)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert (found >= bounds.lower).all()
    assert (found <= bounds.upper).all()


def test_draws_outside_of_a_group_are_dropped():
    bounds = Bounds(groups="0.5<=a+b<=0.6").at(NAMES, 1e9)
    found, sums = _moved(DRAWS, bounds), DRAWS[:, :2].sum(axis=1)
    np.testing.assert_allclose(found, DRAWS[(sums >= 0.5) & (sums <= 0.6)], atol=1e-12)
    assert not len(_moved(DRAWS[DRAWS[:, 0] > 1e-6], Bounds(groups="a<=1e-6").at(NAMES, 1e9)))
