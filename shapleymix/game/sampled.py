"""Shapley values where not every coalition is known: choose coalitions, evaluate them, estimate.

K players, T targets, S coalitions asked for, C coalitions known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, compress
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Shown
from shapleymix.errors import DataError, UsageError
from shapleymix.game.exact import contract, exact_shapley, joining_weights, masks_of, members_of
from shapleymix.game.smooth import smooth_shapley
from shapleymix.records import BoolArray, FloatArray, IntArray

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
    coalitions : int
        How many coalitions were used, the empty and the grand one included.
    """

    values: FloatArray
    stderr: FloatArray
    method: str
    coalitions: int


def sampled_shapley(
    payoff: Callable[[BoolArray], ArrayLike], players: int, samples: int, seed: int | np.random.Generator = 0
) -> Estimate:
    """Shapley values from a limited number of evaluations of a game.

    Coalitions are drawn without replacement, each with its complement; all single players come first, then the
    sizes share the budget as in KernelSHAP (Lundberg and Lee, 2017). With `samples >= 2**players - 2` the values are
    exact. The cost is cubic in the number of coalitions: 5 s for 2,000.

    Parameters
    ----------
    payoff : callable
        Takes coalitions as membership (S, K) and returns payoffs (S, T), or (S,) for one target.
    players : int
        K, at least 2.
    samples : int
        Coalitions to evaluate besides the empty and the grand one; at least 2 K (all are taken if there are fewer).
    seed : int or Generator
        Seed of the draw of coalitions, or the generator to draw from.

    Raises
    ------
    UsageError
        If there are too few samples.
    DataError
        If the callable returns the wrong shape or a payoff that is not finite.
    """
    members = sample_coalitions(players, samples, np.random.default_rng(seed))
    names = tuple(f"player {i}" for i in range(players))
    return estimate_shapley(members, _evaluate(payoff, members, names), players=names)


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
        return Estimate(values, stderr, "exact", count)
    if count > MOST:
        raise DataError(f"{count} coalitions are more than the {MOST} that can be estimated from", hint="sample fewer")
    _check_identified(members, players or tuple(f"player {i}" for i in range(width)))
    values, stderr = smooth_shapley(members, payoffs, noise)
    sizes = members.sum(axis=1)
    total = payoffs[sizes.argmax()] - payoffs[sizes.argmin()]
    values += (total - values.sum(axis=0)) / width  # what rounding left: efficiency holds exactly
    return Estimate(values, stderr, "smooth", count)


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
        message = f"{samples} samples are too few for {players} players"
        raise UsageError(message, hint=f"at least {min(2 * players, 2**players - 2)} are needed")
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
        rows = np.zeros((possible, players), dtype=bool)
        chosen = combinations(range(players), size)
        for row, held in zip(rows, chosen, strict=False):
            row[list(held)] = True
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


def _evaluate(payoff: Callable[[BoolArray], ArrayLike], members: BoolArray, names: tuple[str, ...]) -> FloatArray:
    values = np.asarray(payoff(members), dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(members):
        message = f"the payoff function returned shape {values.shape} for {len(members)} coalitions"
        raise DataError(message, hint="return an array (coalitions, targets)")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, target = bad[0]
        held = "+".join(compress(names, members[row])) or "nobody"
        raise DataError(f"the payoff of coalition {held} on target {target} is {values[row, target]}")
    return values


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
        message = f"{len(members)} coalitions cannot support {count} values with standard errors"
        raise DataError(message, hint=f"at least {count + 2} are needed, several times as many are comfortable")
