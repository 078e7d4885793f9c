"""Scores as a problem of their own: their pieces, where these are convex, and the global search where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_tools import by_slsqp

from shapleymix.downstream.pieces import CODES, Lines, Scored, scored_terms
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.engine.branching import NAME
from shapleymix.mixing.engine.envelopes import Enveloped, inner_range, unproved
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.problem import Problem

SLOPES = {"minus": 0.2, "loss": -0.2, "log": -0.4, "exp": 4.03, "inverse": 1.0, "sigmoid": 6.0}
"""Numbers a of a plausible line of each transform."""


def lines_for(names: list[str]) -> Lines:
    a = np.array([SLOPES[name] for name in names])
    bent = np.array([name == "sigmoid" for name in names])
    return Lines(a, np.where(bent, 2.2 * a, 0.9), np.where(bent, 0.25, 0.0), np.array([CODES[name] for name in names]))


def law_for(kind: str, M: int, K: int, seed: int) -> Terms:
    rng = np.random.default_rng(seed)
    if kind == "exponential":
        return ExponentialTerms(rng.uniform(0.5, 1, K), rng.uniform(1, 3, K), -rng.uniform(0, 2, (M, K)))
    s = None if kind == "linear" else rng.uniform(0.3, 1, (M, K))
    base = rng.uniform(0.2, 1, K) if kind == "based" else None
    phi = rng.uniform(0.02, 0.4, (M, K)) + 0.6 * (np.arange(M)[:, None] == np.arange(K) % M)
    law = PowerTerms(rng.uniform(0, 0.5, K), rng.uniform(1, 2.5, K), rng.uniform(0.05, 1.5, K), phi, s, base=base)
    return law.with_repetition(rng.uniform(0.1, 0.5, M), 0.1) if kind == "repeated" else law


LAWS = ("linear", "concave", "based", "repeated", "exponential")


def problem_of(terms: Terms, **bounds) -> Problem:
    sources = tuple("abcdefgh"[: terms.n_sources])
    return Problem(terms, np.full(terms.n_targets, 1 / terms.n_targets), Bounds(**bounds).at(sources, 1e9))


@pytest.mark.parametrize("law", LAWS)
def test_derivatives_are_those_of_the_errors(law):
    terms = scored_terms(law_for(law, 3, 3, 1), np.array([0, 1, 2, 0, 1, 2]), lines_for(list(SLOPES)))
    p, w, h = np.array([0.5, 0.3, 0.2]), np.arange(1.0, 7.0), 1e-6
    moved = [(terms.objective(p + h * e, w) - terms.objective(p - h * e, w)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(terms.gradient(p, w), moved, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(terms.losses(p), 1 - score_by_hand(terms, p), rtol=1e-12)


def score_by_hand(terms: Scored, p: np.ndarray) -> np.ndarray:
    loss = terms.plain_losses(p)
    found = []
    for place, name in enumerate(SLOPES):
        a, b, x = terms.score_a[place], terms.score_b[place], loss[place]
        g = {"minus": -x, "loss": x, "log": np.log(x), "exp": np.exp(-x), "inverse": 1 / x}
        found.append(0.25 + 0.75 / (1 + np.exp(a * x - b)) if name == "sigmoid" else a * g[name] + b)
    return np.array(found)


@settings(max_examples=40, deadline=None)
@given(law=st.sampled_from(LAWS), name=st.sampled_from(sorted(SLOPES)), seed=st.integers(0, 10_000))
def test_what_is_said_to_be_convex_is(law, name, seed):
    """By midpoints; and where it is said not to be, the envelope lies below, and is convex itself."""
    rng = np.random.default_rng(seed)
    terms = scored_terms(law_for(law, 3, 3, seed), np.arange(3), lines_for([name] * 3))
    floors = rng.uniform(0, 0.2, 3)
    problem = problem_of(terms, floors=dict(zip("abc", floors.tolist(), strict=True)))
    p, q = floors + (1 - floors.sum()) * rng.dirichlet(np.full(3, 0.6), (2, 200))
    bent = unproved(problem)
    middle, ends = terms.losses((p + q) / 2), (terms.losses(p) + terms.losses(q)) / 2
    assert (middle - ends <= 1e-10)[:, ~bent].all()
    z = terms.inner(p)
    low, high = inner_range(terms, problem.constraints)
    assert ((z >= low - 1e-12) & (z <= high + 1e-12)).all()
    below = Enveloped.of(terms, problem.constraints, bent)
    assert (below.losses(p) <= terms.losses(p) + 1e-10).all()
    assert (below.losses((p + q) / 2) <= (below.losses(p) + below.losses(q)) / 2 + 1e-10).all()


def test_the_conditions_are_sharp():
    """exp(-l) is convex in the mixture as far as u <= (gamma + 1) / gamma, and not beyond."""
    law = PowerTerms(np.zeros(1), np.array([1.0]), np.array([1.0]), np.array([[1.0], [0.01]]))
    terms = scored_terms(law, np.array([0]), lines_for(["exp"]))
    # u = 1 / Theta is 2, the limit, at Theta = .5.
    p = np.stack([x := np.linspace(0.02, 0.9, 200), 1 - x], axis=1)
    value = terms.losses(p)[:, 0]
    bend = np.diff(value, 2)
    u = terms.of_inner(terms.inner(p))[1:-1, 0]
    assert (bend[u < 1.99] > 0).all()
    assert (bend[u > 2.02] < 0).all()
    assert terms.convex_up_to(np.array([1.999]))[0]
    assert not terms.convex_up_to(np.array([2.001]))[0]


@pytest.mark.parametrize("law", LAWS)
def test_optima_of_scores_that_are_convex_are_those_of_another_solver(law):
    terms = scored_terms(law_for(law, 4, 4, 3), np.arange(4), lines_for(["minus", "log", "minus", "log"]))
    problem = problem_of(terms, caps="a=0.5")
    answer = solve(problem)
    assert not unproved(problem).any()
    assert answer.certificate.relative_gap < 1e-8
    assert problem.total(answer.p) <= by_slsqp(problem, 4) + 1e-9


@pytest.mark.parametrize(("law", "seed"), [("linear", 1), ("exponential", 2)])
@pytest.mark.parametrize("group", [(), ("a+b<=0.6",)])
def test_scores_that_are_not_convex_are_solved_globally_with_a_bound(law, seed, group):
    terms = scored_terms(law_for(law, 3, 3, seed), np.arange(3), lines_for(["sigmoid", "exp", "sigmoid"]))
    problem = problem_of(terms, groups=group)
    assert unproved(problem).any()
    answer = solve(problem)
    assert answer.engine == NAME
    assert 0 <= answer.certificate.gap <= 1e-5
    best = by_slsqp(problem, 12)
    assert problem.total(answer.p) <= best + 1e-7
    assert answer.certificate.lower_bound <= best + 1e-9
    rng = np.random.default_rng(seed)
    mixtures = rng.dirichlet(np.full(3, 0.5), 2000)
    mixtures = mixtures[(mixtures @ problem.constraints.members.T <= problem.constraints.group_upper).all(axis=1)]
    assert (problem.value(mixtures) >= answer.certificate.lower_bound - 1e-12).all()


def test_two_local_optima_are_told_apart():
    """One of two tasks can be had, not both: halfway between is worse than either end."""
    law = ExponentialTerms(np.full(2, 1.0), np.full(2, 4.0), -3.0 * np.eye(2))
    steep = Lines(np.full(2, 8.0), np.full(2, 8.0 * 1.6), np.zeros(2), np.full(2, CODES["sigmoid"]))
    terms = scored_terms(law, np.arange(2), steep)
    problem = replace(problem_of(terms), w=np.array([0.49, 0.51]))
    answer = solve(problem)
    np.testing.assert_allclose(answer.p, [0, 1], atol=1e-3)
    assert answer.certificate.gap < 1e-5
    assert problem.total(np.array([1.0, 0.0])) < problem.total(np.array([0.5, 0.5]))
