"""A prepared folder that is broken, forged or of another run is named at the start and by `--verify`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from prepared_tools import SHARES, cli, mapped  # noqa: E402
from shapleymix_irds.commands import main as irds  # noqa: E402
from shapleymix_irds.train.data.prepared.verify import verify  # noqa: E402

from shapleymix.errors import DataError  # noqa: E402
from tests.irds.training import train  # noqa: E402


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
