"""Transfer matrices: what a source language does for a target language, in raw and normalised Shapley values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Column, Columns, Tabular
from shapleymix.errors import DataError, printable
from shapleymix.files import Json, read_json, require_free, write_json
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import cosine, pearson
from shapleymix.tables.languages import own_data
from shapleymix.tables.sheets import Sheet, Table, read_sheet, write_table
from shapleymix.tables.words import align, find_repeated

SIDECAR_KIND = "transfer-provenance"
MEASURES = ("cosine", "pearson", "cosine_off_diagonal", "pearson_off_diagonal")

TIDY = ("source", "target", "sv", "nsv", "stderr", "loss_drop")
_TOLERANCE = 1e-6
_ROUNDED = 5e-3


@dataclass(frozen=True)
class TransferMatrix(Tabular, Record):
    """Shapley values of M sources for K targets.

    Attributes
    ----------
    sources, targets : tuple of str
        M and K labels; separate sets.
    sv : array (M, K), optional
        Raw Shapley values, nats of loss drop; None where only normalised ones are known.
    nsv : array (M, K)
        Normalised values in (0, 1]: `exp(sv - column maximum)` (ShapleyLaw paper, section on NSV), so that each
        target's best source has 1.
    stderr : array (M, K), optional
        Standard errors of `sv`.
    provenance : dict
        What is known of the matrix's making, JSON-ready: N, D, method, steps, calibration, `loss_drop` by target.
    """

    kind: ClassVar[str] = "transfer"
    axes: ClassVar[Mapping[str, str]] = {"sources": "M", "targets": "K", "sv": "MK", "nsv": "MK", "stderr": "MK"}
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    sv: FloatArray | None
    nsv: FloatArray
    stderr: FloatArray | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.sources), len(self.targets))
        again = [*find_repeated(self.sources), *find_repeated(self.targets)]
        if 0 in shape or again:
            raise DataError(f"{again[0]!r} occurs twice" if again else "a transfer matrix needs labels")
        for name in ("sv", "nsv", "stderr"):
            values = getattr(self, name)
            if values is not None and values.shape != shape:
                raise DataError(f"{name} has shape {values.shape}, the labels say {shape}")
            if values is not None and name != "stderr" and not np.isfinite(values).all():
                raise DataError(f"{name} holds a value that is not a finite number")
        if (self.nsv < 0).any():
            raise DataError(f"nsv holds the negative value {self.nsv.min():g}")

    @classmethod
    def from_sv(
        cls,
        sv: ArrayLike,
        sources: Sequence[str],
        targets: Sequence[str],
        stderr: ArrayLike | None = None,
        provenance: Mapping[str, Json] | None = None,
    ) -> TransferMatrix:
        """Normalise raw values (M, K): `nsv_ij = exp(sv_ij - max_i sv_ij)`.

        Raises
        ------
        DataError
            If the shapes or labels do not fit, or a value is not finite.
        """
        values = np.array(sv, dtype=np.float64)
        errors = None if stderr is None else np.array(stderr, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # a difference beyond any number is a ratio of 0
            nsv = np.exp(values - values.max(axis=0, initial=-np.inf))
        return cls(tuple(sources), tuple(targets), values, nsv, errors, dict(provenance or {}))

    def headline(self) -> str:
        """Where the matrix is from."""
        return f"TransferMatrix from {printable(str(self.provenance.get('origin', '<memory>')))}"

    @property
    def off_diagonal(self) -> BoolArray:
        """(M, K) entries whose source is no own data of their target."""
        return ~own_data(self.sources, self.targets)

    def align(self, sources: Sequence[str], targets: Sequence[str], *, exact: bool = False) -> TransferMatrix:
        """The rows and columns in the given order; with `exact` none may be left out.

        Where sources are left out, each target's best remaining source has a normalised value of 1 again.

        Raises
        ------
        DataError
            If a source or a target is missing; all of them at once, with what may be meant.
        """
        origin = self.provenance.get("origin")
        row = align(self.sources, to=sources, what="sources of the SV matrix", exact=exact, origin=origin)
        column = align(self.targets, to=targets, what="targets of the SV matrix", exact=exact, origin=origin)
        place = np.ix_(row, column)
        nsv = self.nsv[place]
        if len(row) < len(self.sources):
            nsv = nsv / nsv.max(axis=0)
        sv, stderr = (None if one is None else one[place] for one in (self.sv, self.stderr))
        return replace(self, sources=tuple(sources), targets=tuple(targets), sv=sv, nsv=nsv, stderr=stderr)

    @property
    def in_nats(self) -> bool:
        """Whether values were measured in nats, or calibrated since: those of one run have a scale of their own."""
        return "loss_drop" not in self.provenance or "calibration" in self.provenance

    def calibrate(self, loss_drop: ArrayLike | Mapping[str, float] | None = None) -> TransferMatrix:
        """Column j scaled so that its values sum to the measured drop of loss j (efficiency).

        Values of one run's gradients come on an arbitrary scale, and normalising depends on scale; efficiency
        fixes it.

        Parameters
        ----------
        loss_drop : array (K,) or mapping, optional
            Measured loss drops in nats, in order or by target; by default those of the table
            (`provenance["loss_drop"]`).

        Raises
        ------
        DataError
            If there are no raw values or no drops, a drop is not positive, or a column sums to zero or less, so
            that scaling would turn help into harm.
        """
        sv = self.sv
        if sv is None:
            raise DataError("there are only normalised values, which have lost their scale: read the raw ones")
        drops = self._drops(loss_drop)
        sums = sv.sum(axis=0)
        bad = [name for name, total in zip(self.targets, sums, strict=True) if not total > 0]
        if bad:
            raise DataError(f"cannot calibrate {', '.join(bad)}: the values sum to 0 or less")
        scale = drops / sums
        stderr = None if self.stderr is None else self.stderr * scale
        scales = {"loss_drop": drops, "calibration": scale}
        known = {name: dict(zip(self.targets, values.tolist(), strict=True)) for name, values in scales.items()}
        return TransferMatrix.from_sv(sv * scale, self.sources, self.targets, stderr, self.provenance | known)

    def compare(self, other: TransferMatrix) -> Similarity:
        """How alike the normalised matrices are, and the raw ones where both have them; labels are matched.

        Raises
        ------
        DataError
            If the two do not have the same sources and targets, in any order.
        """
        partner = other.align(self.sources, self.targets, exact=True)
        raw = None
        if self.sv is not None and partner.sv is not None:
            raw = similarity(self.sv, partner.sv, self.targets, self.off_diagonal)
        return similarity(self.nsv, partner.nsv, self.targets, self.off_diagonal, raw)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the tidy table; provenance goes beside it, as `PATH.json`.

        Raises
        ------
        UsageError
            If a file exists and `force` is not set, or the ending names no format.
        """
        sidecar = Path(f"{os.fspath(path)}.json")
        require_free(sidecar, force=force)
        digest = hashlib.sha256(write_table(self.columns(), path, force=force)).hexdigest()
        # without what only this reading knows: which file, and what is a column of the table
        own = {key: value for key, value in self.provenance.items() if key not in ("origin", "digest", "loss_drop")}
        note = {"schema_version": 1, "kind": SIDECAR_KIND, "provenance": own, "sha256": digest}
        write_json(note, sidecar, force=force)

    def columns(self) -> dict[str, Column]:
        """The columns of the tidy table that `read_transfer` reads, one row per pair."""
        pairs = list(product(self.sources, self.targets))
        table: dict[str, Column] = {"source": [one for one, _ in pairs], "target": [one for _, one in pairs]}
        arrays = {"sv": self.sv, "nsv": self.nsv, "stderr": self.stderr}
        table |= {name: array.ravel() for name, array in arrays.items() if array is not None}
        drops = self.provenance.get("loss_drop")
        if drops:
            table["loss_drop"] = np.array([drops[name] for name in table["target"]], dtype=np.float64)
        return table

    def _drops(self, given: ArrayLike | Mapping[str, float] | None) -> FloatArray:
        """Loss drops (K,), all above zero."""
        drops = self.provenance.get("loss_drop") if given is None else given
        if drops is None:
            raise DataError("no loss drops are known to calibrate with: the table has no column loss_drop")
        if isinstance(drops, Mapping):
            index = align(list(drops), to=self.targets, what="loss drops")
            drops = np.array(list(drops.values()), dtype=np.float64)[index]
        values = np.asarray(drops, dtype=np.float64)
        if values.shape != (len(self.targets),) or not (np.isfinite(values) & (values > 0)).all():
            raise DataError(f"loss drops must be {len(self.targets)} numbers above 0")
        return values


