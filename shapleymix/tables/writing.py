"""Columns as the bytes of a file: CSV (also gzipped), Parquet or JSONL, by the name's ending."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import polars as pl

from shapleymix.display import Column
from shapleymix.errors import Location, UsageError
from shapleymix.files import atomic_write, file_name

Cell = str | float | None


def write_table(
    columns: Mapping[str, Column],
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Write columns so that reading gives the same numbers bit for bit; NaN is an empty cell.

    `metadata` goes into a Parquet file; the text formats have no place for it. Returns the bytes written.

    Raises
    ------
    UsageError
        If the file exists and `force` is not set, or its ending names no format.
    """
    content = encode(columns, file_name(path), metadata)
    atomic_write(path, content, force=force)
    return content


def encode(columns: Mapping[str, Column], name: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of the file `name`; the same columns give the same bytes."""
    plain = {key: _cells(column) for key, column in columns.items()}
    ending = name.lower()
    if ending.endswith((".parquet", ".pq")):
        return _parquet(plain, metadata)
    packed = ending.endswith(".gz")
    ending = ending.removesuffix(".gz")
    if ending.endswith((".jsonl", ".ndjson")):
        content = _jsonl(plain)
    elif ending.endswith(".csv"):
        content = _csv(plain)
    else:
        hint = "end the name in .csv, .csv.gz, .parquet or .jsonl"
        raise UsageError("names no format to write", hint=hint, location=Location(file=name))
    # No time stamp, so that the same table gives the same bytes.
    return gzip.compress(content, mtime=0) if packed else content


def _cells(column: Column) -> list[Cell]:
    if not isinstance(column, np.ndarray):  # which may hold NumPy's numbers, of which JSON knows none
        return [cast(Cell, value.item() if isinstance(value, np.generic) else value) for value in column]
    return [None if math.isnan(value) else value for value in column.tolist()]


def _shortest(value: Cell) -> Cell:
    """A whole number without `.0`, other doubles in the shortest form that reads back exactly."""
    if not isinstance(value, float):
        return value
    whole = value.is_integer() and abs(value) < 1e15 and (value != 0 or math.copysign(1.0, value) > 0)
    return int(value) if whole else value


def _csv(columns: Mapping[str, list[Cell]]) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_row, zip(*columns.values(), strict=True)))
    return stream.getvalue().encode("utf-8")


def _row(cells: Sequence[Cell]) -> list[Cell]:
    return ["" if cell is None else _shortest(cell) for cell in cells]


def _jsonl(columns: Mapping[str, list[Cell]]) -> bytes:
    rows = zip(*columns.values(), strict=True)
    records = (dict(zip(columns, map(_shortest, row), strict=True)) for row in rows)
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _parquet(columns: Mapping[str, list[Cell]], metadata: Mapping[str, str] | None) -> bytes:
    stream = io.BytesIO()
    pl.DataFrame(dict(columns), strict=False).write_parquet(stream, metadata=dict(metadata or {}))
    return stream.getvalue()
