"""Documents out of files: text that is made tokens of here, and tokens that are on disk already, which are mapped.

Text: `.txt` (documents with an empty line between them) and `.jsonl` (a document a line), plain or `.gz`, and
`.parquet`. Tokens: a flat `.npy` of integers, or Megatron's `.bin` with its `.idx`.

`read_file` has all of a file, for training; `sample_languages` has about so many tokens of any amount of text.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import itertools
import json
import os
import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shapleymix.errors import DataError, Location, UsageError, described, did_you_mean
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.words import check_label

TEXT_ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")
TOKEN_ENDINGS = (".npy", ".bin")
AT_ONCE = 1000  # documents that are encoded together
CONTINUATION = bytes(range(0x80, 0xC0))  # bytes within a character of UTF-8
LONGEST = 1 << 20  # characters of a document of a .txt: a longer one is cut, since memory holds it whole
BLOCK = 1 << 24  # tokens that are looked at together
STRETCHES = 32  # places of a large file that a sample is read from
LEAST = 1000  # tokens of a language, and characters of a string that is its text and not the name of a file
MOST = 1 << 31  # a token number is below
PIECE = 2048  # tokens: a longer document is cut where it is dealt out
THINNEST = 16  # of so many documents of a compressed file, which is read from its beginning, a sample has one at least
UNMARKED_DOCUMENT = 8192  # tokens of a stretch that counts as a document where nothing marks the ends
HEAD = 64  # tokens of a document by which its place among the splits is chosen, where it comes as tokens
END_OF_DOCUMENT = ("</s>", "<|endoftext|>", "<eos>", "<|end_of_text|>", "<|eot_id|>", "<EOD|LLM-jp>", "[SEP]")
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}

T = TypeVar("T")
Text = str | os.PathLike[str] | Sequence[int] | IntArray
Texts = str | os.PathLike[str] | Mapping[str, Text]
"""A folder with a file or a folder for each language; or by language a file, a folder, the text or its tokens."""


@dataclass(frozen=True)
class Documents:
    """Documents of one flat array of tokens.

    Attributes
    ----------
    tokens : array (n,)
        A memory map where the file holds tokens.
    start, length : int array (d,)
        Document i is `tokens[start[i] : start[i] + length[i]]`.
    place : array (d,)
        A number in [0, 1) that decides the document's split: a hash of its text, or of its first tokens and length.
    """

    tokens: np.ndarray
    start: IntArray
    length: IntArray
    place: FloatArray


class Tokenizer:
    """UTF-8 bytes, of which 0 ends a document, where the name is "bytes"; else a Hugging Face `tokenizers` JSON file.

    Attributes
    ----------
    vocabulary : int
        Number of tokens.
    end : int, optional
        The token that ends a document.

    Raises
    ------
    UsageError
        If the package tokenizers is needed and not installed.
    DataError
        If there is no such file, or it is no tokenizer.
    """

    def __init__(self, name: str, end: int | None = None) -> None:
        self._inner = None if name == "bytes" else _load_tokenizer(name)
        self.vocabulary, self.end = 256, 0
        if self._inner is not None:
            self.vocabulary = self._inner.get_vocab_size(with_added_tokens=True)
            known = [end, *map(self._inner.token_to_id, END_OF_DOCUMENT)]
            self.end = next((each for each in known if each is not None), None)

    def encode(self, documents: list[str]) -> list[np.ndarray]:
        """Tokens of each document, its end marked."""
        if self._inner is None:
            return [np.frombuffer(document.encode() + b"\0", dtype=np.uint8) for document in documents]
        tail, kind = [] if self.end is None else [self.end], np.min_scalar_type(self.vocabulary)
        found = self._inner.encode_batch(documents, add_special_tokens=False)
        return [np.array([*each.ids, *tail], dtype=kind) for each in found]


def _load_tokenizer(path: str) -> Any:
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ImportError as error:
        raise UsageError("a tokenizer file needs the package tokenizers", hint="pip install tokenizers") from error
    try:
        return HuggingFaceTokenizer.from_file(path)
    except Exception as error:  # the package raises bare Exception for every fault of the file
        raise DataError(f"is no tokenizer: {error}", location=Location(file=path)) from error


def languages_of(folder: str, asked: Sequence[str]) -> dict[str, list[Path]]:
    """Files of the languages that are asked for, or of all; errors are those of `languages_in`, too.

    Raises
    ------
    UsageError
        If languages have no text.
    """
    return {name: files_of(path) for name, path in _chosen(languages_in(folder), asked).items()}


def _chosen(texts: Mapping[str, T], asked: Sequence[str]) -> dict[str, T]:
    if lacking := [name for name in asked if name not in texts]:
        raise UsageError(f"there is no text of {', '.join(lacking)}", hint=did_you_mean(lacking[0], texts))
    return {name: texts[name] for name in asked or texts}


def languages_in(folder: str) -> dict[str, Path]:
    """The file or folder of each language in a corpus folder, sorted by name.

    Raises
    ------
    UsageError
        If there is no such folder, or nothing in it.
    DataError
        If a language is there twice.
    """
    root, place = Path(folder), Location(file=folder)
    if not folder or not root.is_dir():
        raise UsageError("is no folder: give one with a file or a folder for each language", location=place)
    found: dict[str, Path] = {}
    for path in filter(files_of, sorted(root.iterdir())):
        name = unicodedata.normalize("NFC", path.name.removesuffix(_ending(path)))
        if name in found:
            message = f"is language {name!r}, as is {found[name]}: keep one, or put both into one folder"
            raise DataError(message, location=Location(str(path)))
        found[name] = path
    if not found:
        raise UsageError("there are no files of text or tokens in it", location=place)
    return found


def files_of(path: Path) -> list[Path]:
    """The files of text or tokens in a folder, sorted by name, or a file itself if it is one."""
    return [each for each in (sorted(path.rglob("*")) if path.is_dir() else [path]) if _ending(each)]


def _ending(path: Path) -> str:
    """Which of the endings that are read a file has; empty if none."""
    return next((ending for ending in (*TEXT_ENDINGS, *TOKEN_ENDINGS) if path.name.endswith(ending)), "")


def read_file(path: Path, field: str, tokenizer: Tokenizer, end: int | None) -> Documents:
    """Documents of a file of text, or of tokens, of which `end` ends a document; errors are those of both readers."""
    return read_tokens(path, end) if path.name.endswith(TOKEN_ENDINGS) else encoded(read_text(path, field), tokenizer)


# -- text ------------------------------------------------------------------------------------------------------


def read_text(path: Path, field: str, part: int = 0, parts: int = 1) -> Iterator[str]:
    """Documents of one file of text, or of one of so many parts of it; a compressed one has no parts.

    Raises
    ------
    DataError
        If the file is broken, not UTF-8, or lacks the field.
    """
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet(path, field, part, parts)
            return
        is_json = ".jsonl" in path.name
        longest = -1 if is_json else LONGEST  # of a line: one of JSON is whole
        stream = _whole_lines(path, longest) if parts == 1 else _lines(path, part, parts, longest)
        yield from _json_lines(stream, path, field) if is_json else paragraphs(stream)
    except UnicodeError as error:
        raise DataError(f"is not UTF-8: {error}", location=Location(file=str(path))) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error


def _whole_lines(path: Path, longest: int) -> Iterator[str]:
    """The lines of a file, cut where they have more characters than `longest`."""
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rt", encoding="utf-8") as whole:
        yield from iter(lambda: whole.readline(longest), "")


def _lines(path: Path, part: int, parts: int, longest: int) -> Iterator[str]:
    """The lines that begin in a part of a plain file; where one that may be cut is long, the part begins within it."""
    begin, end = (path.stat().st_size * place // parts for place in (part, part + 1))
    decoder, most = codecs.getincrementaldecoder("utf-8")(), min(longest, max((end - begin) // 4, 64))
    with path.open("rb") as raw:
        raw.seek(max(begin - 1, 0))
        within = bool(begin) and not raw.readline(most).endswith(b"\n")
        while raw.tell() < end and (line := raw.readline(most)):
            yield decoder.decode(line.lstrip(CONTINUATION) if within else line)
            within = False


def paragraphs(stream: Iterable[str]) -> Iterator[str]:
    """Documents of lines of text, between which empty lines stand."""
    lines: list[str] = []
    size = 0
    for line in itertools.chain(stream, [""]):
        if filled := bool(line.strip()):
            lines.append(line)
            size += len(line)
        if lines and (not filled or size > LONGEST):
            yield "".join(lines).strip("\n")
            lines, size = [], 0


def _json_lines(stream: Iterable[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
            text.encode()  # half a surrogate pair is no text
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"is no JSON object with text in the field {field!r}: name it by --text-field"
            raise DataError(message, location=Location(str(path), number)) from error
        yield text


def _parquet(path: Path, field: str, part: int, parts: int) -> Iterator[str]:
    import polars

    try:
        rows = polars.scan_parquet(path).select(field)
        count = rows.select(polars.len()).collect().item()
        begin, end = count * part // parts, count * (part + 1) // parts
        column = rows.slice(begin, end - begin).collect()[field]
    except polars.exceptions.PolarsError as error:
        message = f"has no column of text {field!r} that can be read: {str(error).splitlines()[0]}"
        raise DataError(message, location=Location(str(path)), hint="name the column: --text-field") from error
    if column.dtype != polars.String:
        raise DataError(f"is a column of {column.dtype}, not of text", location=Location(str(path), column=field))
    yield from (text for text in column if text)


def encoded(texts: Iterable[str], tokenizer: Tokenizer) -> Documents:
    """Documents of text as tokens, in memory."""
    arrays, lengths, places = [np.zeros(0, np.uint8)], [0], []
    rest = iter(texts)
    while some := list(itertools.islice(rest, AT_ONCE)):
        made = tokenizer.encode(some)
        arrays.append(np.concatenate(made))
        lengths += map(len, made)
        places += map(text_place, some)
    bounds = np.cumsum(lengths)
    return Documents(np.concatenate(arrays), bounds[:-1], np.diff(bounds), np.array(places))


def text_place(text: str) -> float:
    """The place of a document that comes as text: a hash, so that the same text is never on two sides."""
    return int.from_bytes(hashlib.sha256(text.strip().encode()).digest()[:6], "big") / 2.0**48


def sample_languages(
    texts: Texts,
    languages: Sequence[str] | str | None,
    tokenizer: Tokenizer,
    most: int,
    field: str = "text",
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, np.ndarray]:
    """About `most` token numbers of each language, of those that are asked for or of all.

    Raises
    ------
    UsageError, DataError
        If the text of a language is not there, cannot be read, has less than 1,000 tokens, or is no text.
    """
    if not isinstance(texts, (str, os.PathLike, Mapping)):
        raise UsageError(f"{described(texts)} is no text", hint="give a folder, or the text of each language")
    asked = languages.split(",") if isinstance(languages, str) else languages or ()
    known, found = _chosen(texts if isinstance(texts, Mapping) else languages_in(os.fspath(texts)), asked), {}
    if not known:
        raise UsageError("there is no text of any language", hint="give a folder")
    for turn, (name, given) in enumerate(known.items()):
        if problem := check_label(name):
            raise UsageError(f"the language {name!r} {problem}", hint="rename its file or folder")
        if progress is not None:
            progress(f"reading {name}", turn, len(known))
        found[name] = _numbers(name, given, tokenizer, most, field)
        if len(found[name]) < LEAST:
            raise DataError(f"language {name!r} has {len(found[name]):,} tokens of text, expected {LEAST:,} or more")
    return found


def _numbers(language: str, given: Text, tokenizer: Tokenizer, most: int, field: str) -> np.ndarray:
    """Token numbers of a language, in the smallest type that holds them."""
    if isinstance(given, str) and len(given) >= LEAST:
        found = spread(encoded(paragraphs(io.StringIO(given)), tokenizer).tokens, most)
    elif isinstance(given, (str, os.PathLike)):
        place = Location(file=os.fspath(given))
        if not os.path.exists(given):
            raise UsageError(f"there is no such file or folder, the text of {language!r}", location=place)
        if not (files := files_of(Path(given))):
            raise UsageError(f"ends in none of {', '.join((*TEXT_ENDINGS, *TOKEN_ENDINGS))}", location=place)
        found = sample_tokens(files, tokenizer, most, field)
    else:
        try:
            found = spread(np.atleast_1d(np.asarray(given)), most)
        except ValueError:  # rows of several lengths
            found = np.zeros((0, 0))
    if found.ndim != 1 or found.dtype.kind not in "iu" or not 0 <= found.min(initial=0) <= found.max(initial=0) < MOST:
        hint = "give a file, a text of 1,000 characters, or token numbers, from 0 on"
        raise UsageError(f"the text of {language!r} is {described(given)}", hint=hint)
    return found.astype(np.min_scalar_type(found.max(initial=0)))


def sample_tokens(paths: Sequence[Path], tokenizer: Tokenizer, most: int, field: str = "text") -> np.ndarray:
    """About `most` tokens of files of text or tokens, each one's share by its size; all where there are no more.

    Memory holds the sample and a document. A file that has more is read at 32 places spread over it; a compressed one
    from its beginning, where up to 15 of 16 documents are left out.

    Errors are those of `read_text` and `read_tokens`.
    """
    sizes = [path.stat().st_size for path in paths]
    due = [-(-most * size // max(sum(sizes), 1)) for size in sizes]
    parts = [part for path, share in zip(paths, due, strict=True) for part in _sampled(path, tokenizer, share, field)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def _sampled(path: Path, tokenizer: Tokenizer, most: int, field: str) -> Iterator[np.ndarray]:
    if path.name.endswith(TOKEN_ENDINGS):
        yield spread(_megatron(path)[0] if path.suffix == ".bin" else _mapped(path), most)
        return
    each = 1 if tokenizer.vocabulary == 256 else 4  # bytes of a token, about
    likely = _size(path, field) / each
    parts = STRETCHES if likely > most and not path.name.endswith(".gz") else 1
    share = 1.0 if parts > 1 else min(1.0, max(most / max(likely, 1), 1 / THINNEST))
    for part in range(parts):
        left = -(-most // parts)
        texts = (text for at, text in enumerate(read_text(path, field, part, parts)) if at * share % 1 < share)
        while left > 0 and (some := _take(texts, each * left)):
            made = np.concatenate(tokenizer.encode(some))
            if len(made) > left and tokenizer.end is not None:
                made[left - 1] = tokenizer.end
            yield made[:left]
            left -= len(made)


def _take(texts: Iterator[str], size: int) -> list[str]:
    """Some documents, of about so many characters in all, of which a long one is cut at twice as many."""
    found: list[str] = []
    while size > 0 and len(found) < AT_ONCE and (text := next(texts, None)) is not None:
        found.append(text[: 2 * size])
        size -= len(text)
    return found


def _size(path: Path, field: str) -> float:
    """About how many bytes of text a file has; how far a compressed one is packed its beginning tells."""
    size = path.stat().st_size
    if path.suffix == ".parquet":
        return STRETCHES * sum(len(text.encode()) for text in read_text(path, field, 0, STRETCHES))
    if path.suffix != ".gz":
        return size
    try:
        with path.open("rb") as raw, gzip.open(raw) as stream:
            seen = len(stream.read(BLOCK))
            return seen * size / raw.tell() if stream.read(1) else seen
    except (OSError, EOFError, zlib.error):  # which reading it tells of
        return size


def spread(tokens: np.ndarray, most: int) -> np.ndarray:
    """At most so many tokens of an array, in stretches that are spread over it."""
    if len(tokens) <= most:
        return np.asarray(tokens)
    length = most // STRETCHES
    starts = np.linspace(0, len(tokens) - length, STRETCHES).astype(np.int64)
    return np.concatenate([tokens[start : start + length] for start in starts])


def deal(tokens: np.ndarray, end: int | None, distance: int, most: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two halves of at most `most` tokens, and two of about `distance` tokens (a tenth at most) of other documents.

    The order is that of a hash of each document, so that the same one is never on two sides; a long one is cut.
    """
    piece = min(PIECE, len(tokens) // 50)
    bounds = bounds_of(tokens, end)
    cuts = -(-np.diff(bounds) // piece)  # pieces of each document
    start = np.repeat(bounds[:-1], cuts) + piece * (np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts))
    length = np.minimum(piece, np.repeat(bounds[1:], cuts) - start)
    turn = np.argsort(token_places(tokens, start, length), kind="stable")
    read = np.cumsum(length[turn])
    first = int(np.searchsorted(read, min(distance, len(tokens) // 10))) + 1
    last = max(int(np.searchsorted(read, read[first - 1] + most)) + 1, first + 2)

    def halves(chosen: IntArray) -> list[np.ndarray]:
        parts = [tokens[start[one] : start[one] + length[one]] for one in chosen]
        return [np.concatenate(parts[half::2]) for half in (0, 1)]

    return halves(turn[first:last]), halves(turn[:first])


# -- tokens ----------------------------------------------------------------------------------------------------


def read_tokens(path: Path, end: int | None) -> Documents:
    """The documents of a `.npy`, each ending after the token `end`, or of a `.bin`, by its index; empty ones left out.

    Raises
    ------
    DataError
        If the file holds no flat array of integers, or its index is missing or of another file.
    """
    if path.suffix == ".bin":
        tokens, start, length = _megatron(path)
    else:
        tokens = _mapped(path)
        bounds = bounds_of(tokens, end)
        start, length = bounds[:-1], np.diff(bounds)
    start, length = start[length > 0], length[length > 0]
    return Documents(tokens, start, length, token_places(tokens, start, length))


def token_places(tokens: np.ndarray, start: IntArray, length: IntArray) -> FloatArray:
    """Places of documents that come as tokens: a hash of each one's first tokens and its length."""
    found = length.astype(np.uint64)
    for turn in range(HEAD):
        found ^= tokens[start + np.minimum(turn, length - 1)].astype(np.uint64)
        found *= np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return (found >> np.uint64(11)) / 2.0**53


def _mapped(path: Path) -> np.ndarray:
    place = Location(file=str(path))
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"is not a NumPy array: {error}", location=place) from error
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise DataError(f"holds {tokens.dtype} of {tokens.ndim} axes, expected integers on one", location=place)
    return tokens


def bounds_of(tokens: np.ndarray, end: int | None) -> IntArray:
    """Where documents begin and end; without a token that says so, every 8,192 tokens."""
    blocks, ends = range(0, len(tokens), BLOCK), [np.arange(0, len(tokens), UNMARKED_DOCUMENT)]
    if end is not None:
        ends = [np.flatnonzero(tokens[at : at + BLOCK] == end) + (at + 1) for at in blocks]
    return np.unique(np.concatenate([[0], *ends, [len(tokens)]]))


def _megatron(path: Path) -> tuple[np.ndarray, IntArray, IntArray]:
    """Tokens of an indexed data set, and where its documents begin and how long they are."""
    index = path.with_suffix(".idx")
    try:
        raw = index.read_bytes()
        magic, _, code, sequences, ends = struct.unpack_from("<9sQBQQ", raw)
        tokens = np.memmap(path, dtype=MEGATRON_TYPES[code], mode="r")
        length = np.frombuffer(raw, "<i4", sequences, 34).astype(np.int64)
        pointer = np.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences) // tokens.itemsize
        document = np.frombuffer(raw, "<i8", ends, 34 + 12 * sequences)
        bounds = np.concatenate([pointer, (pointer + length)[-1:]])[document]
        follow = (pointer[1:] == (pointer + length)[:-1]).all() and (pointer + length).max(initial=0) <= len(tokens)
        if magic != MEGATRON_MAGIC or not follow or (length < 0).any() or (np.diff(document) < 0).any():
            raise ValueError("sequences and documents do not follow each other")
    except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
        raise DataError(f"is no Megatron index of {path.name}: {error}", location=Location(str(index))) from error
    return tokens, bounds[:-1], np.diff(bounds)
