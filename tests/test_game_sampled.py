"""Sampled Shapley values: exact where they must be, efficient always, honest about their error."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from shapleymix.errors import DataError, UsageError
from shapleymix.game import estimate_shapley, exact_shapley, sampled_shapley
from shapleymix.game.exact import joining_weights, masks_of, members_of, sizes_of
from shapleymix.game.kernel import kernel_shapley
from shapleymix.game.sampled import exact_variance, sample_coalitions
from shapleymix.game.smooth import RHO_GRID, _influence, _posterior, smooth_shapley

METHODS = ["smooth", "kernel"]


def interacting_game(players: int, seed: int, targets: int = 3) -> np.ndarray:
    """Payoffs (2**K, T) with diminishing returns, a threshold and pairs: nothing an estimator assumes."""
    generator = np.random.default_rng(seed)
    held = members_of(np.arange(2**players), players).astype(float)
    supply = held @ generator.gamma(0.5, size=(players, targets))
    pairs = generator.normal(scale=0.2, size=(targets, players, players))
    return np.log1p(3 * supply) + 0.3 * (supply > 1) + np.einsum("si,tij,sj->st", held, pairs, held)


def lookup(payoffs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda held: payoffs[masks_of(held)]


def some_coalitions(players: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """The empty, the grand and `count` other coalitions (C, K), as a log with gaps has them."""
    inner = generator.choice(np.arange(1, 2**players - 1), count, replace=False)
    return members_of(np.concatenate([[0, 2**players - 1], inner]), players)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), players=st.integers(4, 8))
def test_efficiency_is_exact(method: str, seed: int, players: int) -> None:
    payoffs = interacting_game(players, seed)
    found = sampled_shapley(lookup(payoffs), players, 2 * players, seed, method=method)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.values.sum(axis=0), payoffs[-1] - payoffs[0], atol=1e-12)
    assert (found.stderr >= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_all_coalitions_give_exact_values(method: str) -> None:
    payoffs = interacting_game(6, seed=1)
    found = sampled_shapley(lookup(payoffs), 6, 62, method=method)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.values, exact_shapley(payoffs))
    assert (found.method, found.coalitions) == ("exact", 64)
    assert not found.stderr.any()


def test_order_of_coalitions_does_not_matter() -> None:
    payoffs, generator = interacting_game(6, seed=2), np.random.default_rng(0)
    order = generator.permutation(64)
    found = estimate_shapley(members_of(order, 6), payoffs[order])
    np.testing.assert_array_equal(found.values, exact_shapley(payoffs))
    part = some_coalitions(6, 30, generator)
    shuffled = part[generator.permutation(len(part))]
    first, second = (estimate_shapley(each, payoffs[masks_of(each)]) for each in (part, shuffled))
    np.testing.assert_allclose(first.values, second.values, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_additive_game_is_found_from_any_coalitions(method: str, seed: int) -> None:
    """Efficiency, symmetry, null player and linearity at once: an additive game has its own worths as values."""
    generator = np.random.default_rng(seed)
    worth = np.append(generator.normal(size=(6, 2)), np.zeros((1, 2)), axis=0)
    held = some_coalitions(7, 40, generator)
    found = estimate_shapley(held, held @ worth, method=method)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.values, worth, atol=1e-6)
    assert found.stderr.max() < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_pairs_of_complements_make_pairwise_games_exact(method: str) -> None:
    """A theorem for paired sampling: interactions of even order cancel between a coalition and its complement."""
    generator = np.random.default_rng(4)
    held = members_of(np.arange(2**10), 10).astype(float)
    payoffs = (held @ generator.normal(size=(10, 10)) * held).sum(axis=1, keepdims=True)
    found = sampled_shapley(lookup(payoffs), 10, 40, method=method)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.values, exact_shapley(payoffs), atol=1e-10)


@pytest.mark.parametrize("shift", [-7.0, 100.0])
@pytest.mark.parametrize("method", METHODS)
def test_a_constant_changes_nothing(method: str, shift: float) -> None:
    payoffs, held = interacting_game(6, seed=5), some_coalitions(6, 25, np.random.default_rng(1))
    known = payoffs[masks_of(held)]
    first, second = (estimate_shapley(held, each, method=method) for each in (known, known + shift))  # type: ignore[arg-type]
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


def test_smooth_beats_kernel_where_coalitions_are_missing_at_random() -> None:
    squared = dict.fromkeys(METHODS, 0.0)
    for seed in range(15):
        payoffs = interacting_game(8, seed)
        held = some_coalitions(8, 60, np.random.default_rng(seed))
        for method in METHODS:
            found = estimate_shapley(held, payoffs[masks_of(held)], method=method)  # type: ignore[arg-type]
            squared[method] += ((found.values - exact_shapley(payoffs)) ** 2).mean()
    assert squared["smooth"] < 0.5 * squared["kernel"]


@pytest.mark.parametrize("rho", [0.1, 0.7])
def test_influence_equals_its_sum_over_all_coalitions(rho: float) -> None:
    players, held = 5, members_of(np.arange(32), 5)
    distance = (held[:, None] != held).sum(axis=2)
    by_sum = exact_shapley(rho**distance)  # (K, 32): covariance of each value with each payoff
    sizes, found = sizes_of(players), _influence(players, rho)
    for mask in range(32):
        for player in range(players):
            expected = found[sizes[mask] - 1] if held[mask, player] else -found[sizes[mask]]
            assert by_sum[player, mask] == pytest.approx(expected, abs=1e-14)


def test_smooth_is_the_posterior_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against brute force at one rho: condition a joint normal over all 16 payoffs, its trend prior nearly flat."""
    monkeypatch.setattr("shapleymix.game.smooth.RHO_GRID", (0.4,))
    held = members_of(np.arange(16), 4)
    trend = np.column_stack([np.ones(16), held])
    distance = (held[:, None] != held).sum(axis=2)
    prior = 0.4**distance + 1e6 * trend @ trend.T
    seen = np.array([0, 1, 2, 4, 7, 8, 11, 13, 15])
    payoffs = multivariate_normal(cov=0.4**distance).rvs(random_state=3)[:, None]  # type: ignore[call-arg]
    gain = prior[:, seen] @ np.linalg.inv(prior[np.ix_(seen, seen)])
    left = prior - gain @ prior[seen]
    functional = exact_shapley(np.eye(16))
    values, stderr = smooth_shapley(held[seen], payoffs[seen])
    np.testing.assert_allclose(values, functional @ gain @ payoffs[seen], atol=1e-5)
    ratio = stderr[:, 0] ** 2 / np.diag(functional @ left @ functional.T)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-2)


