"""What a prepared folder says of itself."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import Record
from shapleymix_irds.train.data.documents import ROW, SPLITS
from shapleymix_irds.train.data.pieces import READY_ENDINGS, Reading
from shapleymix_irds.train.data.tokens import ByteTokenizer, tokenizer_for

MANIFEST = "manifest.json"
FULL = "make room, or the right to write there; the same command then continues"
LARGEST = 2**32  # tokens that the largest kind of number tells apart
KINDS = ("uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Settings(Record):
    """What decides which tokens a text becomes, and on which side they are.

    Attributes
    ----------
    tokenizer : str
        "bytes", or the file as it was named.
    tokenizer_sha256 : str, optional
        The hash of that file.
    vocabulary : int
        Of the tokenizer.
    tokenizer_end : int, optional
        The token with which it ends a document.
    end_token : int, optional
        The token that ends a document, if it was given.
    text_field : str
        The field of tables that holds the text.
    val_share, test_share : float
        Shares of documents.
    """

    kind = "prepared-settings"

    tokenizer: str
    tokenizer_sha256: str | None
    vocabulary: int
    tokenizer_end: int | None
    end_token: int | None
    text_field: str
    val_share: float
    test_share: float

    def __post_init__(self) -> None:
        if not 0 < self.vocabulary <= LARGEST:
            raise ValueError(f"the vocabulary is {self.vocabulary}, expected 1 to {LARGEST:,}")
        for token in (self.tokenizer_end, self.end_token):
            if token is not None and not 0 <= token < LARGEST:
                raise ValueError(f"a document ends with token {token}, expected one of 0 to {LARGEST - 1:,}")
        if (self.tokenizer == "bytes") != (self.tokenizer_sha256 is None):
            raise ValueError(f"the tokenizer is {self.tokenizer!r} with the hash {self.tokenizer_sha256}")
        bytes_ = ByteTokenizer()
        if self.tokenizer == "bytes" and (self.vocabulary, self.tokenizer_end) != (bytes_.vocabulary, bytes_.end):
            raise ValueError(f"bytes have {self.vocabulary} tokens, of which {self.tokenizer_end} ends a document")

    @classmethod
    def of(
        cls, tokenizer: str, end_token: int | None, text_field: str, val_share: float, test_share: float
    ) -> Settings:
        """The settings with the tokenizer that they name.

        Raises
        ------
        UsageError
            If there is no such tokenizer.
        DataError
            If its file is broken.
        """
        if end_token is not None and not 0 <= end_token < LARGEST:
            raise UsageError(f"--end-token {end_token} is no token, expected 0 to {LARGEST - 1:,}")
        found, sha256 = tokenizer_for(tokenizer, end_token), hash_of(tokenizer)
        return cls(tokenizer, sha256, found.vocabulary, found.end, end_token, text_field, val_share, test_share)

    @property
    def named(self) -> str:
        """The tokenizer in words."""
        return "bytes" if self.tokenizer_sha256 is None else f"tokenizer {Path(self.tokenizer).name}"

    @property
    def reading(self) -> Reading:
        """How sources are read; a tokenizer is loaded once in a process."""
        return _reading(self.tokenizer, self.end_token, self.text_field)

    def changed(self, now: Settings) -> list[str]:
        """What differs, in words; a tokenizer is its file's content, whatever its name."""
        told = [
            f"{name} was {before!r}, is {after!r}"
            for name in ("end_token", "text_field", "val_share", "test_share")
            if (before := getattr(self, name)) != (after := getattr(now, name))
        ]
        if self.tokenizer_sha256 == now.tokenizer_sha256:
            return told
        before, after = self.tokenizer, now.tokenizer
        same = f"tokenizer {before} has other content than it had"
        return [same if before == after else f"tokenizer was {before!r}, is {after!r}", *told]


@functools.lru_cache(maxsize=1)
def _reading(tokenizer: str, end: int | None, field: str) -> Reading:
    return Reading(tokenizer_for(tokenizer, end), field, end)


def hash_of(tokenizer: str) -> str | None:
    """The SHA-256 of a tokenizer's file; None for bytes.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    if tokenizer == "bytes":
        return None
    try:
        return hashlib.sha256(Path(tokenizer).read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", location=Location(file=tokenizer)) from error


@dataclass(frozen=True)
class Source(Record):
    """A file of text, by its name within the corpus; its size and time (nanoseconds) tell whether it has changed."""

    kind = "prepared-source"

    file: str
    bytes: int
    modified: int


@dataclass(frozen=True)
class Split(Record):
    """One of the three streams of a language, and the hash of its documents' rows."""

    kind = "prepared-split"

    tokens: int
    documents: int
    digest: str

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.documents < 0:
            raise ValueError("numbers of tokens and documents are 0 or more")


@dataclass(frozen=True)
class Language(Record):
    """A prepared language: the type of its numbers, its largest token, its streams, and what it was made of."""

    kind = "prepared-language"

    dtype: str
    largest: int
    train: Split
    val: Split
    test: Split
    files: tuple[Source, ...]

    def __post_init__(self) -> None:
        if self.dtype not in KINDS:
            raise ValueError(f"tokens are {self.dtype!r}, expected one of {', '.join(KINDS)}")
        if not 0 <= self.largest < 256**self.numbers.itemsize or not self.files:
            raise ValueError(f"the largest token is {self.largest} in {self.dtype}, of {len(self.files)} files")

    @property
    def numbers(self) -> np.dtype:
        """The numbers as they are on disk."""
        return np.dtype(self.dtype).newbyteorder("<")

    def split(self, name: str) -> Split:
        """The stream of this name."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]


@dataclass(frozen=True)
class Manifest(Record):
    """All of a prepared folder."""

    kind = "prepared-corpus"

    settings: Settings
    languages: dict[str, Language]

    def __post_init__(self) -> None:
        if not self.languages:
            raise ValueError("it has no languages")
        for name in self.languages:
            self._check_end(name)
            if name in (".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"{name!r} is no name of a language")

    def _check_end(self, name: str) -> None:
        """See that the token that ends each document of text is among the tokens of a language."""
        language, end = self.languages[name], self.settings.tokenizer_end
        text = not any(source.file.endswith(READY_ENDINGS) for source in language.files)
        if text and end is not None and end > language.largest and language.train.documents:
            raise ValueError(f"documents end with token {end}, but the largest of {name!r} is {language.largest}")


def is_prepared(folder: str | Path) -> bool:
    """Whether a folder is a prepared corpus."""
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a prepared folder.

    Raises
    ------
    StoreError
        If it is broken, or of a newer version.
    """
    return Manifest.load(Path(folder) / MANIFEST)


def check_sizes(folder: Path, name: str, language: Language) -> None:
    """Refuse a language whose files are not there, or are of another length than they were.

    Raises
    ------
    DataError
        Naming the file.
    """
    for split in SPLITS:
        wanted = language.split(split)
        sizes = {"tokens": wanted.tokens * language.numbers.itemsize, "documents": wanted.documents * ROW.itemsize}
        for ending, expected in sizes.items():
            path = folder / name / f"{split}.{ending}"
            place, hint = Location(file=str(path)), "restore it, or prepare the corpus again (--force)"
            if not path.is_file():
                raise DataError("is missing", location=place, hint=hint)
            if (held := path.stat().st_size) != expected:
                raise DataError(f"holds {held:,} bytes, expected {expected:,}", location=place, hint=hint)
