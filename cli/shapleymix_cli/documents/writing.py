"""Writing results with `-o`: with the call in their provenance, and a word of what was written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from shapleymix.files import Json
from shapleymix_cli.documents.plain import SCHEMA_VERSION, plain

if TYPE_CHECKING:
    from shapleymix.downstream.calibrations import Downstream
    from shapleymix.mixing.curves import Frontier
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.planning.designs import Design
    from shapleymix.records import Record
    from shapleymix.sweeping.listed import Listed
    from shapleymix.tables.transfer import TransferMatrix
    from shapleymix.tables.writing import Column
    from shapleymix_cli.console import Output

R = TypeVar("R", bound="Record")


def write_matrix(out: Output, matrix: TransferMatrix, path: str, force: bool) -> None:
    """Write a transfer matrix as a table, or whole as `.json`."""
    marked = with_provenance(out, matrix)
    if path.lower().endswith(".json"):
        marked.save(path, force=force)
        out.note([f"wrote {path}"])
        return
    marked.write(path, force=force)
    beside = "" if _holds_metadata(path) else f" (provenance in {path}.json)"
    out.note([f"wrote {path}{beside}"])


def save(out: Output, record: Record, path: str, force: bool) -> None:
    """Write a result as its versioned JSON document, with the hashes of the files that it was made from."""
    with_provenance(out, record).save(path, force=force)
    out.note([f"wrote {path}"])


def with_provenance(out: Output, record: R) -> R:
    """The record with the call, the program's version and the inputs in its provenance, where it has one."""
    known = getattr(record, "provenance", None)
    if known is None:
        return record
    changed: Any = record  # a record with this field is a dataclass
    return dataclasses.replace(changed, provenance=provenance(out) | dict(known) | {"command": out.command_line})


def write_document(out: Output, content: Mapping[str, object], path: str, force: bool) -> None:
    """Write what `--json` prints."""
    from shapleymix.files import atomic_write

    document = plain({"schema_version": SCHEMA_VERSION, **content})
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    atomic_write(path, text + "\n", force=force)
    out.note([f"wrote {path}"])


def write_columns(out: Output, columns: Mapping[str, Column], path: str, force: bool) -> None:
    """Write a table in the format that the name ends in; Parquet holds the provenance as well."""
    from shapleymix.tables.writing import write_table

    metadata = {"shapleymix": json.dumps({"schema_version": SCHEMA_VERSION, "provenance": provenance(out)})}
    write_table(columns, path, force=force, metadata=metadata)
    out.note([f"wrote {path}" if _holds_metadata(path) else f"wrote {path} (.parquet and .json hold provenance, too)"])


def save_or_tabulate(
    out: Output, record: MixtureGrid | Frontier | Design | Listed | Downstream, path: str, force: bool
) -> None:
    """The document of a result with `.json`; else its table, with an empty cell where there is no number."""
    if path.lower().endswith(".json"):
        save(out, record, path, force)
        return
    write_columns(out, {name: _empty_where_nan(values) for name, values in record.columns().items()}, path, force)


def _empty_where_nan(values: Column) -> list[object]:
    return [None if value != value else value for value in values]


def _holds_metadata(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))


def provenance(out: Output) -> dict[str, Json]:
    """The call, the program's version, and the SHA-256 of each file that was read."""
    return {"command": out.command_line, "shapleymix": program_version(), "inputs": dict(out.inputs)}


def program_version() -> str:
    """Version of the installed distribution."""
    from importlib.metadata import version

    return version("shapleymix")