def test_grid_is_averaged_not_chosen_at_its_edge() -> None:
    assert 0 < RHO_GRID[0] < RHO_GRID[-1] < 1


@pytest.mark.parametrize("method", METHODS)
def test_noise_reaches_the_standard_errors(method: str) -> None:
    """Errors of an additive game come from noise alone, so their spread over draws is the standard error."""
    generator = np.random.default_rng(6)
    held, worth = some_coalitions(6, 40, generator), generator.normal(size=(6, 1))
    scale = 1e-3
    noise = np.full((42, 1), scale**2)
    draws = [
        estimate_shapley(held, held @ worth + scale * generator.normal(size=(42, 1)), noise, method=method).values
        for _ in range(200)
    ]
    clean = estimate_shapley(held, held @ worth, noise, method=method).stderr  # type: ignore[arg-type]
    np.testing.assert_allclose(np.std(draws, axis=0), clean, rtol=0.5)


def test_kernels_standard_errors_are_those_of_leaving_one_coalition_out() -> None:
    """Without noise: the sum of squared steps that the values take as each is left out, times the part not seen."""
    players, payoffs = 6, interacting_game(6, seed=9, targets=1)
    held = some_coalitions(players, 30, np.random.default_rng(3))
    known, sizes = payoffs[masks_of(held), 0], held.sum(axis=1)
    inner = (sizes > 0) & (sizes < players)
    seen = np.array([np.sum(sizes == size) for size in sizes[inner]])
    root = np.sqrt(1 / (sizes[inner] * (players - sizes[inner]) * seen))
    rest = known[inner] - known[sizes == 0] - sizes[inner] / players * (payoffs[-1] - payoffs[0])
    rows = root[:, None] * (held[inner] - sizes[inner, None] / players)

    def without(left: int) -> np.ndarray:
        kept = np.arange(30) != left
        return np.linalg.lstsq(rows[kept], (root * rest)[kept], rcond=1e-9)[0]

    steps = np.array([without(left) - without(-1) for left in range(30)])
    unseen = 1 - seen / np.array([comb(players, size) for size in sizes[inner]])
    values, stderr = kernel_shapley(held, known[:, None])
    np.testing.assert_allclose(values[:, 0], without(-1) + (payoffs[-1] - payoffs[0]) / players, atol=1e-12)
    np.testing.assert_allclose(stderr[:, 0], np.sqrt(unseen @ steps**2), rtol=1e-9)


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
    found = sampled_shapley(lambda held: held @ worth, 70, 200)
    np.testing.assert_allclose(found.values[:, 0], worth, atol=1e-8)


