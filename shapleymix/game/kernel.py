"""Shapley values from some of the coalitions, by weighted least squares (KernelSHAP: Lundberg and Lee, 2017).

The additive game nearest to the payoffs under the weights `1 / (C(K, s) s (K - s))`, with the grand coalition's
payoff as a constraint, has the Shapley values as its coefficients. Coalitions of one size share the weight of
their size among those that were seen (post-stratification): each size then counts as it should.
Its cost is linear in the number of coalitions: the estimator for tens of thousands of them.
"""

from __future__ import annotations

from math import comb

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray

_ROUNDING = 1e-9  # the constraint's own direction is zero but for rounding, and must not be inverted


def kernel_shapley(
    members: BoolArray, payoffs: FloatArray, noise: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Constrained weighted least squares with sandwich standard errors.

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
    players = members.shape[1]
    sizes = members.sum(axis=1)
    inner = (sizes > 0) & (sizes < players)
    empty, full = sizes.argmin(), sizes.argmax()
    total = payoffs[full] - payoffs[empty]
    weight, seen = _stratum_weights(sizes[inner], players)
    share = sizes[inner, None] / players
    target = payoffs[inner] - payoffs[empty] - share * total
    root = np.sqrt(weight)[:, None]
    design = root * (members[inner] - share)  # rows sum to zero: the constraint is built in
    inverse = np.linalg.pinv(design, rcond=_ROUNDING)
    deviation = inverse @ (root * target)
    leverage = np.einsum("ck,kc->c", design, inverse)[:, None]
    residual = (root * target - design @ deviation) / np.maximum(1 - leverage, 0.1)
    unseen = 1 - seen if set(sizes) == set(range(players + 1)) else np.ones_like(seen)
    variance = inverse**2 @ (residual**2 * unseen[:, None])
    if noise is not None:
        variance += _noise(inverse * root.T, share[:, 0], noise[inner], noise[empty], noise[full])
    return deviation + total / players, np.sqrt(variance)


def _stratum_weights(sizes: IntArray, players: int) -> tuple[FloatArray, FloatArray]:
    """Weight of each coalition, and the part of all coalitions of its size that was seen.

    The part is a finite population correction; it means nothing where other sizes were not seen at all.
    """
    count = np.bincount(sizes, minlength=players)[sizes]
    possible = np.array([float(comb(players, size)) for size in range(players)])[sizes]
    return 1 / (sizes * (players - sizes) * count), count / possible


def _noise(
    weights: FloatArray, share: FloatArray, inner: FloatArray, empty: FloatArray, full: FloatArray
) -> FloatArray:
    """Variance from noise: the values are `weights` times inner payoffs plus multiples of the two end payoffs."""
    players = len(weights)
    of_full = 1 / players - weights @ share
    of_empty = -1 / players - weights @ (1 - share)
    return weights**2 @ inner + of_full[:, None] ** 2 * full + of_empty[:, None] ** 2 * empty
