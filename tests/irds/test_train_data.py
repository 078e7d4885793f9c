"""The data of a run: every format gives the same documents, splits are disjoint, faults are named, ratios are exact."""

import gzip
import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from shapleymix_irds.train.corpus import (
    Sampler,
    Stream,
    deal,
    open_corpus,
    passes,
    share_of_rank,
    shuffled,
    spread,
    toy_documents,
)
from shapleymix_irds.train.settings import TrainingSettings

from shapleymix.errors import DataError, ShapleyMixError, UsageError
from shapleymix.tables.documents import Tokenizer, languages_in, read_file, read_tokens, text_place

DOCUMENTS = [f"Document {number} has words; die Zahl {number * 7919 % 1000}.\nçé 日本" for number in range(80)]
BYTES = Tokenizer("bytes")


def options(folder: Path, **more: Any) -> TrainingSettings:
    return TrainingSettings(**{"corpus": str(folder), "seq": 16, "val_share": 0.2, "test_share": 0.2, **more})


def write(path: Path, documents: list[str] = DOCUMENTS) -> Path:
    """A file of the documents, of the kind that its name says."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        polars.DataFrame({"text": documents}).write_parquet(path)
        return path
    lines = "".join(json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(documents))
    data = (lines if ".jsonl" in path.name else "\n \n\n".join(documents) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def megatron(path: Path, documents: list[np.ndarray], dtype: str = "<u2", **wrong: Any) -> Path:
    """An indexed data set as Megatron writes it, every document in two sequences; `wrong` replaces parts."""
    halves = [half for each in documents for half in np.array_split(each, 2)]
    path.write_bytes(np.concatenate(halves).astype(dtype).tobytes())
    sizes, width = wrong.get("sizes", [len(half) for half in halves]), np.dtype(dtype).itemsize
    pointers = wrong.get("pointers", (np.cumsum(sizes) - sizes) * width)
    bounds = wrong.get("bounds", range(0, len(halves) + 1, 2))
    head = wrong.get("magic", b"MMIDIDX\x00\x00") + struct.pack(
        "<QBQQ", 1, {2: 8, 4: 4}[width], len(sizes), len(bounds)
    )
    parts = (np.array(sizes, "<i4"), np.array(pointers, "<i8"), np.array(bounds, "<i8"))
    path.with_suffix(".idx").write_bytes(head + b"".join(part.tobytes() for part in parts))
    return path


def tokens(seed: int = 0, count: int = 60) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [np.append(draw.integers(1, 900, size=draw.integers(5, 40)), 0) for _ in range(count)]


def flat(stream: Stream) -> np.ndarray:
    """The tokens of a stream's windows, end to end."""
    rows = [stream.window(number) for number in range(stream.windows)]
    return np.concatenate([*(row[:-1] for row in rows), rows[-1][-1:]])


# -- text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["en.txt", "en.txt.gz", "en.jsonl", "en.jsonl.gz", "en.parquet", "en/1.txt"])
def test_formats_give_the_same_documents(name: str, tmp_path: Path) -> None:
    found = read_file(write(tmp_path / name), "text", BYTES, None)
    expected = "".join(f"{text}\0" for text in DOCUMENTS).encode()
    assert (bytes(found.tokens), found.place.tolist()) == (expected, [text_place(text) for text in DOCUMENTS])
    assert open_corpus(options(tmp_path)).fingerprint == _plain_fingerprint(tmp_path)


def _plain_fingerprint(folder: Path) -> str:
    write(folder / "plain" / "en.txt")
    return open_corpus(options(folder / "plain")).fingerprint


def test_a_document_is_on_one_side_whatever_the_language_file_or_order(tmp_path: Path) -> None:
    write(tmp_path / "en" / "1.txt", DOCUMENTS[40:])
    write(tmp_path / "en" / "2.jsonl", DOCUMENTS[:40])
    write(tmp_path / "de.txt", DOCUMENTS)
    corpus = open_corpus(options(tmp_path))
    assert corpus.languages == ("de", "en")
    for split in (corpus.train, corpus.val, corpus.test):
        assert split[0].tokens == split[1].tokens > 0
    assert (
        sum(part[0].tokens for part in (corpus.train, corpus.val, corpus.test))
        == len("\0".join(DOCUMENTS).encode()) + 1
    )


def test_windows_walk_over_the_documents_end_to_end(tmp_path: Path) -> None:
    write(tmp_path / "en.txt")
    stream = open_corpus(options(tmp_path)).train[0]
    expected = b"".join(f"{text}\0".encode() for text in DOCUMENTS if text_place(text) >= 0.4)
    assert stream.tokens == len(expected)
    assert bytes(flat(stream).astype(np.uint8)) == expected[: stream.windows * 16 + 1]
    assert (len(spread(stream, 5)), spread(stream, 10**6).tolist()) == (5, list(range(stream.windows)))


