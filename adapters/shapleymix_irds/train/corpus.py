"""A corpus: for each language a training, a validation and a test stream of tokens, disjoint by document.

`DIR/en.txt.gz`, or any other file of text or tokens (see `text`), or a folder `DIR/en/` of such files. A document's
split follows from a hash of it, whatever the language, file or order: the same document is never on two sides.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from shapleymix.errors import DataError, Location, UsageError, did_you_mean
from shapleymix.records import BoolArray
from shapleymix.tables.words import parse_size
from shapleymix_irds.train.settings import Settings
from shapleymix_irds.train.text import TEXT_ENDINGS, TOKEN_ENDINGS, Documents, Tokenizer, encoded, read_file
from shapleymix_irds.train.toy import toy_documents, toy_names

LARGEST = 4 << 30  # bytes of text that every process reads at each start
SPLITS = ("train", "val", "test")


class Stream:
    """The documents of one split of one language, end to end, cut into windows of `seq` tokens.

    Attributes
    ----------
    language : str
        Its language.
    seq, tokens, vocabulary : int
        Tokens of a window, tokens in all, and the number that each is below.
    """

    def __init__(self, language: str, files: Sequence[tuple[Documents, BoolArray]], seq: int, vocabulary: int) -> None:
        self.language, self.seq, self.vocabulary = language, seq, vocabulary
        self._arrays = [documents.tokens for documents, _ in files]
        self._array = np.repeat(np.arange(len(files)), [int(chosen.sum()) for _, chosen in files])
        self._start = np.concatenate([documents.start[chosen] for documents, chosen in files])
        self._length = np.concatenate([documents.length[chosen] for documents, chosen in files])
        self._place = np.concatenate([documents.place[chosen] for documents, chosen in files])
        self._ends = np.cumsum(self._length)
        self.tokens = int(self._length.sum())

    @property
    def windows(self) -> int:
        """Whole windows; each needs one token more, the last one's target."""
        return max(self.tokens - 1, 0) // self.seq

    @property
    def digest(self) -> bytes:
        """A hash of its documents in their order."""
        return hashlib.blake2b(self._length.tobytes() + self._place.tobytes()).digest()

    def window(self, number: int) -> np.ndarray:
        """Tokens (seq + 1,) of a window: inputs are all but the last, targets all but the first.

        Raises
        ------
        UsageError
            If a token is outside of the vocabulary.
        """
        at, size = number * self.seq, self.seq + 1
        found = np.empty(size, dtype=np.int64)
        document, filled = int(np.searchsorted(self._ends, at, side="right")), 0
        while filled < size:
            skip = at + filled - int(self._ends[document] - self._length[document])
            begin = int(self._start[document]) + skip
            count = min(size - filled, int(self._length[document]) - skip)
            found[filled : filled + count] = self._arrays[self._array[document]][begin : begin + count]
            filled, document = filled + count, document + 1
        if found.min() < 0 or found.max() >= self.vocabulary:
            worst = int(found.min() if found.min() < 0 else found.max())
            message = f"language {self.language!r} has the token {worst}, expected 0 to {self.vocabulary - 1}"
            raise UsageError(message, hint="give --vocab")
        return found


