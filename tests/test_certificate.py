"""The proof of an answer: it begins with the bounds, and its bound is that of the linear program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from shapleymix.errors import SolveError
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds, Constraints, Group
from shapleymix.mixing.certificate import ProofError, certified, not_negative, violation
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.feasibility import require_feasible
from shapleymix.mixing.problem import WORST, Problem

M = K = 5
NAMES = tuple(f"l{i}" for i in range(M))


def law_of(rng: np.random.Generator, concave: bool = False) -> PowerTerms:
    phi = np.exp(-rng.exponential(1.5, (M, K)))
    s = np.broadcast_to(rng.uniform(0.2, 0.9, K), (M, K)) if concave else None
    return PowerTerms(np.zeros(K), rng.uniform(1, 3, K), rng.uniform(0.02, 0.4, K), phi, s)


def grouped(rng: np.random.Generator) -> Constraints:
    """Bounds on two groups, that the mixture `inside` obeys."""
    inside = rng.dirichlet(np.ones(M))
    groups = []
    for _ in range(2):
        names = tuple(np.array(NAMES)[rng.permutation(M)[: rng.integers(2, M)]].tolist())
        total = float(inside[[NAMES.index(name) for name in names]].sum())
        groups.append(Group(names, total * rng.uniform(0.2, 0.99), min(1.0, total * rng.uniform(1.01, 1.5))))
    bounds = Bounds(groups=groups).at(NAMES, 1e9)
    require_feasible(bounds)
    return bounds


def mixtures_within(bounds: Constraints, rng: np.random.Generator) -> np.ndarray:
    """A vertex of the feasible set, mixed with another: rarely optimal, often at a group's bound."""
    vertices = [least(rng.normal(size=M), bounds).x for _ in range(2)]
    share = rng.uniform(0.05, 0.95)
    return share * vertices[0] + (1 - share) * vertices[1]


def least(cost: np.ndarray, bounds: Constraints):
    rows = np.concatenate([bounds.members, -bounds.members])
    limits = np.concatenate([bounds.group_upper, -bounds.group_lower])
    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
    return linprog(cost, A_ub=rows, b_ub=limits, A_eq=np.ones((1, M)), b_eq=[1.0], bounds=box)


@pytest.mark.parametrize("seed", range(20))
def test_the_gap_is_that_of_the_linear_program_over_groups(seed):
    """Issue 6, 1.1: without the groups' complementarity the gap of a mixture off its groups' bounds is wrong."""
    rng = np.random.default_rng(seed)
    bounds, law, w = grouped(rng), law_of(rng), rng.uniform(0.1, 1, K)
    p = np.maximum(mixtures_within(bounds, rng), 0.0)
    p = 0.99 * p / p.sum() + 0.01 * mixtures_within(bounds, rng)
    problem = Problem(law, w, bounds)
    gradient = problem.gradient(p, w)
    truth = float(gradient @ p) - float(least(gradient, bounds).fun)
    certificate = certified(problem, p, "drawn").certificate
    assert violation(p, bounds) < 1e-9
    assert certificate.gap == pytest.approx(truth, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "broken"),
    [
        ((0.4, 0.3, 0.3, 0.0, 0.0), 0.35),
        ((0.1, 0.2, 0.2, 0.2, 0.2), 0.1),
        ((-0.1, 0.3, 0.3, 0.3, 0.2), 0.1),
        ((0.15, 0.25, 0.2, 0.2, 0.2), 0.05),
        ((np.nan, 0.25, 0.25, 0.25, 0.25), np.inf),
    ],
)
def test_a_mixture_outside_its_bounds_has_an_infinite_gap(p, broken):
    """Issue 6, 1.1: nobody looked at primal feasibility."""
    groups = (Group(NAMES[:2], 0.0, 0.35), Group(NAMES[3:], 0.2, 1.0))
    bounds = Bounds(caps={"l0": 0.35}, groups=groups).at(NAMES, 1e9)
    assert violation(np.array(p), bounds) == pytest.approx(broken)
    law = law_of(np.random.default_rng(0))
    if np.isfinite(broken):
        assert certified(Problem(law, np.ones(K), bounds), np.maximum(p, 1e-3), "drawn").certificate.gap == np.inf


