"""Starting points: the exact solution for the linear symbols, against SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import nnls
from simulated import log_of

from shapleymix.laws import LAWS, Observations
from shapleymix.laws.mixture_laws import mixture_slopes
from shapleymix.records import FloatArray
from shapleymix.statistics import nonnegative


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_nonnegative_least_squares_of_every_problem(columns):
    rng = np.random.default_rng(columns)
    matrix, y = rng.normal(size=(60, 12, columns)), rng.normal(size=(60, 12))
    gram, right = matrix.swapaxes(1, 2) @ matrix, (y[:, None, :] @ matrix)[:, 0]
    found = nonnegative(gram, right)
    expected = np.stack([nnls(a, b)[0] for a, b in zip(matrix, y, strict=True)])
    assert (expected == 0).any()
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.fixture
def log_linear() -> tuple[Observations, FloatArray]:
    """Log losses that are linear in the ratios, with slopes (4, 4), under weights that differ from row to row."""
    rng = np.random.default_rng(3)
    slopes, log = rng.uniform(-0.5, 0.5, (4, 4)), log_of("exponential", rows=60)[2]
    N, D = log.N / log.N.mean(), log.D / log.D.mean()
    log_loss = 1.0 + log.p @ slopes - 0.1 * np.log(N)[:, None] - 0.05 * np.log(D)[:, None]
    return Observations(log.p, N, D, log_loss, rng.uniform(0.1, 2.0, (60, 4))), slopes


@pytest.mark.parametrize("scale", [1e-3, 1.0, 60.0])
def test_slopes_are_those_of_weighted_least_squares_whatever_the_scale_of_the_weights(log_linear, scale):
    """With noise; ratios sum to one, so that the constant is in them, and slopes are known up to one."""
    seen, _ = log_linear
    noisy = seen.log_loss + 0.2 * np.random.default_rng(4).normal(size=seen.log_loss.shape)
    columns = np.column_stack([seen.p, np.log(seen.N), np.log(seen.D)])
    found = mixture_slopes(replace(seen, weight=seen.weight * scale, log_loss=noisy))
    for j, root in enumerate(np.sqrt(seen.weight).T):
        expected = np.linalg.lstsq(columns * root[:, None], noisy[:, j] * root)[0][:4]
        np.testing.assert_allclose(found[:, j] - found[:, j].mean(), expected - expected.mean(), atol=3e-3)


@pytest.mark.parametrize("name", ["additive", "effective-data"])
def test_a_source_begins_with_a_larger_coefficient_the_more_it_lowers_the_loss(log_linear, name):
    seen, slopes = log_linear
    start = LAWS[name].starts(seen, log_of(name)[1], {})["coefficients"]
    order = np.argsort(slopes, axis=0)
    ranked = np.take_along_axis(start, np.broadcast_to(order, start.shape), axis=1)
    assert (np.diff(ranked, axis=1) <= 0).all()
    assert (ranked[:, 0] > ranked[:, -1]).all()
