"""Three ways to the same optimum: the engine, the interior point, and cvxpy; each with its certificate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.mixing.bounds import Bounds, Group
from shapleymix.mixing.certificate import violation
from shapleymix.mixing.engine.cone import solve_cone
from shapleymix.mixing.engine.interior_point import solve_interior
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.feasibility import require_feasible
from shapleymix.mixing.problem import Problem

M = K = 6
NAMES = tuple(f"l{i}" for i in range(M))
GROUPS = (Group(NAMES[:3], 0.5, 0.9), Group(NAMES[2:5], 0.1, 0.25, "middle"))


def terms_of(seed: int, kind: str):
    rng = np.random.default_rng(seed)
    if kind == "exponential":
        return ExponentialTerms(rng.uniform(0, 1, K), rng.uniform(1, 2, K), -rng.uniform(0, 2, (M, K)))
    phi = rng.uniform(0.01, 0.5, (M, K))
    np.fill_diagonal(phi, 1.0)
    s = np.broadcast_to(rng.uniform(0.3, 0.9, K), (M, K)) if kind in ("concave", "partly") else None
    if kind == "partly" and s is not None:
        s = np.where(np.arange(M)[:, None] % 2, s, 1.0)  # a source is linear, the next concave
    return PowerTerms(rng.uniform(0, 1, K), rng.uniform(1, 3, K), rng.uniform(0.05, 0.4, K), phi, s)


def problem_of(seed: int, kind: str, **options) -> Problem:
    bounds = Bounds(caps={"l0": 0.3, "l5": 0.2}, groups=options.pop("groups", ())).at(NAMES, 1e9)
    w = np.random.default_rng(seed).uniform(0.5, 1, K)
    return Problem(terms_of(seed, kind), w, bounds, **options)


@pytest.mark.parametrize("kind", ["linear", "concave", "partly", "exponential"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_the_engine_agrees_with_cvxpy(kind, kl):
    problem = problem_of(1, kind, kl=kl, anchor=np.full(M, 1 / M) if kl else None)
    answer = solve(problem)
    p = solve_cone(problem)
    assert answer.certificate.relative_gap <= 1e-9
    assert answer.certificate.objective <= problem.total(p) * (1 + 1e-12)
    assert answer.certificate.objective == pytest.approx(problem.total(p), rel=1e-6)
    np.testing.assert_allclose(answer.p, p, atol=1e-3)


@pytest.mark.parametrize("kind", ["linear", "concave"])
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("groups", [(), GROUPS])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_groups_and_the_worst_case_agree_with_cvxpy(kind, objective, groups, kl):
    anchor = np.full(M, 1 / M) if kl else None
    problem = problem_of(2, kind, objective=objective, groups=groups, kl=kl, anchor=anchor)
    answer = solve(problem)
    p = solve_cone(problem)
    assert answer.certificate.relative_gap <= 1e-9
    assert answer.certificate.objective == pytest.approx(problem.total(p), rel=1e-6)
    assert np.all(answer.p >= 0)
    assert answer.p.sum() == pytest.approx(1, abs=1e-12)
    for group, row in zip(groups, problem.constraints.members, strict=True):
        assert group.lower - 1e-9 <= row @ answer.p <= group.upper + 1e-9


def test_the_interior_point_agrees_with_the_engine_where_both_apply():
    for kind in ("linear", "concave", "exponential"):
        problem = problem_of(3, kind)
        p = solve_interior(problem)
        np.testing.assert_allclose(p, solve(problem).p, atol=1e-7)


def test_worst_case_levels_the_targets_that_count():
    law = terms_of(4, "linear")
    even = PowerTerms(np.zeros(K), np.linspace(2, 2.2, K), law.gamma, law.phi)
    problem = Problem(even, np.ones(K), Bounds().at(NAMES, 1e9), "worst")
    answer = solve(problem)
    scaled = np.sort(problem.w * problem.terms.losses(answer.p))[::-1]
    assert scaled[0] == pytest.approx(scaled[1], rel=1e-9), "at the optimum another target is as bad"
    mean = solve(Problem(problem.terms, problem.w, problem.constraints))
    assert scaled[0] <= np.max(problem.w * problem.terms.losses(mean.p))


def test_a_group_of_all_but_one_is_a_bound_on_the_one():
    grouped = problem_of(5, "linear", groups=(Group(NAMES[1:], 0.0, 0.8),))
    floor = Bounds(caps={"l0": 0.3, "l5": 0.2}, floors={"l0": 0.2}).at(NAMES, 1e9)
    same = Problem(grouped.terms, grouped.w, floor)
    np.testing.assert_allclose(solve(grouped).p, solve(same).p, atol=1e-7)


def test_an_equality_of_a_group():
    answer = solve(problem_of(6, "concave", groups=(Group(NAMES[:2], 0.4, 0.4),)))
    assert answer.p[:2].sum() == pytest.approx(0.4, abs=1e-9)
    assert answer.certificate.relative_gap <= 1e-9


def test_further_constraints_go_to_cvxpy_with_a_certificate():
    free = solve(problem_of(7, "linear"))
    tied = solve(problem_of(7, "linear", further=(lambda p: p[0] == p[1], lambda p: [p[2] >= 0.1])))
    assert tied.p[0] == pytest.approx(tied.p[1], abs=1e-7)
    assert tied.certificate.relative_gap <= 1e-5
    assert tied.certificate.objective >= free.certificate.lower_bound
    idle = solve(problem_of(7, "linear", further=(lambda p: p[0] <= 0.99,)))
    assert idle.certificate.objective == pytest.approx(free.certificate.objective, rel=1e-7)


@pytest.mark.parametrize(("distance", "within"), [("l1", 0.3), ("kl", 0.05)])
@pytest.mark.parametrize("kind", ["linear", "concave"])
def test_cvxpy_stays_within_a_ball_as_the_engine_does(kind, distance, within):
    center = dict(zip(NAMES, (0.4, 0.2, 0.1, 0.1, 0.1, 0.1), strict=True))
    bounds = Bounds(near=center, within=within, distance=distance).at(NAMES, 1e9)
    problem = replace(problem_of(9, kind), constraints=bounds)
    assert violation(solve(replace(problem, constraints=Bounds().at(NAMES, 1e9))).p, bounds) > 0.01, "the ball binds"
    own, tied = solve(problem), solve(replace(problem, further=(lambda p: p[0] <= 0.99,)))
    for answer in (own, tied):
        assert violation(answer.p, bounds) <= 1e-9
    assert own.certificate.objective == pytest.approx(tied.certificate.objective, rel=1e-6)
    assert own.certificate.objective == pytest.approx(problem.total(solve_cone(problem)), rel=1e-6)


def test_further_constraints_that_cannot_hold_or_are_not_convex():
    with pytest.raises(InfeasibleError):
        solve(problem_of(8, "linear", further=(lambda p: p[0] >= 2,)))
    with pytest.raises(SolveError, match="convex"):
        solve(problem_of(8, "linear", further=(lambda p: p[0] ** 2 >= 0.1,)))


def test_infeasible_bounds_name_the_bound_the_amount_and_the_repair():
    with pytest.raises(InfeasibleError, match=r"short of 1 by 0\.7") as caps:
        require_feasible(Bounds(available={"a": 1e8, "b": "400M"}, max_epochs=6).at(("a", "b"), 1e10))
    assert "allow 3.333 times the epochs (6 now)" in str(caps.value)
    assert "D = 3B" in str(caps.value)
    with pytest.raises(InfeasibleError, match=r"above 1 by 0\.2"):
        require_feasible(Bounds(floors={"a": 0.6, "b": 0.6}).at(("a", "b"), 1e9))
    with pytest.raises(InfeasibleError, match=r"floor 0\.5 of a is above its cap 0\.3, by 0\.2"):
        require_feasible(Bounds(floors={"a": 0.5}, caps={"a": 0.3}).at(("a", "b"), 1e9))


def test_infeasible_groups_get_the_smallest_repair():
    groups = (Group(("a", "b"), 0.7, 1.0, "west"), Group(("b", "c"), 0.6, 1.0, "east"))
    bounds = Bounds(caps={"b": 0.1}, groups=groups).at(("a", "b", "c"), 1e9)
    with pytest.raises(InfeasibleError) as error:
        require_feasible(bounds)
    amounts = [float(fault.value) for fault in error.value.faults] or [0.2]
    assert sum(amounts) == pytest.approx(0.2), "0.7 + 0.6 - 0.1 exceeds 1 by 0.2"
    require_feasible(Bounds(caps={"b": 0.3}, groups=groups).at(("a", "b", "c"), 1e9))
