"""Convex pieces: values by hand, derivatives against differences, and what they must keep through every change."""

from dataclasses import replace

import numpy as np
import pytest

from shapleymix.errors import SolveError
from shapleymix.laws.pieces import SOURCES, Pieces, effective, effective_slopes
from shapleymix.laws.task_curves import CODES, TaskCurves
from shapleymix.mixing.solving import OF_TARGETS, join_pieces

UNIQUE, RATE = np.array([0.02, 0.1, np.inf, 0.4]), 0.2
P, W = np.array([0.3, 0.35, 0.2, 0.15]), np.array([0.5, 0.2, 0.3])
LINES = TaskCurves(np.array([0.3, 2.0, 1.5]), np.array([0.8, 4.0, -0.2]), np.array([0.0, 0.25, 0.0]),
              np.array([CODES[name] for name in ("minus", "sigmoid", "exp")]))  # fmt: skip


def made(kind: str, replicates: tuple[int, ...] = ()) -> Pieces:
    """Pieces of four sources and three targets."""
    draws = np.random.default_rng(0)
    phi = draws.uniform(0.05, 1.0, (*replicates, 4, 3))
    s = draws.uniform(0.3, 0.9, (*replicates, 4, 3))
    floor, scale, gamma = draws.uniform([[0.0], [1.0], [0.1]], [[0.5], [3.0], [0.8]], (3, 3))
    if kind == "exponential":
        return Pieces("exponential", floor, scale, np.ones(3), -phi)
    if kind == "linear":
        return Pieces("power", floor, scale, gamma, phi)
    found = Pieces("power", floor, scale, gamma, phi, s, np.full(3, 0.4))
    if kind in ("shared", "repeated", "scored"):
        found = found.pool_twins([(i, 0, np.arange(3) < 2) for i in (3, 2)]) if kind == "shared" else found
        found = found.with_supply(UNIQUE, RATE, draws.uniform(0, 9, (*replicates, 4, 3)) * np.isfinite(UNIQUE)[:, None])
    return found.with_curves(LINES, np.array([2, 0, 1])) if kind == "scored" else found


def sure(pieces: Pieces, highest: np.ndarray) -> np.ndarray:
    """Which pieces (K,) are convex where losses are at most so high."""
    if pieces.curves is None:
        return np.ones(len(highest), dtype=bool)
    return pieces.curves.convex_up_to(highest - pieces.floor, pieces.floor, pieces.kappa)


KINDS = ["exponential", "linear", "concave", "repeated", "scored", "shared"]


def test_the_worth_of_repeated_tokens_is_the_published_one():
    """U (1 + R* (1 - exp(-R / R*))) tokens for R repetitions, by hand; fresh tokens count in full."""
    D, U, T, star = 100.0, 10.0, 70.0, 1 / RATE
    by_hand = U + U * star * (1 - np.exp(-(T / U - 1) / star))
    q = effective(np.array([T / D, 0.07]), np.array([U / D, 0.1]), RATE)
    np.testing.assert_allclose(q, [by_hand / D, 0.07], rtol=1e-14)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.065, 3.0, 1e3])
