"""The curvature of many problems in both of its forms, the step within a box, and steps along a curved valley."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.optimize import minimize as minimized

from shapleymix.fitting.curvature import Curvature, boxed_step
from shapleymix.fitting.least_squares import CONVERGED, Loss, Objective, Prior, minimize
from shapleymix.records import FloatArray, IntArray

SHAPES = [(6, 4), (4, 4), (3, 8), (1, 5), (40, 12), (12, 40)]


def problem(runs: int, unknowns: int, count: int = 5) -> tuple[FloatArray, FloatArray, Curvature, FloatArray]:
    """Rows (Q, R, P), what unknowns add by themselves, the curvature of both, and the same as plain matrices."""
    rng = np.random.default_rng(runs * 100 + unknowns)
    rows, own = rng.normal(size=(count, runs, unknowns)), rng.uniform(0.01, 2.0, (count, unknowns))
    whole = rows.swapaxes(1, 2) @ rows + own[:, :, None] * np.eye(unknowns)
    return rows, own, Curvature.of(rows, own), whole


@pytest.mark.parametrize(("runs", "unknowns"), SHAPES)
def test_both_forms_are_the_plain_matrix(runs, unknowns):
    _, _, curvature, whole = problem(runs, unknowns)
    assert (curvature.matrix is None) == (runs < unknowns)
    rng = np.random.default_rng(1)
    x = rng.normal(size=whole.shape[:2])
    np.testing.assert_allclose(curvature.times(x), (whole @ x[..., None])[..., 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(curvature.diagonal(), np.einsum("qpp->qp", whole), rtol=1e-12)
    ridge = rng.uniform(0, 1, x.shape)
    held = rng.random(x.shape) < 0.3
    found = curvature.plus(ridge).solve(x, held)
    assert (found[held] == 0).all()
    for q in range(len(x)):
        free = ~held[q]
        there = (whole[q] + np.diag(ridge[q]))[np.ix_(free, free)]
        np.testing.assert_allclose(found[q, free], np.linalg.solve(there, x[q, free]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("runs", "unknowns"), SHAPES)
def test_some_problems_alone_are_what_they_are_among_others(runs, unknowns):
    _, _, curvature, whole = problem(runs, unknowns)
    x, none = np.ones(whole.shape[:2]), np.zeros(whole.shape[:2], dtype=bool)
    which = np.array([True, False, True, True, False])
    np.testing.assert_array_equal(curvature[which].solve(x[which], none[which]), curvature.solve(x, none)[which])
    changed = Curvature.of(curvature.rows.copy(), curvature.own.copy())
    changed[which] = Curvature.of(2 * curvature.rows[which], 4 * curvature.own[which])
    np.testing.assert_allclose(changed.times(x)[which], 4 * curvature.times(x)[which], rtol=1e-12)
    np.testing.assert_array_equal(changed.times(x)[~which], curvature.times(x)[~which])


@pytest.mark.parametrize(("runs", "unknowns"), SHAPES)
def test_the_step_within_a_box_is_that_of_scipy(runs, unknowns):
    rows, own, curvature, _ = problem(runs, unknowns)
    rng = np.random.default_rng(2)
    wanted = rng.normal(size=rows.shape[:2])
    gradient = (wanted[:, None, :] @ rows)[:, 0, :]
    low, high = -rng.uniform(0, 0.5, own.shape), rng.uniform(0, 0.5, own.shape)
    held = rng.random(own.shape) < 0.2
    low[held] = 0.0
    step = boxed_step(curvature, gradient, held & (gradient > 0), low, high)
    for q in range(len(step)):
        stacked = np.vstack([rows[q], np.diag(np.sqrt(own[q]))])
        right = np.concatenate([-wanted[q], np.zeros(unknowns)])
        other = lsq_linear(stacked, right, (low[q] - 1e-15, high[q] + 1e-15), method="bvls", tol=1e-14)
        np.testing.assert_allclose(step[q], other.x, atol=1e-8)


def valley(x: FloatArray, number: IntArray) -> tuple[FloatArray, FloatArray]:
    """Rosenbrock's: 10 (y - x^2) and 1 - x; the factor grows with the number of the problem."""
    steep = 10.0 * (1.0 + number)
    residual = np.stack([steep * (x[:, 1] - x[:, 0] ** 2), 1 - x[:, 0]], axis=1)
    jacobian = np.zeros((len(x), 2, 2))
    jacobian[:, 0, 0], jacobian[:, 0, 1], jacobian[:, 1, 0] = -2 * steep * x[:, 0], steep, -1.0
    return residual, jacobian


def test_a_curved_valley_takes_few_steps():
    """19 to 50 steps, where the same search takes 30 to 149 along straight lines."""
    wide = np.full(2, 50.0)
    goal = Objective(valley, np.ones((10, 2)), Loss(np.inf), -wide, wide)
    found = minimize(goal, np.tile([-1.2, 1.0], (10, 1)), iterations=200, tolerance=1e-12)
    assert (found.status == CONVERGED).all()
    np.testing.assert_allclose(found.x, 1.0, atol=1e-9)
    assert found.iterations.max() <= 60


def test_more_unknowns_than_residuals_agree_with_scipy():
    """Sums of exponentials of 30 unknowns, told by 8 residuals and a prior, some at their bounds."""
    rng = np.random.default_rng(3)
    matrix, y = rng.normal(size=(4, 8, 30)) / 5, rng.normal(size=(4, 8))
    center, precision = rng.normal(size=(4, 30)) / 3, rng.uniform(0.05, 0.5, (4, 30))

    def residuals(x: FloatArray, number: IntArray) -> tuple[FloatArray, FloatArray]:
        grown = np.exp((matrix[number] @ x[..., None])[..., 0])
        return grown - y[number], grown[..., None] * matrix[number]

    low, high = np.full(30, -0.4), np.full(30, 0.4)
    goal = Objective(residuals, np.ones_like(y), Loss(0.3, 0.05), low, high, Prior(center, precision))
    found = minimize(goal, np.zeros((4, 30)), iterations=300, tolerance=1e-14)
    assert found.at_bound.any()
    assert not found.at_bound.all()
    for q in range(4):

        def cost(x: FloatArray, q: int = q) -> float:
            return float(goal.cost_of(np.array([q]), x[None], residuals(x[None], np.array([q]))[0])[0])

        bounds = list(zip(low, high, strict=True))
        other = minimized(cost, np.zeros(30), bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
        assert found.cost[q] <= other.fun * (1 + 1e-9)
        np.testing.assert_allclose(found.x[q], other.x, atol=2e-3)
