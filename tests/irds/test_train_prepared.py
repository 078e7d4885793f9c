"""A prepared corpus is the corpus, bit for bit; whatever stops its making, the same command ends it the same."""

from __future__ import annotations

import fcntl
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

from shapleymix_irds.commands import main as irds  # noqa: E402
from shapleymix_irds.train.data import opening  # noqa: E402
from shapleymix_irds.train.data.corpus import Corpus, CorpusOptions, open_corpus  # noqa: E402
from shapleymix_irds.train.data.prepared import prepare as preparing  # noqa: E402
from shapleymix_irds.train.data.prepared.folder import PARTS  # noqa: E402
from shapleymix_irds.train.data.prepared.manifest import Settings, read_manifest  # noqa: E402
from shapleymix_irds.train.data.prepared.mapped import open_prepared  # noqa: E402
from shapleymix_irds.train.data.prepared.prepare import How, prepare  # noqa: E402
from shapleymix_irds.train.data.prepared.verify import verify  # noqa: E402
from shapleymix_irds.train.data.tokens import ByteTokenizer  # noqa: E402
from test_train_corpus import DOCUMENTS, megatron, write  # noqa: E402

from shapleymix.errors import DataError, ShapleyMixError, UsageError  # noqa: E402
from tests.irds.training import environment, results, said, start, train  # noqa: E402

SETTINGS = Settings.of("bytes", 0, "text", 0.2, 0.2)
SHARES = ["--val-share", ".2", "--test-share", ".2"]
LANGUAGES = ("bin", "de", "en", "npy", "two")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language of each kind, and one of two kinds."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "two").mkdir()
    for name in ("en.txt", "de.jsonl.gz", "two/1.parquet"):
        write(folder / Path(name).parent, Path(name).name)
    draw = np.random.default_rng(0)
    documents = [np.append(draw.integers(1, 200, size=draw.integers(20, 60)), 0) for _ in range(80)]
    megatron(folder / "bin.bin", documents)
    np.save(folder / "npy.npy", np.concatenate(documents).astype(np.int64))
    np.save(folder / "two" / "2.npy", np.concatenate(documents).astype(np.uint16))
    return folder


