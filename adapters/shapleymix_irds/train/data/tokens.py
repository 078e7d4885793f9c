"""Text to token numbers: bytes, or a Hugging Face `tokenizers` JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shapleymix.errors import DataError, Location, UsageError

END_OF_DOCUMENT = ("</s>", "<|endoftext|>", "<eos>", "<|end_of_text|>", "<|eot_id|>", "<EOD|LLM-jp>", "[SEP]")


class Tokenizer(Protocol):
    """What the corpus asks of a tokenizer."""

    @property
    def vocabulary(self) -> int: ...

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
