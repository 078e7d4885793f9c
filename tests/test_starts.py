"""Starting points: the exact solution for the linear symbols, against SciPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import nnls
from simulated import log_of, with_loss

from shapleymix.fitting.estimation import Estimation
from shapleymix.fitting.evidence import gather
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.symbols import _nonnegative, starting_points
from shapleymix.laws import LAWS, Observations
from shapleymix.laws.mixture_laws import mixture_slopes
from shapleymix.records import FloatArray


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_nonnegative_least_squares_of_every_problem(columns):
    rng = np.random.default_rng(columns)
    matrix, y = rng.normal(size=(60, 12, columns)), rng.normal(size=(60, 12))
    gram, right = matrix.swapaxes(1, 2) @ matrix, (y[:, None, :] @ matrix)[:, 0]
    found = _nonnegative(gram, right)
    expected = np.stack([nnls(a, b)[0] for a, b in zip(matrix, y, strict=True)])
    assert (expected == 0).any()
    np.testing.assert_allclose(found, expected, atol=1e-7)


ONE = np.ones((1, 40))


def problem_of(name: str, **options) -> tuple[Estimation, object]:
    law, given, log = log_of(name, **options)
    return Estimation.of(LAWS[name], gather(log, Settings()), given, Settings()), law


@pytest.mark.parametrize("name", LAWS)
def test_starts_are_within_bounds_best_first_and_near_the_data(name):
    problem, _ = problem_of(name, rows=40)
    seen = problem.observed
    start = starting_points(problem.packing, seen, ONE, problem.inputs, problem.givens, 5)[0]
    low, high = problem.packing.bounds()
    assert start.shape == (min(5, len(start)), 4, len(problem.packing.names))
    assert ((start >= low - 1e-9) & (start <= high + 1e-9)).all()
    error = []
    for one in start:
        columns = {key: value.T[..., None] for key, value in problem.givens.items()}
        log_loss, _ = problem.packing.unpack(one, columns).expansion(seen.p, seen.N, seen.D)
        gap = (np.exp(log_loss[..., 0].T - seen.log_loss) - 1) * (seen.weight > 0)
        error.append((gap**2).sum(axis=0))
    assert np.all(np.diff(error, axis=0) >= -1e-6 * np.abs(error[0]).max() - 1e-9)
    assert np.sqrt(error[0] / len(seen.N)).max() < 0.1


def test_linear_symbols_are_exact_where_the_grid_holds_the_exponents():
    """alpha = beta = .25 and gamma = .2 are on the grid: E, A and B must come out by the projection alone."""
    problem, law = problem_of("shapley", rows=40)
    exact = law.swap(A=law.A / 4, B=law.B / 4, alpha=np.full(4, 0.25), beta=np.full(4, 0.25), gamma=np.full(4, 0.2))
    log = problem.evidence.log
    log = with_loss(log, exact(log.p, log.N, log.D))
    problem = Estimation.of(LAWS["shapley"], gather(log, Settings()), problem.inputs, Settings())
    estimate = starting_points(problem.packing, problem.observed, ONE, problem.inputs, problem.givens, 1)[0, 0]
    found = problem.packing.unpack(estimate, {"nsv": problem.givens["nsv"].T[..., None]})
    plain = found.rescale(*problem.evidence.units(LAWS["shapley"]))
    for name in ("E", "A", "B", "gamma"):
        np.testing.assert_allclose(getattr(plain, name)[:, 0], getattr(exact, name), rtol=1e-4, err_msg=name)


def test_a_row_without_weight_moves_no_start():
    problem, _ = problem_of("effective-data", rows=40)
    weight, log_loss = problem.observed.weight.copy(), problem.observed.log_loss.copy()
    weight[3:7] = 0.0

    def starts_with(losses):
        seen = type(problem.observed)(**{**vars(problem.observed), "weight": weight, "log_loss": losses})
        return starting_points(problem.packing, seen, ONE, problem.inputs, problem.givens, 3)

    spoiled = log_loss.copy()
    spoiled[3:7] = 5.0
    np.testing.assert_allclose(starts_with(spoiled), starts_with(log_loss), rtol=1e-9, atol=1e-12)


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