@pytest.mark.parametrize("samples", [2500, 10_000, 50_000])
def test_many_coalitions_of_twenty_players(samples: int) -> None:
    """Large least squares problems: their one zero singular value came out above the usual cutoff."""
    worth = np.random.default_rng(0).random(20)
    held = members_of(np.arange(2**20), 20)
    exact = exact_shapley(np.sqrt(held @ worth)[:, None])
    found = sampled_shapley(lambda held: np.sqrt(held @ worth), 20, samples)
    assert found.method == "kernel"
    np.testing.assert_allclose(found.values, exact, atol=2 * samples**-0.5)
    np.testing.assert_allclose(found.values.sum(axis=0), np.sqrt(worth.sum()), atol=1e-12)
    assert (np.abs(found.values - exact) <= 4 * found.stderr).all()


def test_same_seed_same_values_other_seed_others() -> None:
    payoffs = interacting_game(8, seed=8)
    first, again, other = (sampled_shapley(lookup(payoffs), 8, 40, seed).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_joining_weights_stay_finite_for_many_players() -> None:
    assert np.isfinite(joining_weights(200)).all()


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


def test_says_the_rank_where_no_two_players_are_twins() -> None:
    held = np.array([[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=bool)
    with pytest.raises(DataError, match="rank 3, too low for 4"):
        estimate_shapley(held, np.zeros((6, 1)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sampled_shapley(lambda held: held[:, 0], 8, 10), UsageError, "10 samples are too few"),
        (lambda: sampled_shapley(lambda held: held[:3], 8, 20), DataError, r"shape \(3, 8\) for 22 coalitions"),
        (
            lambda: sampled_shapley(lambda held: np.full(len(held), np.nan), 8, 20),
            DataError,
            "nobody on target 0 is nan",
        ),
        (
            lambda: sampled_shapley(lambda held: held[:, 0], 8, 20, method="best"),  # type: ignore[arg-type]
            UsageError,
            "unknown method 'best'",
        ),
    ],
)
def test_refuses_wrong_calls(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("loud", [None, 0, 1, 5], ids=["all", "empty", "grand", "inner"])
def test_noise_of_each_coalition_enters_by_its_own_weight(loud: int | None) -> None:
    """Kernel values are linear in the payoffs: their variance is the squared weights times each payoff's noise."""
    generator = np.random.default_rng(8)
    held = some_coalitions(5, 16, generator)
    weights, _ = kernel_shapley(held, np.eye(len(held)))
    noise = generator.random((len(held), 2))
    if loud is not None:
        noise *= (np.arange(len(held)) == loud)[:, None]
    additive = held @ generator.normal(size=(5, 2))
    _, stderr = kernel_shapley(held, additive, noise)
    np.testing.assert_allclose(stderr**2, weights**2 @ noise, rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize(("players", "samples"), [(5, 10), (5, 16), (6, 30), (7, 14)])
def test_sampled_coalitions_come_in_pairs_the_empty_and_the_grand_one_first(players, samples):
    """Whoever stops early has the ends of the game, and complements of what is there."""
    drawn = sample_coalitions(players, samples, np.random.default_rng(1))
    assert not drawn[0].any()
    np.testing.assert_array_equal(drawn[1::2], ~drawn[::2])
    assert len(np.unique(drawn, axis=0)) == len(drawn) == 2 + samples


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
