"""Sampled Shapley values: exact where they must be, efficient always, honest about their error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from shapleymix.errors import DataError, UsageError
from shapleymix.game.exact import exact_shapley, masks_of, members_of
from shapleymix.game.kriging import (
    Estimate,
    _posterior,
    estimate_shapley,
    exact_variance,
    kriged_shapley,
    sample_coalitions,
)


def interacting_game(players: int, seed: int, targets: int = 3) -> np.ndarray:
    """Payoffs (2**K, T) with diminishing returns, a threshold and pairs: nothing an estimator assumes."""
    generator = np.random.default_rng(seed)
    held = members_of(np.arange(2**players), players).astype(float)
    supply = held @ generator.gamma(0.5, size=(players, targets))
    pairs = generator.normal(scale=0.2, size=(targets, players, players))
    return np.log1p(3 * supply) + 0.3 * (supply > 1) + np.einsum("si,tij,sj->st", held, pairs, held)


def sampled(payoffs: np.ndarray, players: int, samples: int, seed: int = 0) -> Estimate:
    """Values from so many coalitions of a game whose payoffs (2**K, T) are all known."""
    held = sample_coalitions(players, samples, np.random.default_rng(seed))
    return estimate_shapley(held, payoffs[masks_of(held)])


def some_coalitions(players: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """The empty, the grand and `count` other coalitions (C, K), as a log with gaps has them."""
    inner = generator.choice(np.arange(1, 2**players - 1), count, replace=False)
    return members_of(np.concatenate([[0, 2**players - 1], inner]), players)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), players=st.integers(4, 8))
def test_efficiency_is_exact(seed: int, players: int) -> None:
    payoffs = interacting_game(players, seed)
    found = sampled(payoffs, players, 2 * players, seed)
    np.testing.assert_allclose(found.values.sum(axis=0), payoffs[-1] - payoffs[0], atol=1e-12)
    assert (found.stderr >= 0).all()


def test_order_of_coalitions_does_not_matter() -> None:
    payoffs, generator = interacting_game(6, seed=2), np.random.default_rng(0)
    order = generator.permutation(64)
    found = estimate_shapley(members_of(order, 6), payoffs[order])
    np.testing.assert_array_equal(found.values, exact_shapley(payoffs))
    assert found.method == "exact"
    assert not found.stderr.any()
    part = some_coalitions(6, 30, generator)
    shuffled = part[generator.permutation(len(part))]
    first, second = (estimate_shapley(each, payoffs[masks_of(each)]) for each in (part, shuffled))
    np.testing.assert_allclose(first.values, second.values, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_additive_game_is_found_from_any_coalitions(seed: int) -> None:
    """Efficiency, symmetry, null player and linearity at once: an additive game has its own worths as values."""
    generator = np.random.default_rng(seed)
    worth = np.append(generator.normal(size=(6, 2)), np.zeros((1, 2)), axis=0)
    held = some_coalitions(7, 40, generator)
    found = estimate_shapley(held, held @ worth)
    np.testing.assert_allclose(found.values, worth, atol=1e-6)
    assert found.stderr.max() < 1e-6


def test_pairs_of_complements_make_pairwise_games_exact() -> None:
    """A theorem for paired sampling: interactions of even order cancel between a coalition and its complement."""
    generator = np.random.default_rng(4)
    held = members_of(np.arange(2**10), 10).astype(float)
    payoffs = (held @ generator.normal(size=(10, 10)) * held).sum(axis=1, keepdims=True)
    found = sampled(payoffs, 10, 40)
    np.testing.assert_allclose(found.values, exact_shapley(payoffs), atol=1e-10)


@pytest.mark.parametrize("shift", [-7.0, 100.0])
def test_a_constant_changes_nothing(shift: float) -> None:
    payoffs, held = interacting_game(6, seed=5), some_coalitions(6, 25, np.random.default_rng(1))
    known = payoffs[masks_of(held)]
    first, second = (estimate_shapley(held, each) for each in (known, known + shift))  # type: ignore[arg-type]
    np.testing.assert_allclose(first.values, second.values, atol=1e-9)
    np.testing.assert_allclose(first.stderr, second.stderr, rtol=1e-6)


def test_smooth_covers_at_two_standard_errors() -> None:
    covered = []
    for seed in range(25):
        payoffs = interacting_game(8, seed)
        held = some_coalitions(8, 60, np.random.default_rng(seed))
        found = estimate_shapley(held, payoffs[masks_of(held)])
        covered.append(np.abs(found.values - exact_shapley(payoffs)) <= 2 * found.stderr)
    assert 0.80 < np.mean(covered) <= 1.0


def test_smooth_is_the_posterior_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against brute force at one rho: condition a joint normal over all 16 payoffs, its trend prior nearly flat."""
    monkeypatch.setattr("shapleymix.game.kriging.RHO_GRID", (0.4,))
    held = members_of(np.arange(16), 4)
    trend = np.column_stack([np.ones(16), held])
    distance = (held[:, None] != held).sum(axis=2)
    prior = 0.4**distance + 1e6 * trend @ trend.T
    seen = np.array([0, 1, 2, 4, 7, 8, 11, 13, 15])
    payoffs = multivariate_normal(cov=0.4**distance).rvs(random_state=3)[:, None]  # type: ignore[call-arg]
    gain = prior[:, seen] @ np.linalg.inv(prior[np.ix_(seen, seen)])
    left = prior - gain @ prior[seen]
    functional = exact_shapley(np.eye(16))
    values, stderr = kriged_shapley(held[seen], payoffs[seen])
    np.testing.assert_allclose(values, functional @ gain @ payoffs[seen], atol=1e-5)
    ratio = stderr[:, 0] ** 2 / np.diag(functional @ left @ functional.T)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-2)


