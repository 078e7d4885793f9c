"""Documents of text out of `.txt`, `.jsonl` (plain, gzip or zstd) and `.parquet` files."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from shapleymix.errors import DataError, Location, UsageError

TEXT_ENDINGS = tuple(f"{kind}{packed}" for kind in (".txt", ".jsonl") for packed in ("", ".gz", ".zst"))
ENDINGS = (*TEXT_ENDINGS, ".parquet")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON joins pairs
PACKED_AT_ONCE = 1 << 20  # bytes


def ending_of(path: Path, endings: tuple[str, ...] = ENDINGS) -> str | None:
    """Which of the endings the file's name has; None if none."""
    return next((ending for ending in endings if path.name.endswith(ending)), None)


def read_documents(path: Path, field: str = "text") -> Iterator[str]:
    """Documents of one file: parts of a `.txt` between empty lines, or `field` of a table's rows.

    Raises
    ------
    DataError
        If the file is broken, not UTF-8, or lacks the field.
    """
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet(path, field)
            return
        with _open(path) as stream:
            yield from _json_lines(stream, path, field) if ".jsonl" in path.name else _paragraphs(stream)
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8: {error.reason}", location=Location(file=str(path))) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error


def _open(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    if path.name.endswith(".zst"):
        return _open_zstd(path)
    return path.open(encoding="utf-8")


def _open_zstd(path: Path) -> IO[str]:
    try:
        import zstandard
    except ImportError as error:
        hint = "pip install zstandard"
        raise UsageError(f"{path}: a .zst file needs the package zstandard", hint=hint) from error
    try:
        with path.open("rb") as packed:
            plain = b"".join(_frames(packed, zstandard.ZstdDecompressor()))
    except zstandard.ZstdError as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error
    return io.TextIOWrapper(io.BytesIO(plain), encoding="utf-8")


def _frames(packed: IO[bytes], decompressor: Any) -> Iterator[bytes]:
    """What all frames of a file hold, one after the other; EOFError if the last one is cut short."""
    frame = None
    while chunk := packed.read(PACKED_AT_ONCE):
        while chunk:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(chunk)
            chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the file ends within a compressed frame")


def _paragraphs(stream: IO[str]) -> Iterator[str]:
    lines: list[str] = []
    for line in stream:
        if line.strip():
            lines.append(line)
        elif lines:
            yield "".join(lines).strip("\n")
            lines = []
    if lines:
        yield "".join(lines).strip("\n")


def _json_lines(stream: IO[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        place = Location(file=str(path), line=number)
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # a number of too many digits, lists too deep within lists
            what = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise DataError(f"is not JSON that can be read: {what}", location=place) from error
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            raise DataError(f"has no text in the field {field!r}", location=place, hint="name it: --text-field")
        if lone := LONE_SURROGATE.search(row[field]):
            message = f"has half a character, \\u{ord(lone[0]):04x}, in the field {field!r}"
            raise DataError(message, location=place, hint="write the pair of surrogates, or leave it out")
        yield row[field]


def _parquet(path: Path, field: str) -> Iterator[str]:
    import polars

    place = Location(file=str(path), column=field)
    try:
        texts = polars.read_parquet(path, columns=[field])[field]
    except polars.exceptions.ColumnNotFoundError as error:
        raise DataError("there is no such column", location=place, hint="name it: --text-field") from error
    except polars.exceptions.PolarsError as error:
        raise DataError(f"cannot be read: {error}", location=place) from error
    if texts.dtype != polars.String:
        raise DataError(f"is a column of {texts.dtype}, not of text", location=place)
    yield from (text for text in texts if text)
