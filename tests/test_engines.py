"""Optima of random problems: within their bounds, proved, and as good as those of another solver's own."""

from dataclasses import replace

import numpy as np
import pytest
from closed_forms import diagonal, first_order, first_order_printed, interior
from known_fits import BOUNDS, KINDS, bounds_of, box, goal_of, pieces_of, second

from shapleymix.errors import SolveError
from shapleymix.laws.pieces import Pieces
from shapleymix.laws.task_curves import TRANSFORMS, TaskCurves
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE
from shapleymix.mixing.proof import ProofError, prove
from shapleymix.mixing.solving import corners, solve, solve_all, solve_replicates

TIGHT = 1e-8


@pytest.mark.parametrize("law", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("worst", "kl"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_optimum_is_within_its_bounds_proved_and_another_solvers(law, bounds, worst, kl):
    for seed, M in enumerate((1, 2, 5, 9, 40)):
        goal = goal_of(law, bounds, seed, worst=worst, kl=kl, M=M)
        proof = solve(goal)
        assert goal.within.violation(proof.p) <= FEASIBLE
        assert 0 <= proof.certificate.relative_gap <= TIGHT
        assert proof.certificate.objective == goal.total(proof.p)
        if M in (2, 5):
            theirs = second(goal, 1)
            assert proof.certificate.objective <= theirs + 1e-6 * abs(theirs)


@pytest.mark.parametrize("law", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("worst", [False, True])
def test_no_mixture_is_below_the_bound_whatever_mixture_it_was_made_at(law, bounds, worst):
    goal, rng = goal_of(law, bounds, 5, worst=worst), np.random.default_rng(0)
    vertices = corners(goal.within, rng, 40)
    drawn = rng.dirichlet(np.full(len(vertices), 0.1), 400) @ vertices
    inside = drawn[[goal.within.violation(p) <= FEASIBLE for p in drawn]]
    values = [goal.total(p) for p in inside]
    best = solve(goal).certificate
    assert best.lower_bound <= min(values, default=np.inf) + 1e-12
    for p, value in list(zip(inside, values, strict=True))[:20]:
        certificate = prove(goal, p).certificate
        assert certificate.lower_bound <= best.objective + 1e-12
        assert value - certificate.gap == pytest.approx(certificate.lower_bound)


@pytest.mark.parametrize("M", [40, 120])
@pytest.mark.parametrize("law", ["linear", "based"])
def test_many_languages_are_proved(law, M):
    for bounds, worst in (("box", False), ("rows", True)):
        assert solve(goal_of(law, bounds, 1, worst=worst, M=M)).certificate.relative_gap <= TIGHT


@pytest.mark.parametrize("law", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("worst", "kl"), [(False, False), (True, False), (False, True)])
def test_replicates_have_the_optima_that_they_have_alone(law, bounds, worst, kl):
    rng = np.random.default_rng(2)
    draws = pieces_of(law, 6, 4, rng, (7,)).flat()
    anchor, tilts = rng.dirichlet(np.ones(6)), 0.01 * rng.normal(size=(7, 6))
    goal = Goal(draws.take(0), np.full(4, 0.25), bounds_of(bounds, 6, rng), worst, 0.1 * kl, anchor if kl else None)
    found = solve_replicates(goal, draws, tilts)
    assert len(found) == 7
    for b, p in enumerate(found):
        own = replace(goal, law=draws.take(b), tilt=tilts[b])
        assert goal.within.violation(p) <= FEASIBLE
        assert own.total(p) - solve(own).certificate.lower_bound <= 1e-8 * abs(own.total(p))


@pytest.mark.parametrize("law", KINDS)
@pytest.mark.parametrize("worst", [False, True])
def test_goals_of_several_budgets_and_weights_are_solved_as_one_by_one(law, worst):
    base = goal_of(law, "box", 4, worst=worst, M=5)
    scaled = [base.pieces.scale_losses(np.full(len(base.w), 1 + k / 3)) for k in range(3)]
    places = np.arange(len(base.w))  # all goals but the last have a target of weight 0
    goals = [replace(base, law=law, w=np.where(places == k, 0.0, base.w)) for k, law in enumerate(scaled)]
    goals[-1] = replace(goals[-1], w=base.w)
    together = [proof.p for proof in solve_all(goals)]
    np.testing.assert_allclose(together, [solve(goal).p for goal in goals], atol=1e-9)


@pytest.mark.parametrize("law", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_box_alone_has_the_optimum_that_the_engine_finds_for_two(law, seed):
    """Its bare search, or where a ratio has no room the engine: floors, caps, ratios held, and weights of 0."""
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 12))
    lower = np.where(rng.random(M) < 0.4, rng.random(M) * 0.7 / M, 0.0)
    upper = np.where(rng.random(M) < 0.5, np.minimum(1, lower + rng.uniform(1, 3, M) / M), 1.0)
    upper[: seed % 3] = lower[: seed % 3]
    w = rng.random(4) * (rng.random(4) < 0.7) + 1e-3 * (np.arange(4) == seed % 4)
    goal = Goal(pieces_of(law, M, 4, rng), w, box(lower, upper), tilt=0.01 * rng.normal(size=M))
    alone, together = solve(goal), solve_all([goal, goal])[0]
    assert alone.certificate.objective == pytest.approx(together.certificate.objective, rel=1e-10)
    assert alone.certificate.relative_gap <= TIGHT


def test_ratios_that_mean_nothing_are_exactly_zero():
    found = [solve(goal_of(law, bounds, seed)).p for law in KINDS for bounds in BOUNDS for seed in range(2)]
    ratios = np.concatenate(found)
    assert (ratios == 0).any()
    assert not ((ratios > 0) & (ratios < 1e-12)).any()
    assert all(abs(p.sum() - 1) < 1e-12 for p in found)


def test_a_point_between_tight_bounds_is_its_own_optimum():
    p = np.array([0.25, 0.75])
    law = pieces_of("concave", 2, 2, np.random.default_rng(0))
    proof = solve(Goal(law, np.ones(2), box(p, p)))
    np.testing.assert_array_equal(proof.p, p)
    assert proof.certificate.relative_gap == 0


def test_a_target_that_nothing_reaches_is_refused_and_without_weight_is_no_matter():
    law = pieces_of("linear", 3, 2, np.random.default_rng(0))
    phi = law.phi.copy()
    phi[:, 1] = 0
    lost = replace(law, phi=phi)
    whole = box(np.zeros(3), np.ones(3))
    with pytest.raises(SolveError):
        solve(Goal(lost, np.ones(2), whole))
    assert solve(Goal(lost, np.array([1.0, 0.0]), whole)).certificate.relative_gap <= TIGHT


def test_outside_of_the_bounds_nothing_is_proved():
    goal = replace(goal_of("linear", "box", 0, M=3), within=box(np.zeros(3), np.full(3, 0.5)))
    assert np.isinf(prove(goal, np.array([1.0, 0, 0])).certificate.relative_gap)


def test_a_law_that_contradicts_itself_is_caught():
    class Bent(Pieces):
        def objective(self, p, w):
            return super().objective(p, w) + 1

    goal = goal_of("linear", "box", 0, M=4)
    with pytest.raises(ProofError):
        solve(replace(goal, law=Bent(**vars(goal.pieces))))


def square(scale: float, seed: int, K: int = 6):
    rng = np.random.default_rng(seed)
    phi = rng.uniform(0, scale, (K, K))
    np.fill_diagonal(phi, 1.0)
    a, gamma = rng.uniform(0.5, 2, K), rng.uniform(0.05, 0.4, K)
    law = replace(pieces_of("linear", K, K, rng), floor=np.zeros(K), scale=a, gamma=gamma, phi=phi)
    return a, gamma, phi, solve(Goal(law, np.ones(K), box(np.zeros(K), np.ones(K)))).p


def test_the_interior_solution_is_the_optimum_where_no_bound_binds():
    compared = 0
    for seed in range(20):
        a, gamma, phi, best = square(0.1, seed)
        p = interior(a, gamma, phi)
        if (p >= 0).all():
            compared += 1
            np.testing.assert_allclose(p, best, atol=1e-9)
    assert compared > 5


def test_the_diagonal_form_is_exact_for_one_gamma_and_no_transfer():
    a = np.array([1.0, 2.0, 0.5])
    law = replace(pieces_of("linear", 3, 3, np.random.default_rng(0)), floor=np.zeros(3), scale=a,
                  gamma=np.full(3, 0.2), phi=np.eye(3))  # fmt: skip
    best = solve(Goal(law, np.ones(3), box(np.zeros(3), np.ones(3)))).p
    np.testing.assert_allclose(diagonal(a, np.full(3, 0.2), np.eye(3)), best, atol=1e-9)


def test_the_corrected_first_order_form_is_nearer_than_the_printed_one():
    apart = np.zeros(2)
    for seed in range(20):
        a, gamma, phi, best = square(0.1, seed)
        apart += [np.abs(form(a, gamma, phi) - best).sum() for form in (first_order, first_order_printed)]
    assert apart[0] < 0.7 * apart[1]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("worst", [False, True])
def test_another_solver_finds_nothing_better_for_scores(bounds, worst):
    goal = goal_of("based", bounds, 1, worst=worst, M=5)
    T = len(goal.w)
    code = float(list(TRANSFORMS).index("sigmoid"))
    lines = TaskCurves(np.full(T, 1.2), np.full(T, 2.0), np.full(T, 0.25), np.full(T, code))
    goal = replace(goal, law=goal.pieces.with_curves(lines, np.arange(T)))
    assert solve(goal).certificate.objective <= second(goal) + 1e-6
