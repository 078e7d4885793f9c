"""What a tracker writes into a checkpoint, and the check that a resumed run is the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from shapleymix_irds.accounts.ledger import Ledger, Losses
from shapleymix_irds.errors import ResumeError
from shapleymix_irds.options import Setting

VERSION = 2


@dataclass(frozen=True)
class State:
    """One tracker between two steps; floats read back exactly.

    Attributes
    ----------
    settings : dict
        Settings that must not change when a run is resumed, by name.
    every : int, optional
        Block length m of the schedule; None before the first step.
    ledger, losses : Ledger or Losses
        The accounts of the run.
    steps, tokens, next_step : int or float
        Progress of the run.
    passed : list of str
        Parameters that were found to take a pass a language.
    """

    settings: dict[str, Setting]
    every: int | None
    ledger: Ledger
    losses: Losses
    steps: int
    tokens: float
    next_step: int
    passed: list[str]

    def to_text(self) -> str:
        """One JSON object."""
        document = {
            "version": VERSION,
            "settings": self.settings,
            "every": self.every,
            "ledger": self.ledger.to_document(),
            "losses": [self.losses.start, self.losses.latest],
            "run": [self.steps, self.tokens, self.next_step],
            "passed": self.passed,
        }
        return json.dumps(document)

    @classmethod
    def of_checkpoint(cls, saved: Mapping[str, object], settings: dict[str, Setting], every: int | None) -> State:
        """The state that `saved["irds"]` holds, for a tracker with these settings and this schedule (None: any).

        Raises
        ------
        ResumeError
            If the state is none of a tracker, of a run with other languages or settings, or of a newer version.
        """
        with _readable():
            document = json.loads(str(saved["irds"]))
            if document["version"] != VERSION:
                raise ResumeError(f"the tracker's state has version {document['version']}, known is {VERSION}")
            _compare(document["settings"], settings)
            if every is not None and document["every"] not in (None, every):
                raise ResumeError(f"the checkpoint was made with every={document['every']}, now it is {every}")
            ledger, losses = Ledger.from_document(document["ledger"]), Losses(*document["losses"])
            return cls(settings, document["every"], ledger, losses, *document["run"], passed=document["passed"])


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ResumeError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        hint = "give what `state_dict` returned, or start anew"
        raise ResumeError(f"this is no state of a tracker: {type(error).__name__}: {error}", hint=hint) from error


def _compare(saved: Mapping[str, Setting], mine: Mapping[str, Setting]) -> None:
    for name, value in mine.items():
        if saved.get(name) != value:
            hint = "resume with the settings of the checkpoint, or start a new run in another folder"
            raise ResumeError(f"the checkpoint has {name} {saved.get(name)}, this tracker has {value}", hint=hint)