@pytest.mark.parametrize(
    ("distance", "p", "broken"),
    [
        ("l1", (0.6, 0.1, 0.1, 0.1, 0.1), 0.8 - 0.25),
        ("l1", (0.2, 0.2, 0.2, 0.3, 0.1), 0.0),
        ("kl", (0.6, 0.1, 0.1, 0.1, 0.1), 0.6 * np.log(3) + 0.4 * np.log(0.5) - 0.25),
        ("kl", (0.2, 0.2, 0.2, 0.3, 0.1), 0.0),
    ],
)
def test_a_mixture_outside_its_ball_has_an_infinite_gap(distance, p, broken):
    """The ball is around the uniform mixture; KL is sum p log(p / center), in nats."""
    bounds = Bounds(near=dict.fromkeys(NAMES, 0.2), within=0.25, distance=distance).at(NAMES, 1e9)
    assert violation(np.array(p), bounds) == pytest.approx(broken, abs=1e-12)
    problem = Problem(law_of(np.random.default_rng(0)), np.ones(K), bounds)
    assert np.isinf(certified(problem, np.array(p), "drawn").certificate.gap) == (broken > 0)


def test_a_negative_gap_beyond_rounding_is_our_own_error():
    assert not_negative(-1e-15, 1e-12) == 0
    with pytest.raises(ProofError, match="fault of shapleymix"):
        not_negative(-1e-6, 1e-12)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("concave", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_answers_obey_their_groups(seed, concave, objective):
    """Issue 6, 1.1: random problems broke group bounds by up to .067, with gap 0."""
    rng = np.random.default_rng(100 + seed)
    problem = Problem(law_of(rng, concave), rng.uniform(0.1, 1, K), grouped(rng), objective)
    answer = solve(problem)
    assert violation(answer.p, problem.constraints) <= 1e-9
    assert answer.certificate.relative_gap <= 1e-6


def test_the_tiny_group_that_was_broken(fixtures):
    """Issue 6, 1.1, as reported: zh + ja was .0140 under a bound of .001, with gap 0."""
    from shapleymix.fitting.fit import fit
    from shapleymix.mixing.optimization import optimize

    fitted = fit(fixtures / "multilingual5_runs.csv", law="learned-base", bootstrap=0, folds=0)
    mix = optimize(fitted, 97_600, 2e6, groups=[Group(("zh", "ja"), 0.0, 0.001)])
    assert mix.mixture["zh"] + mix.mixture["ja"] <= 0.001 + 1e-9
    assert mix.relative_gap <= 1e-6


def test_no_answer_at_all_where_none_is_within_the_bounds(monkeypatch):
    import shapleymix.mixing.engine.solving as solving

    rng = np.random.default_rng(0)
    problem = Problem(law_of(rng), np.ones(K), Bounds(groups=(Group(NAMES[:2], 0.0, 0.01),)).at(NAMES, 1e9))
    outside = np.full(M, 1 / M)
    monkeypatch.setattr(solving, "solve_interior", lambda problem: outside)
    assert solve(problem).engine == solving.CONE, "the second opinion is taken where the first breaks a bound"
    monkeypatch.setattr("shapleymix.mixing.engine.cone.solve_cone", lambda problem: outside)
    with pytest.raises(SolveError, match="no mixture within the bounds"):
        solve(problem)


@pytest.mark.parametrize("D", [1e6, 8e6])
def test_the_worst_case_is_proved_under_coefficients_that_are_next_to_nothing(D):
    """Most tempered Shapley values are 1e-12: a typical slope taken over them put the proof's program off its scale."""
    rng = np.random.default_rng(0)
    phi = np.where(np.eye(5) > 0, 1.0, 10.0 ** rng.uniform(-14, -11, (5, 5)))
    phi[0, 1], phi[3, 4] = 0.4, 0.3
    terms = PowerTerms(np.zeros(5), rng.uniform(2, 3, 5) + 1e6 / D, rng.uniform(0.05, 0.3, 5), phi)
    names = tuple("abcde")
    answer = solve(Problem(terms, np.ones(5), Bounds().at(names, D), WORST))
    assert answer.certificate.relative_gap < 1e-8


@pytest.mark.parametrize("seed", [1, 3, 7, 13, 30])
def test_rounding_of_huge_losses_is_no_contradiction(seed):
    """Losses of 3e9 round by 4e-7: as much less than nothing as a gap may come out."""
    rng = np.random.default_rng(seed)
    phi = rng.uniform(0, 0.3, (6, 6))
    np.fill_diagonal(phi, 1.0)
    terms = PowerTerms(np.full(6, 3e9), rng.uniform(0.5, 2, 6), rng.uniform(0.05, 0.4, 6), phi)
    bounds = Bounds(caps={"l0": 0.05}).at(tuple(f"l{i}" for i in range(6)), 1e9)
    answer = solve(Problem(terms, np.ones(6), bounds, objective="worst"))
    assert answer.certificate.relative_gap <= 1e-12
