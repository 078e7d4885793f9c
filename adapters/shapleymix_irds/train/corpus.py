"""A corpus: per language a training, a validation and a test stream of tokens, disjoint by document.

`DIR/en.txt.gz`, or any of `.txt`, `.jsonl` (plain, `.gz`, `.zst`), `.parquet`, `.bin` with `.idx`, `.npy`; or
a folder `DIR/en/` of such files. A document's split follows from a hash of its text (of its tokens where it comes as
tokens), whatever the language, file or order, so the same document is never on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from shapleymix.errors import DataError, Location, UsageError, did_you_mean
from shapleymix.records import IntArray
from shapleymix_irds.train.textfiles import ENDINGS, ending_of, read_documents
from shapleymix_irds.train.tokens import (
    Documents,
    Tokenizer,
    extremes,
    from_lengths,
    joined,
    open_megatron,
    open_npy,
)
from shapleymix_irds.train.toy import toy_documents

SPLITS = ("train", "val", "test")
READY_ENDINGS = (".bin", ".npy")
ALL_ENDINGS = (*ENDINGS, *READY_ENDINGS)
ENCODED_AT_ONCE = 1000


@dataclass(frozen=True)
class Stream:
    """The documents of one split of one language, end to end, cut into windows of `seq` tokens."""

    documents: Documents
    ends: IntArray  # cumulative lengths of the documents
    seq: int

    @classmethod
    def of(cls, documents: Documents, seq: int) -> Stream:
        return cls(documents, np.cumsum(documents.length), seq)

    @property
    def tokens(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def windows(self) -> int:
        """Whole windows; each needs one token more, the last one's target."""
        return max(self.tokens - 1, 0) // self.seq

    def window(self, number: int) -> np.ndarray:
        """Tokens (seq + 1,) of a window: inputs are all but the last, targets all but the first."""
        return self._stretch(number * self.seq, self.seq + 1)

    def _stretch(self, start: int, size: int) -> np.ndarray:
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


@dataclass(frozen=True)
class Corpus:
    """Streams by split and language."""

    languages: tuple[str, ...]
    train: tuple[Stream, ...]
    val: tuple[Stream, ...]
    test: tuple[Stream, ...]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all documents of all splits, in their order: whatever changes in the corpus changes it."""
        digest = hashlib.blake2b(digest_size=8)
        for language, *streams in zip(self.languages, self.train, self.val, self.test, strict=True):
            digest.update(repr((language, [len(stream.ends) for stream in streams])).encode())
            for stream in streams:
                digest.update(stream.documents.length.tobytes())
                digest.update(stream.documents.place.tobytes())  # where tokens are mapped this is a hash of them
            for part in streams[0].documents.parts:
                if not isinstance(part, np.memmap):
                    digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus is read."""

    tokenizer: Tokenizer
    seq: int
    val_share: float = 0.05
    test_share: float = 0.05
    field: str = "text"
    end: int | None = None
    toy_overlap: float = 0.5
    toy_size: int = 400_000


def open_corpus(folder: str, languages: tuple[str, ...], options: CorpusOptions) -> Corpus:
    """The languages of a folder, or of the generator if `folder` is "toy".

    Raises
    ------
    UsageError
        If the folder or a language is not there.
    DataError
        If a file is broken, or a language is too small for its splits.
    """
    if folder == "toy":
        return _split(languages, (_toy(index, options) for index in range(len(languages))), options)
    found = languages_in(folder)
    for language in languages:
        if language not in found:
            message = f"{folder} has no language {language!r}"
            raise UsageError(message, hint=did_you_mean(language, found))
    return _split(languages, (_language(found[language], options) for language in languages), options)


def languages_in(folder: str) -> dict[str, list[Path]]:
    """Files of each language in a corpus folder, sorted by name.

    Raises
    ------
    UsageError
        If there is no such folder.
    DataError
        If a language is there twice, or a folder is called like a file.
    """
    root = Path(folder)
    if not root.is_dir():
        hint = "give a folder with a file or a folder for each language, or: --corpus toy"
        raise UsageError("there is no such folder", location=Location(file=folder), hint=hint)
    found: dict[str, tuple[Path, list[Path]]] = {}
    for path in sorted(root.iterdir()):
        ending, is_folder = ending_of(path, ALL_ENDINGS), path.is_dir()
        if is_folder and ending:
            hint = f"call it {path.name.removesuffix(ending)}, or move it elsewhere"
            raise DataError("is a folder with the name of a file", location=Location(file=str(path)), hint=hint)
        files = [each for each in sorted(path.rglob("*")) if ending_of(each, ALL_ENDINGS)] if is_folder else [path]
        if not files or not (is_folder or ending):
            continue
        language = path.name.removesuffix(ending or "")
        if language in found:
            message = f"is language {language!r} as well as {found[language][0].name}"
            hint = f"keep one of them, or put both into a folder {language}/"
            raise DataError(message, location=Location(file=str(path)), hint=hint)
        found[language] = path, files
    return {language: files for language, (_, files) in found.items()}


