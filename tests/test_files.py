"""Files are read once, whatever they are, and written without harm to what stood there."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from shapleymix import files
from shapleymix.errors import DataError, StoreError, UsageError
from shapleymix.files import atomic_write, read_json, read_once
from shapleymix.records import Record
from shapleymix.tables import formats
from shapleymix.tables.run_reading import read_runs

LOG = "run,N,D,p_en,loss_en\na,10,20,1,2.5\nb,10,40,1,2.25\n"


@dataclass(frozen=True)
class Note(Record):
    kind = "test/note"

    text: str


def fifo(tmp_path: Path, content: bytes) -> Path:
    """A pipe that gives its content once, to the first who reads it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()
    return path


def test_a_pipe_is_read_once_and_gives_content_and_hash(tmp_path):
    """Inputs were opened again for their hash after the fit: a FIFO hung, a process substitution hashed nothing."""
    log = read_runs(fifo(tmp_path, LOG.encode()))
    assert log.runs == ("a", "b")
    assert [(one.file, one.sha256) for one in log.files] == [
        (str(tmp_path / "pipe"), hashlib.sha256(LOG.encode()).hexdigest())
    ]
    assert log.digest == log.files[0].sha256


def test_a_result_from_a_pipe_knows_its_hash(tmp_path):
    Note("x").save(tmp_path / "a.json")
    content = (tmp_path / "a.json").read_bytes()
    loaded = Note.load(fifo(tmp_path, content))
    assert loaded.read_from is not None
    assert loaded.read_from.sha256 == hashlib.sha256(content).hexdigest()
    assert Note("x").read_from is None
    assert loaded == Note("x")


def test_several_logs_keep_each_file_with_its_hash(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(LOG.replace("a,", f"{name},").replace("b,", f"{name},"))
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    log = read_runs(paths)
    assert [one.file for one in log.files] == [str(path) for path in paths]
    assert [one.sha256 for one in log.files] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_a_file_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 2**20)
    monkeypatch.setattr(files, "_PIECE", 2**16)
    with pytest.raises(DataError, match="holds more than"):
        read_runs("/dev/zero")
    with pytest.raises(StoreError, match="holds more than"):
        read_json("/dev/zero")


def test_a_small_gzip_that_unpacks_to_very_much_is_refused(tmp_path, monkeypatch):
    """4.9 MB that unpack to 5 GB were unpacked whole."""
    monkeypatch.setattr(formats, "SUSPICIOUS_BYTES", 2**22)
    unpacked: list[int] = []
    read = gzip.GzipFile.read

    def counted(stream: gzip.GzipFile, size: int | None = -1) -> bytes:
        piece = read(stream, size)
        unpacked.append(len(piece))
        return piece

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    bomb = tmp_path / "runs.csv.gz"
    bomb.write_bytes(gzip.compress(b"0" * 2**26))
    with pytest.raises(DataError, match="unpacks to more than 300 times its size") as caught:
        read_runs(bomb)
    assert caught.value.location.file == str(bomb)
    assert sum(unpacked) < 2**25  # of 2**26: it stopped in time


def test_the_limit_of_unpacked_bytes_is_stated(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_BYTES", 2**21)
    packed = tmp_path / "runs.csv.gz"
    packed.write_bytes(gzip.compress(os.urandom(2**23)))
    with pytest.raises(DataError, match=r"unpacks to more than 0\.00195312 GiB"):
        read_runs(packed)


def test_an_ordinary_packed_table_is_read(tmp_path):
    rows = "".join(f"r{n},10,{n + 1},1,2.5\n" for n in range(50_000))
    (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(f"run,N,D,p_en,loss_en\n{rows}".encode()))
    assert len(read_runs(tmp_path / "runs.csv.gz")) == 50_000


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 1}}'])
def test_a_key_that_occurs_twice_is_refused(tmp_path, text):
    """Of duplicate keys the last one won in silence."""
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(StoreError, match="the key 'a' occurs twice"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "-1e999"])
def test_a_number_that_no_double_holds_is_refused(tmp_path, number):
    (tmp_path / "a.json").write_text(f'{{"a": {number}}}')
    with pytest.raises(StoreError, match="is too large"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_overwriting_keeps_the_mode(tmp_path, mode):
    """`--force` widened 600 to 644."""
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(mode)
    atomic_write(path, "new", force=True)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_is_written_through(tmp_path):
    """`--force` put a plain file where the link was, and left what it led to as it was."""
    (tmp_path / "folder").mkdir()
    goal, link = tmp_path / "folder" / "real.json", tmp_path / "link.json"
    goal.write_text("old")
    link.symlink_to("folder/real.json")
    with pytest.raises(UsageError, match="exists already"):
        atomic_write(link, "new")
    atomic_write(link, "new", force=True)
    assert link.is_symlink()
    assert goal.read_text() == "new"
    assert [entry.name for entry in (tmp_path / "folder").iterdir()] == ["real.json"]


def test_a_link_that_leads_nowhere_makes_its_goal_and_a_loop_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new.json")
    atomic_write(tmp_path / "link", "new")
    assert (tmp_path / "new.json").read_text() == "new"
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(UsageError, match="cannot be written"):
        atomic_write(tmp_path / "one", "new", force=True)
    assert (tmp_path / "one").is_symlink()


def test_a_device_or_a_pipe_is_written_to_and_never_replaced(tmp_path):
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    atomic_write(null, "new", force=True)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    atomic_write(path, "new")
    reader.join()
    assert found == [b"new"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        atomic_write(tmp_path, "new", force=True)


def test_a_name_that_is_no_utf8_loses_no_result(tmp_path):
    """The finished result was lost to a UnicodeEncodeError when its provenance named such a file."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")
    Path(name).write_text(LOG)
    log = read_runs(name)
    assert log.origin == name
    goal = tmp_path / "note.json"
    Note(log.origin).save(goal)
    assert b"caf\\udce9.csv" in goal.read_bytes()
    assert Note.load(goal).text == name
    assert json.loads(goal.read_text("utf-8"))["text"] == name
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/n\xff.json")
    Note("x").save(odd)
    assert read_once(odd)[1].file == odd
    with pytest.raises(UsageError) as caught:
        Note("y").save(odd)
    assert "\\udcff" in str(caught.value)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("name", ["a\0b", "a" * 300])
def test_impossible_names_are_errors_of_ours(name, tmp_path):
    with pytest.raises(UsageError):
        atomic_write(f"{tmp_path}/{name}", "x")
    with pytest.raises(StoreError):
        read_json(f"{tmp_path}/{name}")
    with pytest.raises(DataError):
        read_runs(f"{tmp_path}/{name}")
