"""The bytes of a file as columns of cells: one reader per format, each naming the lines that it cannot read."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import replace

import polars as pl

from shapleymix.errors import UsageError
from shapleymix.files import MAX_BYTES
from shapleymix.tables.cells import NO_ROWS, Cells, Layout, plain, refusal
from shapleymix.tables.dict_cells import unfolded
from shapleymix.tables.json_tables import read_json
from shapleymix.tables.panels import is_panel, read_panel
from shapleymix.tables.separated import read_separated
from shapleymix.tables.training_logs import is_megatron, read_megatron

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_PIECE = 2**22

SUSPICIOUS_BYTES, SUSPICIOUS_RATIO = 2**28, 300
"""A packed table of more than 256 MiB that unpacks to more than 300 times its size is refused; tables reach 50."""

_AS_CSV = "save the table as comma-separated UTF-8 text (.csv)"


_WIDE = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""Encodings by the mark with which a file begins; the longer marks first."""


def read_cells(data: bytes, origin: str, layout: Layout) -> Cells:
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
        raise refusal(origin, "is a spreadsheet or a zip file, not a table", _AS_CSV)
    if data[:4] == _PARQUET or name.endswith((".parquet", ".pq")):
        _no_marks(layout, origin, "a Parquet file")
        return replace(_read_parquet(data, origin), decimal=layout.decimal or ".")
    text, told = _decode(data, origin)
    named = name.endswith((".jsonl", ".ndjson", ".json"))
    if named or (text.lstrip()[:1] in ("{", "[") and not is_megatron(text)):
        _no_marks(layout, origin, "JSON")
        found = replace(read_json(text, origin), decimal=layout.decimal or ".")
    elif is_megatron(text):
        _no_marks(layout, origin, "a log of Megatron")
        found = read_megatron(text, origin)
    else:
        found = unfolded(read_separated(text, origin, layout), origin)
        found = read_panel(found) if is_panel(found.columns) else found
    return replace(found, notices=told + found.notices)


def _no_marks(layout: Layout, origin: str, what: str) -> None:
    if layout.sep is not None:
        hint = "leave the separator (sep) out"
        raise UsageError(f"{origin} is {what}: no mark stands between its columns", hint=hint)


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
                    raise refusal(origin, _too_much(total, len(data)), "unpack it, and see what it holds")
    except (OSError, EOFError, zlib.error) as error:
        raise refusal(origin, f"is not a whole gzip file: {error}", "copy or compress it again") from error
    return b"".join(pieces)


def _too_much(total: int, packed: int) -> str:
    if total > MAX_BYTES:
        return f"unpacks to more than {MAX_BYTES / 2**30:g} GiB, the most that is read of one file"
    limit = f"{SUSPICIOUS_RATIO} times its size"
    return f"unpacks to more than {limit} ({packed / 2**20:.3g} MiB): no table of numbers packs so well"


def _decode(data: bytes, origin: str) -> tuple[str, tuple[str, ...]]:
    """The text, and what was taken for granted of its encoding."""
    encoding = next((name for mark, name in _WIDE.items() if data.startswith(mark)), None) or _unmarked(data)
    try:
        text = data.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = f"byte 0x{data[error.start]:02x} at offset {error.start} is not {(encoding or 'utf-8').upper()}"
        raise refusal(origin, bad, "save the file as UTF-8", line) from error
    if not text.strip():
        raise refusal(origin, "is empty", NO_ROWS)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise refusal(origin, "contains a NUL character: no text table in UTF-8", _AS_CSV, line)
    return text, (f"the text is {encoding.upper()}",) if encoding else ()


def _unmarked(data: bytes) -> str | None:
    """UTF-16 without its mark: every second byte of its beginning, which is ASCII, is zero."""
    begin = data[:64]
    low, high = begin[::2], begin[1::2]
    if len(begin) >= 8 and not any(high) and all(low):
        return "utf-16-le"
    return "utf-16-be" if len(begin) >= 8 and not any(low) and all(high) else None


def _read_parquet(data: bytes, origin: str) -> Cells:
    try:
        frame = pl.read_parquet(io.BytesIO(data))
        metadata = pl.read_parquet_metadata(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise refusal(origin, f"is not a whole Parquet file: {reason}") from error
    columns = {name.strip(): plain(frame[name].to_list()) for name in frame.columns}
    return Cells(columns, list(range(1, frame.height + 1)), dict(metadata))
