"""Shapley values where not every coalition is known: choose some, and estimate by a smooth model of the others.

Payoffs are a linear trend in the players plus a Gaussian process over coalitions whose covariance falls with the
number of players in which two coalitions differ, `tau^2 rho^|S xor S'|` (universal kriging on the hypercube). A
Shapley value is a linear functional of the game, so its posterior mean and variance given the coalitions seen are
closed forms: no other coalition is ever enumerated. The mean interpolates the coalitions seen, hence efficiency is
exact, and with all coalitions it is the exact value. `rho` says how fast interactions of higher order fade
(`((1 - rho) / (1 + rho))^order`); it is averaged over a grid by its restricted marginal likelihood, per target.

K players, T targets, S coalitions asked for, C coalitions seen, G grid points of rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import softmax

from shapleymix.display import Shown
from shapleymix.errors import DataError, UsageError
from shapleymix.game.exact import contract, exact_shapley, joining_weights, masks_of, members_of
from shapleymix.records import BoolArray, FloatArray, IntArray

RHO_GRID = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_JITTER = 1e-9  # keeps the covariance positive definite near rho = 1; payoffs never have nine digits


def kriged_shapley(
    members: BoolArray, payoffs: FloatArray, noise: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and standard deviation of the Shapley values.

    Parameters
    ----------
    members : array (C, K)
        The coalitions seen; the empty and the grand one are among them.
    payoffs : array (C, T)
        Payoff of each coalition on every target.
    noise : array (C, T), optional
        Variance of each payoff; propagated to the standard errors.

    Returns
    -------
    values, stderr : array (K, T)
        Shapley values and their standard errors.
    """
    posteriors = zip(*[_posterior(members, payoffs, rho) for rho in RHO_GRID], strict=True)
    each, spread, weights, log_evidence = map(np.stack, posteriors)
    shares = softmax(log_evidence, axis=0)  # (G, T), under a flat prior
    values = np.einsum("gt,gkt->kt", shares, each)
    variance = np.einsum("gt,gkt->kt", shares, spread + (each - values) ** 2)
    if noise is not None:
        variance += np.einsum("gt,gkc,ct->kt", shares, weights**2, noise, optimize=True)
    return values, np.sqrt(variance)


class _Posterior(NamedTuple):
    """Given rho: values and variance (K, T), the values' weights on the payoffs (K, C), log evidence (T,)."""

    values: FloatArray
    variance: FloatArray
    weights: FloatArray
    log_evidence: FloatArray


def _posterior(members: BoolArray, payoffs: FloatArray, rho: float) -> _Posterior:
    """Universal kriging of the functional `payoffs -> Shapley values` with trend 1 + players."""
    count, players = members.shape
    influence = _influence(players, rho)
    differing = cdist(members, members, "cityblock")
    factor = np.linalg.cholesky(rho**differing + _JITTER * np.eye(count))
    trend = np.column_stack([np.ones(count), members])
    whitened = solve_triangular(factor, np.column_stack([trend, payoffs, _covariance(members, influence)]), lower=True)
    trend_w, payoffs_w, cross_w = np.split(whitened, [players + 1, players + 1 + payoffs.shape[1]], axis=1)
    basis, triangle = np.linalg.qr(trend_w)
    unexplained = np.column_stack([np.zeros(players), np.eye(players)]) - cross_w.T @ trend_w
    through_trend = solve_triangular(triangle, unexplained.T, trans=1)
    weights_w = cross_w.T + through_trend.T @ basis.T
    residual = payoffs_w - basis @ (basis.T @ payoffs_w)
    freedom = count - players - 1
    squares = (residual**2).sum(axis=0)
    volume = np.log(np.diag(factor)).sum() + np.log(np.abs(np.diag(triangle))).sum()
    unit = 2 / players * influence.sum() - (cross_w**2).sum(axis=0) + (through_trend**2).sum(axis=0)
    return _Posterior(
        values=weights_w @ payoffs_w,
        variance=np.maximum(unit, 0.0)[:, None] * squares / max(freedom - 2, 1),
        weights=solve_triangular(factor, weights_w.T, lower=True, trans=1).T,
        # the restricted log likelihood, its scale tau profiled out
        log_evidence=-0.5 * freedom * np.log(np.maximum(squares, np.finfo(float).tiny)) - volume,
    )


