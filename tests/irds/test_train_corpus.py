"""Corpora: every format gives the same tokens, splits are disjoint, faults are named."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from shapleymix_irds.train.data.corpus import Corpus, CorpusOptions, check_vocabulary, languages_in, open_corpus
from shapleymix_irds.train.data.documents import Documents, joined
from shapleymix_irds.train.data.pieces import Reading, read_piece
from shapleymix_irds.train.data.textfiles import read_documents
from shapleymix_irds.train.data.tokens import ByteTokenizer, FileTokenizer
from shapleymix_irds.train.data.toy import ALPHABET, toy_documents

from shapleymix.errors import DataError, ShapleyMixError, UsageError

OPTIONS = CorpusOptions(ByteTokenizer(), seq=16, val_share=0.2, test_share=0.2)
DOCUMENTS = [f"Document {number} has words; die Zahl {number * 7919 % 1000}.\nçé 日本" for number in range(80)]


def open_megatron(path: Path) -> Documents:
    return joined(read_piece(path, Reading(ByteTokenizer())))


def open_npy(path: Path, end: int | None = None) -> Documents:
    return joined(read_piece(path, Reading(ByteTokenizer(), end=end)))


def write(folder: Path, name: str) -> None:
    joined = "\n\n".join(DOCUMENTS) + "\n"
    lines = "".join(json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(DOCUMENTS))
    if name.endswith(".parquet"):
        polars.DataFrame({"text": DOCUMENTS}).write_parquet(folder / name)
        return
    data = (lines if ".jsonl" in name else joined).encode()
    if name.endswith(".zst"):
        data = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def texts(corpus: Corpus, split: str) -> set[str]:
    documents = getattr(corpus, split)[0].documents
    stretches = zip(documents.start, documents.length, strict=True)
    return {bytes(documents.parts[0][start : start + size]).decode().removesuffix("\0") for start, size in stretches}


@pytest.mark.parametrize(
    "name", ["en.txt", "en.txt.gz", "en.txt.zst", "en.jsonl", "en.jsonl.gz", "en.jsonl.zst", "en.parquet"]
)
def test_formats_give_the_same_documents_in_the_same_splits(tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    corpus = open_corpus(str(tmp_path), ("en",), OPTIONS)
    parts = [texts(corpus, split) for split in ("train", "val", "test")]
    assert set.union(*parts) == set(DOCUMENTS)
    assert sum(map(len, parts)) == len(DOCUMENTS)
    (tmp_path / "plain").mkdir()
    write(tmp_path / "plain", "en.txt")
    assert texts(open_corpus(str(tmp_path / "plain"), ("en",), OPTIONS), "test") == parts[2]


def test_a_folder_holds_parts_of_a_language(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    write(tmp_path / "en", "1.txt")
    write(tmp_path / "en", "2.jsonl")
    write(tmp_path, "de.txt")
    assert list(languages_in(str(tmp_path))) == ["de", "en"]
    corpus = open_corpus(str(tmp_path), ("en", "de"), OPTIONS)
    assert abs(corpus.train[0].tokens - 2 * corpus.train[1].tokens) <= corpus.train[1].tokens * 0.05


@pytest.mark.parametrize("second", ["en.jsonl", "en/1.txt"])
def test_two_sources_of_a_language_are_refused(tmp_path: Path, second: str) -> None:
    write(tmp_path, "en.txt")
    (tmp_path / second).parent.mkdir(exist_ok=True)
    write((tmp_path / second).parent, Path(second).name)
    with pytest.raises(DataError, match=r"(?s)en.txt: is language 'en' as well as en.*put both into a folder en/"):
        languages_in(str(tmp_path))


def test_a_folder_with_the_name_of_a_file_is_refused_and_one_without_text_is_none(tmp_path: Path) -> None:
    write(tmp_path, "de.txt")
    (tmp_path / "notes").mkdir()
    assert list(languages_in(str(tmp_path))) == ["de"]
    (tmp_path / "en.txt").mkdir()
    with pytest.raises(DataError, match=r"en\.txt: is a folder with the name of a file"):
        languages_in(str(tmp_path))


def test_a_document_twice_is_on_one_side_whatever_the_language(tmp_path: Path) -> None:
    write(tmp_path, "en.txt")
    write(tmp_path, "de.jsonl")
    corpus = open_corpus(str(tmp_path), ("en", "de"), OPTIONS)
    places = [np.sort(stream.documents.place) for stream in corpus.test]
    assert np.array_equal(places[0], places[1])


def test_windows_walk_over_the_documents_end_to_end(tmp_path: Path) -> None:
    write(tmp_path, "en.txt")
    stream = open_corpus(str(tmp_path), ("en",), OPTIONS).train[0]
    documents = stream.documents
    flat = np.concatenate(
        [documents.parts[0][a : a + n] for a, n in zip(documents.start, documents.length, strict=True)]
    )
    assert len(flat) == stream.tokens
    assert stream.windows == (len(flat) - 1) // 16
    for number in range(stream.windows):
        assert np.array_equal(stream.window(number), flat[16 * number : 16 * number + 17])


def megatron(path: Path, documents: list[np.ndarray], dtype: str = "<u2") -> None:
    """Write an indexed data set as Megatron does; every document is two sequences."""
    halves = [half for each in documents for half in np.array_split(each, 2)]
    data = np.concatenate(halves).astype(dtype)
    path.write_bytes(data.tobytes())
    write_index(path, [len(half) for half in halves], range(0, len(halves) + 1, 2), data.dtype)


def write_index(path: Path, lengths: Sequence[int], documents: Sequence[int], dtype: Any = "<u2") -> None:
    sizes, width = np.array(lengths, dtype="<i4"), np.dtype(dtype).itemsize
    pointers = ((np.cumsum(sizes) - sizes) * width).astype("<i8")
    ends = np.array(documents, dtype="<i8")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, {2: 8, 4: 4}[width], len(sizes), len(ends))
    path.with_suffix(".idx").write_bytes(head + sizes.tobytes() + pointers.tobytes() + ends.tobytes())


def test_megatron_and_numpy_files_are_mapped_with_their_documents(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    documents = [np.append(draw.integers(1, 900, size=draw.integers(5, 40)), 0) for _ in range(60)]
    megatron(tmp_path / "en.bin", documents)
    np.save(tmp_path / "de.npy", np.concatenate(documents).astype(np.uint16))
    left, right = open_megatron(tmp_path / "en.bin"), open_npy(tmp_path / "de.npy", end=0)
    assert isinstance(left.parts[0], np.memmap)
    assert isinstance(right.parts[0], np.memmap)
    assert left.length.tolist() == right.length.tolist() == [len(each) for each in documents]
    assert np.array_equal(left.start, right.start)
    options = CorpusOptions(ByteTokenizer(), 16, 0.2, 0.2, end=0)
    corpus = open_corpus(str(tmp_path), ("en", "de"), options)
    assert np.array_equal(corpus.train[0].window(3), corpus.train[1].window(3))
    with pytest.raises(UsageError, match=r"has the token \d+, but --vocab is 256"):
        check_vocabulary(corpus, 256)
    check_vocabulary(corpus, 900)


def test_ready_made_documents_have_their_side_by_their_tokens(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    documents = [np.append(draw.integers(1, 900, size=40), 0) for _ in range(60)]
    megatron(tmp_path / "a.bin", documents)
    megatron(tmp_path / "b.bin", documents[::-1], "<i4")
    places = open_megatron(tmp_path / "a.bin").place
    assert np.array_equal(places, open_megatron(tmp_path / "b.bin").place[::-1])
    shards = []
    for number, tokens in enumerate(documents):
        np.save(tmp_path / f"{number}.npy", tokens)
        shards.append(float(open_npy(tmp_path / f"{number}.npy", end=0).place[0]))
    assert places.tolist() == shards
    assert len(set(shards)) == 60
    assert 0.2 < np.mean(places) < 0.8


def test_empty_documents_of_megatron_count_nothing(tmp_path: Path) -> None:
    path = tmp_path / "en.bin"
    path.write_bytes(np.arange(30, dtype="<u2").tobytes())
    write_index(path, [10, 0, 10, 10], [0, 0, 1, 1, 2, 3, 4, 4])
    documents = open_megatron(path)
    assert (documents.start.tolist(), documents.length.tolist()) == ([0, 10, 20], [10, 10, 10])


@pytest.mark.parametrize(
    ("lengths", "documents", "words"),
    [
        ([10, -10, 20], [0, 1, 2, 3], r"en\.idx: sequence 1 has -10 tokens, expected 0 or more"),
        ([10, 10], [0, 2, 1], r"en\.idx: its documents do not begin at sequence 0 and end at 2"),
        ([10, 10], [0, 5], r"en\.idx: its documents do not begin at sequence 0 and end at 2"),
        ([10, 10], [], r"en\.idx: its documents do not begin at sequence 0 and end at 2"),
        ([10, 30], [0, 1, 2], r"en\.bin: is shorter than its index says: 60 bytes, expected 80"),
    ],
)
def test_faults_of_an_index_are_named(tmp_path: Path, lengths: list[int], documents: list[int], words: str) -> None:
    path = tmp_path / "en.bin"
    path.write_bytes(np.arange(30, dtype="<u2").tobytes())
    write_index(path, lengths, documents)
    with pytest.raises(DataError, match=words):
        open_megatron(path)


def test_sequences_of_a_document_that_lie_apart_and_an_empty_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "en.bin"
    path.write_bytes(np.arange(30, dtype="<u2").tobytes())
    write_index(path, [10, 10, 10], [0, 1, 3])
    index = path.with_suffix(".idx")
    raw = bytearray(index.read_bytes())
    struct.pack_into("<q", raw, 34 + 12 + 16, 0)  # the third sequence is said to begin at byte 0
    index.write_bytes(raw)
    with pytest.raises(DataError, match="sequence 2 does not follow the one before in its document"):
        open_megatron(path)
    path.write_bytes(b"")
    write_index(path, [10], [0, 1])
    with pytest.raises(DataError, match=r"en\.bin: is empty"):
        open_megatron(path)


@pytest.mark.parametrize(("token", "kind"), [(-5, DataError), (300, UsageError)])
def test_one_token_outside_the_vocabulary_is_found_wherever_it_is(
    tmp_path: Path, token: int, kind: type[ShapleyMixError]
) -> None:
    (tmp_path / "en").mkdir()
    tokens = np.random.default_rng(0).integers(0, 250, size=600_000).astype(np.int32)
    np.save(tmp_path / "en" / "1.npy", tokens)
    check_vocabulary(open_corpus(str(tmp_path), ("en",), OPTIONS), 256)
    tokens[123_457] = token
    np.save(tmp_path / "en" / "2.npy", tokens)
    with pytest.raises(kind, match=rf"en/2\.npy: language 'en' has the token {token}"):
        check_vocabulary(open_corpus(str(tmp_path), ("en",), OPTIONS), 256)


def test_the_fingerprint_is_of_the_whole_corpus_and_of_nothing_else(tmp_path: Path) -> None:
    def found(name: str) -> str:
        return open_corpus(str(tmp_path / name), ("en",), OPTIONS).fingerprint

    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / name).mkdir()
    write(tmp_path / "a", "en.txt")
    write(tmp_path / "b", "en.jsonl.gz")
    path = tmp_path / "c" / "en.txt"
    write(tmp_path / "c", "en.txt")
    path.write_bytes(path.read_bytes().replace(b"Document 40 has", b"Document 40 hat"))
    assert found("a") == found("b") != found("c")
    tokens = np.arange(200_000, dtype=np.uint16) % 250
    np.save(tmp_path / "d" / "en.npy", tokens)
    before = found("d")
    np.save(tmp_path / "e" / "en.npy", tokens.astype(np.int32))
    assert found("e") == before
    tokens[100_000] += 1
    np.save(tmp_path / "e" / "en.npy", tokens)
    assert found("e") != before


def test_an_array_without_marks_is_cut_into_stretches(tmp_path: Path) -> None:
    np.save(tmp_path / "en.npy", np.arange(20_000, dtype=np.int32) % 200)
    documents = open_npy(tmp_path / "en.npy")
    assert documents.length.tolist() == [8192, 8192, 3616]


def test_a_tokenizer_file_marks_ends_and_gives_its_vocabulary(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1, "b": 2, "[UNK]": 3}, "[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "t.json"))
    tokenizer = FileTokenizer(tmp_path / "t.json")
    assert tokenizer.vocabulary == 4
    assert [each.tolist() for each in tokenizer.encode(["a b", "b x"])] == [[1, 2, 0], [2, 3, 0]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("en.txt", b"\xff\xfe bad", "is not UTF-8"),
        ("en.txt.gz", b"not gzip", "cannot be read"),
        ("en.txt.gz", gzip.compress(b"text" * 999, mtime=0)[:-20], "cannot be read"),
        ("en.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', r"en.jsonl:2: has no text in the field 'text'"),
        ("en.jsonl", b'{"text": "a"}\n{"text": \n', r"en.jsonl:2: is not JSON"),
        ("en.jsonl", rb'{"text": "\ud83d\ude00 \ud800"}', r"en.jsonl:1: has half a character, .ud800"),
        ("en.jsonl", b"[" * 100_000, r"en.jsonl:1: is not JSON that can be read"),
        ("en.jsonl", b'{"n": ' + b"9" * 5000 + b"}\n", r"en.jsonl:1: is not JSON that can be read"),
        ("en.parquet", b"PAR1", "cannot be read"),
        ("en.npy", b"no array", "is not a NumPy array"),
        ("en.bin", b"\0\0", "lacks its .idx file"),
        ("en.txt", b"one short document", "separate documents by an empty line"),
        ("en.txt", b"", "has 0 documents"),
    ],
)
def test_faults_of_files_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        open_corpus(str(tmp_path), ("en",), OPTIONS)


def test_a_zstd_file_of_many_frames_is_read_whole_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    frames = [zstandard.ZstdCompressor().compress(f"{text}\n\n".encode()) for text in DOCUMENTS]
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"note"
    path = tmp_path / "en.txt.zst"
    path.write_bytes(skipped + b"".join(frames))
    assert list(read_documents(path)) == DOCUMENTS
    for cut in (1, 10, len(frames[-1]) - 1):
        path.write_bytes(b"".join(frames)[:-cut])
        with pytest.raises(DataError, match=r"en\.txt\.zst: cannot be read: the file ends within a compressed frame"):
            list(read_documents(path))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path, "german.txt")
    with pytest.raises(UsageError, match="did you mean 'german'"):
        open_corpus(str(tmp_path), ("germa",), OPTIONS)
    with pytest.raises(UsageError, match="there is no such folder"):
        open_corpus(str(tmp_path / "none"), ("en",), OPTIONS)
    polars.DataFrame({"body": ["a"]}).write_parquet(tmp_path / "en.parquet")
    with pytest.raises(DataError, match="there is no such column"):
        open_corpus(str(tmp_path), ("en",), OPTIONS)
    with pytest.raises(ShapleyMixError, match="no such tokenizer"):
        FileTokenizer(tmp_path / "none.json")


def test_toy_languages_share_the_words_that_are_promised() -> None:
    promised = 1.0 - 0.25 * np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    words = [
        {word for text in toy_documents(index, 0.75, 40_000) for word in text.rstrip(".").split()} for index in range(4)
    ]
    found = [[len(left & right) / len(left) for right in words] for left in words]
    assert np.allclose(found, promised)
    assert set("".join(words[0])) <= set(ALPHABET)


def test_toy_text_follows_the_seed_and_extremes_work() -> None:
    assert toy_documents(1, 0.5, 2000) == toy_documents(1, 0.5, 2000)
    assert toy_documents(1, 0.5, 2000) != toy_documents(2, 0.5, 2000)
    first, second = (set(" ".join(toy_documents(index, 0.0, 20_000)).replace(".", "").split()) for index in (0, 1))
    assert not first & second
    assert toy_documents(0, 1.0, 20_000)[0].split()[0] in " ".join(toy_documents(1, 1.0, 20_000))
    with pytest.raises(UsageError, match="outside 0 to 1"):
        toy_documents(0, 1.5, 10)


def test_two_spellings_of_a_name_are_one_language(tmp_path: Path) -> None:
    """As the core has it: Unicode writes é as one character or as two."""
    pytest.importorskip("torch")
    from shapleymix_irds.train.config import TrainConfig
    from shapleymix_irds.train.launch import language_names

    (tmp_path / "e\u0301.txt").write_text("text")
    assert list(languages_in(str(tmp_path))) == ["\u00e9"]
    assert language_names(TrainConfig(languages="e\u0301,b", corpus=str(tmp_path))) == ("\u00e9", "b")
    with pytest.raises(UsageError, match="twice"):
        language_names(TrainConfig(languages="e\u0301,\u00e9", corpus=str(tmp_path)))
