"""Files read once and written whole: what was read carries its hash, and a file is never left half written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TypeGuard

from shapleymix.errors import Location, StoreError, UsageError, described

MAX_BYTES = 2 * 2**30
"""Most bytes that are read of one file, packed or unpacked: 2 GiB."""

STANDARD_INPUT = "<stdin>"

TABLES = (".csv", ".csv.gz", ".parquet", ".pq", ".jsonl", ".ndjson")
"""How the name of a table ends."""

if TYPE_CHECKING:
    Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
    """What JSON can hold."""
else:
    Json = object  # what `Record` reads as it is

_PIECE = 2**24

_REWRITE = "write it again with the command that made it"


def is_table_name(given: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a text or a path names a table."""
    return isinstance(given, (str, os.PathLike)) and os.fspath(given).strip().lower().endswith(TABLES)


@dataclass(frozen=True)
class Origin:
    """A file that was read, and the SHA-256 (hex) of the bytes that were read of it."""

    file: str
    sha256: str


def read_once(path: str | os.PathLike[str]) -> tuple[bytes, Origin]:
    """The bytes of a file and their hash, from one reading: a pipe cannot be read twice. `-` is standard input.

    Raises
    ------
    OSError
        If the file cannot be read, or holds more than 2 GiB; `strerror` says which.
    """
    name = file_name(path)
    try:
        if name == "-":
            data, name = _bounded(_standard_input(), name), STANDARD_INPUT
        else:
            with open(path, "rb") as stream:
                data = _bounded(stream, name)
    except ValueError as error:  # a NUL in the name, a closed stream
        raise OSError(0, str(error), name) from error
    return data, Origin(name, hashlib.sha256(data).hexdigest())


def file_name(path: str | os.PathLike[str]) -> str:
    """The name of a file as text.

    Raises
    ------
    UsageError
        If it is another kind of value.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"{described(path)} is no name of a file", hint="give a path, as text or a Path")
    return os.fsdecode(path)


def _bounded(stream: BinaryIO, name: str) -> bytes:
    """All bytes of a stream, piece by piece, so that one without an end is noticed."""
    pieces: list[bytes] = []
    total = 0
    while piece := stream.read(_PIECE):
        pieces.append(piece)
        total += len(piece)
        if total > MAX_BYTES:
            raise OSError(0, f"holds more than {MAX_BYTES / 2**30:g} GiB, the most that is read of one file", name)
    return b"".join(pieces)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise OSError(0, "standard input is closed", "-")
    return sys.stdin.buffer


def read_json(path: str | os.PathLike[str]) -> object:
    """The content of a JSON file.

    Raises
    ------
    StoreError
        If the file cannot be read, is no JSON, repeats a key, or holds a number that no double can hold.
    """
    try:
        data, origin = read_once(path)
    except OSError as error:
        place = Location(file=os.fspath(path))
        raise StoreError(f"cannot be read: {error.strerror or error}", location=place) from error
    return parse_json(data, origin.file)


def parse_json(data: bytes, origin: str) -> object:
    """The content of JSON text, or a StoreError that says what is wrong with it, as `read_json`."""
    place = Location(file=origin)
    try:
        return json.loads(
            data.decode("utf-8-sig"),
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_double,
            object_pairs_hook=_without_repeats,
        )
    except (UnicodeDecodeError, RecursionError) as error:
        raise StoreError("is not a JSON text file", location=place, hint=_REWRITE) from error
    except json.JSONDecodeError as error:
        where = Location(file=origin, line=error.lineno)
        raise StoreError(f"is not valid JSON: {error.msg}", location=where, hint=_REWRITE) from error
    except ValueError as error:
        raise StoreError(f"is not valid JSON: {error}", location=place, hint=_REWRITE) from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _double(text: str) -> float:
    """A number with a point or an exponent; `1e999` would silently become infinite."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {_shortened(text)} is too large")
    return value


def _integer(text: str) -> int:
    _double(text)
    return int(text)


def _shortened(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:12]}... ({len(text)} digits)"


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the key {again!r} occurs twice")
    return found


def atomic_write(path: str | os.PathLike[str], content: str | bytes, *, force: bool = False) -> None:
    """Write a file whole or not at all.

    An existing file keeps its permissions. Where the name is a symbolic link, the file that it leads to is written;
    a pipe or a device is written to as it is. Text is UTF-8; a byte of a name that no text can hold (Python keeps
    it as a lone surrogate) is written as a `\\udcxx` escape, which JSON reads back.

    Raises
    ------
    UsageError
        If the file exists and `force` is not set, or it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    place = Location(file=file_name(path))
    try:
        mode = _mode_of(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise UsageError("is a folder, expected the name of a file", location=place)
        if mode is not None and not stat.S_ISREG(mode):
            with open(path, "wb") as stream:
                stream.write(data)
            return
        if mode is not None and not force:
            hint = "choose another name, or ask for it to be overwritten (force)"
            raise UsageError("exists already", location=place, hint=hint)
        _replace(Path(os.path.realpath(path)), data, mode)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", location=place) from error
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"cannot be written: {error}", location=place) from error


def _mode_of(path: str | os.PathLike[str]) -> int | None:
    """Kind and permissions of the file that a name leads to, or None if there is none."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _replace(goal: Path, data: bytes, mode: int | None) -> None:
    """Write beside the goal under another name, then rename; `mode` is that of the file that is replaced."""
    handle, partial = tempfile.mkstemp(dir=goal.parent, prefix=f".{goal.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        if mode is not None:
            with suppress(PermissionError):
                owner = os.stat(goal)
                os.chown(partial, owner.st_uid, owner.st_gid)
        os.chmod(partial, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
        os.replace(partial, goal)
    except OSError:
        Path(partial).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
