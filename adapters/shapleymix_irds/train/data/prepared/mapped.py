"""A prepared folder as a corpus to train on: what a start reads does not grow with the number of tokens."""

from __future__ import annotations

from pathlib import Path

from shapleymix.errors import UsageError, did_you_mean
from shapleymix_irds.train.data.corpus import Corpus, check_windows
from shapleymix_irds.train.data.documents import SPLITS
from shapleymix_irds.train.data.prepared.folder import Place
from shapleymix_irds.train.data.prepared.manifest import Manifest, check_sizes
from shapleymix_irds.train.data.streams import FiledStream


def open_prepared(
    folder: Path, manifest: Manifest, languages: tuple[str, ...], seq: int, *, validated: bool = True
) -> Corpus:
    """The languages of a prepared folder; `validated` says whether the run needs validation text.

    Raises
    ------
    UsageError
        If a language is not there.
    DataError
        If a file is missing or cut short, or a language is too small for its splits.
    """
    for name in languages:
        if name not in manifest.languages:
            raise UsageError(f"{folder} has no language {name!r}", hint=did_you_mean(name, manifest.languages))
        check_sizes(folder, name, manifest.languages[name])
    train, val, test = (
        tuple(_stream(Place(folder), manifest, name, split, seq) for name in languages) for split in SPLITS
    )
    corpus = Corpus(languages, train, val, test)
    check_windows(corpus, validated)
    return corpus


def _stream(place: Place, manifest: Manifest, name: str, split: str, seq: int) -> FiledStream:
    language = manifest.languages[name]
    found, file = language.split(split), place.stream(name, split, "tokens")
    return FiledStream(seq, found.tokens, found.documents, file, language.numbers, found.digest, language.largest)
