"""What a tracker writes into a checkpoint, and what it says about itself in the SV matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shapleymix_irds.checks import non_embedding
from shapleymix_irds.errors import ResumeError
from shapleymix_irds.ledger import Ledger, Losses
from shapleymix_irds.schedule import Schedule

if TYPE_CHECKING:
    from shapleymix_irds.tracker import IRDS

VERSION = 1


def settings(tracker: IRDS) -> dict[str, Any]:
    """What must not change over a resume."""
    return {
        "languages": list(tracker.languages),
        "order": tracker.order,
        "engine": tracker.wanted,
        "validation": tracker.validation is not None,
        "preconditioned": tracker.optimizer is not None,
        "seed": tracker.options.seed,
        "val_sequences": tracker.options.val_sequences,
        "micro_batches": tracker.options.micro_batches,
    }


def document_of(tracker: IRDS) -> dict[str, Any]:
    """The state of a tracker, JSON-ready; floats read back exactly."""
    return {
        "version": VERSION,
        "settings": settings(tracker),
        "every": tracker.schedule and tracker.schedule.every,
        "ledger": tracker.ledger.to_document(),
        "losses": [tracker.losses.start, tracker.losses.latest],
        "run": [tracker.steps, tracker.tokens, tracker.next_step],
    }


def restore(tracker: IRDS, document: Mapping[str, Any]) -> None:
    """Put a tracker into a saved state, and cut its log there.

    Raises
    ------
    ResumeError
        If the state is of a run with other languages or settings, or of a newer version.
    """
    if document["version"] != VERSION:
        raise ResumeError(f"the tracker's state has version {document['version']}, known is {VERSION}")
    _compare(document["settings"], settings(tracker))
    every = document["every"]
    if tracker.schedule is not None and every not in (None, tracker.schedule.every):
        raise ResumeError(f"the checkpoint was made with every={every}, now it is {tracker.schedule.every}")
    if every is not None:
        tracker.schedule = Schedule(every, tracker.options.seed)
    tracker.ledger = Ledger.from_document(document["ledger"])
    tracker.losses = Losses(*document["losses"])
    tracker.steps, tracker.tokens, tracker.next_step = document["run"]
    if tracker.log is not None:
        tracker.log.cut(tracker.next_step)


def _compare(saved: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    for name, value in mine.items():
        if saved.get(name) != value:
            hint = "resume with the settings of the checkpoint, or start a new run in another folder"
            raise ResumeError(f"the checkpoint has {name} {saved.get(name)}, this tracker has {value}", hint=hint)


def provenance(tracker: IRDS) -> dict[str, Any]:
    """How the values came about."""
    weighted = tracker.optimizer is not None
    return {
        "N": non_embedding(tracker.model),
        "D": tracker.tokens,
        "steps": tracker.steps,
        "every": tracker.schedule and tracker.schedule.every,
        "engine": tracker.engine and tracker.engine.name,
        "order": tracker.order,
        "mode": "preconditioned by AdamW's second moment" if weighted else "plain gradients",
        "validation": "rotating set" if tracker.validation is not None else "fresh training gradients",
        "seed": tracker.options.seed,
    }
