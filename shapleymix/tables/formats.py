"""The bytes of a file as columns of cells: one reader per format, each naming the lines that it cannot read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from shapleymix.errors import DataError, Fault, Location
from shapleymix.files import MAX_BYTES
from shapleymix.tables.names import repeated

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_PIECE = 2**22

SUSPICIOUS_BYTES, SUSPICIOUS_RATIO = 2**28, 300
"""A packed table of more than 256 MiB that unpacks to more than 300 times its size is refused; tables reach 50."""

_AS_CSV = "save the table as comma-separated UTF-8 text (.csv)"


@dataclass(frozen=True)
class Cells:
    """Columns of cells, the line of each row, and what the format said besides."""

    columns: dict[str, list[object]]
    lines: list[int]
    metadata: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def read_cells(data: bytes, origin: str) -> Cells:
    """Cells of a table in any of the formats; the content decides, and the name where the content does not.

    Raises
    ------
    DataError
        If the bytes are no table.
    """
    name = origin.lower()
    if data[:2] == _GZIP or name.endswith(".gz"):
        data, name = _gunzip(data, origin), name.removesuffix(".gz")
    if data[:4] == _ZIP:
        raise _refusal(origin, "is a spreadsheet or a zip file, not a table", _AS_CSV)
    if data[:4] == _PARQUET or name.endswith((".parquet", ".pq")):
        return _read_parquet(data, origin)
    text = _decode(data, origin)
    return _reader_of(text, name)(text, origin)


def _reader_of(text: str, name: str) -> Callable[[str, str], Cells]:
    by_name = name.endswith((".jsonl", ".ndjson", ".json"))
    return read_jsonl if by_name or text.lstrip()[:1] in ("{", "[") else read_csv


def _refusal(origin: str, message: str, hint: str | None = None, line: int | None = None) -> DataError:
    return DataError(message, hint=hint, location=Location(origin, line))


def _gunzip(data: bytes, origin: str) -> bytes:
    """The unpacked bytes, piece by piece: a few megabytes can hold terabytes of zeros."""
    pieces: list[bytes] = []
    total = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                total += len(piece)
                if total > MAX_BYTES or (total > SUSPICIOUS_BYTES and total > SUSPICIOUS_RATIO * len(data)):
                    raise _refusal(origin, _too_much(total, len(data)), "unpack it, and see what it holds")
    except (OSError, EOFError, zlib.error) as error:
        raise _refusal(origin, f"is not a whole gzip file: {error}", "copy or compress it again") from error
    return b"".join(pieces)


def _too_much(total: int, packed: int) -> str:
    if total > MAX_BYTES:
        return f"unpacks to more than {MAX_BYTES / 2**30:g} GiB, the most that is read of one file"
    limit = f"{SUSPICIOUS_RATIO} times its size"
    return f"unpacks to more than {limit} ({packed / 2**20:.3g} MiB): no table of numbers packs so well"


def _decode(data: bytes, origin: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        raise _refusal(origin, bad, "save the file as UTF-8", line) from error
    if not text.strip():
        raise _refusal(origin, "is empty", "a table needs a header and at least one row")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _refusal(origin, "contains a NUL character: no text table in UTF-8", _AS_CSV, line)
    return text


def read_csv(text: str, origin: str) -> Cells:
    """Cells of comma-separated text.

    Lines are counted as an editor counts them, also where a quoted cell runs over several; a row without text in
    any cell is skipped.
    """
    quoted = '"' in text or "\r" in text.replace("\r\n", "\n")
    columns, widths, lines = _quoted_columns(text, origin) if quoted else _plain_columns(text, origin)
    _check_separator([column[0] for column in columns[: widths[0]]], origin)
    _check_widths(widths, lines, origin)
    header = _header([column[0].strip() for column in columns], origin)
    below: dict[str, list[object]] = {name: [*column[1:]] for name, column in zip(header, columns, strict=True)}
    return Cells(below, lines[1:])


_Columns = tuple[list[list[str]], list[int], list[int]]
"""Columns with their names on top; the number of cells of each row; the line of each row."""


def _plain_columns(text: str, origin: str) -> _Columns:
    """Columns of text without quote marks, cut in one go: four times faster than row by row."""
    rows = text.replace("\r\n", "\n").split("\n")
    lines = [line for line, row in enumerate(rows, start=1) if row.strip(", \t")]
    kept = [rows[line - 1] for line in lines]
    if not kept:
        raise _refusal(origin, "is empty", "a table needs a header and at least one row")
    widths = [row.count(",") + 1 for row in kept]
    flat = ",".join(kept if len(set(widths)) == 1 else kept[:1]).split(",")
    return [flat[place :: widths[0]] for place in range(widths[0])], widths, lines


def _quoted_columns(text: str, origin: str) -> _Columns:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        hint = "look for a quote mark that is not closed or stands inside a cell"
        raise _refusal(origin, f"is not valid CSV: {error}", hint, start) from error
    if not rows:
        raise _refusal(origin, "is empty", "a table needs a header and at least one row")
    widths = [len(row) for row in rows]
    even = rows if len(set(widths)) == 1 else rows[:1]
    return [list(column) for column in zip(*even, strict=True)], widths, lines


def _check_separator(header: list[str], origin: str) -> None:
    joined = ",".join(header)
    for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")):
        if joined.count(mark) > len(header) - 1:
            hint = "separate the columns with commas, and write decimals with a point"
            raise _refusal(origin, f"is separated by {word}, expected commas", hint, 1)


def _header(names: list[str], origin: str) -> list[str]:
    """Column names; a column without one (pandas writes its index so) is named by its place."""
    named = [name or f"column {place}" for place, name in enumerate(names, start=1)]
    again = repeated(named)
    if again:
        hint = "give each column its own name"
        faults = [Fault(f"column {name!r} occurs twice", Location(origin, 1, name), name, hint) for name in again]
        raise DataError.of(faults, origin)
    return named


def _check_widths(widths: list[int], lines: list[int], origin: str) -> None:
    hint = "quote cells that contain a comma; write decimals with a point; leave missing cells empty"
    faults = [
        Fault(f"has {width} cells, the header has {widths[0]}", Location(origin, line), None, hint)
        for width, line in zip(widths, lines, strict=True)
        if width != widths[0]
    ]
    if faults:
        raise DataError.of(faults, origin)


def read_jsonl(text: str, origin: str) -> Cells:
    """Cells of one JSON object a line; a key that a line lacks is an empty cell."""
    records: list[dict[str, object]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        found = _json_object(content)
        if isinstance(found, str):
            hint = 'write one JSON object a line, such as {"run": "a", "N": 23712}'
            faults.append(Fault(found, Location(origin, line), None, hint))
        else:
            records.append(found)
            lines.append(line)
    if faults:
        raise DataError.of(faults, origin)
    names = dict.fromkeys(name for record in records for name in record)
    return Cells({name: plain([record.get(name) for record in records]) for name in names}, lines)


def _json_object(content: str) -> dict[str, object] | str:
    """The object in a line, or what is wrong with the line."""
    try:
        found = json.loads(content, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        return f"is not valid JSON: {error.msg} at character {error.pos + 1}"
    except (KeyError, ValueError, RecursionError) as error:
        return f"is not valid JSON: {error.args[0]}"
    return found if isinstance(found, dict) else "is not a JSON object"


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise KeyError(f"the key {repeated([name for name, _ in pairs])[0]!r} occurs twice")
    return found


def plain(cells: list[object]) -> list[object]:
    """Cells as text or numbers; nothing is the empty text, and anything else its text."""
    return cells if set(map(type, cells)) <= {str, int, float} else [_plain(cell) for cell in cells]


def _plain(value: object) -> str | float:
    if value is None:
        return ""
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else str(value)


def _read_parquet(data: bytes, origin: str) -> Cells:
    try:
        frame = pl.read_parquet(io.BytesIO(data))
        metadata = pl.read_parquet_metadata(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _refusal(origin, f"is not a whole Parquet file: {reason}") from error
    columns = {name.strip(): plain(frame[name].to_list()) for name in frame.columns}
    return Cells(columns, list(range(1, frame.height + 1)), dict(metadata))
