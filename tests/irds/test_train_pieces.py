"""Pieces of a file are its documents, each once, wherever it is cut; and no file is ever whole in memory."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapleymix_irds.train.data import textfiles
from shapleymix_irds.train.data.documents import joined
from shapleymix_irds.train.data.pieces import Reading, cut, read_piece
from shapleymix_irds.train.data.textfiles import cut_text, read_documents
from shapleymix_irds.train.data.tokens import ByteTokenizer
from test_train_corpus import DOCUMENTS, megatron, write

from shapleymix.errors import DataError

READING = Reading(ByteTokenizer())
SIZES = (1, 40, 300, 999, 10**9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["en.txt", "en.jsonl", "en.parquet", "en.txt.gz", "en.jsonl.zst"])
def test_pieces_of_text_are_its_documents(tmp_path: Path, name: str, size: int) -> None:
    write(tmp_path, name)
    bounds = cut(tmp_path / name, size, None)
    pieces = [read_documents(tmp_path / name, "text", *each) for each in pairwise(bounds)]
    assert [text for piece in pieces for text in piece] == DOCUMENTS
    assert name.endswith(("z", "zst")) or (len(bounds) > 40) == (size <= 40)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.sampled_from(["a", "日", " ", "\t", "\u3000", "", "", "\r", "b c", "\x0c"]), max_size=25),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 30),
    step=st.integers(1, 9),
)
def test_wherever_a_text_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: str, size: int, step: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    path.write_bytes(ends.join(lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textfiles, "CUT_AT_ONCE", step)
        bounds = cut_text(path, size)
    found = [text for pair in pairwise(bounds) for text in read_documents(path, "text", *pair)]
    assert found == list(read_documents(path))
    assert bounds == sorted(set(bounds)) or bounds == [0, 0]


@pytest.mark.parametrize("size", [1, 50, 200, 10**9])
@pytest.mark.parametrize("end", [0, None])
def test_pieces_of_tokens_are_their_documents(tmp_path: Path, size: int, end: int | None) -> None:
    draw = np.random.default_rng(0)
    documents = [np.append(draw.integers(1, 900, size=draw.integers(5, 40)), 0) for _ in range(60)]
    megatron(tmp_path / "en.bin", documents)
    tokens = np.concatenate([*documents, [5, 5]] if end == 0 else documents * 20)
    np.save(tmp_path / "de.npy", tokens.astype(np.uint16))
    reading = Reading(ByteTokenizer(), end=end)
    for name in ("en.bin", "de.npy"):
        bounds = cut(tmp_path / name, size, end)
        pairs = pairwise(bounds)
        parts = joined(each for pair in pairs for each in read_piece(tmp_path / name, reading, *pair))
        whole = joined(read_piece(tmp_path / name, reading))
        assert np.array_equal(parts.rows(), whole.rows())
        assert np.array_equal(parts.flat(), whole.flat())
        assert len(bounds) > 1
        assert (len(bounds) > 2) == (size < 10**9)


def test_a_fault_within_a_piece_has_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "en.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(50)) + '{"txt": 1}\n')
    bounds = cut_text(path, 200)
    assert len(bounds) > 4
    with pytest.raises(DataError, match=r"en\.jsonl:51: has no text in the field 'text'"):
        list(read_documents(path, "text", *bounds[-2:]))


@pytest.mark.parametrize("name", ["en.txt", "en.jsonl"])
@pytest.mark.parametrize("content", ["word " * 999, "line\n" * 999])
def test_a_document_that_has_no_end_is_refused(
    tmp_path: Path, name: str, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textfiles, "LONGEST", 1000)
    (tmp_path / name).write_text(content if name == "en.txt" else json.dumps({"text": content}))
    with pytest.raises(DataError, match=f"{name}: has a document of more than 0M characters"):
        list(read_documents(tmp_path / name))


@pytest.mark.parametrize("name", ["en.txt", "en.txt.zst", "en.parquet", "en.jsonl.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    texts = [draw.bytes(5500).hex() for _ in range(3000)]  # 33 MB
    monkeypatch.setattr(textfiles, "ROWS_AT_ONCE", 100)
    if name.endswith(".parquet"):
        polars.DataFrame({"text": texts}).write_parquet(tmp_path / name, row_group_size=100)
    else:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        data = (lines if ".jsonl" in name else "\n\n".join(texts)).encode()
        packed = {
            ".gz": lambda plain: gzip.compress(plain, 1),
            "zst": pytest.importorskip("zstandard").ZstdCompressor().compress,
        }
        (tmp_path / name).write_bytes(packed.get(name[-3:], lambda plain: plain)(data))
    del texts
    tracemalloc.start()
    assert sum(len(documents.length) for documents in read_piece(tmp_path / name, READING)) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6, peak


def test_a_stretch_reads_no_more_than_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "en.txt"
    path.write_text("\n\n".join(["some words"] * 100_000))
    bounds = cut_text(path, 100_000)
    read: list[int] = []
    plain = Path.open

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            read.append(len(found))
            return found

    monkeypatch.setattr(Path, "open", lambda self, *_: Counted(io.FileIO(self)))
    assert len(list(read_documents(path, "text", *bounds[3:5]))) > 1000
    assert sum(read) == bounds[4] - bounds[3]
    monkeypatch.setattr(Path, "open", plain)
