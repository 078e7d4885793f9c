"""Which window of which language comes next, and the batches of each step, made while the model trains on the last one.

Ratios are exact, by deficit counters. The whole state is how many sequences each language has given so far: from it
follow the language of the next sequence, its window and the epoch; nothing depends on ranks, threads or the clock.
"""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shapleymix.records import FloatArray, IntArray
from shapleymix_irds.train.corpus import Stream
from shapleymix_irds.train.settings import Settings
from shapleymix_irds.train.world import World


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
    digest = hashlib.sha256(key.encode()).digest()
    keys = [int.from_bytes(digest[8 * turn : 8 * turn + 8], "little") for turn in range(4)]
    value = position
    while True:  # cycle walking: outside the range, permute again
        left, right = value >> half, value & mask
        for round_key in keys:
            left, right = right, left ^ (_mix(right ^ round_key) & mask)
        value = (left << half) | right
        if value < size:
            return value


def _mix(value: int) -> int:
    """A 64-bit integer hash (splitmix64's finaliser)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def share_of_rank(n: int, rank: int, ranks: int) -> slice:
    """The part of a batch of `n` that a rank trains on; the first ranks have one more if need be."""
    base, extra = divmod(n, ranks)
    start = rank * base + min(rank, extra)
    return slice(start, start + base + (rank < extra))


class Sampler:
    """The stream of (language, window) pairs of one training run.

    Parameters
    ----------
    ratios : array (M,)
        The mixture, as shares of tokens; sums to 1.
    windows : int array (M,)
        Number of windows in each language's training split.
    counts : int array (M,), optional
        Sequences of each language that were dealt before.
    """

    def __init__(self, ratios: FloatArray, windows: IntArray, seed: int, counts: IntArray | None = None) -> None:
        self.ratios, self.windows, self.seed = ratios, windows, seed
        self.counts = np.zeros(len(ratios), dtype=np.int64) if counts is None else counts.copy()

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


class Sequences(NamedTuple):
    """One micro-batch of one rank: inputs and targets (B, S), and the language of each sequence (B,)."""

    x: Tensor
    y: Tensor
    languages: Tensor


class Feed:
    """Batches of the next steps; a thread makes the next one while the model trains.

    Parameters
    ----------
    streams : tuple of Stream
        The training stream of each language.
    sampler : Sampler
        What deals the sequences; only the feed may use it from now on.
    """

    def __init__(self, streams: tuple[Stream, ...], sampler: Sampler, settings: Settings, world: World) -> None:
        self._streams, self._sampler, self._settings, self._world = streams, sampler, settings, world
        self._passes = passes(settings.batch, settings.micro_batch, world.size)
        self._pool = ThreadPoolExecutor(1, "feed")
        self._waiting: Future[tuple[list[Sequences], IntArray]] = self._pool.submit(self._make)

    def next(self) -> tuple[list[Sequences], IntArray]:
        """This rank's passes of the next step, and the sequences of each language (M,) that were dealt until after it.

        Errors are those of `Stream.window`.
        """
        made = self._waiting.result()
        self._waiting = self._pool.submit(self._make)
        return made

    def close(self) -> None:
        """Let the thread end."""
        self._pool.shutdown(cancel_futures=True)

    def _make(self) -> tuple[list[Sequences], IntArray]:
        languages, places = self._sampler.take(self._settings.batch, self._world.rank, self._world.size)
        order = np.argsort(languages, kind="stable")
        if self._settings.irds_fresh:  # the sequences of a language have to meet in a pass
            cut = [order[start :: self._passes] for start in range(self._passes)]
        else:
            cut = np.array_split(order, self._passes)
        return [self._read(languages[piece], places[piece]) for piece in cut], self._sampler.counts.copy()

    def _read(self, languages: IntArray, places: IntArray) -> Sequences:
        rows = [windows_of(self._streams[k], places[at : at + 1]) for at, k in enumerate(languages)]
        x, y = (torch.cat(parts) for parts in zip(*rows, strict=True))
        made = Sequences(x, y, torch.from_numpy(languages))
        return Sequences(*(part.pin_memory() for part in made)) if self._world.device.type == "cuda" else made


def passes(n: int, micro_batch: int, ranks: int) -> int:
    """Passes of a step on every rank: as many as the largest share needs, since sharded ranks pass together."""
    return math.ceil(math.ceil(n / ranks) / micro_batch) if micro_batch else 1


def spread(stream: Stream, most: int) -> IntArray:
    """At most `most` windows of a stream, evenly spread over it, always the same."""
    return np.unique(np.linspace(0, stream.windows - 1, min(most, stream.windows)).astype(np.int64))


def windows_of(stream: Stream, numbers: IntArray) -> tuple[Tensor, Tensor]:
    """Inputs and targets (n, seq) of some windows."""
    rows = torch.from_numpy(np.stack([stream.window(int(number)) for number in numbers]))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
