"""What an estimator of Shapley values returns, and what it needs from the coalitions it is given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import DataError
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Estimate:
    """Estimated Shapley values.

    Attributes
    ----------
    values : (K, T)
        Columns sum to the grand coalition's payoff exactly, as exact values do.
    stderr : (K, T)
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


def keep_efficiency(values: FloatArray, total: FloatArray) -> FloatArray:
    """Share among all players what rounding left between the sum of their values (K, T) and the total (T,)."""
    return values + (total - values.sum(axis=0)) / len(values)


def check_identified(members: BoolArray, players: tuple[str, ...]) -> None:
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
