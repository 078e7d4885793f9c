"""Transfer matrices read from tables, tidy or wide: every fault of every cell at once, and the provenance."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from shapleymix.errors import DataError, Fault, Location, StoreError, did_you_mean
from shapleymix.files import Json, read_json
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.amounts import parse_choice
from shapleymix.tables.names import check_label
from shapleymix.tables.sheets import Sheet, Table, bytes_of, numbers, read_sheet, require, sheet_of, texts
from shapleymix.tables.spelling import SAME_NAME, lookalikes, twin_fault
from shapleymix.tables.transfer import METADATA_KEY, SIDECAR_KIND, TransferMatrix

TIDY = ("source", "target", "sv", "nsv", "stderr", "loss_drop")
_TOLERANCE = 1e-6
_SHAPE = "columns are source, target, sv or nsv, and optionally stderr and loss_drop"


@dataclass(frozen=True)
class TransferValues:
    """Matrices (M, K) as written; at least one of `sv` and `nsv` is there."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    sv: FloatArray | None
    nsv: FloatArray | None
    stderr: FloatArray | None = None
    loss_drop: dict[str, float] | None = None


def read_transfer(table: Table, *, kind: Literal["raw", "normalized"] | None = None) -> TransferMatrix:
    """Read a transfer matrix.

    Parameters
    ----------
    table : Table
        A tidy table `source,target,sv[,nsv][,stderr][,loss_drop]` with every pair once, in any order; or a wide one,
        `source` and one column per target, with `kind`; or a `.json` that `TransferMatrix.save` wrote.
    kind : {"raw", "normalized"}, optional
        What the numbers of a wide table are; never guessed, since normalising twice corrupts silently.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    if kind is not None:
        parse_choice(kind, ("raw", "normalized"), "kind")
    if isinstance(table, (str, os.PathLike)):
        data, origin = bytes_of(table)
        if origin.file.lower().endswith(".json"):
            return TransferMatrix.from_bytes(data, origin)
        sheet = sheet_of(data, origin)
    else:
        sheet = read_sheet(table)
    values = parse_transfer(sheet, kind)
    provenance = _stored_provenance(table, sheet) | {"origin": sheet.origin, "digest": sheet.digest}
    if values.loss_drop:
        provenance["loss_drop"] = values.loss_drop
    if values.sv is None:
        assert values.nsv is not None
        return TransferMatrix(values.sources, values.targets, None, values.nsv, values.stderr, provenance)
    matrix = TransferMatrix.from_sv(values.sv, values.sources, values.targets, values.stderr, provenance)
    return matrix if values.nsv is None else replace(matrix, nsv=values.nsv)


def _stored_provenance(table: Table, sheet: Sheet) -> dict[str, Json]:
    """The provenance in Parquet metadata or in the file beside the table; empty where there is none."""
    if METADATA_KEY in sheet.metadata:
        document = _parsed(sheet.metadata[METADATA_KEY], sheet.origin)
    elif isinstance(table, (str, os.PathLike)) and Path(f"{os.fspath(table)}.json").is_file():
        document = read_json(f"{os.fspath(table)}.json")
    else:
        return {}
    if not isinstance(document, dict) or document.get("kind") != SIDECAR_KIND:
        return {}
    if document.get("sha256", sheet.digest) != sheet.digest:
        return {"notice": "the provenance beside the table was written for other values and is left out"}
    provenance = document.get("provenance")
    if not isinstance(provenance, dict):
        raise StoreError("holds broken provenance: expected an object", location=Location(sheet.origin))
    return provenance


def _parsed(text: str, origin: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(f"holds broken provenance: {error}", location=Location(origin)) from error


def parse_transfer(sheet: Sheet, kind: str | None) -> TransferValues:
    """The values in a sheet.

    Raises
    ------
    DataError
        All faults of the table at once.
    """
    faults: list[Fault] = []
    if "target" in sheet.columns or "sv" in sheet.columns or "nsv" in sheet.columns:
        values = _tidy(sheet, kind, faults)
    else:
        values = _wide(sheet, kind, faults)
    if faults:
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return values


def _tidy(sheet: Sheet, kind: str | None, faults: list[Fault]) -> TransferValues:
    _check_tidy_header(sheet, kind)
    source, target = texts(sheet, "source", faults), texts(sheet, "target", faults)
    sources, targets = tuple(dict.fromkeys(source)), tuple(dict.fromkeys(target))
    _check_labels(sheet, "source", source, faults)
    _check_labels(sheet, "target", target, faults)
    for name, fault in _twins([*sources, *targets]):
        column, names = ("source", source) if name in source else ("target", target)
        faults.append(sheet.fault(names.index(name), column, fault, SAME_NAME))
    place = _places(sheet, source, target, sources, targets, faults)

    def matrix(column: str, empty: bool = False) -> FloatArray | None:
        if column not in sheet.columns:
            return None
        grid = np.full((len(sources), len(targets)), np.nan)
        grid.ravel()[place] = numbers(sheet, column, faults, empty=empty)
        return grid

    sv, nsv, stderr = matrix("sv"), matrix("nsv"), matrix("stderr", empty=True)
    lines = np.empty(len(sources) * len(targets), dtype=np.int64)
    lines[place] = np.arange(sheet.rows)
    if not faults:
        faults.extend(_value_faults(sheet, "nsv", sv, nsv, lines))
        faults.extend(_stderr_faults(sheet))
    drops = _drops(sheet, target, faults) if "loss_drop" in sheet.columns else None
    return TransferValues(sources, targets, sv, nsv, stderr, drops)


def _check_tidy_header(sheet: Sheet, kind: str | None) -> None:
    found = [name for name in ("sv", "nsv") if name in sheet.columns]
    faults = [
        sheet.header_fault(name, f"has no column {name!r}", did_you_mean(name, set(sheet.columns) - set(TIDY)))
        for name in ("source", "target")
        if name not in sheet.columns
    ]
    if not found:
        hint = "name the column of values sv (raw, nats) or nsv (normalised): which of the two is never guessed"
        faults.append(sheet.header_fault("sv", "has no column 'sv' or 'nsv'", hint))
    wanted = {"raw": "sv", "normalized": "nsv"}.get(kind or "")
    if found and wanted and wanted not in found:
        hint = "leave the kind out: a tidy table says itself what it holds"
        faults.append(sheet.header_fault(wanted, f"holds {found[0]}, not {wanted}", hint))
    if faults:
        raise DataError.of(faults, sheet.origin)


def _check_labels(sheet: Sheet, column: str, labels: Sequence[str], faults: list[Fault]) -> None:
    for name in dict.fromkeys(labels):
        problem = check_label(name) if name else None
        if problem:
            row = labels.index(name)
            faults.append(sheet.fault(row, column, f"the label {name!r} {problem}"))


def _twins(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Labels that look like an earlier one and differ, with what to say of it."""
    return [(name, f"the label {twin_fault(name, twin)}") for name, twin in lookalikes(labels).items()]


