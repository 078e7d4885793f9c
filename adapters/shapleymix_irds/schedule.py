"""Settings of a tracker, the steps that it evaluates (one of each block of m, by a seeded hash), and their price.

The choice depends on the seed and the block alone, so that a restart and another world size keep it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from shapleymix_irds.errors import TrackerError

AIM = 500  # evaluations in a run, where the budget allows (relative error about 5% measured at that many)

# What an evaluated step takes beside validation, as a part of a plain step: calls, and a multiplication of a sketch
# over one of the model's. Measured without validation (`bench_irds.py`): .33 at width 64, .20 at 128, .11 at 256, .06
# at 512 and .04 at 768; reckoned are .35, .20, .11, .06 and .04; with 16,384 words .33 at width 64 (.34), with 32,768
# .08 at 256 (.11).
CALLS, MULTIPLICATION = 0.01, 1.7
PASS = 0.5  # of a plain step: a backward pass of one language, where a parameter needs them (K = 8: 4.8 steps measured)


@dataclass(frozen=True)
class Options:
    """Settings of a tracker beyond the common ones.

    Attributes
    ----------
    seed : int
        Seed of the evaluated steps and of the rotation of the validation set.
    val_sequences : int
        Validation sequences of each language at an evaluation; the set rotates, so that few suffice. Ranks divide
        them; with more ranks than sequences, each takes one.
    overhead : float
        With `every="auto"`: the share of a plain run's time that may be added.
    total_steps : int, optional
        Length of the run, if known: helps `every="auto"` not to evaluate more often than is useful.
    ignore_index : int
        Labels in `y` that carry no loss (they are not counted as tokens).
    side : int
        Numbers that each row of a matrix's gradient is brought to, r; 4 times as many in the output layer, 8 times in
        layers that are given the embeddings, 16 times in embeddings (engine "sketch"; see `sketches`).
    measure_sequences : int
        Validation sequences of each language on which the loss drop of the run is measured (for calibration).
    pass_tokens : int
        Validation tokens that pass the model at a time, at most, or one sequence: no more than you train with, so that
        they take no more memory.

    Raises
    ------
    TrackerError
        If one of them is not above 0.
    """

    seed: int = 0
    val_sequences: int = 8
    overhead: float = 0.05
    total_steps: int | None = None
    ignore_index: int = -100
    side: int = 8
    measure_sequences: int = 64
    pass_tokens: int = 8192

    def __post_init__(self) -> None:
        for name in ("val_sequences", "overhead", "side", "measure_sequences", "pass_tokens"):
            if not getattr(self, name) > 0:
                raise TrackerError(f"{name} is {getattr(self, name)}: it must be above 0")


def check_settings(languages: Sequence[str], every: object, engine: str) -> None:
    """Refuse settings of `IRDS` that cannot be meant.

    Raises
    ------
    TrackerError
        Naming the setting.
    """
    if not languages or len(set(languages)) < len(languages):
        raise TrackerError("the tracker needs languages, each once", hint=f"given: {', '.join(languages)}")
    if every != "auto" and not (isinstance(every, int) and every >= 1):
        raise TrackerError(f"every is {every!r}: it must be 'auto' or a whole number from 1 on")
    if engine not in ("auto", "sketch", "exact"):
        raise TrackerError(f"engine is {engine!r}: it must be 'auto', 'sketch' or 'exact'")


@dataclass(frozen=True)
class Schedule:
    """One evaluated step in each block of `every` steps."""

    every: int
    seed: int = 0

    @classmethod
    def planned(cls, extra: float, options: Options) -> Schedule:
        """With the least m that holds `options.overhead`, where an evaluated step costs so much more (in plain ones).

        Where the length of the run is known, m grows until about `AIM` evaluations are left.
        """
        least = max(1, math.ceil(extra / options.overhead))
        return cls(max(least, (options.total_steps or 0) // AIM), options.seed)

    def chosen(self, block: int) -> int:
        """The evaluated step of block `block` (steps `block * every` to `(block + 1) * every - 1`)."""
        key = f"shapleymix-irds:{self.seed}:{self.every}:{block}".encode()
        offset = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") % self.every
        return block * self.every + offset

    def evaluates(self, step: int) -> bool:
        """Whether `step` (counted from 0) is evaluated."""
        return step == self.chosen(step // self.every)


def extra_cost(tokens: float, val_tokens: float, share: float, passes: int = 0) -> float:
    """Extra time of one evaluated step as a fraction of a plain step, by the cost model.

    Parameters
    ----------
    tokens, val_tokens : float
        Tokens of one training step and of one evaluation (none where it is validation-free), on one rank or on all.
    share : float
        Multiplications of sketches over those of a plain step (`sketches.share_of_step`).
    passes : int
        Backward passes that it takes besides, one a language where a parameter is in calls that are not covered.
    """
    return val_tokens / tokens + CALLS + MULTIPLICATION * share + PASS * passes * (1 + val_tokens / tokens)
