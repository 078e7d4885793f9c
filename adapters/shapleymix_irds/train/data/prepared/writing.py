"""A piece of a source, written as tokens and rows of its splits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from shapleymix.errors import DataError, Location, StoreError
from shapleymix.records import Record
from shapleymix_irds.train.data.documents import READ_AT_ONCE, SPLITS, Documents, split_of
from shapleymix_irds.train.data.pieces import read_piece
from shapleymix_irds.train.data.prepared.manifest import FULL, Settings
from shapleymix_irds.train.disk import disk_errors


@dataclass(frozen=True)
class Written(Record):
    """What a piece holds: tokens and documents of each split, and its largest token."""

    kind = "prepared-piece"

    tokens: tuple[int, int, int]
    documents: tuple[int, int, int]
    largest: int


class Task(NamedTuple):
    """A piece to write: a stretch of a source, and where to put it."""

    language: str
    source: Path
    start: int
    stop: int
    folder: Path
    number: int
    dtype: str
    settings: Settings

    def file(self, split: str, ending: str) -> Path:
        """The tokens or documents of a split of this piece."""
        return part_file(self.folder, self.number, split, ending)

    @property
    def record(self) -> Path:
        """The file that says that the piece is whole."""
        return self.folder / f"{self.number:06d}.json"


def part_file(folder: Path, number: int, split: str, ending: str) -> Path:
    """The tokens or documents of a split of a piece."""
    return folder / f"{number:06d}.{split}.{ending}"


def written(task: Task) -> Written | None:
    """What was written of a piece; None if it is not whole."""
    if not task.record.exists():
        return None
    with contextlib.suppress(StoreError):  # cut short when the machine went down
        return Written.load(task.record)
    return None


def write_piece(task: Task) -> Written:
    """Tokenise a piece; its record comes last, when all else is on disk.

    Raises
    ------
    DataError
        If the source is broken, or has a token that cannot be.
    UsageError
        If the disk does not take it.
    """
    with disk_errors(task.folder, FULL), contextlib.ExitStack() as stack:
        sinks = [_Sink(stack, task, split) for split in SPLITS]
        for documents in read_piece(task.source, task.settings.reading, task.start, task.stop):
            numbers = split_of(documents.place, task.settings.val_share, task.settings.test_share)
            for number, sink in enumerate(sinks):
                sink.add(documents.select(numbers == number))
        for sink in sinks:
            sink.sync()
    tokens, documents = ([getattr(sink, name) for sink in sinks] for name in ("tokens", "documents"))
    found = Written(_three(tokens), _three(documents), max(sink.largest for sink in sinks))
    found.save(task.record, force=True)
    return found


def _three(values: list[int]) -> tuple[int, int, int]:
    train, val, test = values
    return train, val, test


class _Sink:
    """The files of one split of a piece."""

    def __init__(self, stack: contextlib.ExitStack, task: Task, split: str) -> None:
        self._task, self._dtype = task, np.dtype(task.dtype).newbyteorder("<")
        self._tokens, self._rows = (
            stack.enter_context(_fresh(task.file(split, ending))) for ending in ("tokens", "documents")
        )
        self.tokens = self.documents = self.largest = 0

    def add(self, documents: Documents) -> None:
        """Write some documents."""
        self._rows.write(documents.rows(self.tokens).data)
        for block in _blocks(documents):
            self._check(block)
            self._tokens.write(np.ascontiguousarray(block, self._dtype).data)
        self.tokens += documents.tokens
        self.documents += len(documents.length)

    def sync(self) -> None:
        """Wait until all is on disk."""
        for stream in (self._tokens, self._rows):
            stream.flush()
            os.fsync(stream.fileno())

    def _check(self, block: np.ndarray) -> None:
        low, high = int(block.min()), int(block.max())
        most = int(np.iinfo(self._dtype).max)
        if low < 0 or high > most:
            message = f"language {self._task.language!r} has the token {low if low < 0 else high}, expected 0 to {most}"
            raise DataError(message, location=Location(file=str(self._task.source)))
        self.largest = max(self.largest, high)


def _fresh(path: Path) -> IO[bytes]:
    """A new file; one of that name that another process may still write stays its own."""
    path.unlink(missing_ok=True)
    return path.open("wb")


def _blocks(documents: Documents) -> Iterator[np.ndarray]:
    """All tokens in order, in arrays of bounded size, none empty."""
    if documents.tokens <= 2 * READ_AT_ONCE:
        if documents.tokens:
            yield documents.flat()
        return
    stretches = zip(documents.part.tolist(), documents.start.tolist(), documents.length.tolist(), strict=True)
    for part, start, size in stretches:
        for at in range(start, start + size, READ_AT_ONCE):
            yield documents.parts[part][at : min(at + READ_AT_ONCE, start + size)]
