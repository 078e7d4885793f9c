"""What a tracker writes into a checkpoint, and the check that a resumed run is the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeGuard

from shapleymix_irds.accounts.ledger import Ledger, Losses
from shapleymix_irds.errors import ResumeError
from shapleymix_irds.options import Setting

VERSION = 2
LARGEST = 2**53  # of the numbers that count


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
            names = _names(settings["languages"])
            ledger, losses = Ledger.from_document(document["ledger"]), _losses(document["losses"], names)
            if ledger.languages != len(names):
                raise ValueError(f"accounts of {ledger.languages} languages, expected {len(names)}")
            steps, tokens, following = _numbers(document["run"])
            passed = _names(document["passed"])
            return cls(settings, _every(document["every"]), ledger, losses, int(steps), tokens, int(following), passed)


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError("names are texts in a list")
    return value


def _numbers(value: list[object]) -> list[float]:
    found = [each for each in value if _number(each) and 0 <= each <= LARGEST]
    if len(found) != len(value):
        raise ValueError("the progress of a run is in numbers of 0 or more")
    return found


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _every(value: object) -> int | None:
    if value is None or (type(value) is int and value > 0):
        return value
    raise ValueError(f"every is {value!r}, expected a number of steps")


def _losses(value: list[dict[str, float]], languages: list[str]) -> Losses:
    for name, loss in [pair for each in value for pair in each.items()]:
        if name not in languages or not _number(loss):
            raise ValueError(f"{loss!r} is no loss of {name!r}")
    start, latest = value
    return Losses(start, latest)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ResumeError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "give what `state_dict` returned, or start anew"
        raise ResumeError(f"this is no state of a tracker: {type(error).__name__}: {error}", hint=hint) from error


def _compare(saved: Mapping[str, Setting], mine: Mapping[str, Setting]) -> None:
    for name, value in mine.items():
        if saved.get(name) != value:
            hint = "resume with the settings of the checkpoint, or start a new run in another folder"
            raise ResumeError(f"the checkpoint has {name} {saved.get(name)}, this tracker has {value}", hint=hint)
