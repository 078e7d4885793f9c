"""Errors that say where, what, and the next step.

Every error that a user can cause is a `ShapleyMixError`. It carries a code for machines, an exit code for the
command line, and either one message or a list of `Fault`s with their places in the input.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

SHOWN_FAULTS, SHOWN_ALIKE = 20, 3
_LISTED = 30


def printable(text: str) -> str:
    """Text that is safe to show on a terminal: control characters, escapes and bad bytes as `\\x1b`, `\\udcff`.

    Names come from files that anyone may have written, and must neither move the cursor nor forge a line.
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


@dataclass(frozen=True)
class Location:
    """Where in the input something is wrong; `line` counts from 1 and includes the header."""

    file: str | None = None
    line: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        place = ":".join(printable(str(part)) for part in (self.file, self.line) if part is not None)
        column = printable(self.column or "")
        return f"{place} [{column}]" if place and column else place or column


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: what, where, the offending value, and what to do."""

    message: str
    location: Location = Location()
    value: str | None = None
    hint: str | None = None

    @property
    def kind(self) -> tuple[str | None, ...]:
        """What faults of many cells share: the file, and the message without its names and numbers."""
        plain = self.message.replace(self.location.column or "\0", "#")
        return self.location.file, re.sub(r"'[^']*'|[\d.]+", "#", plain)

    def __str__(self) -> str:
        place, message = str(self.location), printable(self.message)
        text = f"{place}: {message}" if place else message
        return f"{text}\n  hint: {printable(self.hint)}" if self.hint else text


class ShapleyMixError(ValueError):
    """Base of all errors that a user can cause."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, location: Location | None = None, faults: Iterable[Fault] = ()
    ) -> None:
        self.message = message
        self.hint = hint
        self.location = location or Location()
        self.faults = tuple(faults)
        super().__init__(self._text())

    @classmethod
    def of(cls, faults: Iterable[Fault], what: str = "the input") -> Self:
        """One error for many faults; the first fault gives the place and the hint."""
        listed = tuple(faults)
        first = listed[0]
        if len(listed) == 1:
            return cls(first.message, hint=first.hint, location=first.location)
        return cls(f"{what} has {len(listed)} faults", hint=first.hint, location=first.location, faults=listed)

    def _text(self) -> str:
        """The faults line by line; more than three of a kind are one, and a hint is not said twice in a row."""
        if not self.faults:
            return str(Fault(self.message, self.location, hint=self.hint))
        lines, previous = [f"{printable(self.message)}:"], None
        kinds: dict[tuple[str | None, ...], list[Fault]] = {}
        for fault in self.faults:
            kinds.setdefault(fault.kind, []).append(fault)
        shown = [one for one in self.faults if len(kinds[one.kind]) <= SHOWN_ALIKE or kinds[one.kind][0] is one]
        for fault in shown[:SHOWN_FAULTS]:
            hint, alike = None if fault.hint == previous else fault.hint, kinds[fault.kind]
            more = f", and {len(alike) - 1} more like it, to {alike[-1].location}" if len(alike) > SHOWN_ALIKE else ""
            lines.append(str(Fault(f"{fault.message}{more}", fault.location, hint=hint)))
            previous = fault.hint
        hidden = len(shown) - SHOWN_FAULTS
        return "\n".join([*lines, f"... and {hidden} more"] if hidden > 0 else lines)


class DataError(ShapleyMixError):
    """A table is wrong: its text, its numbers, or its labels."""

    code = "bad_data"


class UsageError(ShapleyMixError):
    """The call is wrong: an option, a name, an argument."""

    code = "usage"
    exit_code = 2


class FitError(ShapleyMixError):
    """The data cannot support the fit that was asked for."""

    code = "cannot_fit"


class SolveError(ShapleyMixError):
    """No certified mixture can be computed."""

    code = "cannot_solve"


class InfeasibleError(SolveError):
    """Caps, floors or groups leave no mixture."""

    code = "infeasible"


class StoreError(ShapleyMixError):
    """A saved result cannot be read: broken, of another kind, or of a newer version."""

    code = "bad_file"


class ShapleyMixWarning(UserWarning):
    """A reason not to trust a result; its `warnings` or `notices` hold the same words."""


def caution(texts: Iterable[str], stacklevel: int = 3) -> None:
    """Give each text to Python's `warnings`, in the name of the caller's caller."""
    for text in texts:
        warnings.warn(text, ShapleyMixWarning, stacklevel=stacklevel)


def described(value: object) -> str:
    """What a value of the wrong kind is, in words: `None`, `an int`, `a list`."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """A hint that names the candidate nearest to `word`, or lists the candidates; None if there are none."""
    known = list(candidates)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    more = ", ..." if len(known) > _LISTED else ""
    return f"known: {', '.join(known[:_LISTED])}{more}" if known else None
