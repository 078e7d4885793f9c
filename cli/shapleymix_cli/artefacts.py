"""Writing results with `-o`: with the call in their provenance, and a word of what was written."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapleymix.errors import printable
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.records import Record
    from shapleymix.tables.transfer import TransferMatrix


def write_matrix(
    out: Output, matrix: TransferMatrix, path: str, force: bool, more: Mapping[str, Any] | None = None
) -> None:
    """Write a transfer matrix as a table, or whole as `.json`."""
    marked = with_provenance(matrix, out, more)
    if path.lower().endswith(".json"):
        marked.save(path, force=force)
        out.note([f"wrote {path}"])
        return
    marked.write(path, force=force)
    beside = "" if path.lower().endswith((".parquet", ".pq")) else f" (provenance in {path}.json)"
    out.note([f"wrote {path}{beside}"])


def save(out: Output, record: Record, path: str, force: bool, inputs: Sequence[str | None] = ()) -> None:
    """Write a result as its versioned JSON document, with the hashes of the files that it was made from."""
    hashes = {"inputs": {printable(name): file_hash(name) for name in inputs if name is not None}}
    with_provenance(record, out, hashes).save(path, force=force)
    out.note([f"wrote {path}"])


def file_hash(path: str) -> str | None:
    """SHA-256 of a file; None of standard input, which cannot be read again."""
    return None if path == "-" else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def with_provenance(record: Any, out: Output, more: Mapping[str, Any] | None = None) -> Any:
    """The record with the call, and the program's version, in its provenance."""
    known = getattr(record, "provenance", None)
    if known is None:
        return record
    extra = {"command": out.command_line, "shapleymix": program_version(), **(more or {})}
    return dataclasses.replace(record, provenance=extra | dict(known) | {"command": out.command_line})


def program_version() -> str:
    """Version of the installed distribution."""
    from importlib.metadata import version

    return version("shapleymix")
