"""Terms against loops, finite differences, and the convexity that the whole optimiser rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms

M, K = 5, 3


def power(rng: np.random.Generator, batch: tuple[int, ...] = (), concave: bool = False) -> PowerTerms:
    return PowerTerms(
        floor=rng.uniform(0, 1, (*batch, K)),
        a=rng.uniform(0.5, 3, (*batch, K)),
        gamma=rng.uniform(0.02, 0.8, (*batch, K)),
        phi=rng.uniform(0, 1, (*batch, M, K)),
        s=rng.uniform(0.2, 1, (*batch, M, K)) if concave else None,
    )


def exponential(rng: np.random.Generator, batch: tuple[int, ...] = ()) -> ExponentialTerms:
    return ExponentialTerms(
        floor=rng.uniform(0, 1, (*batch, K)),
        k=rng.uniform(0.5, 3, (*batch, K)),
        t=rng.normal(size=(*batch, M, K)),
    )


MAKERS = {
    "power": power,
    "concave": lambda rng, batch=(): power(rng, batch, concave=True),
    "exponential": exponential,
}


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param]


def by_loop(terms: Terms, p: np.ndarray) -> np.ndarray:
    """The equations of the module's head, one target and one source at a time."""
    losses = []
    for j in range(terms.n_targets):
        if isinstance(terms, PowerTerms):
            s = np.ones(terms.phi.shape) if terms.s is None else terms.s
            theta = sum(terms.phi[i, j] * p[i] ** s[i, j] for i in range(terms.n_sources))
            losses.append(terms.floor[j] + terms.a[j] * theta ** -terms.gamma[j])
        else:
            assert isinstance(terms, ExponentialTerms)
            inside = sum(terms.t[i, j] * p[i] for i in range(terms.n_sources))
            losses.append(terms.floor[j] + terms.k[j] * np.exp(inside))
    return np.array(losses)


def test_losses_are_the_printed_equation(maker):
    rng = np.random.default_rng(1)
    terms, p = maker(rng), rng.dirichlet(np.ones(M))
    np.testing.assert_allclose(terms.losses(p), by_loop(terms, p), rtol=1e-13)


def test_derivatives_agree_with_central_differences(maker):
    rng = np.random.default_rng(2)
    terms, p, w = maker(rng), rng.dirichlet(np.ones(M)), rng.uniform(0.1, 1, K)
    steps = 1e-5 * np.eye(M)
    slope = (terms.objective(p + steps, w) - terms.objective(p - steps, w)) / 2e-5
    np.testing.assert_allclose(terms.gradient(p, w), slope, rtol=1e-7, atol=1e-9)
    bend = (terms.gradient(p + steps, w) - terms.gradient(p - steps, w)) / 2e-5
    np.testing.assert_allclose(terms.hessian(p, w), bend, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(terms.jacobian(p) @ w, terms.gradient(p, w), rtol=1e-12)


def test_leading_axes_are_a_loop(maker):
    rng = np.random.default_rng(3)
    terms, p, w = maker(rng, (4,)), rng.dirichlet(np.ones(M), size=(2, 4)), rng.uniform(0.1, 1, (4, K))
    assert terms.batch == (4,)
    for b in range(4):
        one = terms.take(b)
        for name in ("objective", "gradient", "hessian"):
            whole = getattr(terms, name)(p, w)
            np.testing.assert_allclose(whole[1, b], getattr(one, name)(p[1, b], w[b]), rtol=1e-12)
        np.testing.assert_allclose(terms.losses(p)[1, b], one.losses(p[1, b]), rtol=1e-12)


def test_selection_and_flattening(maker):
    rng = np.random.default_rng(4)
    terms, p = maker(rng, (2, 3)), rng.dirichlet(np.ones(M))
    np.testing.assert_allclose(terms.select([2, 0]).losses(p), terms.losses(p)[..., [2, 0]], rtol=1e-13)
    np.testing.assert_allclose(terms.flat().losses(p).reshape(2, 3, K), terms.losses(p), rtol=1e-13)
    few = np.array([0.3, 0.7])
    padded = np.array([0.3, 0, 0.7, 0, 0])
    np.testing.assert_allclose(terms.select_sources([0, 2]).losses(few), terms.losses(padded), rtol=1e-13)


def test_no_transfer_is_an_infinite_loss_without_a_warning():
    terms = PowerTerms(np.zeros(2), np.ones(2), np.array([0.1, 0.1]), np.eye(2))
    p = np.array([1.0, 0.0])
    np.testing.assert_array_equal(terms.losses(p), [1.0, np.inf])
    assert terms.objective(p, np.array([1.0, 0.0])) == 1.0
    assert terms.objective(p, np.array([1.0, 1.0])) == np.inf
    np.testing.assert_array_equal(terms.gradient(p, np.ones(2)), [-0.1, -np.inf])
    np.testing.assert_array_equal(terms.gradient(p, np.array([1.0, 0.0])), [-0.1, 0.0])


def test_gamma_zero_is_a_constant():
    terms = PowerTerms(np.zeros(2), np.array([2.0, 3.0]), np.zeros(2), np.eye(2))
    np.testing.assert_array_equal(terms.losses(np.array([1.0, 0.0])), [2.0, 3.0])
    np.testing.assert_array_equal(terms.gradient(np.array([0.5, 0.5]), np.ones(2)), [0.0, 0.0])


def test_concave_slope_at_zero_is_infinite_only_where_the_source_helps():
    s = np.array([[0.5, 0.5], [0.5, 1.0]])
    phi = np.array([[1.0, 1.0], [0.0, 0.4]])
    terms = PowerTerms(np.zeros(2), np.ones(2), np.full(2, 0.2), phi, s)
    p = np.array([1.0, 0.0])
    np.testing.assert_allclose(terms.gradient(p, np.ones(2)), [-0.2, -0.08])
    assert terms.gradient(np.array([0.0, 1.0]), np.array([0.0, 1.0]))[0] == -np.inf


def test_an_exponent_of_one_is_no_exponent_at_ratio_zero_too():
    plain = power(np.random.default_rng(6))
    ones = replace(plain, s=np.ones((M, K)))
    p, w = np.array([0.5, 0.0, 0.2, 0.3, 0.0]), np.ones(K)
    for name in ("objective", "gradient", "hessian"):
        np.testing.assert_allclose(getattr(ones, name)(p, w), getattr(plain, name)(p, w), rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(MAKERS)), mix=st.floats(0, 1))
def test_convex_along_every_chord(seed, kind, mix):
    rng = np.random.default_rng(seed)
    terms, w = MAKERS[kind](rng), rng.uniform(0, 1, K)
    left, right = rng.dirichlet(np.full(M, 0.5), size=2)
    between = terms.objective(mix * left + (1 - mix) * right, w)
    assert between <= mix * terms.objective(left, w) + (1 - mix) * terms.objective(right, w) + 1e-12
    assert np.linalg.eigvalsh(terms.hessian(left + 1e-9, w)).min() >= -1e-7
