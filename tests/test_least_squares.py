"""The batched search against SciPy, problem by problem, and on Chinchilla's own points."""

import numpy as np
import pytest
from scipy import optimize

from shapleymix.fitting.fit import fit
from shapleymix.fitting.least_squares import Loss, Prior, Regression, minimize
from shapleymix.records import FloatArray
from shapleymix.tables.run_reading import read_runs

T = np.linspace(0.0, 3.0, 25)
WIDE = (np.full(3, -50.0), np.full(3, 50.0))


def curve(x: FloatArray) -> FloatArray:
    """a exp(-b t) + c."""
    return x[..., 0, None] * np.exp(-x[..., 1, None] * T) + x[..., 2, None]


def slope(x: FloatArray) -> FloatArray:
    decay = np.exp(-x[..., 1, None] * T)
    return np.stack([decay, -x[..., 0, None] * T * decay, np.ones_like(decay)], axis=-1)


def problems(count: int, noise: float, outliers: float = 0.0, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """True unknowns (Q, 3) and data (Q, R)."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform([1, 0.5, -1], [3, 2, 1], (count, 3))
    y = curve(truth) + noise * rng.normal(size=(count, len(T)))
    return truth, y + 0.5 * (rng.random(y.shape) < outliers)


def objective(y: FloatArray, loss: Loss, low=WIDE[0], high=WIDE[1], prior=None, weight=None) -> Regression:
    weight, prior = np.ones_like(y) if weight is None else weight, prior or Prior(*np.zeros((2, len(y), 3)))
    both, values = lambda x, q: (curve(x) - y[q], slope(x)), lambda x, q: curve(x) - y[q]
    return Regression(both, values, weight, loss, low, high, prior)


def value(x: FloatArray, y: FloatArray, delta: float, weight: FloatArray | float = 1.0, prior: Prior | None = None):
    """The objective written anew."""
    e = np.abs(curve(x) - y)
    rho = np.where(e <= delta, e**2 / 2, delta * (e - delta / 2)) if np.isfinite(delta) else e**2 / 2
    pull = 0.0 if prior is None else 0.5 * prior.precision[0] @ (x - prior.center[0]) ** 2
    if prior is not None and prior.ties is not None:
        pull += 0.5 * sum(float(row @ (x - prior.center[0])) ** 2 for row in prior.ties[0])
    return float(np.sum(weight * rho) + pull)


@pytest.mark.parametrize("delta", [1e-2, 0.1, np.inf])
def test_agrees_with_scipy_least_squares(delta):
    _, y = problems(25, noise=0.02, outliers=0.1)
    start = np.tile([1.5, 1.0, 0.0], (25, 1))
    found = minimize(objective(y, Loss(delta)), start, tolerance=1e-12)
    scale = {"loss": "huber", "f_scale": delta} if np.isfinite(delta) else {}
    assert found.converged.all()
    for q in range(25):
        other = optimize.least_squares(
            lambda x, q=q: curve(x) - y[q], start[q], slope, xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=2000, **scale
        )
        assert found.cost[q] == pytest.approx(value(found.x[q], y[q], delta), rel=1e-12)
        assert found.cost[q] <= other.cost * (1 + 1e-9)
        np.testing.assert_allclose(found.x[q], other.x, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("ties", [None, [[3.0, -3.0, 0.0], [0.0, 1.0, 1.0]]])
@pytest.mark.parametrize("delta", [0.05, np.inf])
def test_bounds_weights_and_prior_agree_with_scipy_minimize(delta, ties):
    _, y = problems(15, noise=0.05, outliers=0.05, seed=3)
    low, high = np.array([0.0, 0.8, -0.2]), np.array([2.0, 1.5, 0.2])
    weight = np.random.default_rng(4).uniform(0, 2, y.shape)
    tied = None if ties is None else np.tile(ties, (15, 1, 1))
    prior = Prior(np.tile([1.0, 1.0, 0.0], (15, 1)), np.tile([0.3, 0.0, 2.0], (15, 1)), tied)
    goal = objective(y, Loss(delta), low, high, prior, weight)
    found = minimize(goal, np.tile([1.0, 1.0, 0.0], (15, 1)), iterations=500, tolerance=1e-12)
    at_bound = (found.x == low) | (found.x == high)
    assert at_bound.any()
    assert not at_bound.all()
    for q in range(15):
        other = optimize.minimize(
            lambda x, q=q: value(x, y[q], delta, weight[q], prior),
            [1.0, 1.0, 0.0],
            bounds=list(zip(low, high, strict=True)),
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000},
        )
        assert found.cost[q] <= other.fun * (1 + 1e-6)
        np.testing.assert_allclose(found.x[q], other.x, atol=2e-3)


def test_too_few_iterations_are_told():
    _, y = problems(3, noise=0.05)
    found = minimize(objective(y, Loss(0.1)), np.tile([9.0, 9.0, 9.0], (3, 1)), iterations=1)
    assert not found.converged.any()


def test_loss_is_hubers_function_and_score_its_slope():
    e = np.linspace(-3, 3, 601)
    loss = Loss(0.7)
    np.testing.assert_allclose(loss.value(e), 0.7**2 / 2 * huber_of_scipy((e / 0.7) ** 2), rtol=1e-13)
    slope_ = (loss.value(e + 1e-6) - loss.value(e - 1e-6)) / 2e-6
    np.testing.assert_allclose(loss.score(e), slope_, atol=1e-6)
    np.testing.assert_array_equal(Loss(np.inf).value(e), e**2 / 2)
    np.testing.assert_array_equal(Loss(np.inf).score(e), e)


def huber_of_scipy(z: FloatArray) -> FloatArray:
    """rho(z) of `scipy.optimize.least_squares(loss="huber")`."""
    return np.where(z <= 1, z, 2 * np.sqrt(z) - 1)


def test_chinchillas_points(shared_data):
    """240 points of Hoffmann et al. 2022: the optimum of Huber(1e-3) on log loss, which few starts reach."""
    log = read_runs(shared_data / "chinchilla_245.csv")
    log = log.select(np.argsort(log.loss[:, 0])[:-5])
    found = fit(log, "chinchilla", bootstrap=0, folds=0)
    residual = np.abs(np.log(found.law(log.p, log.N, log.D) / log.loss))
    total = np.where(residual <= 1e-3, residual**2 / 2, 1e-3 * (residual - 5e-4)).sum()
    assert total <= 1.01829e-3
    known = {"E": 1.8172, "A": 477.83, "B": 2143.4, "alpha": 0.34731, "beta": 0.36717}
    for symbol, number in known.items():
        assert getattr(found.law, symbol)[0] == pytest.approx(number, rel=2e-3), symbol


@pytest.mark.parametrize("spread", [1e-3, 1e-9, 1e-15])
def test_a_firm_belief_about_one_unknown_does_not_keep_the_others_from_moving(spread):
    _, y = problems(5, noise=0.02)
    precision = np.tile([0.0, 0.0, 1 / spread**2], (5, 1))
    prior = Prior(np.zeros((5, 3)), precision)
    found = minimize(objective(y, Loss(np.inf), prior=prior), np.tile([1.5, 1.0, 0.1], (5, 1)), tolerance=1e-12)
    assert found.converged.all()
    for q in range(5):
        known = optimize.least_squares(lambda x, q=q: curve(np.append(x, 0.0)) - y[q], [1.5, 1.0], xtol=1e-14)
        np.testing.assert_allclose(found.x[q], [*known.x, 0.0], atol=2e-3)
