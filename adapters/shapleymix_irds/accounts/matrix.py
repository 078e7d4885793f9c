"""From a ledger to the core's SV matrix."""

from __future__ import annotations

from typing import Literal

import numpy as np

from shapleymix.records import Json
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.accounts.ledger import Array, Ledger, Losses
from shapleymix_irds.errors import TrackerError


def transfer_matrix(
    ledger: Ledger,
    losses: Losses,
    languages: tuple[str, ...],
    kind: Literal["raw", "calibrated"],
    about: dict[str, Json],
) -> TransferMatrix:
    """The SV matrix of a run.

    Parameters
    ----------
    kind : {"raw", "calibrated"}
        Raw is phi as summed; calibrated is column j scaled so that it sums to the measured drop of loss j.
    about : dict
        Provenance to add (N, D, engine, order, ...).

    Raises
    ------
    TrackerError
        If nothing was evaluated or a value could not be estimated; calibrated also where a loss drop was not
        measured or a loss did not fall, or a column does not sum to more than 0.
    """
    if kind not in ("raw", "calibrated"):
        raise TrackerError(f"kind is {kind!r}: it must be 'raw' or 'calibrated'")
    if ledger.count == 0:
        hint = "lower `every`, or train for longer"
        raise TrackerError("no step has been evaluated yet, so there is no SV matrix", hint=hint)
    _check_estimated(ledger, languages)
    phi, drop = ledger.phi, losses.drop(languages)
    known = {name: float(d) for name, d in zip(languages, drop, strict=True) if np.isfinite(d)}
    provenance = about | {
        "method": "irds",
        "evaluations": ledger.count,
        "efficiency": _named(languages, phi, drop),
    }
    if len(known) == len(languages):
        provenance["loss_drop"] = known
    if kind == "raw":
        stderr = ledger.stderr if ledger.count > 1 else None
        about = {"scale": "raw", "stderr_covers": RAW}
        return TransferMatrix.from_sv(phi, languages, languages, stderr, provenance | about)
    if "loss_drop" not in provenance:
        missing = ", ".join(name for name in languages if name not in known)
        hint = "call `measure(loss_fn)` at the end of the run, or `record_losses`"
        raise TrackerError(f"the drop of the validation loss was not measured for {missing}", hint=hint)
    _check_calibration(phi, losses, languages)
    stderr = ledger.blocks.stderr(ledger.correction)
    matrix = TransferMatrix.from_sv(phi, languages, languages, stderr, provenance).calibrated(drop)
    matrix.provenance.update({"scale": "calibrated by efficiency", "stderr_covers": CALIBRATED})
    return matrix


RAW = "sampling of steps and sequences in this run; not other seeds, whose uncalibrated values differ by more"
CALIBRATED = (
    "sampling of steps and sequences, and other seeds as far as stretches of this run vary like runs do; not the error "
    "of the measured loss drops, nor other settings"
)


def _check_estimated(ledger: Ledger, languages: tuple[str, ...]) -> None:
    absent = [name for name, count in zip(languages, ledger.unseen, strict=True) if count == ledger.count]
    if absent:
        hint = "train for longer, evaluate more steps, or leave it out of the tracker's languages"
        raise TrackerError(f"no token of {', '.join(absent)} in any of {ledger.count} evaluations", hint=hint)
    pairs = np.argwhere((ledger.exposure > 0) & (ledger.known == 0))
    if len(pairs):
        source, target = (languages[k] for k in pairs[0])
        hint = "give validation sequences, or more sequences of each language in a rank's batch"
        raise TrackerError(f"no evaluation could estimate {source!r} on {target!r}", hint=hint)


def _check_calibration(phi: Array, losses: Losses, languages: tuple[str, ...]) -> None:
    faults = []
    for name, total, drop in zip(languages, phi.sum(0), losses.drop(languages), strict=True):
        if drop <= 0:
            course = f"from {losses.start[name]:.4f} to {losses.latest[name]:.4f}"
            faults.append(f"the validation loss of {name!r} did not fall, {course}")
        elif not total > 0:
            faults.append(f"the values for {name!r} sum to {total:.3g}")
    if faults:
        hint = 'take the raw values (kind="raw"), or train for longer'
        raise TrackerError(f"the SV matrix cannot be calibrated: {'; '.join(faults)}", hint=hint)


def efficiency(phi: Array, drop: Array) -> Array:
    """Sum of each column over the measured drop (K,); NaN where the drop is unknown or 0."""
    return np.divide(phi.sum(0), drop, out=np.full(len(drop), np.nan), where=np.isfinite(drop) & (drop != 0))


def _named(languages: tuple[str, ...], phi: Array, drop: Array) -> dict[str, float | None]:
    ratios = efficiency(phi, drop)
    return {name: float(r) if np.isfinite(r) else None for name, r in zip(languages, ratios, strict=True)}
