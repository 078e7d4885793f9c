"""Which task and which target the name of an evaluation means: `hellaswag_fr` is hellaswag for fr.

Only what is certain is read out of a name: the part behind the last `_` or `/` that is a target of the log. Any other
name has no language until somebody says which (`hellaswag=en`, `belebele_deu_Latn=belebele/de`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shapleymix.errors import Fault, UsageError
from shapleymix.tables.spelling import composed, near

HINT = "write it like hellaswag=en, or belebele_deu_Latn=belebele/de to name the task as well"
_JOINTS = ("/", "_")


class Task(NamedTuple):
    """A task for a target."""

    name: str
    target: str

    @property
    def label(self) -> str:
        """`hellaswag/en`, as weights and bounds name it."""
        return f"{self.name}/{self.target}"


def meanings_of(given: Mapping[str, str] | Sequence[str] | str | None, targets: Sequence[str]) -> dict[str, Task]:
    """What names of evaluations mean, as it was given: `"hellaswag=en,belebele_deu_Latn=belebele/de"`.

    Raises
    ------
    UsageError
        If a text is no such pair, a name is given twice, or a target is none of the log.
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else [_pair(text) for text in _texts(given)]
    found: dict[str, Task] = {}
    for name, meant in pairs:
        task, _, target = composed(meant).rpartition("/")
        if target not in targets:
            raise UsageError(f"{name}={meant}: {target!r} is no target of the log", hint=near(target, targets))
        if name in found:
            raise UsageError(f"the task {name!r} is given twice")
        found[name] = Task(task or _without(name, target), target)
    return found


def task_of(name: str, targets: Sequence[str], meanings: Mapping[str, Task]) -> Task | None:
    """The task and target that a name means; None where it says no target."""
    if name in meanings:
        return meanings[name]
    for joint in _JOINTS:
        stem, found, target = name.rpartition(joint)
        if found and stem and target in targets:
            return Task(stem, target)
    return None


def unplaced(names: Sequence[str]) -> Fault:
    """That names of evaluations say no target."""
    return Fault(f"no language is known of {', '.join(names)}", hint=f"say which: task_language={names[0]}=en")


def _texts(given: Sequence[str] | str | None) -> list[str]:
    listed = [] if given is None else [given] if isinstance(given, str) else list(given)
    return [part.strip() for text in listed for part in text.split(",") if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    name, sign, meant = text.partition("=")
    if not (name.strip() and sign and meant.strip()):
        raise UsageError(f"{text!r} names no task and its language", hint=HINT)
    return name.strip(), meant.strip()


def _without(name: str, target: str) -> str:
    """The name without the target behind it, if it is there."""
    return next((name.removesuffix(f"{joint}{target}") for joint in _JOINTS if name.endswith(f"{joint}{target}")), name)