def _places(
    sheet: Sheet,
    source: Sequence[str],
    target: Sequence[str],
    sources: Sequence[str],
    targets: Sequence[str],
    faults: list[Fault],
) -> IntArray:
    """Index (rows,) of each row's pair in the flattened matrix; every pair must be there once."""
    row_of = {name: index for index, name in enumerate(sources)}
    column_of = {name: index for index, name in enumerate(targets)}
    pairs = zip(source, target, strict=True)
    place = np.array([row_of[a] * len(targets) + column_of[b] for a, b in pairs], dtype=np.int64)
    first: dict[int, int] = {}
    for row, pair in enumerate(place.tolist()):
        earlier = first.setdefault(pair, row)
        if earlier != row:
            message = f"repeats the pair {source[row]} -> {target[row]} of line {sheet.lines[earlier]}"
            faults.append(sheet.fault(row, "target", message, "give every pair once"))
    missing = sorted(set(range(len(sources) * len(targets))) - set(first))
    for pair in missing:
        a, b = sources[pair // len(targets)], targets[pair % len(targets)]
        faults.append(Fault(f"lacks the pair {a} -> {b}", Location(sheet.origin), None, "give every pair once"))
    return place


def _value_faults(
    sheet: Sheet, column: str, sv: FloatArray | None, nsv: FloatArray | None, row_at: IntArray
) -> list[Fault]:
    """Normalised values lie in [0, 1], reach 1 for each target, and agree with the raw ones if both are there."""
    if nsv is None:
        return []
    faults = []
    for index in np.flatnonzero((nsv < 0) | (nsv > 1 + _TOLERANCE)).tolist():
        hint = "normalised values lie between 0 and 1; raw ones belong into a column sv"
        message = f"nsv = {nsv.ravel()[index]:g}, expected a value between 0 and 1"
        faults.append(sheet.fault(int(row_at[index]), column, message, hint))
    if faults:
        return faults
    return _peak_faults(sheet, nsv, row_at, column) if sv is None else _conflicts(sheet, sv, nsv, row_at)


def _peak_faults(sheet: Sheet, nsv: FloatArray, row_at: IntArray, column: str) -> list[Fault]:
    """A target whose largest value is not 1 was not normalised by `exp(sv - max)`."""
    peaks = nsv.max(axis=0)
    hint = "normalised values are exp(sv - the target's largest sv); raw ones belong into a column sv"
    return [
        sheet.fault(
            int(row_at[int(np.argmax(nsv[:, index])) * nsv.shape[1] + index]),
            column,
            f"is the largest value of its target, {peaks[index]:g}, expected 1",
            hint,
        )
        for index in np.flatnonzero(np.abs(peaks - 1) > 5e-3).tolist()
    ]


def _conflicts(sheet: Sheet, sv: FloatArray, nsv: FloatArray, row_at: IntArray) -> list[Fault]:
    with np.errstate(over="ignore"):
        expected = np.exp(sv - sv.max(axis=0))
    hint = "remove the nsv column: it is computed from sv"
    return [
        sheet.fault(
            int(row_at[index]),
            "nsv",
            f"nsv = {nsv.ravel()[index]:g}, but exp(sv - the target's largest sv) = {expected.ravel()[index]:g}",
            hint,
        )
        for index in np.flatnonzero(np.abs(nsv - expected) > _TOLERANCE).tolist()
    ]


def _stderr_faults(sheet: Sheet) -> list[Fault]:
    faults: list[Fault] = []
    if "stderr" in sheet.columns:
        values = numbers(sheet, "stderr", [], empty=True)
        require(sheet, "stderr", values, values < 0, "expected 0 or more", faults)
    return faults


def _drops(sheet: Sheet, target: Sequence[str], faults: list[Fault]) -> dict[str, float]:
    """The measured loss drop of each target, which its rows repeat."""
    values = numbers(sheet, "loss_drop", faults)
    drops: dict[str, float] = {}
    for row, (name, value) in enumerate(zip(target, values.tolist(), strict=True)):
        known = drops.setdefault(name, value)
        if abs(known - value) > _TOLERANCE * max(abs(known), 1.0):
            message = f"loss_drop = {value:g}, but {known:g} in an earlier row of target {name}"
            faults.append(sheet.fault(row, "loss_drop", message, "a target has one loss drop"))
    return drops


def _wide(sheet: Sheet, kind: str | None, faults: list[Fault]) -> TransferValues:
    """One row per source, one column per target; the column `source` (or one without a name) has the labels."""
    label = "source" if "source" in sheet.columns else "column 1"
    if label not in sheet.columns:
        hint = did_you_mean("source", sheet.columns) if len(sheet.columns) < 8 else _SHAPE
        raise DataError.of([sheet.header_fault("source", "has no column 'source'", hint or _SHAPE)], sheet.origin)
    if kind is None:
        message = "is a wide table, which does not say whether its values are raw or normalised"
        hint = "say which: kind=raw or kind=normalized"
        raise DataError(message, hint=hint, location=Location(sheet.origin))
    sources = texts(sheet, label, faults)
    _check_labels(sheet, label, sources, faults)
    for row, name in enumerate(sources):
        if name and sources.index(name) != row:
            faults.append(sheet.fault(row, label, f"repeats the source {name!r}", "give every source once"))
    targets = tuple(name for name in sheet.columns if name != label)
    if not targets:
        raise DataError.of([sheet.header_fault("source", "has no column for a target", _SHAPE)], sheet.origin)
    for name, fault in _twins([*targets, *sources]):
        in_row = name in sources
        at = sheet.fault(sources.index(name), label, fault) if in_row else sheet.header_fault(name, fault)
        faults.append(replace(at, hint=SAME_NAME))
    grid = np.column_stack([numbers(sheet, name, faults) for name in targets])
    if kind == "raw":
        return TransferValues(sources, targets, grid, None)
    faults.extend(_wide_range_faults(sheet, targets, grid))
    return TransferValues(sources, targets, None, grid)


def _wide_range_faults(sheet: Sheet, targets: Sequence[str], nsv: FloatArray) -> list[Fault]:
    hint = "normalised values are exp(sv - the target's largest sv); for raw ones say kind=raw"
    outside = np.argwhere((nsv < 0) | (nsv > 1 + _TOLERANCE)).tolist()
    faults = [
        sheet.fault(row, targets[index], f"is {nsv[row, index]:g}, expected a value between 0 and 1", hint)
        for row, index in outside
    ]
    unpeaked = [] if outside or np.isnan(nsv).any() else np.flatnonzero(np.abs(nsv.max(axis=0) - 1) > 5e-3)
    for index in (int(i) for i in unpeaked):
        message = f"has the largest value {nsv[:, index].max():g}, expected 1"
        faults.append(sheet.header_fault(targets[index], message, hint))
    return faults
