"""The command of a run as a template: `python train.py --mixture {mixture} --tokens {D} --out {out}`.

A template is split into words once, as a shell would, and placeholders are filled in word by word: no shell reads a
value, so that a name with a quote or a space in it stays one word.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from shapleymix.errors import UsageError, did_you_mean

Words = tuple[str, ...]

OUT, ID = "out", "id"
LATE = (OUT, ID)
"""Placeholders that are filled in when the run is started: its folder, and its id."""
EARLY = ("mixture", "sources", "N", "D", "seed", "model", "name")
RATIO = "p_"
"""`{p_en}` is the ratio of en."""

DEFAULT = (
    "shapleymix-irds train --languages {sources} --mixture {mixture} --model {model} --tokens {D} --seed {seed} "
    "--no-irds --eval-untrained --out {out}"
)
"""Trains by this repository's own script, on its toy languages until `--corpus` says otherwise."""

_BRACES = "write {{ and }} for braces that are meant"


@dataclass(frozen=True)
class Template:
    """The words of a command, with placeholders."""

    words: Words

    @classmethod
    def of(cls, text: str, sources: Sequence[str]) -> Template:
        """A template as it is typed.

        Raises
        ------
        UsageError
            If it cannot be split into words, a placeholder is unknown, or it never says where a run writes.
        """
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"the command cannot be split into words: {error}", hint="close its quotes") from error
        if not words:
            raise UsageError("the command is empty", hint=f"for instance {DEFAULT}")
        known = (*LATE, *EARLY, *(f"{RATIO}{name}" for name in sources))
        for word in words:
            for name in _names(word):
                if name not in known:
                    raise _unknown(name, known)
        found = cls(words)
        for name, why in ((OUT, "where the run writes"), ("mixture", "what it trains on")):
            if not found.says(name):
                hint = f"put {{{name}}} where the program takes it"
                raise UsageError(f"the command never says {{{name}}}, {why}", hint=hint)
        return found

    def says(self, name: str) -> bool:
        """Whether a placeholder is in it; any ratio of a source stands for the mixture."""
        used = {one for word in self.words for one in _names(word)}
        return name in used or (name == "mixture" and any(one.startswith(RATIO) for one in used))

    def filled(self, values: Mapping[str, str]) -> Words:
        """The words with these placeholders filled in; those of a run's start stay as they are."""
        kept = {name: f"{{{name}}}" for name in LATE}
        return tuple(_filled(word, {**kept, **values}, again=True) for word in self.words)


def started(words: Words, values: Mapping[str, str]) -> Words:
    """The words of a planned command as they are run, with the folder and the id of the run."""
    return tuple(_filled(word, values, again=False) for word in words)


def _filled(word: str, values: Mapping[str, str], *, again: bool) -> str:
    """A word with its placeholders filled in; braces that are meant stay doubled if it will be read `again`."""

    def plain(text: str) -> str:
        return text.replace("{", "{{").replace("}", "}}") if again else text

    parts = []
    for text, name, _, _ in Formatter().parse(word):
        value = "" if name is None else values[name]
        parts.append(plain(text) + (value if name in LATE else plain(value)))
    return "".join(parts)


def _names(word: str) -> list[str]:
    """The placeholders of a word."""
    try:
        parts = list(Formatter().parse(word))
    except ValueError as error:
        raise UsageError(f"{word!r} of the command: {error}", hint=_BRACES) from error
    for _, name, form, conversion in parts:
        if form or conversion:
            raise UsageError(f"{word!r} of the command formats {{{name}}}", hint="leave out what follows the name")
    return [name for _, name, _, _ in parts if name is not None]


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    near = did_you_mean(name, known)
    return UsageError(f"{{{name}}} of the command is no placeholder", hint=f"{near}; {_BRACES}")


def check_planned(words: Words) -> None:
    """Hold the command of a planned run to what can be started.

    Raises
    ------
    UsageError
        If a placeholder is left that a start does not fill in.
    """
    for word in words:
        for name in _names(word):
            if name not in LATE:
                raise _unknown(name, LATE)