def test_the_fingerprint_is_of_the_documents(tmp_path: Path) -> None:
    write(tmp_path / "a" / "en.txt")
    write(tmp_path / "b" / "en.txt", [text.replace("Document 40 has", "Document 40 hat") for text in DOCUMENTS])
    assert open_corpus(options(tmp_path / "a")).fingerprint != open_corpus(options(tmp_path / "b")).fingerprint


def test_a_tokenizer_file_marks_ends_and_gives_its_vocabulary(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1, "b": 2, "[UNK]": 3}, "[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer(str(tmp_path / "t.json"))
    assert (tokenizer.vocabulary, tokenizer.end) == (4, 0)
    assert [each.tolist() for each in tokenizer.encode(["a b", "b x"])] == [[1, 2, 0], [2, 3, 0]]
    assert Tokenizer(str(tmp_path / "t.json"), end=2).end == 2


def test_toy_languages_share_words_as_far_as_they_are_neighbours() -> None:
    texts = [" ".join(toy_documents(index, 0.75, 60_000)).replace(".", " ") for index in range(3)]
    words = [set(text.split()) for text in texts]
    shared = [len(words[0] & each) / 64 for each in words]
    assert shared == pytest.approx([1, 0.75, 0.5], abs=0.04)


# -- tokens ----------------------------------------------------------------------------------------------------


def test_token_files_are_mapped_and_split_by_their_documents(tmp_path: Path) -> None:
    documents = tokens()
    left = read_tokens(megatron(tmp_path / "en.bin", documents), None)
    np.save(tmp_path / "de.npy", np.concatenate(documents).astype(np.int32))
    right = read_tokens(tmp_path / "de.npy", 0)
    assert isinstance(left.tokens, np.memmap)
    assert isinstance(right.tokens, np.memmap)
    assert left.length.tolist() == right.length.tolist() == [len(each) for each in documents]
    assert np.array_equal(left.start, right.start)
    assert np.array_equal(left.place, right.place)
    turned = read_tokens(megatron(tmp_path / "fr.bin", documents[::-1], "<i4"), None)
    assert np.array_equal(turned.place[::-1], left.place)
    assert len(set(left.place)) == 60
    assert 0.35 < left.place.mean() < 0.65
    corpus = open_corpus(options(tmp_path, end_token=0, vocab=900))
    assert corpus.fingerprint
    assert np.array_equal(flat(corpus.train[0]), flat(corpus.train[1]))


def test_an_array_without_marks_is_cut_into_stretches_and_empty_documents_count_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "en.npy", np.arange(20_000, dtype=np.int32) % 200)
    assert read_tokens(tmp_path / "en.npy", None).length.tolist() == [8192, 8192, 3616]
    path = megatron(tmp_path / "en.bin", tokens(0, 3), sizes=[10, 0, 10, 10], bounds=[0, 0, 1, 1, 2, 3, 4, 4])
    found = read_tokens(path, None)
    assert (found.start.tolist(), found.length.tolist()) == ([0, 10, 20], [10, 10, 10])


@pytest.mark.parametrize("token", [-5, 300])
def test_a_token_outside_the_vocabulary_is_found(token: int, tmp_path: Path) -> None:
    found = np.random.default_rng(0).integers(0, 250, size=200_000)
    found[::5] = token
    np.save(tmp_path / "en.npy", found)
    stream = open_corpus(options(tmp_path)).train[0]
    with pytest.raises(UsageError) as caught:
        stream.window(0)
    assert str(token) in caught.value.message
    assert "--vocab" in str(caught.value.hint)


INDEX_FAULTS: dict[str, dict[str, Any]] = {
    "another format": {"magic": b"XXIDIDX\x00\x00"},
    "a negative size": {"sizes": [10, -10, 20, 0], "bounds": [0, 1, 2, 3, 4]},
    "beyond the file": {"sizes": [10, 900], "bounds": [0, 1, 2]},
    "turned bounds": {"sizes": [10, 10], "bounds": [0, 2, 1]},
    "bounds beyond": {"sizes": [10, 10], "bounds": [0, 5]},
    "a gap": {"sizes": [10, 10], "pointers": [0, 40], "bounds": [0, 2]},
}


@pytest.mark.parametrize("fault", INDEX_FAULTS.values(), ids=INDEX_FAULTS)
def test_faults_of_an_index_are_named(fault: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_tokens(megatron(tmp_path / "en.bin", tokens(0, 3), **fault), None)
    assert caught.value.location.file == str(tmp_path / "en.idx")


# -- faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("en.txt", b"\xff\xfe bad", None), ("en.txt.gz", b"not gzip", None),
        ("en.txt.gz", gzip.compress(b"text" * 999, mtime=0)[:-20], None),
        ("en.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', 2), ("en.jsonl", b'{"text": "a"}\n{"text": \n', 2),
        ("en.jsonl", rb'{"text": "\ud83d\ude00 \ud800"}', 1), ("en.jsonl", b"[" * 100_000, 1),
        ("en.jsonl", b"[1]\n", 1), ("en.parquet", b"PAR1", None), ("en.npy", b"no array", None),
        ("en.bin", b"\0\0", None),
    ],
)  # fmt: skip
def test_faults_of_files_are_named(tmp_path: Path, name: str, content: bytes, line: int | None) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        open_corpus(options(tmp_path))
    assert caught.value.location.file == str(tmp_path / name.replace(".bin", ".idx"))
    assert caught.value.location.line == line


