"""The checksums of a folder, in the format of `sha256sum`: a bit that has flipped on the disk is met."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from shapleymix.errors import Location, StoreError

NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([a-z0-9-]+\.[a-z]+)")


def write_synced(path: Path, text: str) -> str:
    """Write a file through to the disk; its checksum."""
    data = text.encode("utf-8")
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return hashlib.sha256(data).hexdigest()


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write the checksums of the files of a folder, by name."""
    write_synced(folder / NAME, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def read_sums(folder: Path) -> dict[str, str]:
    """The checksums that the files of a folder should have, by name.

    Raises
    ------
    StoreError
        If they cannot be read, or are not as `write_sums` writes them.
    """
    place = Location(file=str(folder / NAME))
    try:
        text = (folder / NAME).read_bytes().decode("ascii")
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", location=place) from error
    except UnicodeDecodeError as error:
        raise StoreError("is no list of checksums", location=place) from error
    lines = [LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    sums = {line[2]: line[1] for line in lines if line}
    if text != "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)):
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