def test_effective_ratios_are_concave_with_slopes_of_their_own(rate: float):
    p, h, rates = np.linspace(0, 1, 2001)[:, None], 1e-6, np.array(rate)
    q, slope, bend = effective_slopes(p, UNIQUE, rates)
    assert (q <= p + 1e-15).all()
    assert (np.diff(q, axis=0) >= 0).all()
    assert (np.diff(q, 2, axis=0) <= 1e-15).all()
    assert ((slope >= 0) & (slope <= 1) & (bend <= 0)).all()
    up, down = effective(P + h, UNIQUE, rate), effective(P - h, UNIQUE, rate)
    np.testing.assert_allclose(effective_slopes(P, UNIQUE, rates)[1], (up - down) / (2 * h), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_agree_with_differences(kind: str):
    pieces, h = made(kind), 1e-6
    steps = h * np.eye(4)
    slope = [(pieces.objective(P + step, W) - pieces.objective(P - step, W)) / (2 * h) for step in steps]
    np.testing.assert_allclose(pieces.gradient(P, W), slope, rtol=1e-6, atol=1e-10)
    losses = np.array([(pieces.losses(P + step) - pieces.losses(P - step)) / (2 * h) for step in steps])
    np.testing.assert_allclose(pieces.slopes(P).jacobian(), losses, rtol=1e-6, atol=1e-10)
    bend = np.array([(pieces.gradient(P + step, W) - pieces.gradient(P - step, W)) / (2 * h) for step in steps])
    if sure(pieces, pieces.plain_losses(P)).all():
        np.testing.assert_allclose(pieces.slopes(P).hessian(W), bend, rtol=1e-5, atol=1e-8)
    assert np.linalg.eigvalsh(pieces.slopes(P).hessian(W)).min() >= -1e-9


def test_selections_keep_every_number():
    pieces = made("concave", (5,)).with_supply(UNIQUE, np.linspace(0.05, 0.5, 5)[:, None], np.ones((4, 3)))
    whole = pieces.losses(P)
    np.testing.assert_allclose(pieces.select(np.array([0, 2])).losses(P), whole[:, [0, 2]], rtol=1e-14)
    np.testing.assert_allclose(pieces.flat().take(3).losses(P), whole[3], rtol=1e-14)
    np.testing.assert_allclose(pieces.scale_losses(np.full(3, 2.0)).losses(P), 2 * whole, rtol=1e-14)
    assert pieces.batch == (5,)


def test_zero_ratios_have_the_limits_of_the_law():
    plain = made("linear")
    none = Pieces("power", plain.floor, plain.scale, plain.gamma, np.eye(4)[:, :3])
    at_zero = none.losses(np.array([0.0, 0.5, 0.5, 0.0]))
    assert np.isinf(at_zero[0])
    assert np.isfinite(at_zero[1:]).all()
    assert none.objective(np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 1.0, 1.0])) < np.inf
    steep = made("concave").gradient(np.array([0.0, 0.1, 0.9, 0.0]), W)
    assert np.isneginf(steep[[0, 3]]).all()


def test_supplies_that_change_nothing_and_those_that_a_law_has_no_place_for():
    pieces = made("concave")
    assert pieces.with_supply(np.array([1.0, 2.0, np.nan, np.inf]), RATE) is pieces
    with pytest.raises(SolveError):
        made("exponential").with_supply(UNIQUE, RATE)


@pytest.mark.parametrize("seed", range(20))
def test_error_rates_are_convex_where_they_say_so(seed: int):
    draws, pieces = np.random.default_rng(seed), made("scored")
    left, right, share = draws.dirichlet(np.ones(4)), draws.dirichlet(np.ones(4)), draws.uniform()
    highest = np.maximum(pieces.plain_losses(left), pieces.plain_losses(right))
    certain = sure(pieces, highest)
    between = pieces.losses(share * left + (1 - share) * right)
    chord = share * pieces.losses(left) + (1 - share) * pieces.losses(right)
    assert (between <= chord + 1e-12)[certain].all()
    assert certain[0]


@pytest.mark.parametrize("kind", ["linear", "concave", "repeated", "shared"])
def test_a_target_of_another_law_has_all_that_is_that_law_s(kind: str):
    """The harm of repeated tokens, too: else what is minimised is no law's loss."""
    one, taken = made(kind), np.array([True, False, True])
    other = replace(one, **{name: 0.9 * value for name, value in one._arrays() if name not in SOURCES})
    joined = join_pieces((other, one), lambda sides: np.where(taken, *sides), OF_TARGETS)
    np.testing.assert_array_equal(joined.losses(P), np.where(taken, other.losses(P), one.losses(P)))
