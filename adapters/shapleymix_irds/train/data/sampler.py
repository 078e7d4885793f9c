"""Which window of which language comes next: exact ratios by deficit counters, for any number of ranks.

The whole state is how many sequences each language has given so far. From it follow the language of the next
sequence, the position in its corpus and the epoch; nothing depends on ranks, workers or the clock.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np

from shapleymix.records import FloatArray, IntArray

ROUNDS = 4


def deal(ratios_M: FloatArray, counts_M: IntArray, n: int) -> IntArray:
    """Languages of the next `n` sequences; `counts_M` is what was dealt before and is not changed.

    Each sequence goes to the language furthest behind its due, `p_i (n + 1) - count_i`, so that no count is
    ever a whole sequence or more above its due.
    """
    counts = counts_M.astype(np.float64)
    dealt = counts.sum()
    chosen = np.empty(n, dtype=np.int64)
    for turn in range(n):
        chosen[turn] = np.argmax(ratios_M * (dealt + turn + 1) - counts)
        counts[chosen[turn]] += 1
    return chosen


def shuffled(position: int, size: int, key: str) -> int:
    """Where a seeded permutation of `range(size)` puts `position`: a Feistel network, nothing stored."""
    half = max((max(size - 1, 1).bit_length() + 1) // 2, 1)
    mask = (1 << half) - 1
    keys = _round_keys(key)
    value = position
    while True:  # cycle walking: outside the range, permute again
        left, right = value >> half, value & mask
        for round_key in keys:
            left, right = right, left ^ (_mix(right ^ round_key) & mask)
        value = (left << half) | right
        if value < size:
            return value


@dataclass
class Sampler:
    """The stream of (language, window) pairs of one training run.

    Attributes
    ----------
    ratios : array (M,)
        The mixture, as shares of tokens; sums to 1.
    windows : int array (M,)
        Number of windows in each language's training split.
    """

    ratios: FloatArray
    windows: IntArray
    seed: int
    counts: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.ratios), dtype=np.int64)

    def take(self, n: int, rank: int = 0, ranks: int = 1) -> tuple[IntArray, IntArray]:
        """Languages and windows of a rank's share of the next `n` sequences; all of the `n` count as dealt."""
        languages = deal(self.ratios, self.counts, n)
        mine = share_of_rank(n, rank, ranks)
        before = self.counts + np.bincount(languages[: mine.start], minlength=len(self.counts))
        self.counts += np.bincount(languages, minlength=len(self.counts))
        places = np.empty(mine.stop - mine.start, dtype=np.int64)
        for turn, language in enumerate(languages[mine]):
            places[turn] = self.window(int(language), int(before[language]))
            before[language] += 1
        return languages[mine], places

    def window(self, language: int, count: int) -> int:
        """The window that is the `count`-th of its language: each epoch has an order of its own."""
        size = int(self.windows[language])
        epoch, position = divmod(count, size)
        return shuffled(position, size, f"{self.seed}/{language}/{epoch}")

    @property
    def epochs(self) -> FloatArray:
        """(M,), how often each language's training split was seen."""
        return self.counts / np.maximum(self.windows, 1)


def share_of_rank(n: int, rank: int, ranks: int) -> slice:
    """The part of a batch of `n` that a rank trains on; the first ranks have one more if need be."""
    base, extra = divmod(n, ranks)
    start = rank * base + min(rank, extra)
    return slice(start, start + base + (rank < extra))


def passes(n: int, micro_batch: int, ranks: int) -> int:
    """Passes of a step on every rank: as many as the largest share needs, since sharded ranks pass together."""
    return math.ceil(math.ceil(n / ranks) / micro_batch) if micro_batch else 1


def _round_keys(key: str) -> list[int]:
    digest = hashlib.sha256(key.encode()).digest()
    return [int.from_bytes(digest[8 * turn : 8 * turn + 8], "little") for turn in range(ROUNDS)]


def _mix(value: int) -> int:
    """A 64-bit integer hash (splitmix64's finaliser)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
