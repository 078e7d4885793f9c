"""A corpus: for each language a training, a validation and a test stream of tokens, and the order of its windows.

The artificial corpus is for a machine with no text. Its language i uses the words `i * shift` to `i * shift + WORDS` of
one endless seeded list, each as often as the others. So languages i and j share exactly
`max(0, 1 - |i - j| (1 - overlap))` of their words and of their text, up to rounding to whole words. No other structure
is shared but the letters; more overlap must give more transfer.

`DIR/en.txt.gz`, or any other file of text or tokens (see `shapleymix.tables.documents`), or a folder `DIR/en/` of such
files. A document's split follows from a hash of it, whatever the language, file or order: the same document is never on
two sides.

Ratios are exact, by deficit counters. The whole state is how many sequences each language has given so far: from it
follow the language of the next sequence, its window and the epoch; nothing depends on ranks, threads or the clock.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.documents import TOKEN_ENDINGS, Documents, Tokenizer, encoded, languages_of, read_file
from shapleymix.tables.words import parse_size
from shapleymix_irds.train.distributed import World
from shapleymix_irds.train.settings import TrainingSettings

TOY = "toy_"
"""Names of artificial languages begin with it, so that every log, plan and matrix made from them says what they are."""
WORDS = 64
WORD_LENGTHS = (3, 8)
DOCUMENT_WORDS = (60, 180)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def toy_names(count: int) -> tuple[str, ...]:
    """Names of so many languages: toy_a, toy_b, ..., or toy_aa, toy_ab, ... where letters do not suffice."""
    letters = 1
    while len(ALPHABET) ** letters < count:
        letters += 1
    named = itertools.islice(itertools.product(ALPHABET, repeat=letters), count)
    return tuple(TOY + "".join(one) for one in named)


def toy_documents(index: int, overlap: float, size: int, seed: int = 0) -> list[str]:
    """Documents of language `index`, about `size` characters in all; neighbours share `overlap` of their words."""
    shift = round((1 - overlap) * WORDS)
    words = [word(index * shift + rank, seed) for rank in range(WORDS)]
    draw = np.random.default_rng([seed, 7, index])
    documents, written = [], 0
    while written < size:
        picks = draw.integers(WORDS, size=draw.integers(*DOCUMENT_WORDS))
        documents.append(" ".join(words[pick] for pick in picks) + ".")
        written += len(documents[-1]) + 1
    return documents


def word(number: int, seed: int) -> str:
    """The word with this number in the endless list of `seed`."""
    draw = np.random.default_rng([seed, 3, number])
    return "".join(draw.choice(list(ALPHABET), size=draw.integers(*WORD_LENGTHS)))


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


def open_corpus(settings: TrainingSettings) -> Corpus:
    """The languages of the settings' folder, or of the generator if that is "toy".

    Raises
    ------
    UsageError
        If no corpus is named, the folder or a language is not there, or there is more text than should be read at each
        start.
    DataError
        If a file is broken, or a language is too small for its splits.
    """
    if not settings.corpus:
        raise UsageError("nothing says what to train on", hint="give --corpus FOLDER, or toy for artificial languages")
    tokenizer = Tokenizer(settings.tokenizer, settings.end_token)
    vocabulary = settings.vocab or tokenizer.vocabulary
    asked = tuple(unicodedata.normalize("NFC", name.strip()) for name in settings.languages.split(",") if name.strip())
    if len(set(asked)) < len(asked):
        raise UsageError(f"--languages {settings.languages} names a language twice")
    sources = _toy(settings, tokenizer, asked) if settings.corpus == "toy" else _real(settings, tokenizer, asked)
    languages, streams, test, validated = [], [], settings.test_share, settings.test_share + settings.val_share
    for language, files in sources:
        # places in `SPLITS`: the least are test, the next ones validation
        places = [np.where(one.place < test, 2, np.where(one.place < validated, 1, 0)) for one in files]
        cut = [[(documents, place == k) for documents, place in zip(files, places, strict=True)] for k in range(3)]
        languages.append(language)
        streams.append([Stream(language, chosen, settings.seq, vocabulary) for chosen in cut])
        _check_windows(language, streams[-1], settings.validated)
    train, val, test = zip(*streams, strict=True)
    return Corpus(tuple(languages), train, val, test, tokenizer)


def _toy(how: TrainingSettings, tokenizer: Tokenizer, asked: tuple[str, ...]) -> Iterator[tuple[str, list[Documents]]]:
    if real := [name for name in asked if not name.startswith(TOY)]:
        hint = f"call artificial languages {TOY}{real[0]}, or give the --corpus of the real ones"
        raise UsageError(f"the toy corpus has artificial languages alone, and no {real[0]!r}", hint=hint)
    for index, name in enumerate(asked or toy_names(how.toy_languages)):
        texts = toy_documents(index, how.toy_overlap, int(parse_size(how.toy_size)))
        yield name, [encoded(texts, tokenizer)]


def _real(how: TrainingSettings, tokenizer: Tokenizer, asked: tuple[str, ...]) -> Iterator[tuple[str, list[Documents]]]:
    chosen = languages_of(how.corpus, asked)
    text = [path for paths in chosen.values() for path in paths if not path.name.endswith(TOKEN_ENDINGS)]
    if (size := sum(path.stat().st_size for path in text)) > LARGEST:
        message = f"holds {size / 1e9:.3g} GB of text, more than the {LARGEST / 1e9:.3g} GB that each start reads"
        raise UsageError(message, location=Location(how.corpus), hint="write it as .npy or .bin, which are mapped")
    for name, paths in chosen.items():
        yield name, [read_file(path, how.text_field, tokenizer, how.end_token) for path in paths]


def _check_windows(language: str, streams: list[Stream], validated: bool) -> None:
    for split, stream in zip(SPLITS, streams, strict=True):
        if not stream.windows and (validated or split != "val"):
            has = f"has {stream.tokens:,} tokens in its {split} split"
            message = f"language {language!r} {has}, less than one window of {stream.seq} + 1"
            hint = "separate documents by an empty line; give more text, a shorter --seq or larger shares"
            raise DataError(message, hint=hint)


def deal(ratios_M: FloatArray, counts_M: IntArray, n: int) -> IntArray:
    """Languages of the next `n` sequences; `counts_M` is what was dealt before and is not changed.

    Each sequence goes to the language furthest behind its due, `p_i (n + 1) - count_i`, so that no count is
    ever a whole sequence or more above its due.
    """
    counts = counts_M.astype(np.float64)
    dealt = counts.sum()
    chosen = np.empty(n, dtype=np.int64)
    for turn in range(n):
        chosen[turn] = np.argmax(ratios_M * (dealt + turn + 1) - counts)
        counts[chosen[turn]] += 1
    return chosen


def shuffled(position: int, size: int, key: str) -> int:
    """Where a seeded permutation of `range(size)` puts `position`: a Feistel network, nothing stored."""
    half = max((max(size - 1, 1).bit_length() + 1) // 2, 1)
    mask = (1 << half) - 1
    digest = hashlib.sha256(key.encode()).digest()
    keys = [int.from_bytes(digest[8 * turn : 8 * turn + 8], "little") for turn in range(4)]
    value = position
    while True:  # cycle walking: outside the range, permute again
        left, right = value >> half, value & mask
        for round_key in keys:
            left, right = right, left ^ (_mix(right ^ round_key) & mask)
        value = (left << half) | right
        if value < size:
            return value


def _mix(value: int) -> int:
    """A 64-bit integer hash (splitmix64's finaliser)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def share_of_rank(n: int, rank: int, ranks: int) -> slice:
    """The part of a batch of `n` that a rank trains on; the first ranks have one more if need be."""
    base, extra = divmod(n, ranks)
    start = rank * base + min(rank, extra)
    return slice(start, start + base + (rank < extra))


class Sampler:
    """The stream of (language, window) pairs of one training run.

    Parameters
    ----------
    ratios : array (M,)
        The mixture, as shares of tokens; sums to 1.
    windows : int array (M,)
        Number of windows in each language's training split.
    counts : int array (M,), optional
        Sequences of each language that were dealt before.
    """

    def __init__(self, ratios: FloatArray, windows: IntArray, seed: int, counts: IntArray | None = None) -> None:
        self.ratios, self.windows, self.seed = ratios, windows, seed
        self.counts = np.zeros(len(ratios), dtype=np.int64) if counts is None else counts.copy()

    def take(self, n: int, rank: int = 0, ranks: int = 1) -> tuple[IntArray, IntArray]:
        """Languages and windows of a rank's share of the next `n` sequences; all of the `n` count as dealt."""
        languages = deal(self.ratios, self.counts, n)
        mine = share_of_rank(n, rank, ranks)
        before = self.counts + np.bincount(languages[: mine.start], minlength=len(self.counts))
        self.counts += np.bincount(languages, minlength=len(self.counts))
        places = np.empty(mine.stop - mine.start, dtype=np.int64)
        for turn, language in enumerate(languages[mine]):
            places[turn] = self.window(int(language), int(before[language]))
            before[language] += 1
        return languages[mine], places

    def window(self, language: int, count: int) -> int:
        """The window that is the `count`-th of its language: each epoch has an order of its own."""
        size = int(self.windows[language])
        epoch, position = divmod(count, size)
        return shuffled(position, size, f"{self.seed}/{language}/{epoch}")


class Sequences(NamedTuple):
    """One micro-batch of one rank: inputs and targets (B, S), and the language of each sequence (B,)."""

    x: Tensor
    y: Tensor
    languages: Tensor


class Feed:
    """Batches of the next steps; a thread makes the next one while the model trains.

    Parameters
    ----------
    streams : tuple of Stream
        The training stream of each language.
    sampler : Sampler
        What deals the sequences; only the feed may use it from now on.
    """

    def __init__(self, streams: tuple[Stream, ...], sampler: Sampler, settings: TrainingSettings, world: World) -> None:
        self._streams, self._sampler, self._settings, self._world = streams, sampler, settings, world
        self._passes = passes(settings.batch, settings.micro_batch, world.size)
        self._pool = ThreadPoolExecutor(1, "feed")
        self._waiting: Future[tuple[list[Sequences], IntArray]] = self._pool.submit(self._make)

    def next(self) -> tuple[list[Sequences], IntArray]:
        """This rank's passes of the next step, and the sequences of each language (M,) that were dealt until after it.

        Errors are those of `Stream.window`.
        """
        made = self._waiting.result()
        self._waiting = self._pool.submit(self._make)
        return made

    def close(self) -> None:
        """Let the thread end."""
        self._pool.shutdown(cancel_futures=True)

    def _make(self) -> tuple[list[Sequences], IntArray]:
        languages, places = self._sampler.take(self._settings.batch, self._world.rank, self._world.size)
        order = np.argsort(languages, kind="stable")
        if self._settings.irds_fresh:  # the sequences of a language have to meet in a pass
            cut = [order[start :: self._passes] for start in range(self._passes)]
        else:
            cut = np.array_split(order, self._passes)
        return [self._read(languages[piece], places[piece]) for piece in cut], self._sampler.counts.copy()

    def _read(self, languages: IntArray, places: IntArray) -> Sequences:
        rows = [windows_of(self._streams[k], places[at : at + 1]) for at, k in enumerate(languages)]
        x, y = (torch.cat(parts) for parts in zip(*rows, strict=True))
        made = Sequences(x, y, torch.from_numpy(languages))
        return Sequences(*(part.pin_memory() for part in made)) if self._world.device.type == "cuda" else made


def passes(n: int, micro_batch: int, ranks: int) -> int:
    """Passes of a step on every rank: as many as the largest share needs, since sharded ranks pass together."""
    return math.ceil(math.ceil(n / ranks) / micro_batch) if micro_batch else 1


def spread(stream: Stream, most: int) -> IntArray:
    """At most `most` windows of a stream, evenly spread over it, always the same."""
    return np.unique(np.linspace(0, stream.windows - 1, min(most, stream.windows)).astype(np.int64))


def windows_of(stream: Stream, numbers: IntArray) -> tuple[Tensor, Tensor]:
    """Inputs and targets (n, seq) of some windows."""
    rows = torch.from_numpy(np.stack([stream.window(int(number)) for number in numbers]))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
