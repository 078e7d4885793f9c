"""Where a run goes on: at its newest checkpoint that is whole, if it is the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torch import nn

from shapleymix.errors import Fault, Location, StoreError, UsageError
from shapleymix_irds.train.optimisers import Optimiser
from shapleymix_irds.train.saving.checkpoint import RECORD, Checkpoints

NONE_LEFT = "put back a copy of one of them, choose another --out, or start anew with --force"
ALONE = "warning: --keep 1 leaves no checkpoint to fall back on, should the last one be broken"


def resume(
    checkpoints: Checkpoints,
    model: nn.Module,
    optimiser: Optimiser,
    now: dict[str, Any],
    fault: Callable[[dict[str, Any]], str | None],
    tell: Callable[[str], None],
) -> dict[str, Any] | None:
    """Load the newest checkpoint that is whole; what was saved beside its tensors, or None if there is none at all.

    Every rank must call, and all load the same one.

    Parameters
    ----------
    now : dict
        What this run would save, with which the checkpoint is compared.
    fault : callable
        Says what in a checkpoint cannot be of this run.
    tell : callable
        Says which checkpoints were passed over, and why.

    Raises
    ------
    UsageError
        If the checkpoint is of other settings or of another corpus.
    StoreError
        If there are checkpoints and all are broken.
    """
    faults: list[Fault] = []
    for step in reversed(checkpoints.found()):
        try:
            meta = checkpoints.meta(step)
            check_same(meta, now, str(checkpoints.folder.parent))
            if wrong := fault(meta):
                place = Location(file=str(checkpoints.place(step) / RECORD))
                raise StoreError(f"is not the record of this run: {wrong}", location=place)
            checkpoints.load(step, model, optimiser)
        except StoreError as error:
            faults.append(Fault(error.message, error.location))
            tell(f"warning: the checkpoint of step {step} is broken: {faults[-1]}")
            continue
        if faults:
            tell(f"warning: the run goes on from step {step} instead, and makes anew what came after it")
        return meta
    if faults:
        place = Location(file=str(checkpoints.folder))
        raise StoreError("no checkpoint is whole", location=place, hint=NONE_LEFT)
    return None


def check_same(saved: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse to continue a run with other settings or on another corpus, naming what differs."""
    before, after = saved["settings"], json.loads(json.dumps(now["settings"]))
    changed = [name for name in after if before.get(name) != after[name]]
    if changed:
        told = "; ".join(f"{name} was {before.get(name)!r}, is {after[name]!r}" for name in changed)
        hint = "choose another --out, or start anew with --force"
        raise UsageError(f"holds a run with other settings: {told}", location=Location(file=out), hint=hint)
    if saved["corpus"] != now["corpus"]:
        hint = "give the corpus it began with, another --out, or --force"
        raise UsageError("holds a run on another corpus", location=Location(file=out), hint=hint)
