"""A corpus of every kind of file, prepared once, and what tests read of either."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shapleymix_irds.commands import main as irds
from shapleymix_irds.train.data.corpus import Corpus, CorpusOptions, open_corpus
from shapleymix_irds.train.data.prepared.manifest import Settings, read_manifest
from shapleymix_irds.train.data.prepared.mapped import open_prepared
from shapleymix_irds.train.data.prepared.prepare import How, prepare
from shapleymix_irds.train.data.tokens import ByteTokenizer
from test_train_corpus import megatron, write

SETTINGS = Settings.of("bytes", 0, "text", 0.2, 0.2)
SHARES = ["--val-share", ".2", "--test-share", ".2"]
LANGUAGES = ("bin", "de", "en", "npy", "two")


def write_texts(folder: Path) -> Path:
    """A language of each kind, and one of two kinds."""
    (folder / "two").mkdir()
    for name in ("en.txt", "de.jsonl.gz", "two/1.parquet"):
        write(folder / Path(name).parent, Path(name).name)
    draw = np.random.default_rng(0)
    documents = [np.append(draw.integers(1, 200, size=draw.integers(20, 60)), 0) for _ in range(80)]
    megatron(folder / "bin.bin", documents)
    np.save(folder / "npy.npy", np.concatenate(documents).astype(np.int64))
    np.save(folder / "two" / "2.npy", np.concatenate(documents).astype(np.uint16))
    return folder


def prepare_texts(texts: Path, out: Path) -> Path:
    """The same prepared, in pieces."""
    prepare(texts, out, (), SETTINGS, How(piece=1500))
    return out


def raw(folder: Path, languages: tuple[str, ...] = LANGUAGES) -> Corpus:
    return open_corpus(str(folder), languages, CorpusOptions(ByteTokenizer(), 16, 0.2, 0.2, end=0))


def mapped(folder: Path, languages: tuple[str, ...] = LANGUAGES) -> Corpus:
    return open_prepared(folder, read_manifest(folder), languages, 16)


def content(folder: Path) -> dict[str, bytes]:
    """All that a prepared folder holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def cli(*words: object) -> int:
    return irds(["prepare", *map(str, words), "--jobs", "1"])
