"""Where a fit comes from: inputs by their hash, settings, seed, version."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from shapleymix.fitting.estimation import Settings
from shapleymix.fitting.evidence import Evidence
from shapleymix.laws import Inputs, Law


def provenance_of(
    evidence: Evidence, inputs: Inputs, law: type[Law], settings: Settings, seed: int, bootstrap: int, folds: int
) -> dict[str, Any]:
    """What a reader needs to make the fit again."""
    transfer = None if inputs.transfer is None else dict(inputs.transfer.provenance)
    return {
        "shapleymix": version("shapleymix"),
        "log": evidence.log.origin,
        "log_sha256": evidence.log.digest,
        "transfer": transfer,
        "law": law.name,
        "seed": seed,
        "bootstrap": bootstrap,
        "folds": folds,
        "delta": settings.delta,
        "prior": settings.prior,
    }
