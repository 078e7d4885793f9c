"""Which steps are evaluated: one step of each block of m, chosen by a seeded hash, weighted by m.

The choice depends on the seed and the block alone, so that a restart and another world size keep it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

AIM = 500  # evaluations in a run, where the budget allows (relative error about 5% measured at that many)

# What an evaluated step takes beside validation, as a part of a plain step: calls, and a multiplication of a sketch
# over one of the model's. Measured (CPU, two groups a language): .40 for `tiny`, .47 for `mini`, .60 for `small`, where
# the share is a third, and .14 where it is .09.
CALLS, MULTIPLICATION = 0.1, 1.2


@dataclass(frozen=True)
class Schedule:
    """One evaluated step in each block of `every` steps."""

    every: int
    seed: int = 0

    def chosen(self, block: int) -> int:
        """The evaluated step of block `block` (steps `block * every` to `(block + 1) * every - 1`)."""
        key = f"shapleymix-irds:{self.seed}:{self.every}:{block}".encode()
        offset = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") % self.every
        return block * self.every + offset

    def evaluates(self, step: int) -> bool:
        """Whether `step` (counted from 0) is evaluated."""
        return step == self.chosen(step // self.every)


def extra_cost(tokens: float, val_tokens: float, share: float) -> float:
    """Extra time of one evaluated step as a fraction of a plain step, by the cost model.

    Parameters
    ----------
    tokens, val_tokens : float
        Tokens of one training step and of one evaluation (none where it is validation-free), on one rank or on all.
    share : float
        Multiplications of sketches over those of a plain step (`engines.sketches.share_of_step`).
    """
    return val_tokens / tokens + CALLS + MULTIPLICATION * share


def choose_every(extra: float, overhead: float, total_steps: int | None) -> int:
    """The least m that holds the overhead under `overhead` and does not evaluate more often than is useful.

    Parameters
    ----------
    extra : float
        Extra cost of an evaluated step, as `extra_cost` gives it.
    overhead : float
        The share of a plain run's time that may be added, for example 0.05.
    total_steps : int, optional
        Length of the run in steps, if known: then m grows until about `AIM` evaluations are left.
    """
    least = max(1, math.ceil(extra / overhead))
    return least if total_steps is None else max(least, total_steps // AIM)
