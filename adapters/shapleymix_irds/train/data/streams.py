"""A stream: the documents of one split of one language, end to end, cut into windows of `seq` tokens."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from shapleymix.errors import DataError, Location
from shapleymix.records import IntArray
from shapleymix_irds.train.data.documents import READ_AT_ONCE, Documents, digest_of


@dataclass(frozen=True)
class Stream(ABC):
    """Tokens end to end.

    Attributes
    ----------
    seq : int
        Tokens of a window.
    tokens, count : int
        How many tokens and documents there are.
    """

    seq: int
    tokens: int
    count: int

    @property
    def windows(self) -> int:
        """Whole windows; each needs one token more, the last one's target."""
        return max(self.tokens - 1, 0) // self.seq

    def window(self, number: int) -> np.ndarray:
        """Tokens (seq + 1,) of a window: inputs are all but the last, targets all but the first."""
        return self.stretch(number * self.seq, self.seq + 1)

    @abstractmethod
    def stretch(self, start: int, size: int) -> np.ndarray:
        """Some tokens that follow each other, as int64."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A hash of all documents in their order."""

    @abstractmethod
    def extremes(self) -> tuple[int, int, str | None]:
        """The least and the largest token of the language's files, and the file that has the larger fault of them."""


@dataclass(frozen=True)
class HeldStream(Stream):
    """A stream of documents whose stretches are known."""

    documents: Documents
    ends: IntArray  # cumulative lengths of the documents

    @classmethod
    def of(cls, documents: Documents, seq: int) -> HeldStream:
        """The stream of some documents."""
        ends = np.cumsum(documents.length)
        return cls(seq, int(ends[-1]) if len(ends) else 0, len(ends), documents, ends)

    def stretch(self, start: int, size: int) -> np.ndarray:
        stretch = np.empty(size, dtype=np.int64)
        document = int(np.searchsorted(self.ends, start, side="right"))
        filled, source = 0, self.documents
        while filled < size:
            skip = start + filled - int(self.ends[document] - source.length[document])
            begin = int(source.start[document]) + skip
            count = min(size - filled, int(source.length[document]) - skip)
            stretch[filled : filled + count] = source.parts[source.part[document]][begin : begin + count]
            filled, document = filled + count, document + 1
        return stretch

    @property
    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.documents.rows())

    def extremes(self) -> tuple[int, int, str | None]:
        found = [(*extremes(part), _file_of(part)) for part in self.documents.parts]
        low, high = min(found, default=(0, 0, None)), max(found, key=lambda one: one[1], default=(0, 0, None))
        return low[0], high[1], low[2] if low[0] < 0 else high[2]


@dataclass(frozen=True)
class FiledStream(Stream):
    """A stream that a prepared folder holds: its tokens lie in one file, of which windows alone are read.

    Reads go through the page cache, which ranks of a node share; a file that was cut meanwhile is an error and not a
    signal, as it would be where it is mapped.
    """

    file: Path
    dtype: np.dtype
    hash: str
    largest: int

    @property
    def digest(self) -> str:
        return self.hash

    def stretch(self, start: int, size: int) -> np.ndarray:
        width = self.dtype.itemsize
        raw = os.pread(self._opened, size * width, start * width)
        if len(raw) < size * width:
            message = f"ends before token {start + size:,} of {self.tokens:,}"
            raise DataError(message, location=Location(file=str(self.file)), hint="prepare the corpus again")
        return np.frombuffer(raw, self.dtype).astype(np.int64)

    def extremes(self) -> tuple[int, int, str | None]:
        return 0, self.largest, str(self.file.parent)

    @cached_property
    def _opened(self) -> int:
        try:
            number = os.open(self.file, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", location=Location(file=str(self.file))) from error
        weakref.finalize(self, os.close, number)
        return number


def extremes(tokens: np.ndarray) -> tuple[int, int]:
    """The least and the largest token; (0, 0) of none."""
    flat = np.asarray(tokens)
    blocks = [flat[at : at + READ_AT_ONCE] for at in range(0, len(flat), READ_AT_ONCE)]
    lows, highs = ([int(edge(block)) for block in blocks] for edge in (np.min, np.max))
    return min(lows, default=0), max(highs, default=0)


def _file_of(part: np.ndarray) -> str | None:
    return str(part.filename) if isinstance(part, np.memmap) else None