@pytest.fixture(scope="module")
def prepared(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    prepare(texts, out, (), SETTINGS, How(piece=1500))
    return out


def raw(folder: Path, languages: tuple[str, ...] = LANGUAGES) -> Corpus:
    return open_corpus(str(folder), languages, CorpusOptions(ByteTokenizer(), 16, 0.2, 0.2, end=0))


def mapped(folder: Path, languages: tuple[str, ...] = LANGUAGES) -> Corpus:
    return open_prepared(folder, read_manifest(folder), languages, 16)


def content(folder: Path) -> dict[str, bytes]:
    """All that a prepared folder holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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


def broken(prepared: Path, out: Path, name: str, change: Callable[[bytes], bytes | None]) -> None:
    shutil.copytree(prepared, out)
    changed = change((out / name).read_bytes())
    (out / name).unlink() if changed is None else (out / name).write_bytes(changed)


def flipped(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 4]) + data[101:]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("manifest.json", lambda data: data[:-40], r"manifest.json:\d+: is not valid JSON"),
        ("manifest.json", lambda data: b"{}", "manifest.json: is not a shapleymix result"),
        (
            "manifest.json",
            lambda data: data.replace(b'"schema_version": 1', b'"schema_version": 2', 1),
            "manifest.json: has schema version 2; this installation reads up to 1\n  hint: upgrade",
        ),
        ("manifest.json", lambda data: data.replace(b'"uint8"', b'"int7"', 1), "tokens are 'int7'"),
        ("manifest.json", lambda data: data.replace(b'"tokens": ', b'"tokens": -'), "are 0 or more"),
        ("manifest.json", lambda data: data.replace(b'"en"', b'"../en"'), "'../en' is no name of a language"),
        ("en/train.tokens", lambda data: None, "en/train.tokens: is missing\n  hint: restore it"),
        ("en/val.documents", lambda data: data[:-24], r"en/val.documents: holds [\d,]+ bytes, expected [\d,]+"),
        ("en/test.tokens", lambda data: data + b"x", r"en/test.tokens: holds [\d,]+ bytes, expected [\d,]+"),
    ],
)
def test_a_broken_folder_is_named_at_the_start_and_by_verify(
    prepared: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes | None], words: str, capfd: Any
) -> None:
    import re

    out = tmp_path / "out"
    broken(prepared, out, name, change)
    assert train(tmp_path / "run", "--languages", "de,en", "--corpus", str(out), *SHARES) == 1
    assert re.search(words, capfd.readouterr().err)
    assert irds(["prepare", "--verify", str(out)]) == 1
    assert re.search(words, capfd.readouterr().err)


def test_a_flipped_byte_is_found_by_verify(prepared: Path, tmp_path: Path, capfd: Any) -> None:
    assert irds(["prepare", "--verify", str(prepared)]) == 0
    assert "two" in capfd.readouterr().out
    out = tmp_path / "out"
    shutil.copytree(prepared, out)
    for name in ("en/train.tokens", "two/train.documents", "npy/test.tokens"):
        (out / name).write_bytes(flipped((out / name).read_bytes()))
    with pytest.raises(DataError) as found:
        verify(out, jobs=2)
    text = str(found.value)
    assert "has 3 faults" in text
    assert f"{out}/en/train.tokens: document 3 is not what was written (token 94 on)" in text
    assert f"{out}/two/train.documents: is not what was written: its hash is another" in text
    assert "npy/test.tokens: document" in text


FORGED: list[dict[str, Any]] = [{"vocabulary": 0}, {"vocabulary": 10**12}, {"vocabulary": 5}, {"tokenizer_end": -1}]
FORGED += [{"tokenizer_end": 10**6, "end_token": 10**6}, {"tokenizer": "/etc/passwd"}]
FORGED_OF_A_LANGUAGE: list[dict[str, Any]] = [{"largest": -1}, {"largest": 10**9}, {"files": []}]


def test_a_manifest_that_cannot_be_is_refused_at_the_start_and_by_verify(
    prepared: Path, tmp_path: Path, capfd: Any
) -> None:
    out = tmp_path / "out"
    shutil.copytree(prepared, out)
    plain = json.loads((out / "manifest.json").read_text())
    first = next(iter(plain["languages"]))
    forged = [plain | {"settings": plain["settings"] | each} for each in FORGED] + [plain | {"languages": {}}]
    for each in FORGED_OF_A_LANGUAGE:
        forged.append(plain | {"languages": plain["languages"] | {first: plain["languages"][first] | each}})
    for document in forged:
        (out / "manifest.json").write_text(json.dumps(document))
        assert train(tmp_path / "run", "--corpus", str(out), "--languages", first, "--mask-documents") == 1
        assert cli("--verify", out) == 1
        assert capfd.readouterr().err.count(f"error: {out}/manifest.json") == 2
    low = plain["languages"][first] | {"largest": 1}
    (out / "manifest.json").write_text(json.dumps(plain | {"languages": plain["languages"] | {first: low}}))
    assert cli("--verify", out, "--jobs", "1") == 1
    assert "larger than the 1 of the manifest" in capfd.readouterr().err


def test_a_file_that_is_cut_while_it_is_read_is_an_error(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(prepared, out)
    stream = mapped(out).train[2]
    stream.window(0)
    os.truncate(out / "en" / "train.tokens", 100)
    with pytest.raises(DataError, match=r"en/train\.tokens: ends before token"):
        stream.window(stream.windows - 1)


def test_what_does_not_go_with_a_prepared_corpus_is_refused(
    prepared: Path, texts: Path, tmp_path: Path, capfd: Any
) -> None:
    def refused(*more: str) -> str:
        assert train(tmp_path / "run", "--corpus", str(prepared), *more) == 2
        return capfd.readouterr().err

    assert "was prepared otherwise: val_share was 0.2, is 0.15" in refused("--languages", "en")
    two = refused("--languages", "en", *SHARES, "--text-field", "body", "--end-token", "3")
    assert "end_token was 0, is 3" in two
    assert "text_field was 'text', is 'body'" in two
    assert "has no language 'enn'\n  hint: did you mean 'en'" in refused("--languages", "enn", *SHARES)


def cli(*words: object) -> int:
    return irds(["prepare", *map(str, words), "--jobs", "1"])


def test_other_settings_or_sources_do_not_continue_what_was_begun(
    texts: Path, prepared: Path, tmp_path: Path, capfd: Any
) -> None:
    text, out = tmp_path / "texts", tmp_path / "out"
    text.mkdir()
    write(text, "en.txt")
    write(text, "de.jsonl")
    assert cli(text, "-o", out, "--languages", "en", *SHARES) == 0
    assert cli(text, "-o", out, "--val-share", ".3") == 2
    told = capfd.readouterr().err
    assert f"{out}: was prepared with other settings: val_share was 0.2, is 0.3; test_share was 0.2, is 0.05" in told
    assert cli(text, "-o", out, *SHARES) == 0  # adds de, and keeps en
    assert list(read_manifest(out).languages) == ["de", "en"]
    (text / "en.txt").write_text("\n\n".join(DOCUMENTS * 2))
    assert cli(text, "-o", out, *SHARES) == 2
    assert "en.txt: has changed since language 'en' was prepared" in capfd.readouterr().err
    (out / "notes.txt").write_text("mine")
    (out / "en" / "notes.txt").write_text("mine")
    assert cli(text, "-o", out, *SHARES, "--force") == 0
    assert verify(out).languages["en"].train.documents > 80
    assert (out / "notes.txt").read_text() == (out / "en" / "notes.txt").read_text() == "mine"


def test_places_that_cannot_be_prepared_are_named(texts: Path, prepared: Path, tmp_path: Path, capfd: Any) -> None:
    def refused(*words: object, code: int = 2) -> str:
        assert cli(*words) == code
        return capfd.readouterr().err

    out = tmp_path / "out"
    assert "Missing option '-o'" in refused(texts)
    assert "is prepared already" in refused(prepared, "-o", out)
    assert "lies within the corpus" in refused(texts, "-o", texts / "out")
    assert "lies within the corpus" in refused(texts, "-o", texts)
    assert "there is no such folder" in refused(tmp_path / "none", "-o", out)
    assert "did you mean 'en'" in refused(texts, "-o", out, "--languages", "enn")
    assert "leave something to train on" in refused(texts, "-o", out, "--test-share", "0")
    assert "no such tokenizer file" in refused(texts, "-o", out, "--tokenizer", "none.json")
    (tmp_path / "file").write_text("")
    assert "is a file, expected a folder" in refused(texts, "-o", tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    assert "holds mine, and is no prepared corpus" in refused(texts, "-o", tmp_path / "full")
    assert "/proc/out: cannot be written" in refused(texts, "-o", "/proc/out")
    assert "--verify writes nothing" in refused("--verify", prepared, "-o", out)
    assert "cannot be read: No such file" in refused("--verify", tmp_path, code=1)
    assert not out.exists()


def test_a_language_without_documents_or_with_an_empty_split_is_named(tmp_path: Path, capfd: Any) -> None:
    text = tmp_path / "texts"
    text.mkdir()
    write(text, "en.txt")
    (text / "de.txt").write_text("")
    (text / "fr.txt").write_text("one\n\ntwo")
    for name, words in (("de", "'de' has 0 documents"), ("fr", "'fr' has 2 documents, of which none is in ")):
        assert cli(text, "-o", tmp_path / name, "--languages", f"en,{name}") == 1
        assert words in capfd.readouterr().err
    assert train(tmp_path / "run", "--corpus", str(tmp_path / "de")) == 2
    assert f"{tmp_path}/de: is not prepared to its end\n  hint: give the command" in capfd.readouterr().err


def test_a_bad_token_is_named_with_its_file(tmp_path: Path, capfd: Any) -> None:
    for name, tokens in (("low", [5, -7] * 900), ("high", [5, 2**40] * 900)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "en.npy", np.array(tokens, dtype=np.int64))
        assert cli(tmp_path / name, "-o", tmp_path / "out", "--end-token", "5", "--force") == 1
        told = capfd.readouterr().err
        assert f"{name}/en.npy: language 'en' has the token {min(tokens) if name == 'low' else 2**40}" in told


def test_a_full_disk_is_an_error_that_continues(
    texts: Path, prepared: Path, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, plain, calls = tmp_path / "out", os.fsync, []

    def full(number: int) -> None:
        calls.append(1)
        if len(calls) > 25:
            raise OSError(28, "No space left on device")
        plain(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert cli(texts, "-o", out, "--end-token", "0", *SHARES) == 2
    told = capfd.readouterr().err
    assert "cannot be written: No space left on device\n  hint: make room" in told
    assert cli(texts, "-o", out, "--end-token", "0", *SHARES) == 0
    assert "pieces are there already" in capfd.readouterr().err
    assert content(out) == content(prepared)


def test_two_at_once_are_refused(texts: Path, tmp_path: Path, capfd: Any) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert cli(texts, "-o", out) == 2
        assert f"{out}: another process prepares this folder" in capfd.readouterr().err
    assert cli(texts, "-o", out, "--languages", "en") == 0


def test_text_that_is_too_large_for_each_start_is_refused_with_the_command(
    texts: Path, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "LARGEST", 1000)
    run = ["--corpus", str(texts), "--languages", "en,de", *SHARES, "--end-token", "0"]
    assert train(tmp_path / "run", *run) == 2
    asked = f"{texts} -o {texts}-prepared --languages en,de --end-token 0 --val-share 0.2 --test-share 0.2"
    assert f"once: shapleymix-irds prepare {asked}; then" in capfd.readouterr().err


def test_a_process_that_is_killed_is_told(texts: Path, tmp_path: Path) -> None:
    from shapleymix_irds.train.data.prepared.pool import shared_out

    with pytest.raises(UsageError, match=r"(?s)a process of its own was killed.*fewer --jobs"):
        list(shared_out(os._exit, [1, 1], 2))
    with pytest.raises(DataError, match=r"a\.txt:3: is bad\n  hint: mend it"):
        list(shared_out(fail, [1, 2, 3], 2))


def fail(number: int) -> None:
    from shapleymix.errors import Location

    raise DataError("is bad", location=Location(file="a.txt", line=3), hint="mend it")
