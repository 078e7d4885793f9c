"""What `prepare` refuses, and that it goes on once that is mended."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from prepared_tools import SHARES, cli, content  # noqa: E402
from shapleymix_irds.train.data import opening  # noqa: E402
from shapleymix_irds.train.data.prepared.manifest import read_manifest  # noqa: E402
from shapleymix_irds.train.data.prepared.verify import verify  # noqa: E402
from test_train_corpus import DOCUMENTS, write  # noqa: E402

from shapleymix.errors import DataError, UsageError  # noqa: E402
from tests.irds.training import train  # noqa: E402


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