def read_transfer(table: Table) -> TransferMatrix:
    """Read a transfer matrix.

    Parameters
    ----------
    table : Table
        A tidy table `source,target,sv[,nsv][,stderr][,loss_drop]` with every pair once, in any order; or a `.json` that
        `TransferMatrix.save` wrote. Raw values stand in a column `sv`, normalised ones alone in `nsv`: which of the two
        is meant is never guessed, since normalising twice corrupts silently.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    if isinstance(table, (str, os.PathLike)) and os.fspath(table).lower().endswith(".json"):
        return TransferMatrix.load(table)
    sheet = read_sheet(table)
    found = _parse(sheet)
    sheet.raise_faults()
    return replace(found, provenance=_read_provenance(sheet) | found.provenance)


def _read_provenance(sheet: Sheet) -> dict[str, Json]:
    """The provenance in the file beside the table; empty where there is none."""
    beside = Path(f"{sheet.origin}.json")
    document = read_json(beside)[0] if beside.is_file() else None
    if not isinstance(document, dict) or document.get("kind") != SIDECAR_KIND:
        return {}
    if document.get("sha256") != sheet.digest:
        return {"notice": "the provenance beside the table was written for other values and is left out"}
    return dict(document["provenance"])


def _parse(sheet: Sheet) -> TransferMatrix:
    """The matrix in a tidy table."""
    sheet.need(["source", "target"])
    known = [name for name in TIDY[2:] if name in sheet.columns]
    if "sv" not in known and "nsv" not in known:
        sheet.fault("has no column 'sv' or 'nsv' (raw or normalised values: neither is guessed)", None, "sv")
    sheet.raise_faults()
    rows, sources, targets = _pairs(sheet)
    values = {name: sheet.numbers(name, empty=name == "stderr") for name in known}
    for name in {"stderr"} & values.keys():
        sheet.refuse(values[name] < 0, name, values[name], "expected 0 or more")
    sheet.raise_faults()
    sv, nsv, stderr, drops = (values[name][rows] if name in values else None for name in TIDY[2:])
    provenance: dict[str, Json] = {"origin": sheet.origin, "digest": sheet.digest}
    if drops is not None:
        _require_equal(sheet, "loss_drop", drops, drops[:1], 0.0, rows, "a target has one loss drop")
        provenance["loss_drop"] = dict(zip(targets, drops[0].tolist(), strict=True))
    if sv is not None:
        found = TransferMatrix.from_sv(sv, sources, targets, stderr, provenance)
    else:
        assert nsv is not None
        found = TransferMatrix(sources, targets, None, np.clip(nsv, 0.0, None), stderr, provenance)
    if nsv is not None:
        expected = found.nsv if sv is not None else np.where(nsv == nsv.max(axis=0), 1.0, np.clip(nsv, 0.0, 1.0))
        hint = "normalised values are exp(sv - the target's largest sv), 1 for its best source; raw ones belong into sv"
        _require_equal(sheet, "nsv", nsv, expected, _ROUNDED if sv is None else _TOLERANCE, rows, hint)
    return found


def _require_equal(
    sheet: Sheet, column: str, values: FloatArray, expected: FloatArray, tolerance: float, rows: IntArray, hint: str
) -> None:
    """A fault for each value (M, K), in the table's `rows` (M, K), that is not what it must be."""
    for place in np.argwhere(~np.isclose(values, expected, rtol=tolerance, atol=tolerance)).tolist():
        at = tuple(place)
        message = f"{column} = {values[at]:g}, expected {np.broadcast_to(expected, values.shape)[at]:g}"
        sheet.fault(message, int(rows[at]), column, hint)