@dataclass(frozen=True)
class Corpus:
    """Streams by split and language, and the tokenizer that made their tokens."""

    languages: tuple[str, ...]
    train: tuple[Stream, ...]
    val: tuple[Stream, ...]
    test: tuple[Stream, ...]
    tokenizer: Tokenizer

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all documents of all splits, in their order, whatever files they come in."""
        digest = hashlib.blake2b(digest_size=8)
        for language, *streams in zip(self.languages, self.train, self.val, self.test, strict=True):
            digest.update(language.encode() + b"".join(stream.digest for stream in streams))
        return digest.hexdigest()


def open_corpus(settings: Settings) -> Corpus:
    """The languages of the settings' folder, or of the generator if that is "toy".

    Raises
    ------
    UsageError
        If the folder or a language is not there, or there is more text than should be read at each start.
    DataError
        If a file is broken, or a language is too small for its splits.
    """
    tokenizer = Tokenizer(settings.tokenizer, settings.end_token)
    vocabulary = settings.vocab or tokenizer.vocabulary
    asked = tuple(unicodedata.normalize("NFC", name.strip()) for name in settings.languages.split(",") if name.strip())
    if len(set(asked)) < len(asked):
        raise UsageError(f"--languages {settings.languages} names a language twice")
    sources = _toy(settings, tokenizer, asked) if settings.corpus == "toy" else _files(settings, tokenizer, asked)
    languages, streams = [], []
    for language, files in sources:
        places = [_split(documents, settings) for documents in files]
        cut = [[(documents, place == k) for documents, place in zip(files, places, strict=True)] for k in range(3)]
        languages.append(language)
        streams.append([Stream(language, chosen, settings.seq, vocabulary) for chosen in cut])
        _check_windows(language, streams[-1], settings.validated)
    train, val, test = zip(*streams, strict=True)
    return Corpus(tuple(languages), train, val, test, tokenizer)


def _toy(settings: Settings, tokenizer: Tokenizer, asked: tuple[str, ...]) -> Iterator[tuple[str, list[Documents]]]:
    for index, name in enumerate(asked or toy_names(settings.toy_languages)):
        texts = toy_documents(index, settings.toy_overlap, int(parse_size(settings.toy_size)))
        yield name, [encoded(texts, tokenizer)]


def _files(settings: Settings, tokenizer: Tokenizer, asked: tuple[str, ...]) -> Iterator[tuple[str, list[Documents]]]:
    found = languages_in(settings.corpus)
    for name in asked:
        if name not in found:
            raise UsageError(f"{settings.corpus} has no language {name!r}", hint=did_you_mean(name, found))
    chosen = {name: found[name] for name in asked or found}
    text = [path for paths in chosen.values() for path in paths if not path.name.endswith(TOKEN_ENDINGS)]
    if (size := sum(path.stat().st_size for path in text)) > LARGEST:
        message = f"holds {size / 1e9:.3g} GB of text, more than the {LARGEST / 1e9:.3g} GB that each start reads"
        raise UsageError(message, location=Location(settings.corpus), hint="write it as .npy or .bin, which are mapped")
    for name, paths in chosen.items():
        yield name, [read_file(path, settings.text_field, tokenizer, settings.end_token) for path in paths]


def languages_in(folder: str) -> dict[str, list[Path]]:
    """Files of each language in a corpus folder, sorted by name.

    Raises
    ------
    UsageError
        If there is no such folder, or nothing in it.
    DataError
        If a language is there twice.
    """
    root, place = Path(folder), Location(file=folder)
    if not root.is_dir():
        hint = "give a folder with a file or a folder for each language, or: --corpus toy"
        raise UsageError("there is no such folder", location=place, hint=hint)
    found: dict[str, list[Path]] = {}
    for path in sorted(root.iterdir()):
        name, files = path.name, [path] if _ending(path) else []
        if path.is_dir():
            files = [each for each in sorted(path.rglob("*")) if _ending(each)]
        if not files:
            continue
        name = unicodedata.normalize("NFC", name.removesuffix(_ending(path)))
        if name in found:
            hint = f"keep one of them, or put both into a folder {name}/"
            raise DataError(f"is language {name!r}, as is {found[name][0]}", location=Location(str(path)), hint=hint)
        found[name] = files
    if not found:
        raise UsageError("there are no files of text or tokens in it", location=place)
    return found


def _ending(path: Path) -> str:
    """Which of the endings that are read a file has; empty if none."""
    return next((ending for ending in (*TEXT_ENDINGS, *TOKEN_ENDINGS) if path.name.endswith(ending)), "")


def _split(documents: Documents, settings: Settings) -> np.ndarray:
    """The number of each document's split in `SPLITS`: the least places are test, the next ones validation."""
    place, test = documents.place, settings.test_share
    return np.where(place < test, 2, np.where(place < test + settings.val_share, 1, 0))


def _check_windows(language: str, streams: list[Stream], validated: bool) -> None:
    for split, stream in zip(SPLITS, streams, strict=True):
        if not stream.windows and (validated or split != "val"):
            has = f"has {stream.tokens:,} tokens in its {split} split"
            message = f"language {language!r} {has}, less than one window of {stream.seq} + 1"
            hint = "separate documents by an empty line; give more text, a shorter --seq or larger shares"
            raise DataError(message, hint=hint)
