"""Files read once and written whole: what was read carries its hash, and a file is never left half written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from shapleymix.errors import DataError, Location, ShapleyMixError, StoreError, UsageError, described

FileName = str | os.PathLike[str]
Refused = type[ShapleyMixError]
"""The kind of error by which something is refused."""
WRITE_AGAIN = "write it again with the command that made it"
"""What to do about a broken result."""
TABLES = (".csv", ".csv.gz", ".parquet", ".pq", ".jsonl", ".ndjson")
"""How the name of a table ends."""

if TYPE_CHECKING:
    Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
    """What JSON can hold."""
else:
    Json = object  # what `Record` reads as it is


@dataclass(frozen=True)
class Origin:
    """A file that was read, and the SHA-256 (hex) of the bytes that were read of it."""

    file: str
    sha256: str


def is_table_name(given: object) -> TypeGuard[FileName]:
    """Whether a text or a path names a table."""
    return isinstance(given, (str, os.PathLike)) and os.fspath(given).strip().lower().endswith(TABLES)


def file_name(path: FileName) -> str:
    """The name of a file as text.

    Raises
    ------
    UsageError
        If it is another kind of value, or holds a NUL.
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fsdecode(path):
        raise UsageError(f"{described(path)} is no name of a file", hint="give a path, as text or a Path")
    return os.fsdecode(path)


def read_once(path: FileName, refused: Refused = DataError, hint: str | None = None) -> tuple[bytes, Origin]:
    """The bytes of a file and their hash, from one reading: a pipe cannot be read twice. `-` is standard input.

    Raises
    ------
    ShapleyMixError
        Of the kind `refused`, with the hint, if the file cannot be read.
    """
    name = file_name(path)
    try:
        if name == "-" and (sys.stdin is None or sys.stdin.closed):
            raise OSError(0, "standard input is closed")
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise refused(f"cannot be read: {reason}", location=Location(name), hint=hint) from error
    return data, Origin("<stdin>" if name == "-" else name, hashlib.sha256(data).hexdigest())


def read_json(path: FileName) -> tuple[Any, Origin]:
    """The content of a JSON file, and the hash of the very bytes that were parsed.

    Raises
    ------
    StoreError
        If the file cannot be read or is no JSON, with the line at which it is broken.
    """
    data, origin = read_once(path, StoreError)
    try:
        return json.loads(data.decode("utf-8-sig")), origin
    except (ValueError, RecursionError) as error:
        place = Location(origin.file, getattr(error, "lineno", None))
        raise StoreError(f"is not valid JSON: {error}", location=place, hint=WRITE_AGAIN) from error


def read_toml(path: FileName, refused: Refused = DataError, hint: str | None = None) -> tuple[dict[str, Any], Origin]:
    """The content of a TOML file, and its hash; what cannot be read is `refused` with the hint."""
    data, origin = read_once(path, refused, hint)
    try:
        return tomllib.loads(data.decode("utf-8-sig")), origin
    except ValueError as error:
        raise refused(f"is not valid TOML: {error}", location=Location(origin.file), hint=hint) from error


def plain(value: Any, endless: Callable[[float], Json] = lambda _: None) -> Any:
    """A value as JSON has it: arrays as lists, records as documents, and null for a number that is none.

    Infinite numbers, which JSON has not either, are what `endless` makes of them; null by default.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else endless(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one, endless) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, endless) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), endless)
    return value.to_document() if hasattr(value, "to_document") else value


def write_json(document: Mapping[str, Json], path: FileName, *, force: bool = False) -> None:
    """Write a document as `atomic_write` does."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    atomic_write(path, f"{text}\n", force=force)


def atomic_write(path: FileName, content: str | bytes, *, force: bool = False) -> None:
    """Write a file whole or not at all; text is UTF-8.

    An existing file keeps its permissions. Where the name is a symbolic link, the file that it leads to is written;
    a pipe or a device is written to as it is.

    Raises
    ------
    UsageError
        If the file exists and `force` is not set, or it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    place = Location(file=file_name(path))
    try:
        goal = Path(os.path.realpath(file_name(path)))
        mode = goal.stat().st_mode if goal.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            goal.write_bytes(data)
        else:
            require_free(path, force=force)
            _replace(goal, data, mode)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", location=place) from error


def require_free(path: FileName, *, force: bool) -> None:
    """Refuse a name under which something lies, unless it may be overwritten."""
    if os.path.exists(path) and not force:
        hint = "choose another name, or overwrite it: --force, in Python force=True"
        raise UsageError("exists already", location=Location(os.fspath(path)), hint=hint)


def _replace(goal: Path, data: bytes, mode: int | None) -> None:
    """Write beside the goal under another name, then rename; `mode` is that of the file that is replaced."""
    partial = goal.with_name(f".{goal.name[:40]}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as stream:
            stream.write(data)
        if mode is not None:
            partial.chmod(stat.S_IMODE(mode))
        partial.replace(goal)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
