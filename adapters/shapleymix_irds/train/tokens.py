"""Text to token numbers, and token numbers that are on disk already.

Three sources of tokens: bytes (needs nothing; byte 0 ends a document), a Hugging Face `tokenizers` JSON file,
and memory maps made elsewhere (Megatron's `.bin` with `.idx`, or a flat `.npy`), which are never whole in memory.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import IntArray

END_OF_DOCUMENT = ("</s>", "<|endoftext|>", "<eos>", "<|end_of_text|>", "<|eot_id|>", "<EOD|LLM-jp>", "[SEP]")
UNMARKED_DOCUMENT = 8192  # tokens of a stretch that is split as one document where nothing marks the ends
READ_AT_ONCE = 1 << 22  # tokens
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {
    1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16,
}  # fmt: skip


class Tokenizer(Protocol):
    """What the corpus asks of a tokenizer."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def end(self) -> int | None:
        """The token that ends a document, if there is one."""
        ...

    def encode(self, documents: list[str]) -> list[np.ndarray]:
        """Token numbers of each document, its end marked."""
        ...


@dataclass(frozen=True)
class ByteTokenizer:
    """UTF-8 bytes; byte 0, which text does not contain, ends a document."""

    vocabulary: int = 256
    name: str = "bytes"
    end: int | None = 0

    def encode(self, documents: list[str]) -> list[np.ndarray]:
        return [np.frombuffer(document.encode() + b"\0", dtype=np.uint8) for document in documents]


class FileTokenizer:
    """A Hugging Face `tokenizers` JSON file.

    Raises
    ------
    UsageError
        If the package is not installed or the file is not a tokenizer.
    """

    def __init__(self, path: str | Path, end: int | None = None) -> None:
        self.name = f"tokenizer {Path(path).name}"
        self._inner = _load_tokenizer(Path(path))
        self.vocabulary = self._inner.get_vocab_size(with_added_tokens=True)
        known = [self._inner.token_to_id(token) for token in END_OF_DOCUMENT]
        self.end = end if end is not None else next((each for each in known if each is not None), None)
        self._dtype = np.min_scalar_type(self.vocabulary)

    def encode(self, documents: list[str]) -> list[np.ndarray]:
        tail = [] if self.end is None else [self.end]
        found = self._inner.encode_batch(documents, add_special_tokens=False)
        return [np.asarray([*each.ids, *tail], dtype=self._dtype) for each in found]


def _load_tokenizer(path: Path) -> Any:
    if not path.is_file():
        raise UsageError("there is no such tokenizer file", location=Location(file=str(path)))
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ImportError as error:
        raise UsageError("a tokenizer file needs the package tokenizers", hint="pip install tokenizers") from error
    try:
        return HuggingFaceTokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception for every fault of the file
        raise DataError(f"is not a tokenizer: {error}", location=Location(file=str(path))) from error


def tokenizer_for(name: str, end: int | None = None) -> Tokenizer:
    """The byte tokenizer for "bytes", else the tokenizer in the file `name`."""
    return ByteTokenizer() if name == "bytes" else FileTokenizer(name, end)


@dataclass(frozen=True)
class Documents:
    """Documents as stretches of flat token arrays.

    `parts` are the arrays (memory maps where they can be); document d is `parts[part[d]][start[d] : start[d]
    + length[d]]`; `place` is a number in [0, 1) that decides its split.
    """

    parts: tuple[np.ndarray, ...]
    part: IntArray
    start: IntArray
    length: IntArray
    place: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.length.sum())

    def select(self, keep: np.ndarray) -> Documents:
        """The documents for which `keep` holds."""
        return Documents(self.parts, self.part[keep], self.start[keep], self.length[keep], self.place[keep])


def joined(several: Iterable[Documents]) -> Documents:
    """Several sources as one."""
    listed = list(several)
    offsets = np.cumsum([0, *(len(each.parts) for each in listed)])
    return Documents(
        parts=tuple(part for each in listed for part in each.parts),
        part=np.concatenate([each.part + offset for each, offset in zip(listed, offsets, strict=False)]),
        start=np.concatenate([each.start for each in listed]),
        length=np.concatenate([each.length for each in listed]),
        place=np.concatenate([each.place for each in listed]),
    )


def from_lengths(tokens: np.ndarray, start: np.ndarray, length: np.ndarray, place: np.ndarray) -> Documents:
    """Documents of one flat array; empty ones are left out."""
    whole = Documents((tokens,), np.zeros(len(start), np.int64), start.astype(np.int64), length.astype(np.int64), place)
    return whole.select(whole.length > 0)


def open_megatron(path: Path) -> Documents:
    """The documents of Megatron's indexed data set `path` (.bin), whose index lies beside it.

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
    return mapped(tokens, index.pointer[first[filled]] // size, (ends[after] - ends[first])[filled])


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


def open_npy(path: Path, end: int | None = None) -> Documents:
    """The documents of a flat `.npy` of token numbers: each ends after the token `end`, or, without one, a
    document is a stretch of 8,192 tokens.

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
    bounds = np.unique(np.concatenate([[0], _stops(tokens, end), [len(tokens)]]))
    return mapped(tokens, bounds[:-1], np.diff(bounds))


def _stops(tokens: np.ndarray, end: int | None) -> np.ndarray:
    """Where documents end."""
    if end is None:
        return np.arange(0, len(tokens), UNMARKED_DOCUMENT)
    blocks = range(0, len(tokens), READ_AT_ONCE)
    found = [np.flatnonzero(tokens[at : at + READ_AT_ONCE] == end) + (at + 1) for at in blocks]
    return np.concatenate([np.zeros(0, np.int64), *found])


def mapped(tokens: np.ndarray, start: np.ndarray, length: np.ndarray) -> Documents:
    """Documents of tokens that are on disk; each has its place by a hash of its tokens, whatever the file, the order
    or the type of number they come in (which takes one pass over them)."""
    flat = np.asarray(tokens)  # slices of a memory map are slow to make
    places = (_place(flat[at : at + size]) for at, size in zip(start.tolist(), length.tolist(), strict=True))
    return from_lengths(tokens, start, length, np.fromiter(places, np.float64, len(start)))


def _place(tokens: np.ndarray) -> float:
    digest = hashlib.blake2b(digest_size=6)
    for at in range(0, len(tokens), READ_AT_ONCE):
        digest.update(tokens[at : at + READ_AT_ONCE].astype("<u4").data)
    return int.from_bytes(digest.digest(), "big") / 2.0**48


def extremes(tokens: np.ndarray) -> tuple[int, int]:
    """The least and the largest token; (0, 0) of none."""
    flat = np.asarray(tokens)
    blocks = [flat[at : at + READ_AT_ONCE] for at in range(0, len(flat), READ_AT_ONCE)]
    lows, highs = ([int(edge(block)) for block in blocks] for edge in (np.min, np.max))
    return min(lows, default=0), max(highs, default=0)