def test_noise_reaches_the_standard_errors() -> None:
    """Errors of an additive game come from noise alone, so their spread over draws is the standard error."""
    generator = np.random.default_rng(6)
    held, worth = some_coalitions(6, 40, generator), generator.normal(size=(6, 1))
    scale = 1e-3
    noise = np.full((42, 1), scale**2)
    draws = [
        estimate_shapley(held, held @ worth + scale * generator.normal(size=(42, 1)), noise).values for _ in range(200)
    ]
    clean = estimate_shapley(held, held @ worth, noise).stderr  # type: ignore[arg-type]
    np.testing.assert_allclose(np.std(draws, axis=0), clean, rtol=0.5)


def test_exact_variance_is_that_of_the_linear_map() -> None:
    noise = np.random.default_rng(7).random((32, 2))
    np.testing.assert_allclose(exact_variance(noise), exact_shapley(np.eye(32)) ** 2 @ noise, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(players=st.integers(4, 14), extra=st.integers(0, 60), seed=st.integers(0, 2**32 - 1))
def test_coalitions_are_distinct_and_paired(players: int, extra: int, seed: int) -> None:
    samples = min(2 * players + extra, 2**players - 4) // 2 * 2
    held = sample_coalitions(players, samples, np.random.default_rng(seed))
    masks = masks_of(held)
    assert len(masks) == samples + 2 == len(set(masks.tolist()))
    assert set(masks.tolist()) == {2**players - 1 - mask for mask in masks.tolist()}
    assert {1 << player for player in range(players)} <= set(masks.tolist())
    assert not held[0].any()
    np.testing.assert_array_equal(held[1::2], ~held[::2])  # whoever stops early has pairs


def test_sizes_share_the_samples_as_the_weights_of_kernelshap_do() -> None:
    """All single players first; the rest in proportion to 1 / (s (K - s)), the middle size being its own complement."""
    players, samples = 12, 400
    sizes = sample_coalitions(players, samples, np.random.default_rng(0)).sum(axis=1)
    pairs = np.bincount(sizes, minlength=players + 1)[1 : players // 2 + 1] / np.array([1, 1, 1, 1, 1, 2])
    assert pairs[0] == players
    wanted = np.array([1 / 20, 1 / 27, 1 / 32, 1 / 35, 0.5 / 36])
    assert 2 * pairs.sum() == samples
    np.testing.assert_allclose(pairs[1:], (samples / 2 - players) * wanted / wanted.sum(), atol=4)


def test_many_players_need_no_enumeration() -> None:
    worth = np.linspace(0, 1, 70)
    held = sample_coalitions(70, 200, np.random.default_rng(0))
    found = estimate_shapley(held, (held @ worth)[:, None])
    np.testing.assert_allclose(found.values[:, 0], worth, atol=1e-8)


def test_same_seed_same_values_other_seed_others() -> None:
    payoffs = interacting_game(8, seed=8)
    first, again, other = (sampled(payoffs, 8, 40, seed).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def _rows(*coalitions: str) -> np.ndarray:
    return np.array([[letter in held for letter in "abc"] for held in coalitions])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (_rows("a", "b", "c", "ab", "abc"), "empty coalition .* is missing"),
        (_rows("", "a", "b", "c", "ab"), "coalition of all players is missing"),
        (_rows("", "a", "bc", "abc"), "no coalition separates y and z"),
        (_rows("", "a", "b", "abc"), "4 coalitions cannot support 3 values"),
    ],
)
def test_says_why_values_cannot_be_told(held: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        estimate_shapley(held, np.zeros((len(held), 1)), players=("x", "y", "z"))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="10 samples are too few"):
        sample_coalitions(8, 10, np.random.default_rng(0))


def test_the_smooth_model_is_the_textbooks_restricted_likelihood():
    """Universal kriging by dense inverses: the likelihood of each rho, and the variance with its degrees of freedom."""
    players, rho = 4, 0.6
    rng = np.random.default_rng(3)
    members = sample_coalitions(players, 10, rng)
    payoffs = rng.normal(size=(len(members), 2))
    found = _posterior(members, payoffs, rho)
    trend = np.column_stack([np.ones(len(members)), members])
    K = rho ** np.abs(members[:, None].astype(int) - members.astype(int)).sum(axis=-1) + 1e-9 * np.eye(len(members))
    precision = np.linalg.inv(K)
    normal = trend.T @ precision @ trend
    residual = payoffs - trend @ np.linalg.solve(normal, trend.T @ precision @ payoffs)
    squares = np.einsum("rt,rs,st->t", residual, precision, residual)
    freedom = len(members) - trend.shape[1]
    likelihood = -0.5 * (freedom * np.log(squares) + np.linalg.slogdet(K)[1] + np.linalg.slogdet(normal)[1])
    np.testing.assert_allclose(found.log_evidence, likelihood, rtol=1e-6)
    ratio = found.variance / squares
    np.testing.assert_allclose(ratio[:, 0], ratio[:, 1], rtol=1e-6)
    unit = found.variance[:, 0] * (freedom - 2) / squares[0]
    assert ((unit > 0) & (unit < 1)).all()
