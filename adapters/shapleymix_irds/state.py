"""What a tracker writes into a checkpoint, and what it says about itself in the SV matrix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
        "engine": tracker.choice.wanted,
        "validation": tracker.validation is not None,
        "preconditioned": tracker.choice.optimizer is not None,
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


def restore(tracker: IRDS, state: Mapping[str, Any]) -> None:
    """Put a tracker into a saved state, and cut its log there.

    Raises
    ------
    ResumeError
        If the state is none of a tracker, of a run with other languages or settings, or of a newer version.
    """
    with _readable():
        document = json.loads(state["irds"])
        if document["version"] != VERSION:
            raise ResumeError(f"the tracker's state has version {document['version']}, known is {VERSION}")
        _compare(document["settings"], settings(tracker))
        every = document["every"]
        if tracker.schedule is not None and every not in (None, tracker.schedule.every):
            raise ResumeError(f"the checkpoint was made with every={every}, now it is {tracker.schedule.every}")
        ledger, losses = Ledger.from_document(document["ledger"]), Losses(*document["losses"])
        steps, tokens, next_step = document["run"]
    if every is not None:
        tracker.schedule = Schedule(every, tracker.options.seed)
    tracker.ledger, tracker.losses = ledger, losses
    tracker.steps, tracker.tokens, tracker.next_step = steps, tokens, next_step
    if tracker.log is not None:
        tracker.log.cut(tracker.next_step)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ResumeError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        hint = "give what `state_dict` returned, or start anew"
        raise ResumeError(f"this is no state of a tracker: {type(error).__name__}: {error}", hint=hint) from error


def _compare(saved: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    for name, value in mine.items():
        if saved.get(name) != value:
            hint = "resume with the settings of the checkpoint, or start a new run in another folder"
            raise ResumeError(f"the checkpoint has {name} {saved.get(name)}, this tracker has {value}", hint=hint)


def provenance(tracker: IRDS) -> dict[str, Any]:
    """How the values came about."""
    weighted = tracker.choice.optimizer is not None
    found = {
        "N": non_embedding(tracker.model),
        "D": tracker.tokens,
        "steps": tracker.steps,
        "every": tracker.schedule and tracker.schedule.every,
        "engine": tracker.choice.engine and tracker.choice.engine.name,
        "order": tracker.order,
        "mode": "preconditioned by AdamW's second moment" if weighted else "plain gradients",
        "validation": "fresh training gradients",
        "seed": tracker.options.seed,
    }
    if tracker.validation is not None:
        pool = {name: len(x) for name, (x, _) in zip(tracker.languages, tracker.validation.parts, strict=True)}
        sequences = {"evaluation": tracker.options.val_sequences, "set": pool}
        found |= {"validation": "rotating set", "validation_sequences": sequences}
    return found | ({"fallback": tracker.choice.fallback} if tracker.choice.fallback else {})
