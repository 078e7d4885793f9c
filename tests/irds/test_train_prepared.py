"""A prepared corpus is the corpus, bit for bit; whatever stops its making, the same command ends it the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from prepared_tools import LANGUAGES, SETTINGS, SHARES, content, mapped, raw  # noqa: E402
from shapleymix_irds.commands import main as irds  # noqa: E402
from shapleymix_irds.train.data import opening  # noqa: E402
from shapleymix_irds.train.data.prepared import prepare as preparing  # noqa: E402
from shapleymix_irds.train.data.prepared.folder import PARTS  # noqa: E402
from shapleymix_irds.train.data.prepared.manifest import read_manifest  # noqa: E402
from shapleymix_irds.train.data.prepared.prepare import How, prepare  # noqa: E402

from shapleymix.errors import DataError, ShapleyMixError  # noqa: E402
from tests.irds.training import environment, results, said, start, train  # noqa: E402


@pytest.mark.parametrize(("piece", "jobs"), [(700, 2), (1 << 28, 1)])
def test_a_prepared_corpus_is_the_corpus(texts: Path, tmp_path: Path, prepared: Path, piece: int, jobs: int) -> None:
    prepare(texts, tmp_path / "out", (), SETTINGS, How(jobs, piece=piece))
    assert content(tmp_path / "out") == content(prepared)
    plain, found = raw(texts), mapped(tmp_path / "out")
    assert found.fingerprint == plain.fingerprint
    for split in ("train", "val", "test"):
        for left, right in zip(getattr(plain, split), getattr(found, split), strict=True):
            assert (left.tokens, left.count, left.digest) == (right.tokens, right.count, right.digest)
            assert left.extremes()[1] == right.extremes()[1]
            for number in range(left.windows):
                assert np.array_equal(left.window(number), right.window(number))
    assert list(read_manifest(tmp_path / "out").languages) == list(LANGUAGES)
    assert {name: each.dtype for name, each in read_manifest(tmp_path / "out").languages.items()} == {
        **dict.fromkeys(("de", "en"), "uint8"), **dict.fromkeys(("bin", "two"), "uint16"), "npy": "uint32"
    }  # fmt: skip
    assert not (tmp_path / "out" / PARTS).exists()


def test_a_tokenizer_s_numbers_are_kept_and_its_content_is_remembered(tmp_path: Path, capfd: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<eos>": 0, "[UNK]": 1} | {f"w{number}": number + 2 for number in range(400)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "t.json"))
    draw, text = random.Random(0), tmp_path / "texts"
    text.mkdir()
    lines = [" ".join(f"w{draw.randrange(400)}" for _ in range(40)) for _ in range(120)]
    (text / "a.txt").write_text("\n\n".join(lines))
    given = ["--tokenizer", str(tmp_path / "t.json"), *SHARES]
    assert irds(["prepare", str(text), "-o", str(tmp_path / "out"), *given, "--jobs", "2"]) == 0
    run = ["--languages", "a", "--no-irds", "--corpus"]
    assert train(tmp_path / "raw", *run, str(text), *given) == 0
    assert train(tmp_path / "prepared", *run, str(tmp_path / "out"), "--val-share", ".2", "--test-share", ".2") == 0
    assert results(tmp_path / "raw") == results(tmp_path / "prepared")
    assert "tokenizer t.json" in capfd.readouterr().err
    shutil.copy(tmp_path / "t.json", tmp_path / "same.json")
    (tmp_path / "other.json").write_text((tmp_path / "t.json").read_text().replace("w7", "v7"))
    for tokenizer, code in (("same.json", 0), ("other.json", 2), ("none.json", 2)):
        corpus = ["--corpus", str(tmp_path / "out"), "--tokenizer", str(tmp_path / tokenizer)]
        assert train(tmp_path / f"run-{tokenizer}", *run[:-1], *SHARES, *corpus) == code
    told = capfd.readouterr().err
    assert f"was prepared otherwise: tokenizer was '{tmp_path}/t.json', '{tmp_path}/other.json' is another" in told
    assert f"{tmp_path}/none.json: cannot be read: No such file" in told


def test_a_run_on_either_is_the_same_and_goes_on_with_the_other(texts: Path, tmp_path: Path, prepared: Path) -> None:
    run = ["--languages", "de,en", "--end-token", "0", *SHARES, "--test-windows", "4", "--mask-documents"]
    assert train(tmp_path / "raw", *run, "--corpus", str(texts)) == 0
    masked = ["--test-windows", "4", "--mask-documents", "--corpus", str(prepared)]
    assert train(tmp_path / "prepared", "--languages", "de,en", *SHARES, *masked) == 0
    assert results(tmp_path / "raw") == results(tmp_path / "prepared")
    assert len(results(tmp_path / "raw")) == 3
    for name in ("metrics.jsonl", "summary.json"):
        left, right = ((tmp_path / out / name).read_text() for out in ("raw", "prepared"))
        assert name == "metrics.jsonl" or left == right
    shutil.rmtree(tmp_path / "raw" / "checkpoints" / "step-000000012")
    assert train(tmp_path / "raw", *run, "--corpus", str(prepared)) == 0
    assert results(tmp_path / "raw") == results(tmp_path / "prepared")


def test_two_ranks_read_text_once_and_give_the_same(texts: Path, tmp_path: Path, prepared: Path) -> None:
    run = ["--languages", "de,en", "--end-token", "0", *SHARES, "--test-windows", "4", "--corpus"]
    begun = [start(tmp_path / name, *run, str(corpus), ranks=2) for name, corpus in (("raw", texts), ("p", prepared))]
    assert [each.wait(timeout=200) for each in begun] == [0, 0], said(tmp_path / "raw") + said(tmp_path / "p")
    assert results(tmp_path / "raw") == results(tmp_path / "p")
    assert not list((tmp_path / "raw").glob(".corpus*"))


class Rank:
    """A rank of two, of which the other one is a thread."""

    size = 2

    def __init__(self, rank: int, others: list[list[bool]], gate: threading.Barrier) -> None:
        self.rank, self.main, self.others, self.gate = rank, rank == 0, others, gate

    def any(self, flag: bool) -> bool:
        self.others[self.rank].append(flag)
        self.gate.wait()
        found = any(flags[-1] for flags in self.others)
        self.gate.wait()
        return found


@pytest.mark.parametrize("fault", [None, DataError("a.txt is bad")])
def test_ranks_keep_in_touch_while_one_works_and_fail_together(fault: DataError | None) -> None:
    flags: list[list[bool]] = [[], []]
    gate, raised = threading.Barrier(2), {}

    def work() -> None:
        time.sleep(3 * opening.PAUSE)
        if fault:
            raise fault

    def waits(rank: int) -> None:
        try:
            opening.together(Rank(rank, flags, gate), work)  # type: ignore[arg-type]
        except ShapleyMixError as error:
            raised[rank] = error

    other = threading.Thread(target=waits, args=(1,))
    other.start()
    waits(0)
    other.join()
    assert len(flags[1]) > 3
    assert not any(flags[1])
    if fault is None:
        assert raised == {}
    else:
        assert raised[0] is fault
        assert "rank 0 could not read the corpus" in str(raised[1])


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("ending", range(3, 170, 12))
def test_wherever_it_is_stopped_it_ends_the_same_and_does_nothing_twice(
    texts: Path, tmp_path: Path, prepared: Path, ending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "out", []

    def counted(plain: Callable[..., Any], before: bool) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            calls.append(1)
            if len(calls) == ending and before:
                raise Killed
            found = plain(*arguments, **more)
            if len(calls) == ending:
                raise Killed
            return found

        return called

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted(os.fsync, True))
        patch.setattr(os, "replace", counted(os.replace, bool(ending % 2)))
        patch.setattr(shutil, "copyfileobj", counted(shutil.copyfileobj, False))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree, False))
        with pytest.raises(Killed):
            prepare(texts, out, (), SETTINGS, How(piece=1500))
    whole = {path.name for path in out.glob(f"{PARTS}/*/*[0-9].json")}
    written: list[str] = []
    plain = preparing.write_piece
    monkeypatch.setattr(preparing, "write_piece", lambda task: written.append(task.record.name) or plain(task))
    prepare(texts, out, (), SETTINGS, How(piece=1500))
    assert content(out) == content(prepared)
    assert len(written) <= 40 - len(whole)
    assert prepare(texts, out, (), SETTINGS, How(piece=1500)).languages == read_manifest(prepared).languages


def test_it_can_be_killed_at_any_time(texts: Path, tmp_path: Path, prepared: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import sys; from shapleymix_irds.train.data.prepared import prepare; from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        "    prepare.prepare(Path(sys.argv[1]), Path(sys.argv[2]), (), prepare.Settings.of('bytes', 0, 'text', .2, .2),"
        " prepare.How(2, piece=500))\n"
    )
    (tmp_path / "go.py").write_text(code)
    paths = os.pathsep.join(["adapters", "."])
    command = [sys.executable, str(tmp_path / "go.py"), str(texts), str(out)]
    kills = 0
    for _ in range(40):
        process = subprocess.Popen(command, env={**environment(), "PYTHONPATH": paths})
        try:
            code_of = process.wait(timeout=0.8 + 0.25 * random.Random(kills).random())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            if kills == 3:
                assert subprocess.run(command, env={**environment(), "PYTHONPATH": paths}).returncode == 0
                break
        else:
            assert code_of == 0
            break
    assert content(out) == content(prepared)


SPARSE = 100 * 2**30  # bytes


def test_a_start_does_not_read_the_tokens(tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 GB in 200 languages: what is read, and the time, are those of the windows that are asked for."""
    out, languages = tmp_path / "out", tuple(f"l{number}" for number in range(200))
    shutil.copytree(prepared, out)
    manifest = json.loads((out / "manifest.json").read_text())
    model = manifest["languages"]["en"]
    model["train"]["tokens"] = SPARSE // 200
    manifest["languages"] = dict.fromkeys(languages, model)
    for name in languages:
        os.symlink("en", out / name)
    os.truncate(out / "en" / "train.tokens", SPARSE // 200)
    (out / "manifest.json").write_text(json.dumps(manifest))
    read: list[int] = []
    plain = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: read.append(size) or plain(file, size, at))
    began = time.process_time()
    corpus = mapped(out, languages)
    assert corpus.fingerprint
    assert time.process_time() - began < 1.0
    assert read == []
    from shapleymix_irds.train.data.feed import Feed, Share
    from shapleymix_irds.train.data.sampler import Sampler

    windows = np.array([stream.windows for stream in corpus.train])
    assert windows.sum() > 6e9
    sampler = Sampler(np.full(200, 1 / 200), windows, 0)
    began = time.process_time()
    with Feed(corpus.train, sampler, Share(512, 3, 64), 3, pin=False) as feed:
        assert sum(len(piece.x) for _ in range(3) for piece in feed.next().pieces) == 24
    assert time.process_time() - began < 2.0
    assert sum(read) == 24 * 17
    run = ["--languages", "l0,l1,l2", "--corpus", str(out), "--no-irds", *SHARES]
    assert train(tmp_path / "run", *run) == 0
    assert sum(read) < 1e5
