"""Exact Shapley values of a game given as a table of all its coalitions.

Notation: K players, T targets, S a coalition of s players, `v` the payoffs (2**K, T). The row of a coalition
is its bitmask: bit i is player i, row 0 is the empty coalition.

Every sum here has the form `sum over S of c(s, i in S) v(S)`. It is split into a part that is common to all
players and a part over the coalitions that hold player i, and the second part comes for all players from one
table that is folded in half K times: O(2**K T) in all, where a loop over players costs K times as much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import binom

from shapleymix.errors import DataError
from shapleymix.records import BoolArray, FloatArray, IntArray

MAX_PLAYERS = 24


def exact_shapley(payoffs: ArrayLike) -> FloatArray:
    """Shapley values from the payoffs of all coalitions.

    `phi[i, j] = sum over S without i of s! (K - s - 1)! / K! * (v_j(S + i) - v_j(S))` (Shapley, 1953).

    Parameters
    ----------
    payoffs : array (2**K, T)
        Payoff of every coalition on every target, in nats; the row index is the coalition's bitmask.

    Returns
    -------
    array (K, T)
        In the unit of the payoffs. Columns sum to `payoffs[-1] - payoffs[0]` to rounding (efficiency).

    Raises
    ------
    DataError
        If the number of rows is no power of two, K exceeds 24, or a payoff is not finite.
    """
    table = np.asarray(payoffs)
    if table.ndim != 2 or table.dtype.kind not in "fiub":
        raise DataError(f"payoffs must be a numeric (2**K, T) array, not {table.dtype} of shape {table.shape}")
    rows, targets = table.shape
    if rows < 2 or rows & (rows - 1):
        raise DataError(f"payoffs has {rows} rows, expected one for every coalition, 2**K, in the order of bitmasks")
    refuse_too_many(rows.bit_length() - 1, targets)
    joining = joining_weights(rows.bit_length() - 1)
    with np.errstate(invalid="ignore", over="ignore"):  # told by name below
        values = contract(table, np.append(0.0, joining), np.append(-joining, 0.0))
    if not np.isfinite(values).all():
        raise DataError("a payoff is not a finite number", hint="measure it, or ask for sampled values")
    return values


def joining_weights(players: int) -> FloatArray:
    """Weight of joining a coalition of s players, `s! (K - s - 1)! / K!` for s = 0 .. K - 1."""
    return 1 / (players * binom(players - 1, np.arange(players)))


def contract(table: FloatArray, member: FloatArray, absent: FloatArray) -> FloatArray:
    """Sum a table of coalitions with weights that depend on a coalition's size and on player i's membership.

    `out[i] = sum over S with i of member[s] table[S] + sum over S without i of absent[s] table[S]`.

    Parameters
    ----------
    table : array (2**K, T)
        Values of the coalitions, in the order of their bitmasks.
    member, absent : array (K + 1,)
        Weights by the size of the coalition, where player i is in it and where not.

    Returns
    -------
    array (K, T)
        The sums for each player and target.
    """
    sizes = np.bitwise_count(np.arange(len(table)))
    return _sums_by_member((member - absent)[sizes][:, None] * table) + absent[sizes] @ table


def members_of(masks: IntArray, players: int) -> BoolArray:
    """Membership (S, K) of coalitions given as bitmasks."""
    return ((masks[:, None] >> np.arange(players)) & 1).astype(bool)


def masks_of(members: BoolArray) -> IntArray:
    """Bitmasks of coalitions given by membership (S, K); the inverse of `members_of`."""
    return members @ (np.int64(1) << np.arange(members.shape[1], dtype=np.int64))


def name_coalition(mask: int, players: tuple[str, ...]) -> str:
    """`en+zh` for the coalition of en and zh; `nobody` for the empty one."""
    return "+".join(name for bit, name in enumerate(players) if mask >> bit & 1) or "nobody"


def refuse_too_many(players: int, targets: int) -> None:
    """Raise a DataError, with the memory that a full game would take, if there are too many players."""
    if players > MAX_PLAYERS:
        gib = 2.0**players * max(targets, 1) * 8 / 2**30
        message = f"{players} players have 2^{players} coalitions, {gib:,.0f} GiB of payoffs; {MAX_PLAYERS} is the most"
        raise DataError(message, hint="merge languages into families, or ask for sampled values")


def _sums_by_member(table: FloatArray) -> FloatArray:
    """For each player, the sum of the rows of the coalitions that hold it. (2**K, T) -> (K, T)."""
    sums = []
    while len(table) > 1:
        without, with_player = np.split(table, 2)
        sums.append(with_player.sum(axis=0))
        table = without + with_player
    return np.array(sums[::-1])
