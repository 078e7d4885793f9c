"""Starting points: the exact solution for the linear symbols, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls
from simulated import log_of, with_loss

from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.evidence import Filters, gather
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.starts import _nonnegative, starting_points
from shapleymix.laws import LAWS


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_nonnegative_least_squares_of_every_problem(columns):
    rng = np.random.default_rng(columns)
    matrix, y = rng.normal(size=(60, 12, columns)), rng.normal(size=(60, 12))
    gram, right = matrix.swapaxes(1, 2) @ matrix, (y[:, None, :] @ matrix)[:, 0]
    found = _nonnegative(gram, right)
    expected = np.stack([nnls(a, b)[0] for a, b in zip(matrix, y, strict=True)])
    assert (expected == 0).any()
    np.testing.assert_allclose(found, expected, atol=1e-7)


def problem_of(name: str, **options) -> tuple[Problem, object]:
    law, given, log = log_of(name, **options)
    return Problem.of(LAWS[name], gather(log, Filters()), given, Settings()), law


@pytest.mark.parametrize("name", LAWS)
def test_starts_are_within_bounds_best_first_and_near_the_data(name):
    problem, _ = problem_of(name, rows=40)
    seen = problem.observed
    start = starting_points(problem.packing, seen, problem.inputs, problem.givens, 5)
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
    exact = law.replaced(alpha=np.full(4, 0.25), beta=np.full(4, 0.25), gamma=np.full(4, 0.2))
    log = problem.evidence.log
    log = with_loss(log, exact(log.p, log.N, log.D))
    problem = Problem.of(LAWS["shapley"], gather(log, Filters()), problem.inputs, Settings())
    estimate = starting_points(problem.packing, problem.observed, problem.inputs, problem.givens, 1)[0]
    found = problem.packing.unpack(estimate, {"nsv": problem.givens["nsv"].T[..., None]})
    plain = found.rescaled(problem.evidence.N0, problem.evidence.D0)
    for name in ("E", "A", "B", "gamma"):
        np.testing.assert_allclose(getattr(plain, name)[:, 0], getattr(exact, name), rtol=1e-4, err_msg=name)


def test_a_row_without_weight_moves_no_start():
    problem, _ = problem_of("learned-concave", rows=40)
    weight, log_loss = problem.observed.weight.copy(), problem.observed.log_loss.copy()
    weight[3:7] = 0.0

    def starts_with(losses):
        seen = type(problem.observed)(**{**vars(problem.observed), "weight": weight, "log_loss": losses})
        return starting_points(problem.packing, seen, problem.inputs, problem.givens, 3)

    spoiled = log_loss.copy()
    spoiled[3:7] = 5.0
    np.testing.assert_allclose(starts_with(spoiled), starts_with(log_loss), rtol=1e-9, atol=1e-12)
