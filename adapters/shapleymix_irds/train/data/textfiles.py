"""Documents of text out of `.txt`, `.jsonl` (plain, gzip or zstd) and `.parquet` files, or of a stretch of one.

No file is ever whole in memory: what is held is a document, and of a table some rows.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from shapleymix.errors import DataError, Location
from shapleymix_irds.train.data.opened import open_text

TEXT_ENDINGS = tuple(f"{kind}{packed}" for kind in (".txt", ".jsonl") for packed in ("", ".gz", ".zst"))
ENDINGS = (*TEXT_ENDINGS, ".parquet")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON joins pairs
LONGEST = 1 << 28  # characters of a document: it has to fit into memory
ROWS_AT_ONCE = 1 << 12
CUT_AT_ONCE = 1 << 20  # bytes
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
LINE = re.compile(rb"\n")


def ending_of(path: Path, endings: tuple[str, ...] = ENDINGS) -> str | None:
    """Which of the endings the file's name has; None if none."""
    return next((ending for ending in endings if path.name.endswith(ending)), None)


def read_documents(path: Path, field: str = "text", start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Documents of one file: parts of a `.txt` between empty lines, or `field` of a table's rows.

    Parameters
    ----------
    path : Path
        The file.
    field : str
        Name of the field that holds the text.
    start, stop : int
        A stretch that `cut_text` has cut: bytes of a plain file, rows of a table.

    Raises
    ------
    DataError
        If the file is broken, not UTF-8, or lacks the field, or a document is too long.
    """
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet(path, field, start, stop)
            return
        with open_text(path, start, stop) as stream:
            lines = _lines(stream, path)
            if ".jsonl" in path.name:
                yield from _json_lines(lines, path, field, lambda: _lines_before(path, start))
            else:
                yield from _paragraphs(lines, path)
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8: {error.reason}", location=Location(file=str(path))) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error


def cut_text(path: Path, size: int) -> list[int]:
    """Where to cut a file into stretches of about `size` bytes, between two documents; a packed one is whole.

    Bytes of a plain file; rows of a table, as many as have about this size.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    try:
        total = path.stat().st_size
        if path.name.endswith(".parquet"):
            rows = _parquet_rows(path)
            return [*range(0, rows, max(1, size * rows // max(total, 1))), rows]
        if path.name.endswith((".gz", ".zst")):
            return [0, total]
        with path.open("rb") as stream:
            mark = LINE if path.name.endswith(".jsonl") else BLANK_LINE
            cuts = [0]
            while (wanted := cuts[-1] + size) < total:
                cuts.append(_next_bound(stream, mark, wanted, total))
            return [*(cut for cut in cuts if cut < total), total]
    except OSError as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error


def _next_bound(stream: IO[bytes], mark: re.Pattern[bytes], at: int, total: int) -> int:
    """The end of the first mark from `at` on; the end of the file if there is none."""
    stream.seek(at)
    block, begins = b"", at
    while piece := stream.read(CUT_AT_ONCE):
        block += piece
        if found := mark.search(block):
            return begins + found.end()
        kept = block.rfind(b"\n") if b"\n" in block else len(block)  # a mark may go on in the next piece
        block, begins = block[kept:], begins + kept
    return total


def _lines(stream: IO[str], path: Path) -> Iterator[str]:
    while line := stream.readline(LONGEST):
        if len(line) == LONGEST:
            raise _too_long(path)
        yield line


def _too_long(path: Path) -> DataError:
    message = f"has a document of more than {LONGEST / 1e6:.0f}M characters"
    return DataError(message, location=Location(file=str(path)), hint="separate documents by an empty line")


def _paragraphs(stream: Iterator[str], path: Path) -> Iterator[str]:
    lines: list[str] = []
    held = 0
    for line in stream:
        if line.strip():
            lines.append(line)
            held += len(line)
            if held > LONGEST:
                raise _too_long(path)
        elif lines:
            yield "".join(lines).strip("\n")
            lines, held = [], 0
    if lines:
        yield "".join(lines).strip("\n")


def _json_lines(stream: Iterator[str], path: Path, field: str, before: Callable[[], int]) -> Iterator[str]:
    """Texts of the lines; `before` counts the lines of the file that come before them, if a fault has to be placed."""
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # a number of too many digits, lists too deep within lists
            what = error.msg if isinstance(error, json.JSONDecodeError) else error
            place = Location(file=str(path), line=before() + number)
            raise DataError(f"is not JSON that can be read: {what}", location=place) from error
        if fault := _text_fault(row, field):
            message, hint = fault
            raise DataError(message, location=Location(file=str(path), line=before() + number), hint=hint)
        yield row[field]


def _text_fault(row: object, field: str) -> tuple[str, str] | None:
    """What is wrong with the text of a row, and what to do."""
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        return f"has no text in the field {field!r}", "name it: --text-field"
    if lone := LONE_SURROGATE.search(row[field]):
        message = f"has half a character, \\u{ord(lone[0]):04x}, in the field {field!r}"
        return message, "write the pair of surrogates, or leave it out"
    return None


def _lines_before(path: Path, start: int) -> int:
    """Lines in the first `start` bytes of a plain file."""
    count = 0
    with path.open("rb") as stream:
        while start and (piece := stream.read(min(CUT_AT_ONCE, start))):
            count += piece.count(b"\n")
            start -= len(piece)
    return count


def _parquet(path: Path, field: str, start: int, stop: int | None) -> Iterator[str]:
    """Texts of some rows, read some at a time."""
    import polars

    place = Location(file=str(path), column=field)
    try:
        column = polars.scan_parquet(path).select(field)
        kind = column.collect_schema()[field]
        if kind != polars.String:
            raise DataError(f"is a column of {kind}, not of text", location=place)
        rows = _parquet_rows(path) if stop is None else stop
        for at in range(start, rows, ROWS_AT_ONCE):
            some = column.slice(at, min(ROWS_AT_ONCE, rows - at)).collect()[field]
            yield from (text for text in some if text)
    except polars.exceptions.ColumnNotFoundError as error:
        raise DataError("there is no such column", location=place, hint="name it: --text-field") from error
    except polars.exceptions.PolarsError as error:
        raise DataError(f"cannot be read: {error}", location=place) from error


def _parquet_rows(path: Path) -> int:
    import polars

    try:
        return int(polars.scan_parquet(path).select(polars.len()).collect().item())
    except polars.exceptions.PolarsError as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error
