"""The engine against the Frank-Wolfe bound, cvxpy, SLSQP-free closed forms, and the hard corners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from shapleymix.errors import SolveError
from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.mixing.certificate import frank_wolfe_gap, linear_minimiser
from shapleymix.mixing.engine.barrier import _interior, minimise
from shapleymix.mixing.engine.newton import LARGE, Factor, face_bound


def problem(seed: int, M: int, K: int, *, concave: bool = False, batch: tuple[int, ...] = ()) -> PowerTerms:
    rng = np.random.default_rng(seed)
    phi = rng.uniform(0.01, 0.5, (*batch, M, K))
    phi[..., np.arange(min(M, K)), np.arange(min(M, K))] = 1
    s = np.broadcast_to(rng.uniform(0.3, 1, (*batch, 1, K)), phi.shape) if concave else None
    vector = (*batch, K)
    return PowerTerms(rng.uniform(0, 1, vector), rng.uniform(1, 4, vector), rng.uniform(0.02, 0.4, vector), phi, s)


def relative_gap(terms, w, p, lower, upper) -> np.ndarray:
    return frank_wolfe_gap(p, terms.gradient(p, w), lower, upper) / terms.objective(p, w)


def is_feasible(p, lower, upper) -> bool:
    return bool(np.all(p >= lower) and np.all(p <= upper) and np.allclose(p.sum(axis=-1), 1, atol=1e-14, rtol=0))


@example(seed=100_000, M=2, K=1, concave=False, tight=1.001)  # its unit sum was off by 1.06e-13
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    M=st.integers(2, 25),
    K=st.integers(1, 20),
    concave=st.booleans(),
    tight=st.floats(1.001, 6),
)
def test_certificate_is_rounding_under_caps_and_floors(seed, M, K, concave, tight):
    rng = np.random.default_rng(seed)
    terms, w = problem(seed, M, K, concave=concave), rng.uniform(0, 1, K) + 0.01
    upper = np.minimum(1.0, rng.dirichlet(np.ones(M)) * tight)
    upper = upper if upper.sum() >= 1 else np.ones(M)
    lower = upper * rng.uniform(0, 0.9) / max(1.0, upper.sum())
    p = minimise(terms, w, lower, upper).p
    assert is_feasible(p, lower, upper)
    assert relative_gap(terms, w, p, lower, upper) <= 1e-9


def test_a_batch_is_a_loop():
    terms, w = problem(3, 7, 5, batch=(4, 3)), np.random.default_rng(0).uniform(0.1, 1, (3, 5))
    upper = np.full(7, 0.3)
    whole = minimise(terms, w, np.zeros(7), upper)
    assert whole.p.shape == (4, 3, 7)
    flat = terms.flat()
    for b in range(12):
        one = minimise(flat.take(b), w[b % 3], np.zeros(7), upper)
        np.testing.assert_allclose(whole.p.reshape(12, 7)[b], one.p, atol=1e-8)


@pytest.mark.parametrize("members", [1, 2, 5, 12])
def test_parts_of_a_batch_are_solved_as_the_whole(members, monkeypatch):
    terms, w = problem(3, 7, 5, batch=(4, 3)), np.random.default_rng(0).uniform(0.1, 1, (3, 5))
    whole = minimise(terms, w, np.zeros(7), np.full(7, 0.3))
    monkeypatch.setattr("shapleymix.mixing.engine.barrier.CHUNK", members * 7 * 7)
    parts = minimise(terms, w, np.zeros(7), np.full(7, 0.3))
    np.testing.assert_allclose(parts.p, whole.p, atol=1e-8)
    assert parts.price.shape == whole.price.shape == (4, 3)


def test_shared_terms_with_many_budgets_of_bounds():
    terms, w = problem(4, 6, 4), np.full(4, 0.25)
    upper = np.linspace(0.2, 1.0, 9)[:, None] * np.ones(6)
    found = minimise(terms, w, np.zeros(6), upper)
    values = terms.objective(found.p, w)
    assert (np.diff(values) <= 1e-12).all(), "a looser cap never hurts"
    assert (relative_gap(terms, w, found.p, np.zeros(6), upper) <= 1e-9).all()


def test_permuting_the_sources_permutes_the_mixture():
    terms, w, order = problem(5, 8, 8, concave=True), np.full(8, 1.0), np.random.default_rng(1).permutation(8)
    upper = np.linspace(0.1, 0.5, 8)
    straight = minimise(terms, w, np.zeros(8), upper).p
    permuted = minimise(terms.select_sources(order), w, np.zeros(8), upper[order]).p
    np.testing.assert_allclose(permuted, straight[order], atol=1e-9)


@pytest.mark.parametrize("concave", [False, True])
def test_useless_sources_get_nothing_and_exactly_so(concave):
    terms = problem(6, 5, 4, concave=concave)
    terms.phi[4] = 0.0
    p = minimise(terms, np.ones(4), np.zeros(5), np.ones(5)).p
    assert p[4] == 0.0
    assert p[:4].max() > 0.1


def test_fixed_sources_and_a_cap_of_zero():
    terms = problem(7, 6, 6, concave=True)
    lower, upper = np.array([0.2, 0, 0, 0.1, 0, 0]), np.array([0.2, 0, 1, 1, 1e-15, 0.3])
    p = minimise(terms, np.ones(6), lower, upper).p
    assert p[0] == 0.2
    assert p[1] == 0.0
    assert is_feasible(p, lower, upper)


def test_caps_that_leave_one_mixture():
    upper = np.array([0.5, 0.25, 0.25])
    np.testing.assert_allclose(minimise(problem(8, 3, 3), np.ones(3), np.zeros(3), upper).p, upper, atol=1e-12)


def test_rank_deficient_transfer_and_equal_sources():
    terms = problem(9, 6, 4)
    terms.phi[3:] = terms.phi[:3]
    p = minimise(terms, np.ones(4), np.zeros(6), np.ones(6)).p
    assert relative_gap(terms, np.ones(4), p, np.zeros(6), np.ones(6)) <= 1e-9


@pytest.mark.parametrize("flat", ["gamma", "weights"])
def test_where_nothing_depends_on_the_mixture_any_mixture_will_do(flat):
    terms = problem(10, 4, 3)
    w = np.ones(3) if flat == "gamma" else np.zeros(3)
    if flat == "gamma":
        terms.gamma[:] = 0
    assert is_feasible(minimise(terms, w, np.zeros(4), np.ones(4)).p, 0, 1)


def test_a_target_without_weight_may_be_out_of_reach():
    terms = problem(11, 4, 3)
    terms.phi[:, 2] = 0
    w = np.array([1.0, 1.0, 0.0])
    p = minimise(terms, w, np.zeros(4), np.ones(4)).p
    expected = minimise(terms.select([0, 1]), np.ones(2), np.zeros(4), np.ones(4)).p
    np.testing.assert_allclose(p, expected, atol=1e-9)
    with pytest.raises(SolveError, match="transfers anything"):
        minimise(terms, np.ones(3), np.zeros(4), np.ones(4))


def test_exponential_terms_with_slopes_of_any_sign():
    rng = np.random.default_rng(12)
    terms = ExponentialTerms(np.ones(4), rng.uniform(1, 2, 4), rng.normal(size=(6, 4)) * 5)
    p = minimise(terms, np.ones(4), np.zeros(6), np.full(6, 0.4)).p
    assert relative_gap(terms, np.ones(4), p, np.zeros(6), np.full(6, 0.4)) <= 1e-9


def test_kl_alone_gives_the_anchor_and_much_kl_nearly_so():
    terms, anchor = problem(13, 5, 5), np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    lower, upper = np.zeros(5), np.ones(5)
    alone = minimise(terms, np.zeros(5), lower, upper, kl=1.0, anchor=anchor).p
    np.testing.assert_allclose(alone, anchor, atol=1e-9)
    much = minimise(terms, np.ones(5), lower, upper, kl=1e4, anchor=anchor).p
    np.testing.assert_allclose(much, anchor, atol=1e-3)


def test_much_kl_beside_tiny_losses_takes_no_more_steps():
    """The unit in which a bound is small has the penalty in it, too: without it, all 100 steps were taken."""
    terms, anchor = problem(3, 7, 5), np.random.default_rng(0).dirichlet(np.ones(7))
    found = minimise(replace(terms, a=1e-12 * terms.a), np.ones(5), np.zeros(7), np.ones(7), kl=1.0, anchor=anchor)
    assert found.iterations < 15
    np.testing.assert_allclose(found.p, anchor, atol=1e-11)


def test_multiplier_is_the_marginal_loss():
    terms, w = problem(14, 5, 5), np.full(5, 0.2)
    found = minimise(terms, w, np.zeros(5), np.full(5, 0.35))
    inside = (found.p > 1e-6) & (found.p < 0.35 - 1e-6)
    np.testing.assert_allclose(terms.gradient(found.p, w)[inside], found.price, atol=1e-9)


def test_same_input_same_bytes():
    terms = problem(15, 9, 9, concave=True, batch=(5,))
    first, second = (minimise(terms, np.ones(9), np.zeros(9), np.full(9, 0.5)).p for _ in range(2))
    assert first.tobytes() == second.tobytes()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), M=st.integers(2, 12))
def test_sort_fill_solves_the_linear_program(seed, M):
    rng = np.random.default_rng(seed)
    gradient, upper = rng.normal(size=M), np.minimum(1, rng.dirichlet(np.ones(M)) * rng.uniform(1.1, 4))
    upper = upper if upper.sum() >= 1 else np.ones(M)
    lower = upper * 0.3 / max(1.0, upper.sum())
    s, price = linear_minimiser(gradient, lower, upper)
    bounds = np.stack([lower, upper], axis=1)
    oracle = linprog(gradient, A_eq=np.ones((1, M)), b_eq=[1.0], bounds=bounds, method="highs")
    assert gradient @ s == pytest.approx(oracle.fun, abs=1e-9)
    assert is_feasible(s, lower - 1e-15, upper + 1e-15)
    assert price == pytest.approx(float(oracle.eqlin.marginals[0]), abs=1e-9)


@pytest.mark.parametrize(("B", "M"), [(1, 4), (3, 4), (1, LARGE), (3, LARGE)])
def test_newtons_move_solves_its_system_in_every_member_of_a_batch(B, M):
    rng = np.random.default_rng(M + B)
    root = rng.normal(size=(B, M, M))
    matrix, free = root @ np.swapaxes(root, 1, 2) + np.eye(M), (rng.random((B, M)) < 0.8).astype(float)
    pull, excess = rng.normal(size=(B, M)), rng.normal(size=(B, 1))
    move, shift = Factor(matrix.copy(), free).solve(pull, excess)
    np.testing.assert_allclose((matrix @ move[:, :, None])[:, :, 0], pull + shift * free, atol=1e-8)
    np.testing.assert_allclose((move * free).sum(axis=1, keepdims=True), excess, atol=1e-8)


def test_a_target_that_only_an_excluded_source_helps_is_named_though_another_of_the_batch_is_sound():
    phi = np.full((2, 3, 3), 0.2)
    phi[0, :, 1] = [0.0, 1.0, 0.0]
    terms = PowerTerms(np.zeros((2, 3)), np.ones((2, 3)), np.full((2, 3), 0.1), phi)
    lower, upper = np.zeros((2, 3)), np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    with pytest.raises(SolveError, match="target number 1\n"):
        minimise(terms, np.ones((2, 3)), lower, upper)
    p = minimise(terms, np.tile([1.0, 0.0, 1.0], (2, 1)), lower, upper).p
    np.testing.assert_allclose(p.sum(axis=-1), 1, atol=1e-12)
    assert p[0, 1] == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_on_a_face_is_the_largest_over_the_corners_of_the_box(seed):
    """Excess at most max tilt . (p - s) over all s within floors and caps: an enumeration of 2^M corners."""
    rng, M = np.random.default_rng(seed), 5
    lower, upper = rng.uniform(0.05, 0.1, M), rng.uniform(0.3, 0.9, M)
    p, tilt = rng.uniform(lower, upper), rng.normal(size=M)
    corners = np.where(np.arange(2**M)[:, None] >> np.arange(M) & 1, upper, lower)
    found = face_bound(tilt[None], p[None], lower[None], upper[None])
    np.testing.assert_allclose(found, ((p - corners) @ tilt).max(), rtol=1e-12)


@pytest.mark.parametrize("held", [0, 1, 2, 3])
def test_a_source_that_cannot_move_sets_no_price(held):
    """The price is the slope of the source that the last ratio goes to, which one held at its floor never is."""
    gradient = np.array([0.1, 0.2, 0.3, 0.4])
    lower, upper = np.zeros(4), np.full(4, 0.4)
    lower[held] = upper[held] = 0.1
    s, price = linear_minimiser(gradient, lower, upper)
    free = np.delete(np.arange(4), held)
    np.testing.assert_allclose(s[free], [0.4, 0.4, 0.1], atol=1e-15)
    assert price == gradient[free[-1]]


def test_powers_just_below_one_have_an_infinite_slope_at_zero_all_the_same():
    rng = np.random.default_rng(16)
    for s in (0.99, 0.999, 0.9999):
        phi = rng.uniform(0.001, 0.05, (12, 6))
        phi[np.arange(6), np.arange(6)] = 1
        terms = PowerTerms(np.zeros(6), rng.uniform(1, 3, 6), np.full(6, 0.1), phi, np.full((12, 6), s))
        p = minimise(terms, np.ones(6), np.zeros(12), np.ones(12)).p
        assert (p > 0).all()
        assert relative_gap(terms, np.ones(6), p, np.zeros(12), np.ones(12)) <= 1e-9


def test_the_search_starts_strictly_between_its_bounds():
    """Floors next to their caps leave little room, and the start must share what is left by it."""
    rng = np.random.default_rng(5)
    lower = rng.dirichlet(np.ones(6), 200) * rng.uniform(0.1, 0.95, (200, 1))
    upper = np.minimum(lower + rng.uniform(0.02, 0.5, lower.shape), 1.0)
    upper = upper[(room := upper.sum(1) > 1.05)]
    (start, low, high), free = _interior(lower[room], upper)
    assert len(start) > 50
    np.testing.assert_allclose(start.sum(1), 1, atol=1e-12)
    assert np.all((start > low) & (start < high) | ~free)
    assert free.mean() > 0.9
