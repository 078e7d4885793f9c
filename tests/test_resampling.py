"""Folds and replicates keep a mixture's rows together and depend on nothing but the mixtures and the seed."""

import numpy as np
import pytest
from simulated import inputs, mixtures, simulate, true_law

from shapleymix.fitting.evidence import bootstrap_shares, fold_masks
from shapleymix.tables.runs import RunLog


@pytest.fixture
def log() -> RunLog:
    """23 mixtures, each at two or three budgets."""
    given = inputs()
    p = np.repeat(mixtures(23, 4), np.arange(23) % 2 + 2, axis=0)
    return simulate(true_law("shapley", given), given, p)


def test_folds_part_the_rows_and_never_a_mixture(log):
    masks = fold_masks(log, 5)
    assert masks.shape == (5, len(log))
    np.testing.assert_array_equal(masks.sum(axis=0), 1)
    np.testing.assert_array_equal(masks.argmax(axis=0), log.folds(5))
    for group in np.unique(log.groups):
        assert len(np.unique(masks.argmax(axis=0)[log.groups == group])) == 1
    sizes = [len(np.unique(log.groups[mask])) for mask in masks]
    assert max(sizes) - min(sizes) <= 1


def test_shares_are_one_on_average_and_one_a_mixture(log):
    shares = bootstrap_shares(log, 50, seed=3)
    assert shares.shape == (50, len(log))
    assert (shares > 0).all()
    first = np.array([np.flatnonzero(log.groups == group)[0] for group in range(23)])
    np.testing.assert_array_equal(shares, shares[:, first][:, log.groups])
    np.testing.assert_allclose(shares[:, first].mean(axis=1), 1.0)


def test_shares_are_those_of_the_bayesian_bootstrap(log):
    """Rubin 1981: Dirichlet(1, ..., 1) weights times n, so each has variance (n - 1) / (n + 1)."""
    first = np.array([np.flatnonzero(log.groups == group)[0] for group in range(23)])
    drawn = bootstrap_shares(log, 4000, seed=0)[:, first]
    np.testing.assert_allclose(drawn.mean(axis=0), 1.0, atol=0.07)
    assert drawn.var(axis=0).mean() == pytest.approx(22 / 24, rel=0.05)
    off = np.cov(drawn.T)[~np.eye(23, dtype=bool)]
    assert off.mean() == pytest.approx(-1 / 24, rel=0.1)


def test_seed_and_only_the_seed_decides(log):
    one = bootstrap_shares(log, 5, seed=1)
    assert one.tobytes() == bootstrap_shares(log, 5, seed=1).tobytes()
    assert one.tobytes() != bootstrap_shares(log, 5, seed=2).tobytes()
    order = np.random.default_rng(0).permutation(len(log))
    np.testing.assert_array_equal(bootstrap_shares(log.select(order), 5, seed=1), one[:, order])
