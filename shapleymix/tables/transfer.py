"""Transfer matrices: what a source language does for a target language, in raw and normalised Shapley values."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Column, Drawn, text_table
from shapleymix.errors import DataError, Location, StoreError, UsageError, printable
from shapleymix.files import Json, atomic_write, read_json
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.frames import Tabular
from shapleymix.tables.names import align, repeated
from shapleymix.tables.similarity import Similarity, similarity
from shapleymix.tables.spelling import composed
from shapleymix.tables.writing import write_table

METADATA_KEY = "shapleymix"
"""Where the provenance stands in a Parquet file's metadata."""

SIDECAR_KIND = "transfer-provenance"


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
    plot = Drawn("heatmaps.plot_transfer")
    axes: ClassVar[Mapping[str, str]] = {"sources": "M", "targets": "K", "sv": "MK", "nsv": "MK", "stderr": "MK"}
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    sv: FloatArray | None
    nsv: FloatArray
    stderr: FloatArray | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("sources", "targets"):
            object.__setattr__(self, name, tuple(map(composed, getattr(self, name))))
        for name in ("sv", "nsv"):
            values = getattr(self, name)
            if values is not None and not np.isfinite(values).all():
                raise DataError(f"{name} holds a value that is not a finite number")
        if (self.nsv < 0).any():
            raise DataError(f"nsv holds the negative value {self.nsv.min():g}")
        _check_loss_drop(self.provenance.get("loss_drop"), self.targets)

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
        shape = (len(sources), len(targets))
        if values.shape != shape or (errors is not None and errors.shape != shape):
            raise DataError(f"Shapley values have shape {values.shape}, the labels say {shape}")
        again = [*repeated(sources), *repeated(targets)]
        if 0 in shape or again:
            raise DataError(f"{again[0]!r} occurs twice" if again else "a transfer matrix needs labels")
        if not np.isfinite(values).all():
            raise DataError("a Shapley value is not a finite number")
        with np.errstate(over="ignore"):  # a difference beyond any number is a ratio of 0
            nsv = np.exp(values - values.max(axis=0))
        return cls(tuple(sources), tuple(targets), values, nsv, errors, dict(provenance or {}))

    def summary(self) -> str:
        """How large the matrix is, where it is from, and its first rows."""
        kind = "normalised values only" if self.sv is None else "raw and normalised values"
        origin = printable(str(self.provenance.get("origin", "<memory>")))
        head = f"TransferMatrix from {origin}: {len(self.sources)} sources x {len(self.targets)} targets, {kind}"
        return "\n".join([head, *text_table(self.columns())])

    @property
    def off_diagonal(self) -> BoolArray:
        """(M, K) entries whose source is not their target."""
        return np.array([[source != target for target in self.targets] for source in self.sources], dtype=bool)

    def aligned(self, sources: Sequence[str], targets: Sequence[str]) -> TransferMatrix:
        """The rows and columns in the given order.

        Where sources are left out, each target's best remaining source has a normalised value of 1 again.

        Raises
        ------
        DataError
            If a source or a target is missing; all of them at once, with what may be meant.
        """
        origin = self.provenance.get("origin")
        row = align(self.sources, to=sources, what="sources of the SV matrix", origin=origin)
        column = align(self.targets, to=targets, what="targets of the SV matrix", origin=origin)

        def pick(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else values[np.ix_(row, column)]

        nsv = self.nsv[np.ix_(row, column)]
        if len(row) < len(self.sources):
            nsv = nsv / nsv.max(axis=0)
        return replace(
            self, sources=tuple(sources), targets=tuple(targets), sv=pick(self.sv), nsv=nsv, stderr=pick(self.stderr)
        )

    def calibrated(self, loss_drop: ArrayLike | Mapping[str, float] | None = None) -> TransferMatrix:
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
        sv = self._raw()
        drops = self._drops(loss_drop)
        sums = sv.sum(axis=0)
        bad = [name for name, total in zip(self.targets, sums, strict=True) if not total > 0]
        if bad:
            hint = "the values of a column must sum to more than 0 to be scaled to a loss drop"
            raise DataError(f"cannot calibrate {', '.join(bad)}: the values sum to 0 or less", hint=hint)
        scale = drops / sums
        stderr = None if self.stderr is None else self.stderr * scale
        known = {
            "loss_drop": dict(zip(self.targets, drops.tolist(), strict=True)),
            "calibration": dict(zip(self.targets, scale.tolist(), strict=True)),
        }
        return TransferMatrix.from_sv(sv * scale, self.sources, self.targets, stderr, self.provenance | known)

    def compare(self, other: TransferMatrix) -> Similarity:
        """How alike the normalised matrices are, and the raw ones where both have them; labels are matched.

        Raises
        ------
        DataError
            If the two do not have the same sources and targets, in any order.
        """
        for mine, theirs, what in (
            (self.sources, other.sources, "sources of the SV matrix"),
            (self.targets, other.targets, "targets of the SV matrix"),
        ):
            align(theirs, to=mine, what=what, exact=True, origin=other.provenance.get("origin"))
        partner = other.aligned(self.sources, self.targets)
        raw = None
        if self.sv is not None and partner.sv is not None:
            raw = similarity(self.sv, partner.sv, self.targets, self.off_diagonal)
        return similarity(self.nsv, partner.nsv, self.targets, self.off_diagonal, raw)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the tidy table; provenance goes into Parquet metadata, or beside the file as `PATH.json`.

        Raises
        ------
        UsageError
            If a file exists and `force` is not set, or the ending names no format.
        """
        sidecar = None if str(path).lower().endswith((".parquet", ".pq")) else Path(f"{os.fspath(path)}.json")
        if sidecar:
            _check_sidecar(sidecar, force)
        note = {"schema_version": 1, "kind": SIDECAR_KIND, "provenance": _own(self.provenance)}
        content = write_table(self.columns(), path, force=force, metadata={METADATA_KEY: _json(note)})
        if sidecar:
            written_for = {"sha256": hashlib.sha256(content).hexdigest()}
            atomic_write(sidecar, _json(note | written_for) + "\n", force=force)

    def columns(self) -> dict[str, Column]:
        """The columns of the tidy table that `read_transfer` reads, one row per pair."""
        count = len(self.targets)
        table: dict[str, Column] = {
            "source": [name for name in self.sources for _ in range(count)],
            "target": list(self.targets) * len(self.sources),
        }
        arrays = {"sv": self.sv, "nsv": self.nsv, "stderr": self.stderr}
        table |= {name: array.ravel() for name, array in arrays.items() if array is not None}
        drops = self.provenance.get("loss_drop")
        if drops:
            table["loss_drop"] = np.array([drops[name] for name in table["target"]], dtype=np.float64)
        return table

    def _raw(self) -> FloatArray:
        if self.sv is None:
            hint = "read the raw Shapley values: normalised ones have lost their scale"
            raise DataError("there are only normalised values, which cannot be calibrated", hint=hint)
        return self.sv

    def _drops(self, given: ArrayLike | Mapping[str, float] | None) -> FloatArray:
        """Loss drops (K,), all above zero."""
        drops = self.provenance.get("loss_drop") if given is None else given
        if drops is None:
            hint = "add a loss_drop column to the table, or give the drops"
            raise DataError("no loss drops are known to calibrate with", hint=hint)
        if isinstance(drops, Mapping):
            index = align(list(drops), to=self.targets, what="loss drops")
            drops = np.array(list(drops.values()), dtype=np.float64)[index]
        values = np.asarray(drops, dtype=np.float64)
        if values.shape != (len(self.targets),) or not (np.isfinite(values) & (values > 0)).all():
            raise DataError(f"loss drops must be {len(self.targets)} numbers above 0")
        return values


def _check_loss_drop(drops: Json, targets: Sequence[str]) -> None:
    """A stored loss drop, if there is one, is a number for each target."""
    if drops is None:
        return
    known = drops if isinstance(drops, Mapping) else {}
    if not all(type(known.get(name)) in (int, float) for name in targets):
        raise DataError("provenance.loss_drop is not a number for each target")


def _check_sidecar(path: Path, force: bool) -> None:
    """Refuse to overwrite a file beside the table: unasked, and in any case if it is not a table's provenance."""
    if not path.exists():
        return
    place = Location(file=str(path))
    try:
        document = read_json(path)
    except StoreError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != SIDECAR_KIND:
        message = "stands where the table's provenance goes, and holds something else: it is not overwritten"
        raise UsageError(message, location=place, hint="choose another name for the table, or move that file away")
    if not force:
        raise UsageError("exists already", location=place, hint="choose another name, or overwrite it (force)")


def _own(provenance: Mapping[str, Json]) -> dict[str, Json]:
    """Provenance without what only this reading knows: which file, and what is a column of the table."""
    return {key: value for key, value in provenance.items() if key not in ("origin", "digest", "loss_drop")}


def _json(document: Mapping[str, Json]) -> str:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=1)
    return text.encode("utf-8", "backslashreplace").decode()  # a byte of a name that is no UTF-8 as JSON's escape