def _toy(index: int, options: CorpusOptions) -> Documents:
    return _encoded(iter(toy_documents(index, options.toy_overlap, options.toy_size)), options.tokenizer)


def _language(files: list[Path], options: CorpusOptions) -> Documents:
    return joined(_file(path, options) for path in files)


def _file(path: Path, options: CorpusOptions) -> Documents:
    if path.name.endswith(".bin"):
        return open_megatron(path)
    if path.name.endswith(".npy"):
        return open_npy(path, options.end)
    return _encoded(read_documents(path, options.field), options.tokenizer)


def _encoded(texts: Iterator[str], tokenizer: Tokenizer) -> Documents:
    arrays: list[np.ndarray] = []
    places: list[float] = []
    while chunk := list(islice(texts, ENCODED_AT_ONCE)):
        arrays.extend(tokenizer.encode(chunk))
        places.extend(_place(text) for text in chunk)
    length = np.array([len(array) for array in arrays], dtype=np.int64)
    tokens = np.concatenate(arrays) if arrays else np.zeros(0, np.uint8)
    return from_lengths(tokens, np.cumsum(length) - length, length, np.array(places))


def _place(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.strip().encode()).digest()[:6], "big") / 2.0**48


def _split(languages: tuple[str, ...], sources: Iterator[Documents], options: CorpusOptions) -> Corpus:
    if options.val_share <= 0 or options.test_share <= 0 or options.val_share + options.test_share >= 1:
        raise UsageError("--val-share and --test-share are above 0 and leave something to train on")
    splits = [_streams(language, documents, options) for language, documents in zip(languages, sources, strict=True)]
    train, val, test = zip(*splits, strict=True)
    return Corpus(languages, train, val, test)


def _streams(language: str, documents: Documents, options: CorpusOptions) -> list[Stream]:
    test, val = options.test_share, options.test_share + options.val_share
    edges = {"train": (val, 1.0), "val": (test, val), "test": (0.0, test)}
    streams = []
    for split in SPLITS:
        low, high = edges[split]
        part = documents.select((documents.place >= low) & (documents.place < high))
        streams.append(Stream.of(part, options.seq))
        if not streams[-1].windows:
            raise _too_small(language, split, documents, streams[-1])
    return streams


def _too_small(language: str, split: str, documents: Documents, stream: Stream) -> DataError:
    count = len(documents.length)
    message = (
        f"language {language!r} has {count} documents with {documents.tokens} tokens; its {split} split has "
        f"{stream.tokens}, less than one window of {stream.seq} + 1"
    )
    hint = "separate documents by an empty line; give more text, a shorter --seq or larger shares"
    return DataError(message, hint=hint)


def document_end(corpus: Corpus, tokenizer: Tokenizer, given: int | None) -> int:
    """The token that ends each document of the corpus; where tokens are on disk already it has to be given.

    Raises
    ------
    UsageError
        If it is not known.
    """
    parts = [part for stream in corpus.train for part in stream.documents.parts]
    ready = any(isinstance(part, np.memmap) for part in parts)
    end = given if ready else tokenizer.end
    if end is None:
        kind = "the corpus has tokens without their tokenizer" if ready else f"{tokenizer.name} has none that is known"
        message = f"--mask-documents needs the token that ends a document; {kind}"
        raise UsageError(message, hint="give --end-token, or --no-mask-documents")
    return end


def check_vocabulary(corpus: Corpus, vocabulary: int) -> None:
    """Look through all tokens for numbers that the model has no row for (a ready-made corpus may have them).

    Raises
    ------
    DataError
        If a token is negative.
    UsageError
        If a token is beyond the vocabulary.
    """
    for language, stream in zip(corpus.languages, corpus.train, strict=True):
        for part in stream.documents.parts:
            low, high = extremes(part)
            name = f"language {language!r} has the token"
            place = Location(file=str(part.filename) if isinstance(part, np.memmap) else None)
            if low < 0:
                raise DataError(f"{name} {low}, expected 0 to {vocabulary - 1}", location=place)
            if high >= vocabulary:
                message = f"{name} {high}, but --vocab is {vocabulary}"
                raise UsageError(message, location=place, hint=f"give --vocab {high + 1} or more")