def _influence(players: int, rho: float) -> FloatArray:
    """Covariance h[n] between a player's Shapley value and the payoff of n others with that player. (K,).

    With `s! (K-s-1)! / K! = integral of x^s (1-x)^(K-1-s)`, the sum over all 2**(K-1) coalitions becomes
    `(1 - rho) integral of (x + rho (1-x))^n (1 - x + rho x)^(K-1-n)` over (0, 1): a polynomial, for which
    Gauss-Legendre quadrature with K / 2 nodes is exact.
    """
    nodes, weights = np.polynomial.legendre.leggauss(ceil(players / 2))
    x = (nodes + 1) / 2
    others = np.arange(players)[:, None]
    integrand = (x + rho * (1 - x)) ** others * (1 - x + rho * x) ** (players - 1 - others)
    return (1 - rho) * integrand @ (weights / 2)


def _covariance(members: BoolArray, influence: FloatArray) -> FloatArray:
    """Covariance (C, K) of each payoff with each player's value: a member's is +h, an absent player's -h."""
    others = members.sum(axis=1, keepdims=True) - members
    return np.where(members, influence[others], -influence[others])


MOST = 4000
"""Coalitions: the cost is cubic in their number, 5 s for 2,000."""


@dataclass(frozen=True)
class Estimate(Shown):
    """Estimated Shapley values.

    Attributes
    ----------
    values : array (K, T)
        Columns sum to the grand coalition's payoff exactly, as exact values do.
    stderr : array (K, T)
        Standard errors: of the coalitions that were not seen, and of noise in those that were. Zero if there is
        neither.
    method : str
        `exact` or `smooth`.
    """

    values: FloatArray
    stderr: FloatArray
    method: str


def estimate_shapley(
    members: BoolArray, payoffs: FloatArray, noise: FloatArray | None = None, *, players: tuple[str, ...] | None = None
) -> Estimate:
    """Shapley values from whatever coalitions are known; exact if all are.

    Parameters
    ----------
    members : array (C, K)
        Distinct coalitions, the empty and the grand one among them.
    payoffs : array (C, T)
        Any constant may be added to a column: only differences matter.
    noise : array (C, T), optional
        Variance of each payoff, independent between coalitions.
    players : tuple of str, optional
        Names, for messages.

    Raises
    ------
    DataError
        If the empty or the grand coalition is missing, or the others cannot tell the players apart.
    """
    count, width = members.shape
    if count == 2**width:
        order = np.argsort(masks_of(members))
        values = exact_shapley(payoffs[order])
        stderr = np.zeros_like(values) if noise is None else np.sqrt(exact_variance(noise[order]))
        return Estimate(values, stderr, "exact")
    if count > MOST:
        raise DataError(f"{count} coalitions are more than the {MOST} that can be estimated from", hint="sample fewer")
    _check_identified(members, players or tuple(f"player {i}" for i in range(width)))
    values, stderr = kriged_shapley(members, payoffs, noise)
    sizes = members.sum(axis=1)
    total = payoffs[sizes.argmax()] - payoffs[sizes.argmin()]
    values += (total - values.sum(axis=0)) / width  # what rounding left: efficiency holds exactly
    return Estimate(values, stderr, "smooth")


def exact_variance(noise: FloatArray) -> FloatArray:
    """Variance (K, T) of exact Shapley values from the variance (2**K, T) of each coalition's payoff."""
    squares = joining_weights(len(noise).bit_length() - 1) ** 2
    return contract(noise, np.append(0.0, squares), np.append(squares, 0.0))


