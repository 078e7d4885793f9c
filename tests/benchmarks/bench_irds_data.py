"""What a start of a run reads, unprepared and prepared, and what 100B tokens on 512 ranks make of it.

    python tests/benchmarks/bench_irds_data.py [--tokens 100M]

Measured here: hashing and scanning of tokens that nobody has prepared (what each rank did at each start), preparing
them, checking them, and starting on 100B prepared tokens of 20 languages, which are holes in sparse files, so that a
byte of them that was read would count and not cost. Reckoned from that: 64 nodes of 8 ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "benchmarks")]

import numpy as np  # noqa: E402
from _report import finish, must, row, table  # noqa: E402
from shapleymix_irds.train.data.corpus import CorpusOptions, check_vocabulary, open_corpus  # noqa: E402
from shapleymix_irds.train.data.feed import Feed, Share  # noqa: E402
from shapleymix_irds.train.data.prepared.manifest import MANIFEST, Settings, read_manifest  # noqa: E402
from shapleymix_irds.train.data.prepared.mapped import open_prepared  # noqa: E402
from shapleymix_irds.train.data.prepared.prepare import How, prepare  # noqa: E402
from shapleymix_irds.train.data.prepared.verify import verify  # noqa: E402
from shapleymix_irds.train.data.sampler import Sampler  # noqa: E402
from shapleymix_irds.train.data.tokens import ByteTokenizer  # noqa: E402
from shapleymix_irds.train.setup import validation  # noqa: E402

from shapleymix.tables.sizes import parse_size  # noqa: E402

LANGUAGES, D, RANKS, NODES, SEQ, BATCH, POOL = 20, 100e9, 512, 64, 4096, 512, 256
DOCUMENT = 800  # tokens of a document, on the average
END, VOCABULARY, WIDTH = 0, 60_000, 2


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds of some work."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def make(folder: Path, tokens: int) -> None:
    """A flat array of one language, of documents of random lengths."""
    draw = np.random.default_rng(0)
    found = draw.integers(1, VOCABULARY, size=tokens, dtype=np.uint16)
    ends = np.cumsum(draw.integers(DOCUMENT // 2, 3 * DOCUMENT // 2, size=tokens // DOCUMENT))
    found[ends[ends < tokens]] = END
    np.save(folder / "en.npy", found)


def rates(folder: Path, tokens: int) -> dict[str, float]:
    """CPU seconds for a billion tokens of each kind of work."""
    settings, options = Settings.of("bytes", END, "text", 0.05, 0.05), CorpusOptions(ByteTokenizer(), SEQ, end=END)

    def start() -> None:
        corpus = open_corpus(str(folder / "raw"), ("en",), options)
        check_vocabulary(corpus, VOCABULARY)
        _ = corpus.fingerprint

    work = {
        "start on unprepared tokens: hash, scan": start,
        "prepare, one process": lambda: prepare(folder / "raw", folder / "out", ("en",), settings, How(1)),
        "prepare --verify, one process": lambda: verify(folder / "out"),
    }
    table(f"One process, {tokens / 1e6:.0f}M tokens of 2 bytes", "work", "CPU s a billion", "wall s a billion", "MB/s")
    found = {}
    for name, each in work.items():
        cpu, wall = timed(each)
        found[name] = cpu * 1e9 / tokens
        row(name, found[name], wall * 1e9 / tokens, WIDTH * tokens / wall / 1e6)
    return found


def large(folder: Path) -> Path:
    """A prepared folder of 100B tokens in 20 languages, made of holes."""
    out = folder / "large"
    shutil.copytree(folder / "out", out)
    manifest = json.loads((out / MANIFEST).read_text())
    model = manifest["languages"]["en"]
    each = int(D / LANGUAGES)
    model["train"] |= {"tokens": each, "documents": each // DOCUMENT}
    manifest["languages"] = {f"l{number}": model for number in range(LANGUAGES)}
    (out / MANIFEST).write_text(json.dumps(manifest))
    os.truncate(out / "en" / "train.tokens", each * WIDTH)
    os.truncate(out / "en" / "train.documents", each // DOCUMENT * 24)
    for name in manifest["languages"]:
        (out / name).symlink_to("en")
    return out


def start_prepared(folder: Path) -> tuple[float, int]:
    """Seconds and bytes of a start on 100B tokens, and what a step takes of the feed."""
    out, read = large(folder), [0]
    plain = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        read[0] += size
        return plain(file, size, at)

    os.pread = counted
    corpora = []
    _, wall = timed(lambda: corpora.append(open_prepared(out, read_manifest(out), tuple(names()), SEQ)))
    corpus = corpora[0]
    _ = corpus.fingerprint
    held = (out / MANIFEST).stat().st_size + read[0]
    _, pool = timed(lambda: validation(corpus, POOL))
    pooled, read[0] = read[0], 0
    sampler = Sampler(np.full(LANGUAGES, 1 / LANGUAGES), np.array([each.windows for each in corpus.train]), 0)
    with Feed(corpus.train, sampler, Share(BATCH, 7, RANKS), 50, pin=False) as feed:
        cpu, _ = timed(lambda: [feed.next() for _ in range(50)])
    table("A start on 100B prepared tokens, 20 languages; then a step of 512 sequences on 512 ranks", "", "a rank")
    row("seconds of the start", wall)
    row("bytes of the start", held)
    row(f"seconds of the validation sequences, {POOL} a language (--irds-pool)", pool)
    row("bytes of them", pooled)
    row("ms of a step's batch, in its thread", cpu / 50 * 1e3)
    row("bytes of a step", (read[0]) // 50)
    must("seconds of a prepared start", wall, 1.0)
    must("bytes of a prepared start", held, 1e5)
    return wall + pool, held + pooled


def names() -> list[str]:
    """The languages of the large corpus."""
    return [f"l{number}" for number in range(LANGUAGES)]


def reckon(rate: dict[str, float], start: tuple[float, int]) -> None:
    """64 nodes of 8 ranks at 100B tokens."""
    scan, once = (rate[name] * D / 1e9 for name in ("start on unprepared tokens: hash, scan", "prepare, one process"))
    title = "Reckoned: 100B tokens of 2 bytes, 20 languages, 512 ranks"
    table(title, "", "each start before", "each start now", "once")
    row("seconds a rank", scan, start[0], f"{once:,.0f} CPU s; {once / 64:,.0f} s on 64 cores")
    row("CPU hours of all ranks", scan * RANKS / 3600, start[0] * RANKS / 3600, once / 3600)
    row("GB that ranks read", 2 * WIDTH * D * RANKS / 1e9, start[1] * RANKS / 1e9, 2 * WIDTH * D / 1e9)
    row("GB that storage gives at least", WIDTH * D * NODES / 1e9, start[1] * NODES / 1e9, WIDTH * D / 1e9)


def main() -> None:
    """Measure, then reckon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="100M")
    tokens = int(parse_size(parser.parse_args().tokens))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        make(folder / "raw", tokens)
        found = rates(folder, tokens)
        reckon(found, start_prepared(folder))
    finish()


if __name__ == "__main__":
    main()
