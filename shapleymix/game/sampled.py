"""Shapley values where not every coalition is known: choose coalitions, evaluate them, estimate.

K players, T targets, S coalitions asked for, C coalitions known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, compress
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Shown
from shapleymix.errors import DataError, UsageError
from shapleymix.game.exact import contract, exact_shapley, joining_weights, masks_of, members_of
from shapleymix.game.kernel import kernel_shapley
from shapleymix.game.smooth import smooth_shapley
from shapleymix.records import BoolArray, FloatArray, IntArray

Method = Literal["auto", "smooth", "kernel"]
SMOOTH_LIMIT = 2000  # coalitions: beyond, the cubic cost of the smooth model is felt (5 s), and `auto` leaves it


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
        `exact`, `smooth` or `kernel`.
    coalitions : int
        How many coalitions were used, the empty and the grand one included.
    """

    values: FloatArray
    stderr: FloatArray
    method: str
    coalitions: int


def sampled_shapley(
    payoff: Callable[[BoolArray], ArrayLike],
    players: int,
    samples: int,
    seed: int | np.random.Generator = 0,
    *,
    method: Method = "auto",
) -> Estimate:
    """Shapley values from a limited number of evaluations of a game.

    Coalitions are drawn without replacement, each with its complement; all single players come first, then the
    sizes share the budget as in KernelSHAP. With `samples >= 2**players - 2` the values are exact.

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
    method : {"auto", "smooth", "kernel"}
        `smooth` is the more accurate one at every budget, `kernel` the one for many thousands of coalitions;
        `auto` takes `smooth` up to 2000 coalitions.

    Raises
    ------
    UsageError
        If there are too few samples.
    DataError
        If the callable returns the wrong shape or a payoff that is not finite.
    """
    members = sample_coalitions(players, samples, np.random.default_rng(seed))
    names = tuple(f"player {i}" for i in range(players))
    return estimate_shapley(members, _evaluate(payoff, members, names), players=names, method=method)


def estimate_shapley(
    members: BoolArray,
    payoffs: FloatArray,
    noise: FloatArray | None = None,
    *,
    players: tuple[str, ...] | None = None,
    method: Method = "auto",
) -> Estimate:
    """Shapley values from whatever coalitions are known.

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
    method : {"auto", "smooth", "kernel"}
        As in `sampled_shapley`; all coalitions give exact values under each.

    Raises
    ------
    DataError
        If the empty or the grand coalition is missing, or the others cannot tell the players apart.
    """
    count, width = members.shape
    if method not in ("auto", "smooth", "kernel"):
        raise UsageError(f"unknown method {method!r}", hint="known: auto, smooth, kernel")
    if count == 2**width:
        return _exact_estimate(members, payoffs, noise)
    _check_identified(members, players or tuple(f"player {i}" for i in range(width)))
    smooth = method == "smooth" or (method == "auto" and count <= SMOOTH_LIMIT)
    values, stderr = (smooth_shapley if smooth else kernel_shapley)(members, payoffs, noise)
    sizes = members.sum(axis=1)
    total = payoffs[sizes.argmax()] - payoffs[sizes.argmin()]
    return Estimate(_keep_efficiency(values, total), stderr, "smooth" if smooth else "kernel", count)


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
        found = _distinct(np.concatenate([found, fresh]))
    return found[:quota]


def _distinct(members: BoolArray) -> BoolArray:
    """Rows without repetitions, in the order of their first appearance."""
    _, first = np.unique(np.packbits(members, axis=1), axis=0, return_index=True)
    return members[np.sort(first)]


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


def _exact_estimate(members: BoolArray, payoffs: FloatArray, noise: FloatArray | None) -> Estimate:
    order = np.argsort(masks_of(members))
    values = exact_shapley(payoffs[order])
    stderr = np.zeros_like(values) if noise is None else np.sqrt(exact_variance(noise[order]))
    return Estimate(values, stderr, "exact", len(members))


def _keep_efficiency(values: FloatArray, total: FloatArray) -> FloatArray:
    """Share among all players what rounding left between the sum of their values (K, T) and the total (T,)."""
    return values + (total - values.sum(axis=0)) / len(values)


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
        raise DataError(_confusion(members, players, rank), hint="add coalitions that hold one but not the other")
    if len(members) < count + 2:
        message = f"{len(members)} coalitions cannot support {count} values with standard errors"
        raise DataError(message, hint=f"at least {count + 2} are needed, several times as many are comfortable")


def _confusion(members: BoolArray, players: tuple[str, ...], rank: int) -> str:
    """Name players that no coalition separates, or state the rank if no two columns are equal."""
    _, label, count = np.unique(members, axis=1, return_inverse=True, return_counts=True)
    twins = [
        " and ".join(name for name, own in zip(players, label.ravel(), strict=True) if own == group)
        for group in np.flatnonzero(count > 1)
    ]
    if twins:
        return f"no coalition separates {'; nor '.join(twins)}"
    return f"the {len(members)} coalitions have rank {rank}, too low for {len(players)} players"
