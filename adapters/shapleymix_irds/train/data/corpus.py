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
from pathlib import Path

from shapleymix.errors import DataError, Location, UsageError, did_you_mean
from shapleymix.tables.spelling import composed
from shapleymix_irds.train.data.documents import SPLITS, Documents, joined, split_of
from shapleymix_irds.train.data.pieces import ALL_ENDINGS, READY_ENDINGS, Reading, encoded, read_piece
from shapleymix_irds.train.data.streams import HeldStream, Stream
from shapleymix_irds.train.data.textfiles import ending_of
from shapleymix_irds.train.data.tokens import Tokenizer
from shapleymix_irds.train.data.toy import toy_documents


@dataclass(frozen=True)
class Corpus:
    """Streams by split and language."""

    languages: tuple[str, ...]
    train: tuple[Stream, ...]
    val: tuple[Stream, ...]
    test: tuple[Stream, ...]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all documents of all splits, in their order: whatever changes in the corpus changes it, and nothing
        else: not the files they come in, nor whether they were prepared."""
        digest = hashlib.blake2b(digest_size=8)
        for language, *streams in zip(self.languages, self.train, self.val, self.test, strict=True):
            digest.update(repr((language, [(stream.count, stream.digest) for stream in streams])).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus is read; `validated` says whether the run needs validation text."""

    tokenizer: Tokenizer
    seq: int
    val_share: float = 0.05
    test_share: float = 0.05
    field: str = "text"
    end: int | None = None
    toy_overlap: float = 0.5
    toy_size: int = 400_000
    validated: bool = True

    @property
    def reading(self) -> Reading:
        """How its files are read."""
        return Reading(self.tokenizer, self.field, self.end)


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
    found = chosen(folder, languages)
    return _split(languages, (_language(found[language], options) for language in languages), options)


def chosen(folder: str, languages: tuple[str, ...]) -> dict[str, list[Path]]:
    """Files of the languages that are named, of all if none is.

    Raises
    ------
    UsageError
        If one is not there, or there is none.
    """
    found = languages_in(folder)
    if not found:
        raise UsageError("there are no files of text in it", location=Location(file=folder))
    for language in languages:
        if language not in found:
            message = f"{folder} has no language {language!r}"
            raise UsageError(message, hint=did_you_mean(language, found))
    return {language: found[language] for language in languages or found}


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
        language = composed(path.name.removesuffix(ending or ""))
        if language in found:
            message = f"is language {language!r} as well as {found[language][0].name}"
            hint = f"keep one of them, or put both into a folder {language}/"
            raise DataError(message, location=Location(file=str(path)), hint=hint)
        found[language] = path, files
    return {language: files for language, (_, files) in found.items()}


def _toy(index: int, options: CorpusOptions) -> Documents:
    return encoded(toy_documents(index, options.toy_overlap, options.toy_size), options.tokenizer)


def _language(files: list[Path], options: CorpusOptions) -> Documents:
    return joined(_file(path, options.reading) for path in files)


def _file(path: Path, reading: Reading) -> Documents:
    """All documents of a file, as of one array."""
    found = joined(read_piece(path, reading))
    return found if path.name.endswith(READY_ENDINGS) else found.compact()


def _split(languages: tuple[str, ...], sources: Iterator[Documents], options: CorpusOptions) -> Corpus:
    check_shares(options.val_share, options.test_share, options.validated)
    splits = [_streams(documents, options) for documents in sources]
    train, val, test = zip(*splits, strict=True)
    corpus = Corpus(languages, train, val, test)
    check_windows(corpus, options.validated)
    return corpus


def check_shares(val_share: float, test_share: float, validated: bool) -> None:
    """Refuse shares of documents that leave a split empty which is needed.

    Raises
    ------
    UsageError
        If they do.
    """
    if not (0 <= val_share < 1 and 0 < test_share < 1 - val_share) or (validated and not val_share):
        hint = "only runs with --irds-fresh or --no-irds need no validation text: --val-share 0"
        raise UsageError("--val-share and --test-share are above 0 and leave something to train on", hint=hint)


def _streams(documents: Documents, options: CorpusOptions) -> list[Stream]:
    splits = split_of(documents.place, options.val_share, options.test_share)
    return [HeldStream.of(documents.select(splits == number), options.seq) for number in range(len(SPLITS))]


def check_windows(corpus: Corpus, validated: bool) -> None:
    """Refuse a language of which a split that is needed has not one window.

    Raises
    ------
    DataError
        If there is one.
    """
    for language, *streams in zip(corpus.languages, corpus.train, corpus.val, corpus.test, strict=True):
        for split, stream in zip(SPLITS, streams, strict=True):
            if not stream.windows and (validated or split != "val"):
                raise _too_small(language, split, streams, stream)


def _too_small(language: str, split: str, streams: list[Stream], stream: Stream) -> DataError:
    count, tokens = (sum(getattr(each, name) for each in streams) for name in ("count", "tokens"))
    message = (
        f"language {language!r} has {count} documents with {tokens} tokens; its {split} split has "
        f"{stream.tokens}, less than one window of {stream.seq} + 1"
    )
    hint = "separate documents by an empty line; give more text, a shorter --seq or larger shares"
    return DataError(message, hint=hint)


def check_vocabulary(corpus: Corpus, vocabulary: int) -> None:
    """Look for tokens that the model has no row for (a ready-made corpus may have them).

    Raises
    ------
    DataError
        If a token is negative.
    UsageError
        If a token is beyond the vocabulary.
    """
    for language, stream in zip(corpus.languages, corpus.train, strict=True):
        low, high, file = stream.extremes()
        name = f"language {language!r} has the token"
        place = Location(file=file)
        if low < 0:
            raise DataError(f"{name} {low}, expected 0 to {vocabulary - 1}", location=place)
        if high >= vocabulary:
            message = f"{name} {high}, but --vocab is {vocabulary}"
            raise UsageError(message, location=place, hint=f"give --vocab {high + 1} or more")
