"""Batches of the next steps, made by a thread while the model trains on this one.

Which sequences a step has follows from the seed and from what was dealt before, never from the thread's pace: the
thread deals with a sampler of its own, and each step carries the counts after it, which is what a checkpoint keeps.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shapleymix.records import IntArray
from shapleymix_irds.train.data.corpus import Stream
from shapleymix_irds.train.data.evaluate import windows_of
from shapleymix_irds.train.data.sampler import Sampler, passes

AHEAD = 2  # steps that wait for the model


class Sequences(NamedTuple):
    """One micro-batch of one rank: inputs and targets (B, S), and the language of each sequence (B,)."""

    x: Tensor
    y: Tensor
    languages: Tensor

    def on(self, device: torch.device) -> Sequences:
        """The same on a device; from pinned memory the copy runs beside the computation."""
        return Sequences(*(part.to(device, non_blocking=True) for part in self))

    def pinned(self) -> Sequences:
        """The same in memory that a GPU reads by itself."""
        return Sequences(*(part.pin_memory() for part in self))


class Step(NamedTuple):
    """What one rank trains on in one step, and the sequences of each language that were dealt until after it."""

    pieces: list[Sequences]
    counts: IntArray


@dataclass(frozen=True)
class Share:
    """Which part of each global batch is this rank's, and how it is cut.

    Attributes
    ----------
    batch : int
        Sequences of a step, over all ranks.
    micro_batch : int
        Sequences of one pass; 0 for all of the rank's share at once.
    mixed : bool
        Whether languages are spread over the passes of a step, so that they meet; else passes hold few languages.
    """

    batch: int
    rank: int
    ranks: int
    micro_batch: int = 0
    mixed: bool = False

    def pieces(self, languages: IntArray) -> list[IntArray]:
        """Places of the sequences of each pass in the rank's share, whose languages are given."""
        order = np.argsort(languages, kind="stable")
        count = passes(self.batch, self.micro_batch, self.ranks)
        return [order[start::count] for start in range(count)] if self.mixed else np.array_split(order, count)


class Feed:
    """An iterator over steps, made ahead; a context, within which its thread lives.

    Parameters
    ----------
    streams : tuple of Stream
        The training stream of each language.
    sampler : Sampler
        What was dealt so far; it is copied, and not moved on.
    share : Share
        This rank's part of a batch.
    steps : int
        Steps that are left.
    pin : bool
        Whether batches are made in pinned memory.
    """

    def __init__(self, streams: tuple[Stream, ...], sampler: Sampler, share: Share, steps: int, *, pin: bool) -> None:
        self._streams, self._share, self._left, self._pin = streams, share, steps, pin
        self._sampler = copy.deepcopy(sampler)
        self._made: queue.Queue[Step | BaseException] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        with contextlib.suppress(queue.Empty):  # room for what the thread may be about to hand over
            while True:
                self._made.get_nowait()
        self._thread.join()

    def next(self) -> Step:
        """The next step. What the thread has met, such as a file that cannot be read, is raised here."""
        made = self._made.get()
        if isinstance(made, BaseException):
            raise made
        return made

    def _work(self) -> None:
        try:
            for step in self._steps():
                self._made.put(step)
                if self._closed.is_set():
                    return
        except BaseException as error:  # whatever it is, it belongs to the loop
            self._made.put(error)

    def _steps(self) -> Iterator[Step]:
        for _ in range(self._left):
            languages, places = self._sampler.take(self._share.batch, self._share.rank, self._share.ranks)
            pieces = [self._read(languages[piece], places[piece]) for piece in self._share.pieces(languages)]
            yield Step(pieces, self._sampler.counts.copy())

    def _read(self, languages: IntArray, places: IntArray) -> Sequences:
        windows = [windows_of(self._streams[language], places[at : at + 1]) for at, language in enumerate(languages)]
        x, y = (torch.cat(rows) for rows in zip(*windows, strict=True))
        made = Sequences(x, y, torch.from_numpy(languages))
        return made.pinned() if self._pin else made
