"""Source files in pieces: stretches between two documents, each of which can be read by itself.

A piece is counted in what its file is made of: bytes of plain text, rows of a table, documents of a Megatron file,
tokens of a `.npy`. Documents come out some at a time, so that memory is bounded whatever a file's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shapleymix_irds.train.data.documents import Documents, joined, of_one_array, text_place, token_digest
from shapleymix_irds.train.data.ready import cut_documents, cut_npy, map_npy, mark_npy, read_megatron
from shapleymix_irds.train.data.textfiles import ENDINGS, cut_text, read_documents
from shapleymix_irds.train.data.tokens import Tokenizer

READY_ENDINGS = (".bin", ".npy")
ALL_ENDINGS = (*ENDINGS, *READY_ENDINGS)
ENCODED_AT_ONCE = 1000  # documents
CHARACTERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Reading:
    """How sources are read.

    Attributes
    ----------
    tokenizer : Tokenizer
        What makes tokens of text.
    field : str
        The field of a table that holds the text.
    end : int, optional
        The token that ends a document of a `.npy`.
    """

    tokenizer: Tokenizer
    field: str = "text"
    end: int | None = None


def cut(path: Path, size: int, end: int | None) -> list[int]:
    """Bounds of the pieces of a file, each of about `size` bytes.

    Raises
    ------
    DataError
        If the file is broken in a way that can be known before it is read.
    """
    if path.name.endswith(".bin"):
        marked = read_megatron(path)
        return cut_documents(marked.length, max(1, size // marked.tokens.itemsize))
    if path.name.endswith(".npy"):
        tokens = map_npy(path)
        return cut_npy(tokens, end, max(1, size // tokens.itemsize))
    return cut_text(path, size)


def read_piece(path: Path, reading: Reading, start: int = 0, stop: int | None = None) -> Iterator[Documents]:
    """Documents of a piece, or of a whole file, some at a time.

    Raises
    ------
    DataError
        If the file is broken.
    """
    if path.name.endswith(".bin"):
        return read_megatron(path).part(start, stop).hashed()
    if path.name.endswith(".npy"):
        return mark_npy(map_npy(path), reading.end, start, stop).hashed()
    return _encoded(read_documents(path, reading.field, start, stop), reading.tokenizer)


def kind_of(path: Path, reading: Reading) -> np.dtype:
    """The unsigned integers that hold the tokens of a file."""
    if path.name.endswith(READY_ENDINGS):
        tokens = read_megatron(path).tokens if path.name.endswith(".bin") else map_npy(path)
        return np.dtype(f"<u{min(tokens.itemsize, 4)}")
    return np.min_scalar_type(max(reading.tokenizer.vocabulary - 1, reading.end or 0))


def encoded(texts: Iterable[str], tokenizer: Tokenizer) -> Documents:
    """Documents of text, all in memory."""
    return joined(_encoded(iter(texts), tokenizer)).compact()


def _encoded(texts: Iterator[str], tokenizer: Tokenizer) -> Iterator[Documents]:
    for some in _chunks(texts):
        arrays = tokenizer.encode(some)
        length = np.array([len(array) for array in arrays], dtype=np.int64)
        place = np.array([text_place(text) for text in some])
        digest = np.array([token_digest(array) for array in arrays], dtype=np.uint64)
        yield of_one_array(np.concatenate(arrays), np.cumsum(length) - length, length, place, digest)


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    held = 0
    for text in texts:
        chunk.append(text)
        held += len(text)
        if len(chunk) == ENCODED_AT_ONCE or held >= CHARACTERS_AT_ONCE:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk
