"""Tokens that are on disk already: Megatron's `.bin` with `.idx`, or a flat `.npy`; mapped, never whole in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shapleymix.errors import DataError, Location
from shapleymix.records import IntArray
from shapleymix_irds.train.data.documents import READ_AT_ONCE, Documents, of_one_array, token_digest

UNMARKED_DOCUMENT = 8192  # tokens of a stretch that is split as one document where nothing marks the ends
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {
    1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16,
}  # fmt: skip


class Marked(NamedTuple):
    """Documents of one array by their stretches, before anything was read of them."""

    tokens: np.ndarray
    start: IntArray
    length: IntArray

    def part(self, start: int, stop: int | None) -> Marked:
        """Some of the documents, by number."""
        return Marked(self.tokens, self.start[start:stop], self.length[start:stop])

    def hashed(self) -> Iterator[Documents]:
        """The documents with their hashes, some at a time; a document's place is the hash of its tokens, whatever the
        file, the order or the type of number they come in."""
        ends = np.cumsum(self.length)
        cuts = np.searchsorted(ends, np.arange(READ_AT_ONCE, ends[-1] if len(ends) else 0, READ_AT_ONCE))
        bounds = np.unique([0, *cuts, len(ends)])
        for first, after in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield _hashed(self.part(first, after))


def _hashed(some: Marked) -> Documents:
    flat = np.asarray(some.tokens)  # slices of a memory map are slow to make
    stretches = zip(some.start.tolist(), some.length.tolist(), strict=True)
    digest = np.fromiter((token_digest(flat[at : at + size]) for at, size in stretches), np.uint64, len(some.start))
    return of_one_array(some.tokens, some.start, some.length, digest / 2.0**48, digest)


def read_megatron(path: Path) -> Marked:
    """The documents of Megatron's indexed data set `path` (.bin), whose index lies beside it; empty ones are left out.

    Raises
    ------
    DataError
        If the index is missing, of another format, or does not fit the data.
    """
    index = _read_index(path.with_suffix(".idx"), path)
    size = np.dtype(index.dtype).itemsize
    if not (held := path.stat().st_size):
        raise DataError("is empty", location=Location(file=str(path)))
    needed = int((index.pointer + index.length * size).max(initial=0))
    if held < needed:
        message = f"is shorter than its index says: {held:,} bytes, expected {needed:,}"
        raise DataError(message, location=Location(file=str(path)))
    tokens = np.memmap(path, dtype=index.dtype, mode="r", shape=(held // size,))
    ends = np.concatenate([[0], np.cumsum(index.length)])
    first, after = index.document[:-1], index.document[1:]
    filled = ends[after] > ends[first]
    return Marked(tokens, index.pointer[first[filled]] // size, (ends[after] - ends[first])[filled])


class MegatronIndex(NamedTuple):
    """What an .idx file says: length and first byte of each sequence; the sequence at which each document begins, and
    how many there are."""

    dtype: type
    length: IntArray
    pointer: IntArray
    document: IntArray


def _read_index(index: Path, data: Path) -> MegatronIndex:
    if not index.is_file():
        raise DataError("lacks its .idx file", location=Location(file=str(data)))
    raw = index.read_bytes()
    place = Location(file=str(index))
    if not raw.startswith(MEGATRON_MAGIC) or len(raw) < 34:
        raise DataError("is not a Megatron index (MMIDIDX)", location=place)
    _, code, sequences, ends = struct.unpack_from("<QBQQ", raw, 9)
    if code not in MEGATRON_TYPES or len(raw) < 34 + 12 * sequences + 8 * ends:
        raise DataError("is cut short, or its tokens are not integers", location=place)
    length = np.frombuffer(raw, "<i4", sequences, 34).astype(np.int64)
    pointer = np.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences).astype(np.int64)
    document = np.frombuffer(raw, "<i8", ends, 34 + 12 * sequences).astype(np.int64)
    found = MegatronIndex(MEGATRON_TYPES[code], length, pointer, document)
    if fault := _index_fault(found):
        raise DataError(fault, location=place)
    return found


def _index_fault(index: MegatronIndex) -> str | None:
    """What cannot be in an index, or None."""
    length, pointer, document = index.length, index.pointer, index.document
    if (length < 0).any():
        number = int(np.argmax(length < 0))
        return f"sequence {number} has {length[number]} tokens, expected 0 or more"
    size = np.dtype(index.dtype).itemsize
    if (bad := (pointer < 0) | (pointer % size != 0)).any():
        number = int(np.argmax(bad))
        return f"sequence {number} begins at byte {pointer[number]}, expected a multiple of {size} from 0 on"
    if not len(document) or document[0] or document[-1] != len(length) or (np.diff(document) < 0).any():
        return f"its documents do not begin at sequence 0 and end at {len(length)}, each after the one before"
    within = np.ones(len(length) + 1, dtype=bool)  # sequences that continue the document of the one before
    within[document] = False
    gap = np.flatnonzero(within[1:-1] & (pointer[1:] != pointer[:-1] + length[:-1] * size))
    return f"sequence {gap[0] + 1} does not follow the one before in its document" if len(gap) else None


def map_npy(path: Path) -> np.ndarray:
    """The tokens of a flat `.npy`.

    Raises
    ------
    DataError
        If the array is not flat or not of integers.
    """
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"is not a NumPy array: {error}", location=Location(file=str(path))) from error
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        message = f"holds {tokens.dtype} of {tokens.ndim} axes; token numbers are integers on one axis"
        raise DataError(message, location=Location(file=str(path)))
    return tokens


def mark_npy(tokens: np.ndarray, end: int | None, start: int = 0, stop: int | None = None) -> Marked:
    """The documents of a stretch of a flat array: each ends after the token `end`, or, without one, a document is a
    stretch of 8,192 tokens."""
    stop = len(tokens) if stop is None else stop
    bounds = np.unique(np.concatenate([[start], _stops(tokens[start:stop], end) + start, [stop]]))
    return Marked(tokens, bounds[:-1], np.diff(bounds))


def _stops(tokens: np.ndarray, end: int | None) -> IntArray:
    """Where documents end."""
    if end is None:
        return np.arange(0, len(tokens), UNMARKED_DOCUMENT)
    blocks = range(0, len(tokens), READ_AT_ONCE)
    found = [np.flatnonzero(tokens[at : at + READ_AT_ONCE] == end) + (at + 1) for at in blocks]
    return np.concatenate([np.zeros(0, np.int64), *found])


def cut_npy(tokens: np.ndarray, end: int | None, size: int) -> list[int]:
    """Where to cut an array into stretches of about `size` tokens, between two documents."""
    cuts = [0]
    while (wanted := cuts[-1] + size) < len(tokens):
        cuts.append(_next_bound(tokens, end, wanted))
    return [*(cut for cut in cuts if cut < len(tokens)), len(tokens)]


def _next_bound(tokens: np.ndarray, end: int | None, at: int) -> int:
    """The first place from `at` on at which a document begins."""
    if end is None:
        return -(-at // UNMARKED_DOCUMENT) * UNMARKED_DOCUMENT
    for block in range(at, len(tokens), READ_AT_ONCE):
        found = np.flatnonzero(tokens[block : block + READ_AT_ONCE] == end)
        if len(found):
            return block + int(found[0]) + 1
    return len(tokens)


def cut_documents(lengths: IntArray, size: int) -> list[int]:
    """Where to cut documents into groups of about `size` tokens, by number."""
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends, np.arange(size, ends[-1] if len(ends) else 0, size), side="left") + 1
    return [int(cut) for cut in np.unique([0, *cuts, len(lengths)]) if cut <= len(lengths)]