def sample_coalitions(players: int, samples: int, generator: np.random.Generator) -> BoolArray:
    """Draw coalitions in complementary pairs, without replacement; the empty and the grand one come first.

    Returns
    -------
    array (2 + samples, K)
        One coalition fewer if `samples` is odd; all 2**K in the order of their bitmasks if `samples` allows.
    """
    if samples >= 2**players - 2:
        return members_of(np.arange(2**players), players)
    if samples < 2 * players:
        raise UsageError(f"{samples} samples are too few for {players} players, expected {2 * players} or more")
    drawn = [np.zeros((1, players), dtype=bool)]
    for size, quota in enumerate(_quotas(players, samples // 2), start=1):
        drawn.append(_draw(players, size, quota, generator))
    half = np.concatenate(drawn)
    return np.stack([half, ~half], axis=1).reshape(-1, players)


def _quotas(players: int, pairs: int) -> IntArray:
    """How many pairs of each size 1 .. K // 2: all single players, then in proportion to `1 / (s (K - s))`."""
    size = np.arange(1, players // 2 + 1)
    capacity = np.array([comb(players, s) // (2 if 2 * s == players else 1) for s in size], dtype=float)
    share = np.where(2 * size == players, 0.5, 1.0) / (size * (players - size))
    quota = np.zeros(len(size))
    quota[0] = capacity[0]
    while (open_ := quota < capacity).any() and (left := pairs - quota.sum()) > 0.5:
        wanted = left * share * open_ / share[open_].sum()
        step = np.floor(wanted) if wanted.max() >= 1 else (np.arange(len(size)) == wanted.argmax())
        quota = np.minimum(capacity, quota + step)
    return quota.astype(np.int64)


def _draw(players: int, size: int, quota: int, generator: np.random.Generator) -> BoolArray:
    """Distinct coalitions (quota, K) of one size, no two of them complementary."""
    halved = 2 * size == players  # of each pair of complements, the one that holds player 0
    possible = comb(players, size) // (2 if halved else 1)
    if possible <= 4 * quota:
        chosen = np.array(list(combinations(range(players), size))[:possible])
        rows = (chosen[:, :, None] == np.arange(players)).any(axis=1)
        return rows[generator.permutation(possible)[:quota]]
    found = np.zeros((0, players), dtype=bool)
    while len(found) < quota:
        ranks = generator.random((2 * quota, players)).argsort(axis=1)
        fresh = ranks < size
        fresh = np.where(fresh[:, :1] | (not halved), fresh, ~fresh)
        found = np.concatenate([found, fresh])
        _, first = np.unique(np.packbits(found, axis=1), axis=0, return_index=True)
        found = found[np.sort(first)]
    return found[:quota]


def _check_identified(members: BoolArray, players: tuple[str, ...]) -> None:
    """Raise a DataError unless the coalitions (C, K) can tell every player's value.

    The empty and the grand coalition must be there (efficiency hangs on them), the membership matrix must have
    rank K, and one coalition more is needed to see how far payoffs are from additive.
    """
    sizes = members.sum(axis=1)
    count = members.shape[1]
    for size, name in ((0, "empty coalition (the untrained model)"), (count, "coalition of all players")):
        if size not in sizes:
            raise DataError(f"the {name} is missing", hint="its payoff fixes the sum of the values: measure it")
    rank = int(np.linalg.matrix_rank(members.astype(float)))
    if rank < count:
        pairs = [pair for pair in combinations(range(count), 2) if (members[:, pair[0]] == members[:, pair[1]]).all()]
        twins = "; nor ".join(f"{players[a]} and {players[b]}" for a, b in pairs)
        low = f"the {len(members)} coalitions have rank {rank}, too low for {count} players"
        hint = "add coalitions that hold one but not the other"
        raise DataError(f"no coalition separates {twins}" if twins else low, hint=hint)
    if len(members) < count + 2:
        raise DataError(f"{len(members)} coalitions cannot support {count} values, expected {count + 2} or more")
