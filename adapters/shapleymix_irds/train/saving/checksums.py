"""The checksums of a folder, in the format of `sha256sum`: a bit that has flipped on the disk is met."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from shapleymix.errors import Location, StoreError

NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([a-z0-9_-]+(?:\.[a-z]+)+)")


def write_synced(path: Path, content: str | bytes) -> str:
    """Write a file through to the disk; its checksum."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return hashlib.sha256(data).hexdigest()


def write_sums(folder: Path, sums: Mapping[str, str], name: str = NAME) -> None:
    """Write the checksums of the files of a folder, by name, into a file called `name`."""
    write_synced(folder / name, "".join(f"{sums[file]}  {file}\n" for file in sorted(sums)))


def read_sums(folder: Path, name: str = NAME) -> dict[str, str]:
    """The checksums that the files of a folder should have, by name.

    Raises
    ------
    StoreError
        If they cannot be read, or are not as `write_sums` writes them.
    """
    place = Location(file=str(folder / name))
    try:
        text = (folder / name).read_bytes().decode("ascii")
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", location=place) from error
    except UnicodeDecodeError as error:
        raise StoreError("is no list of checksums", location=place) from error
    lines = [LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    sums = {line[2]: line[1] for line in lines if line}
    if text != "".join(f"{sums[file]}  {file}\n" for file in sorted(sums)):
        raise StoreError("is no list of checksums", location=place)
    return sums


def check_file(folder: Path, name: str, sums: Mapping[str, str]) -> None:
    """See that a file is as it was written.

    Raises
    ------
    StoreError
        If it is not, cannot be read, or has no checksum.
    """
    place = Location(file=str(folder / name))
    if name not in sums:
        raise StoreError(f"has no checksum in {NAME}", location=place)
    try:
        with (folder / name).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", location=place) from error
    if found != sums[name]:
        raise StoreError("is not as it was written: its checksum differs", location=place)