def _few(folder: Path) -> None:
    write(folder / "en.txt", ["one short document"])


def _twice(folder: Path) -> None:
    write(folder / "en.txt")
    write(folder / "en" / "1.jsonl")


def _number(folder: Path) -> None:
    polars.DataFrame({"text": [1, 2]}).write_parquet(folder / "en.parquet")


def _large(folder: Path) -> None:
    with (folder / "en.txt").open("wb") as stream:
        stream.truncate(5 << 30)  # of holes


@pytest.mark.parametrize(
    ("made", "more", "kind"),
    [
        (_few, {}, DataError), (_twice, {}, DataError), (_number, {}, DataError), (_large, {}, UsageError),
        (lambda folder: None, {}, UsageError),
        (lambda folder: write(folder / "en.txt"), {"languages": "en,fr"}, UsageError),
        (lambda folder: write(folder / "en.txt"), {"languages": "en,en"}, UsageError),
        (lambda folder: write(folder / "en.txt"), {"tokenizer": "absent.json"}, DataError),
        (lambda folder: write(folder / "en.txt"), {"corpus": "absent"}, UsageError),
    ],
)  # fmt: skip
def test_faults_of_a_corpus_are_named(
    made: Callable[[Path], None], more: dict[str, Any], kind: type[ShapleyMixError], tmp_path: Path
) -> None:
    made(tmp_path)
    with pytest.raises(kind):
        open_corpus(options(tmp_path, **more))


def test_a_folder_without_text_is_no_language(tmp_path: Path) -> None:
    write(tmp_path / "de.txt")
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("text")
    assert list(languages_in(str(tmp_path))) == ["de"]


# -- which sequence comes next ---------------------------------------------------------------------------------

RATIOS = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(sum).map(lambda a: np.array(a) / sum(a))


@settings(max_examples=60, deadline=None)
@given(ratios=RATIOS, n=st.integers(1, 300))
def test_counts_stay_within_a_sequence_of_their_due(ratios: np.ndarray, n: int) -> None:
    chosen = deal(ratios, np.zeros(len(ratios), np.int64), n)
    counts = np.cumsum(chosen[:, None] == np.arange(len(ratios)), axis=0)
    due = ratios * np.arange(1, n + 1)[:, None]
    assert (counts < due + 1).all()
    assert (counts > due - len(ratios)).all()
    assert not np.isin(chosen, np.flatnonzero(ratios == 0)).any()


@settings(max_examples=60, deadline=None)
@given(ratios=RATIOS, cuts=st.lists(st.integers(1, 40), min_size=2, max_size=6), ranks=st.integers(1, 4))
def test_dealing_in_parts_and_to_ranks_is_dealing_at_once(ratios: np.ndarray, cuts: list[int], ranks: int) -> None:
    windows = np.full(len(ratios), 7)
    whole, parts = Sampler(ratios, windows, 3), Sampler(ratios, windows, 3)
    languages, places = whole.take(sum(cuts))
    first = parts.take(cuts[0])
    resumed = [Sampler(ratios, windows, 3, parts.counts) for _ in range(ranks)]
    rest = [each.take(sum(cuts[1:]), rank, ranks) for rank, each in enumerate(resumed)]
    assert np.array_equal(languages, np.concatenate([first[0], *(piece[0] for piece in rest)]))
    assert np.array_equal(places, np.concatenate([first[1], *(piece[1] for piece in rest)]))
    assert all(np.array_equal(whole.counts, each.counts) for each in resumed)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 500), key=st.text(max_size=5))
def test_an_order_is_a_permutation(size: int, key: str) -> None:
    assert sorted(shuffled(place, size, key) for place in range(size)) == list(range(size))


def test_each_epoch_sees_every_window_once_in_an_order_of_its_own() -> None:
    _, places = Sampler(np.array([1.0]), np.array([23]), 5).take(3 * 23)
    epochs = [tuple(epoch) for epoch in places.reshape(3, 23).tolist()]
    assert all(sorted(epoch) == list(range(23)) for epoch in epochs)
    assert len(set(epochs)) == 3
    assert abs(np.corrcoef(epochs[0], np.arange(23))[0, 1]) < 0.5


def test_every_rank_makes_the_same_passes_and_has_a_sequence_in_each() -> None:
    for n, ranks, micro in itertools.product(range(4, 20), (1, 2, 3, 4), (0, 1, 2, 3, 5)):
        count = passes(n, micro, ranks)
        shares = [len(range(n)[share_of_rank(n, rank, ranks)]) for rank in range(ranks)]
        assert max(-(-share // count) for share in shares) <= (micro or max(shares))
        assert min(shares) >= count or (micro == 1 and n % ranks)