def _pairs(sheet: Sheet) -> tuple[IntArray, tuple[str, ...], tuple[str, ...]]:
    """The row (M, K) of each pair, the sources and the targets; labels must be usable, every pair be there once."""
    cells = [sheet.labels(column) for column in ("source", "target")]
    pairs, hint = list(zip(*cells, strict=True)), "give every pair once"
    sheet.once(pairs, "the pair {} -> {}", "target", hint)
    row = {pair: place for place, pair in enumerate(pairs)}
    sources, targets = (tuple(dict.fromkeys(names)) for names in cells)
    for pair in product(sources, targets):
        if pair not in row:
            sheet.fault(f"lacks the pair {pair[0]} -> {pair[1]}", hint=hint)
    return np.array([[row.get((a, b), 0) for b in targets] for a in sources], dtype=np.int64), sources, targets


@dataclass(frozen=True)
class Similarity(Tabular, Record):
    """Agreement of two matrices (M, K); NaN where too few entries or no variation leave it undefined.

    Attributes
    ----------
    cosine, pearson : float
        Agreement over all entries, flattened, as the paper's transferability test measures it.
    cosine_off_diagonal, pearson_off_diagonal : float
        Agreement without the entries whose source is their target: stricter, as the large diagonal makes any two
        matrices look alike.
    targets : tuple of str (K,)
        Labels.
    *_by_target : array (K,)
        The same measures for each target's column.
    raw : Similarity, optional
        The same measures of the raw Shapley values, where both matrices have them.
    """

    kind: ClassVar[str] = "similarity"
    cosine: float
    pearson: float
    cosine_off_diagonal: float
    pearson_off_diagonal: float
    targets: tuple[str, ...]
    cosine_by_target: FloatArray
    pearson_by_target: FloatArray
    cosine_off_diagonal_by_target: FloatArray
    pearson_off_diagonal_by_target: FloatArray
    raw: Similarity | None = None

    def columns(self) -> Columns:
        """One row per target."""
        return {"target": self.targets} | {name: getattr(self, f"{name}_by_target") for name in MEASURES}

    def headline(self) -> str:
        """The measures over all entries."""
        overall = ", ".join(f"{name.replace('_', ' ')} {getattr(self, name):.3f}" for name in MEASURES)
        return f"Similarity of two transfer matrices: {overall}"


def similarity(
    left: FloatArray, right: FloatArray, targets: tuple[str, ...], off: BoolArray, raw: Similarity | None = None
) -> Similarity:
    """Compare two matrices (M, K); `off` (M, K) is the mask of the entries off the diagonal."""
    found: dict[str, Any] = {}
    for ending, mask in (("", np.ones_like(off)), ("_off_diagonal", off)):
        for name, measure in (("cosine", cosine), ("pearson", pearson)):
            whole = measure(left.reshape(-1, 1), right.reshape(-1, 1), mask.reshape(-1, 1))
            found[f"{name}{ending}"] = float(whole[0])
            found[f"{name}{ending}_by_target"] = measure(left, right, mask)
    return Similarity(targets=targets, raw=raw, **found)
