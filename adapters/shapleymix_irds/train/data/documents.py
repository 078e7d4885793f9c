"""Documents as stretches of flat arrays of tokens, and two hashes of each: its place among the splits, its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray

READ_AT_ONCE = 1 << 22  # tokens
SPLITS = ("train", "val", "test")
ROW = np.dtype([("end", "<i8"), ("place", "<f8"), ("digest", "<u8")])
"""What is kept of a document beside its tokens: where it ends in its stream, and its hashes."""

ROWS_AT_ONCE = 1 << 20
HASH_BYTES = 6  # 48 bits, which a double holds exactly


@dataclass(frozen=True)
class Documents:
    """Documents of flat token arrays.

    Attributes
    ----------
    parts : tuple of array
        The arrays; memory maps where they can be.
    part, start, length : int array (n,)
        Document d is `parts[part[d]][start[d] : start[d] + length[d]]`.
    place : array (n,)
        A number in [0, 1) that decides the document's split: a hash of its text, or of its tokens where there is none.
    digest : uint64 array (n,)
        A hash of its tokens, whatever type of number they come in.
    """

    parts: tuple[np.ndarray, ...]
    part: IntArray
    start: IntArray
    length: IntArray
    place: FloatArray
    digest: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.length.sum())

    def select(self, keep: BoolArray) -> Documents:
        """The documents for which `keep` holds."""
        part, start, length = self.part[keep], self.start[keep], self.length[keep]
        return Documents(self.parts, part, start, length, self.place[keep], self.digest[keep])

    def flat(self) -> np.ndarray:
        """The tokens of all documents, end to end."""
        stretches = zip(self.part.tolist(), self.start.tolist(), self.length.tolist(), strict=True)
        arrays = [self.parts[part][start : start + size] for part, start, size in stretches]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.uint8)

    def compact(self) -> Documents:
        """The same documents of one array, in which they lie end to end."""
        part = np.zeros(len(self.length), np.int64)
        start = np.cumsum(self.length) - self.length
        return Documents((self.flat(),), part, start, self.length, self.place, self.digest)

    def rows(self, before: int = 0) -> np.ndarray:
        """A `ROW` for each document, of a stream in which `before` tokens come before them."""
        rows = np.empty(len(self.length), dtype=ROW)
        rows["end"] = np.cumsum(self.length) + before
        rows["place"], rows["digest"] = self.place, self.digest
        return rows


def of_one_array(
    tokens: np.ndarray, start: IntArray, length: IntArray, place: FloatArray, digest: np.ndarray
) -> Documents:
    """Documents of one flat array; empty ones are left out."""
    part = np.zeros(len(start), np.int64)
    return Documents((tokens,), part, start, length, place, digest).select(length > 0)


def joined(several: Iterable[Documents]) -> Documents:
    """Several sources as one; an array that several share is kept once."""
    listed = list(several)
    parts = list({id(part): part for each in listed for part in each.parts}.values())
    place = {id(part): number for number, part in enumerate(parts)}
    numbers = [np.array([place[id(part)] for part in each.parts], np.int64) for each in listed]
    return Documents(
        parts=tuple(parts),
        part=_chained([number[each.part] for number, each in zip(numbers, listed, strict=True)], np.int64),
        start=_chained([each.start for each in listed], np.int64),
        length=_chained([each.length for each in listed], np.int64),
        place=_chained([each.place for each in listed], np.float64),
        digest=_chained([each.digest for each in listed], np.uint64),
    )


def _chained(columns: list[np.ndarray], kind: type[np.generic]) -> np.ndarray:
    return np.concatenate(columns) if columns else np.zeros(0, kind)


def split_of(place: FloatArray, val_share: float, test_share: float) -> IntArray:
    """The number of each document's split in `SPLITS`: the least places are test, the next ones validation."""
    return np.where(place < test_share, 2, np.where(place < test_share + val_share, 1, 0))


def text_place(text: str) -> float:
    """The place of a document that comes as text."""
    return int.from_bytes(hashlib.sha256(text.strip().encode()).digest()[:HASH_BYTES], "big") / 2.0**48


def token_digest(tokens: np.ndarray) -> int:
    """The hash of a document's tokens."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for at in range(0, len(tokens), READ_AT_ONCE):
        digest.update(tokens[at : at + READ_AT_ONCE].astype("<u4").data)
    return int.from_bytes(digest.digest(), "big")


def digest_of(rows: np.ndarray) -> str:
    """A hash of a stream: of where each of its documents ends and what it holds, in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        digest.update(np.ascontiguousarray(rows[at : at + ROWS_AT_ONCE]).data)
    return digest.hexdigest()
