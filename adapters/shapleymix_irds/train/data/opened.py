"""Files of text as streams: plain ones, or a stretch of their bytes, and packed ones, which unpack as they are read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from shapleymix.errors import DataError, Location, UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdDecompressor

PLAIN_AT_ONCE = 1 << 20  # bytes
PACKED_AT_ONCE = 1 << 16


def open_text(path: Path, start: int = 0, stop: int | None = None) -> IO[str]:
    """The text of a file; of a plain one only the bytes from `start` to `stop`, if they are given.

    Raises
    ------
    UsageError
        If a package that unpacks it is not installed.
    """
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    raw = _Pieces(_zstd(path)) if path.name.endswith(".zst") else _Pieces(_section(path, start, stop))
    return io.TextIOWrapper(io.BufferedReader(raw, PLAIN_AT_ONCE), encoding="utf-8")


class _Pieces(io.RawIOBase):
    """A stream of what an iterator gives piece by piece."""

    def __init__(self, pieces: Generator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        view = memoryview(buffer)
        given, self._left = self._left[: len(view)], self._left[len(view) :]
        view[: len(given)] = given
        return len(given)

    def close(self) -> None:
        self._pieces.close()
        super().close()


def _section(path: Path, start: int, stop: int | None) -> Generator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        left = float("inf") if stop is None else stop - start
        while left and (piece := stream.read(int(min(PLAIN_AT_ONCE, left)))):
            left -= len(piece)
            yield piece


def _zstd(path: Path) -> Generator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        hint = "pip install zstandard"
        raise UsageError(f"{path}: a .zst file needs the package zstandard", hint=hint) from error
    try:
        with path.open("rb") as packed:
            yield from _frames(packed, zstandard.ZstdDecompressor())
    except zstandard.ZstdError as error:
        raise DataError(f"cannot be read: {error}", location=Location(file=str(path))) from error


def _frames(packed: IO[bytes], decompressor: ZstdDecompressor) -> Iterator[bytes]:
    """What all frames of a file hold, one after the other; EOFError if the last one is cut short."""
    frame = None
    while chunk := packed.read(PACKED_AT_ONCE):
        while chunk:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(chunk)
            chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the file ends within a compressed frame")
