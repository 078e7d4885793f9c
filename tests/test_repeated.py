"""Repeated tokens: the term S(D; U) against its formula, its slopes against differences, its optima against SLSQP."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from shapleymix.errors import SolveError
from shapleymix.laws.repeated import effective, effective_slopes, slope_in_supply
from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.closed_forms import closed_form
from shapleymix.mixing.engine.cone import solve_cone
from shapleymix.mixing.engine.interior_point import solve_interior
from shapleymix.mixing.engine.solving import solve, solve_replicates
from shapleymix.mixing.problem import Problem

SOURCES = ("a", "b", "c", "d")
UNIQUE = np.array([0.02, 0.1, np.inf, 0.4])
RATE = 0.2


def powers(seed: int = 0, *, concave: bool = True, replicates: tuple[int, ...] = ()) -> PowerTerms:
    """Terms of a law with four sources and three targets."""
    draws = np.random.default_rng(seed)
    shape = (*replicates, 4, 3)
    s = draws.uniform(0.3, 0.9, shape) if concave else None
    phi = draws.uniform(0.05, 1.0, shape)
    floor, a, gamma = draws.uniform([[0.0], [1.0], [0.1]], [[0.5], [3.0], [0.8]], (3, 3))
    return PowerTerms(floor, a, gamma, phi, s)


def problem_of(terms: PowerTerms, objective: str = "mean", **bounds: object) -> Problem:
    """Equal weights under some bounds."""
    return Problem(terms, np.full(3, 1 / 3), Bounds(**bounds).at(SOURCES, 1e9), objective)  # type: ignore[arg-type]


def test_the_term_is_the_published_one():
    """U (1 + R* (1 - exp(-R / R*))) tokens for R repetitions, by hand; fresh tokens count in full."""
    D, U, T, star = 100.0, 10.0, 70.0, 1 / RATE
    by_hand = U + U * star * (1 - np.exp(-(T / U - 1) / star))
    q = effective(np.array([T / D, 0.07]), np.array([U / D, 0.1]), RATE)
    np.testing.assert_allclose(q, [by_hand / D, 0.07], rtol=1e-14)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.065, 3.0, 1e3])
def test_effective_ratios_are_concave_and_at_most_the_ratios(rate: float):
    p = np.linspace(0, 1, 2001)[:, None]
    q, slope, bend = effective_slopes(p, UNIQUE, rate)
    assert (q <= p + 1e-15).all()
    assert (np.diff(q, axis=0) >= 0).all()
    assert (np.diff(q, 2, axis=0) <= 1e-15).all()
    assert ((slope >= 0) & (slope <= 1)).all()
    assert (bend <= 0).all()
    np.testing.assert_array_equal(q[:, 2], p[:, 0])


def test_slopes_of_effective_ratios_agree_with_differences():
    p, h = np.array([0.3, 0.35, 0.2, 0.15]), 1e-6
    _, slope, bend = effective_slopes(p, UNIQUE, RATE)
    up, down = effective(p + h, UNIQUE, RATE), effective(p - h, UNIQUE, RATE)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-8)
    steep = [effective_slopes(p + step, UNIQUE, RATE).slope for step in (h, -h)]
    np.testing.assert_allclose(bend, (steep[0] - steep[1]) / (2 * h), rtol=1e-6, atol=1e-9)
    finite = np.where(np.isfinite(UNIQUE), UNIQUE, 1.0)
    more = (effective(p, finite + h, RATE) - effective(p, finite - h, RATE)) / (2 * h)
    np.testing.assert_allclose(slope_in_supply(p, finite, RATE), more, rtol=1e-7, atol=1e-12)


def test_no_unique_token_is_worth_nothing():
    q, slope, bend = effective_slopes(np.array([0.0, 0.5]), np.zeros(2), RATE)
    np.testing.assert_allclose(q, 0, atol=1e-290)
    assert np.isfinite([q, slope, bend]).all()


@pytest.mark.parametrize("concave", [True, False])
def test_terms_with_repetition_follow_the_chain_rule(concave: bool):
    terms = powers(concave=concave).with_repetition(UNIQUE, RATE)
    p, w, h = np.array([0.3, 0.35, 0.2, 0.15]), np.array([0.5, 0.2, 0.3]), 1e-6
    steps = h * np.eye(4)
    slope = [(terms.objective(p + step, w) - terms.objective(p - step, w)) / (2 * h) for step in steps]
    np.testing.assert_allclose(terms.gradient(p, w), slope, rtol=1e-7)
    bend = [(terms.gradient(p + step, w) - terms.gradient(p - step, w)) / (2 * h) for step in steps]
    np.testing.assert_allclose(terms.hessian(p, w), bend, rtol=1e-5, atol=1e-8)
    losses = np.array([(terms.losses(p + step) - terms.losses(p - step)) / (2 * h) for step in steps])
    np.testing.assert_allclose(terms.jacobian(p), losses, rtol=1e-7)


def test_terms_at_zero_ratios_have_the_slopes_of_the_law():
    plain = powers()
    p = np.array([0.0, 0.1, 0.9, 0.0])
    np.testing.assert_array_equal(
        plain.with_repetition(UNIQUE, RATE).gradient(p, np.ones(3)), plain.gradient(p, np.ones(3))
    )


def test_terms_keep_their_supply_through_selection():
    terms = powers(replicates=(5,)).with_repetition(UNIQUE, np.linspace(0.05, 0.5, 5))
    p = np.array([0.3, 0.35, 0.2, 0.15])
    whole = terms.losses(p)
    np.testing.assert_allclose(terms.select([0, 2]).losses(p), whole[:, [0, 2]], rtol=1e-14)
    np.testing.assert_allclose(terms.flat().take(3).losses(p), whole[3], rtol=1e-14)
    few = np.array([0.3, 0.0, 0.7, 0.0])
    np.testing.assert_allclose(terms.select_sources([0, 2]).losses(few[[0, 2]]), terms.losses(few), rtol=1e-14)


def test_enough_tokens_for_any_mixture_leave_the_law_as_it_is():
    terms = powers()
    assert terms.with_repetition(np.array([1.0, 2.0, np.nan, np.inf]), RATE) is terms


def test_an_exponential_of_ratios_refuses_repetition():
    with pytest.raises(SolveError, match="sum to one"):
        ExponentialTerms(np.zeros(3), np.ones(3), -np.ones((4, 3))).with_repetition(UNIQUE, RATE)


def by_slsqp(problem: Problem) -> float:
    """The optimum's value by a solver that knows nothing of the engine."""
    bounds = problem.constraints
    rows = [{"type": "eq", "fun": lambda p: p.sum() - 1}]
    rows += [{"type": "ineq", "fun": lambda p: bounds.group_upper - bounds.members @ p}] if bounds.grouped else []
    best = np.inf
    for start in np.random.default_rng(1).dirichlet(np.ones(4), 8):
        found = minimize(
            lambda p: float(problem.value(np.maximum(p, 1e-12))), start, method="SLSQP", constraints=rows,
            bounds=list(zip(bounds.lower, bounds.upper, strict=True)), options={"ftol": 1e-15, "maxiter": 500},
        )  # fmt: skip
        best = min(best, float(found.fun)) if found.success else best
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate", [0.02, 0.5])
@pytest.mark.parametrize("bounds", [{}, {"caps": "a=0.3,c=0.2", "floors": 0.05}, {"groups": "a+c<=0.3"}])
def test_engines_agree_on_the_optimum(seed: int, rate: float, bounds: dict[str, object]):
    terms = powers(seed, concave=seed % 2 == 0).with_repetition(UNIQUE, rate)
    problem = problem_of(terms, **bounds)
    answer = solve(problem)
    assert answer.certificate.relative_gap < 1e-8
    value = float(problem.value(answer.p))
    assert value <= by_slsqp(problem) + 1e-9 * value
    for p in (solve_interior(problem), solve_cone(problem)):
        np.testing.assert_allclose(problem.value(p), value, rtol=1e-6)


