"""Estimation of one law: against SciPy on the same objective, and what must not change it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from simulated import log_of

from shapleymix.errors import FitError
from shapleymix.fitting.estimation import Estimation, estimate, resample
from shapleymix.fitting.evidence import bootstrap_shares, gather
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.symbols import Packing
from shapleymix.laws import LAWS


def problem_of(name: str, settings: Settings | None = None, **options) -> Estimation:
    _, given, log = log_of(name, **options)
    return Estimation.of(LAWS[name], gather(log, Settings()), given, settings or Settings())


def ones(problem: Estimation, count: int = 1) -> np.ndarray:
    return np.ones((count, len(problem.evidence.log)))


@pytest.mark.parametrize(
    ("name", "delta"),
    [
        ("shapley-tempered", 1e-3), ("learned-base", np.inf), ("learned-base", 1e-3), ("exponential", np.inf),
        ("additive", 1e-3),
    ],
)  # fmt: skip
def test_no_start_of_scipy_finds_a_lower_objective(name, delta):
    settings = Settings(delta=delta)
    problem = problem_of(name, settings, rows=40, noise=5e-3)
    found = estimate(problem, ones(problem))
    low, high = problem.packing.bounds()
    seen, target = problem.observed, 1
    rng = np.random.default_rng(0)

    def objective(x):
        columns = {key: value.T[target : target + 1][..., None] for key, value in problem.givens.items()}
        log_loss, slopes = problem.packing.unpack(x[None, None], columns).expansion(seen.p, seen.N, seen.D)
        e, jacobian = log_loss[0, :, 0] - seen.log_loss[:, target], problem.packing.jacobian(slopes)[0]
        size, score = np.abs(e), np.clip(e, -delta, delta)
        if np.isfinite(delta):  # beyond delta the slope grows by a tenth of delta: of all minima, that of least squares
            beyond = np.maximum(size - delta, 0.0)
            rho = np.where(size <= delta, size**2 / 2, delta * (size - delta / 2)) + 0.05 * delta * beyond**2
            score = score + 0.1 * delta * np.sign(e) * beyond
        else:
            rho = e**2 / 2
        prior = settings.prior * min(delta, 1e-2) * (np.array(problem.packing.names) == "coefficients")
        believed = problem.beliefs  # noise^2 / (runs spread^2), an infinite spread being no belief
        prior = prior + believed.noise[target] ** 2 / len(e) / believed.spread[target] ** 2 * (settings.prior / 1e-5)
        off = x - believed.center[target]
        return rho.mean() + prior @ off**2 / 2, score @ jacobian / len(e) + prior * off

    best = min(
        optimize.minimize(
            objective,
            np.clip(found.x[0, target] + spread * rng.normal(size=len(low)), low, high),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-12},
        ).fun
        for spread in (0.0, 0.3, 0.3, 0.6)
    )
    assert objective(found.x[0, target])[0] == pytest.approx(found.cost[0, target], rel=1e-9)
    assert found.cost[0, target] <= best * (1 + 2e-4)


def test_weights_count_as_repeats():
    """A row of weight 2 is the row twice; the scale of all weights does not matter."""
    _, given, log = log_of("shapley", rows=30, noise=1e-2)
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    twice = log.select(np.concatenate([np.arange(30), np.arange(10)]))

    def law_of(log_):
        problem = Estimation.of(LAWS["shapley"], gather(log_, Settings()), given, Settings())
        return estimate(problem, ones(problem)).law

    weighted = law_of(replace(log, weight=weight))
    for other in (law_of(twice), law_of(replace(log, weight=5 * weight))):
        for symbol in ("E", "A", "alpha", "B", "beta", "gamma"):
            np.testing.assert_allclose(getattr(weighted, symbol), getattr(other, symbol), rtol=1e-6, err_msg=symbol)


def test_weightings_are_independent_of_each_other():
    problem = problem_of("shapley-concave", rows=30, noise=5e-3)
    shares = bootstrap_shares(problem.evidence.log, 3, seed=1)
    together = estimate(problem, shares)
    for index in range(3):
        alone = estimate(problem, shares[index : index + 1])
        np.testing.assert_allclose(alone.x[0], together.x[index], rtol=1e-10, atol=1e-12)


def test_replicates_from_the_solution_reach_what_a_fresh_search_reaches():
    problem = problem_of("shapley-tempered", rows=40, noise=5e-3)
    found = estimate(problem, ones(problem))
    shares = bootstrap_shares(problem.evidence.log, 8, seed=2)
    warm, fresh = resample(problem, shares, found.x[0], 0), estimate(problem, shares)
    assert np.median(warm.cost / fresh.cost) <= 1 + 1e-6
    assert (warm.cost <= fresh.cost * 1.01).all()


def test_progress_ends_at_the_whole():
    problem = problem_of("shapley", rows=20)
    calls: list[tuple[int, int]] = []
    estimate(problem, ones(problem), lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] > 0
    assert calls == sorted(calls)


def test_a_law_that_no_row_defines_is_refused():
    _, given, log = log_of("family", rows=20)
    p = log.p.copy()
    p[:, 3] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    evidence = gather(replace(log, p=p, loss=np.full(log.loss.shape, 2.0)), Settings())
    with pytest.raises(FitError, match=r"law 'family' is undefined .* for 'zh'"):
        Estimation.of(LAWS["family"], evidence, given, Settings())


@pytest.mark.parametrize("name", LAWS)
def test_packing_is_its_own_inverse(name):
    problem = problem_of(name, rows=20)
    packing = problem.packing
    low, high = packing.bounds()
    x = np.random.default_rng(0).uniform(np.maximum(low, -3), np.minimum(high, 3), (5, len(low)))
    givens = {key: np.ones((4, 5)) for key in problem.givens}
    law = packing.unpack(x, givens)
    symbols = {known.name: np.asarray(getattr(law, known.name)) for known in packing.free}
    np.testing.assert_allclose(packing.pack(symbols), x, rtol=1e-12, atol=1e-14)
    assert len(packing.names) == x.shape[1]


def test_held_symbols_are_not_searched():
    packing = Packing(LAWS["shapley"], 4, {"B": 0.0, "beta": 0.0})
    assert packing.names == ("E", "A", "alpha", "gamma")
    law = packing.unpack(np.zeros((2, 4)), {"nsv": np.ones((4, 2))})
    np.testing.assert_array_equal(law.B, np.zeros(2))
