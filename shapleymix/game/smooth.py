"""Shapley values from some of the coalitions, by a smooth model of the payoffs of the others.

Payoffs are a linear trend in the players plus a Gaussian process over coalitions whose covariance falls with the
number of players in which two coalitions differ, `tau^2 rho^|S xor S'|` (universal kriging on the hypercube). A
Shapley value is a linear functional of the game, so its posterior mean and variance given the coalitions seen are
closed forms: no other coalition is ever enumerated. The mean interpolates the coalitions seen, hence efficiency is
exact, and with all coalitions it is the exact value. `rho` says how fast interactions of higher order fade
(`((1 - rho) / (1 + rho))^order`); it is averaged over a grid by its restricted marginal likelihood, per target.

K players, T targets, C coalitions seen, G grid points of rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from shapleymix.records import BoolArray, FloatArray

RHO_GRID = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_JITTER = 1e-9  # keeps the covariance positive definite near rho = 1; payoffs never have nine digits


def smooth_shapley(
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
    posteriors = [_posterior(members, payoffs, rho) for rho in RHO_GRID]
    shares = _shares(np.stack([each.log_evidence for each in posteriors]))
    values = np.einsum("gt,gkt->kt", shares, np.stack([each.values for each in posteriors]))
    spread = np.stack([each.variance + (each.values - values) ** 2 for each in posteriors])
    variance = np.einsum("gt,gkt->kt", shares, spread)
    if noise is not None:
        squares = np.stack([each.weights**2 for each in posteriors])
        variance += np.einsum("gt,gkc,ct->kt", shares, squares, noise, optimize=True)
    return values, np.sqrt(variance)


Real = NDArray[np.floating]


@dataclass(frozen=True)
class _Posterior:
    """Given rho: values and variance (K, T), the values' weights on the payoffs (K, C), log evidence (T,)."""

    values: FloatArray
    variance: FloatArray
    weights: FloatArray
    log_evidence: FloatArray


def _posterior(members: BoolArray, payoffs: FloatArray, rho: float) -> _Posterior:
    """Universal kriging of the functional `payoffs -> Shapley values` with trend 1 + players."""
    count, players = members.shape
    influence = _influence(players, rho)
    factor = np.linalg.cholesky(_correlation(members, rho))
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
    unit = 2 / players * influence.sum() - (cross_w**2).sum(axis=0) + (through_trend**2).sum(axis=0)
    return _Posterior(
        values=weights_w @ payoffs_w,
        variance=np.maximum(unit, 0.0)[:, None] * squares / max(freedom - 2, 1),
        weights=solve_triangular(factor, weights_w.T, lower=True, trans=1).T,
        log_evidence=_log_evidence(squares, freedom, factor, triangle),
    )


def _log_evidence(squares: FloatArray, freedom: int, factor: Real, triangle: Real) -> FloatArray:
    """Restricted log likelihood of each target, its scale tau profiled out."""
    volume = np.log(np.diag(factor)).sum() + np.log(np.abs(np.diag(triangle))).sum()
    return -0.5 * freedom * np.log(np.maximum(squares, np.finfo(float).tiny)) - volume


def _correlation(members: BoolArray, rho: float) -> FloatArray:
    indicator = members.astype(float)
    sizes = indicator.sum(axis=1)
    differing = sizes[:, None] + sizes - 2 * indicator @ indicator.T
    return rho**differing + _JITTER * np.eye(len(members))


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
    sizes = members.sum(axis=1)
    with_player = influence[np.maximum(sizes - 1, 0)][:, None]
    without = influence[np.minimum(sizes, len(influence) - 1)][:, None]
    return np.where(members, with_player, -without)


def _shares(log_evidence: FloatArray) -> FloatArray:
    """Posterior weights (G, T) of the grid points under a flat prior."""
    relative = np.exp(log_evidence - log_evidence.max(axis=0))
    return relative / relative.sum(axis=0)