@pytest.mark.parametrize("bounds", [{}, {"near": "uniform", "within": 0.3, "distance": "kl"}])
def test_the_worst_case_is_solved_with_repetition(bounds: dict[str, object]):
    problem = problem_of(powers().with_repetition(UNIQUE, RATE), "worst", **bounds)
    answer = solve(problem)
    assert answer.certificate.relative_gap < 1e-8
    np.testing.assert_allclose(problem.value(solve_cone(problem)), problem.value(answer.p), rtol=1e-6)


def test_replicates_have_each_their_rate():
    rates = np.array([0.01, 0.1, 1.0])
    flat = powers()
    replicates = flat.with_repetition(UNIQUE, rates)
    problem = problem_of(flat.with_repetition(UNIQUE, RATE))
    (found,) = solve_replicates((problem,), (replicates,))
    for p, rate in zip(found, rates, strict=True):
        np.testing.assert_allclose(p, solve(problem_of(flat.with_repetition(UNIQUE, rate))).p, atol=1e-5)


def test_closed_forms_refuse_repetition():
    draws = np.random.default_rng(0)
    terms = PowerTerms(np.zeros(4), np.ones(4), np.ones(4), draws.uniform(0.5, 1, (4, 4)))
    with pytest.raises(SolveError, match="fresh"):
        closed_form("closed-form", terms.with_repetition(UNIQUE, RATE), np.ones(4), Bounds().at(SOURCES, 1e9))
