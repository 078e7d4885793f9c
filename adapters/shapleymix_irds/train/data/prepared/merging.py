"""The pieces of a language, put end to end.

How far that has come is in the lengths of the files themselves: whatever is cut short is what a piece had begun to add,
and is added again. A piece is removed once it is in place, so that the disk never holds all of a language twice.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from shapleymix.errors import DataError, Location
from shapleymix_irds.train.data.documents import ROW, ROWS_AT_ONCE, SPLITS, digest_of
from shapleymix_irds.train.data.prepared.folder import ANEW, Place, Plan
from shapleymix_irds.train.data.prepared.manifest import FULL, Language, Split
from shapleymix_irds.train.data.prepared.writing import Written, part_file
from shapleymix_irds.train.disk import disk_errors

COPIED_AT_ONCE = 1 << 24  # bytes


class Merge(NamedTuple):
    """A language all of whose pieces are written."""

    place: Place
    language: str
    plan: Plan
    pieces: list[Written]


def merge(task: Merge) -> Language:
    """Make the streams of a language of its pieces; its record comes last.

    Raises
    ------
    DataError
        If a split is empty, or a piece is not what it was.
    UsageError
        If the disk does not take it.
    """
    goal = task.place.language(task.language)
    with disk_errors(goal.parent, FULL):
        goal.parent.mkdir(exist_ok=True)
        train, val, test = (_merge_split(task, number) for number in range(len(SPLITS)))
    largest = max(piece.largest for piece in task.pieces)
    language = Language(task.plan.dtype, largest, train, val, test, task.plan.files)
    language.save(goal, force=True)
    shutil.rmtree(task.place.parts(task.language), ignore_errors=True)
    return language


def _merge_split(task: Merge, number: int) -> Split:
    split, width = SPLITS[number], np.dtype(task.plan.dtype).itemsize
    tokens = np.cumsum([0, *(piece.tokens[number] for piece in task.pieces)])
    documents = np.cumsum([0, *(piece.documents[number] for piece in task.pieces)])
    paths = [task.place.stream(task.language, split, ending) for ending in ("tokens", "documents")]
    with _open(paths[0]) as token_stream, _open(paths[1]) as row_stream:
        held = min(
            _whole(token_stream, tokens * width),
            _whole(row_stream, documents * ROW.itemsize),
        )
        token_stream.truncate(int(tokens[held]) * width)
        row_stream.truncate(int(documents[held]) * ROW.itemsize)
        for stream in (token_stream, row_stream):
            stream.seek(0, os.SEEK_END)
        for piece in range(held, len(task.pieces)):
            files = [part_file(task.place.parts(task.language), piece, split, end) for end in ("tokens", "documents")]
            _check(files[0], task.pieces[piece].tokens[number] * width)
            _check(files[1], task.pieces[piece].documents[number] * ROW.itemsize)
            _append_tokens(token_stream, files[0])
            _append_rows(row_stream, files[1], int(tokens[piece]))
            for file in files:
                file.unlink()
    return Split(int(tokens[-1]), int(documents[-1]), digest_of(map_rows(paths[1])))


def map_rows(path: Path) -> np.ndarray:
    """The rows of a stream's documents, mapped."""
    return np.memmap(path, ROW, "r") if path.stat().st_size else np.zeros(0, ROW)


def _open(path: Path) -> IO[bytes]:
    return path.open("r+b" if path.exists() else "w+b")


def _whole(stream: IO[bytes], bounds: np.ndarray) -> int:
    """How many pieces are in a stream to their ends."""
    return int(np.searchsorted(bounds, stream.seek(0, os.SEEK_END), side="right")) - 1


def _check(file: Path, expected: int) -> None:
    held = file.stat().st_size if file.exists() else -1
    if held != expected:
        what = "is missing" if held < 0 else f"holds {held:,} bytes, expected {expected:,}"
        raise DataError(what, location=Location(file=str(file)), hint=ANEW)


def _append_tokens(stream: IO[bytes], file: Path) -> None:
    with file.open("rb") as source:
        shutil.copyfileobj(source, stream, COPIED_AT_ONCE)
    _sync(stream)


def _append_rows(stream: IO[bytes], file: Path, before: int) -> None:
    """Add rows of a piece, whose ends are counted from its own begin."""
    rows = map_rows(file)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        some = np.array(rows[at : at + ROWS_AT_ONCE])
        some["end"] += before
        stream.write(some.data)
    _sync(stream)


def _sync(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())
