"""The command of a run as a template: `python train.py --mixture {mixture} --tokens {D} --out {out}`.

A template is split into words once, as a shell would, and placeholders are filled in word by word: no shell reads a
value, so that a name with a quote or a space in it stays one word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
OWN = DEFAULT.partition(" ")[0]
"""That script."""

_BRACED = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}")
_FORMATS = re.compile("[:!]")
"""What Python formats a value with, `{N:.2f}`; here nothing does."""
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

    def part(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return plain(found[0][:1])
        return values[name] if name in LATE else plain(values[name])

    return _BRACED.sub(part, word)


def _names(word: str) -> list[str]:
    """The placeholders of a word: all that stands between two braces, since labels may hold what formats."""
    if odd := {"{", "}"} & set(_BRACED.sub("", word)):
        raise UsageError(f"{word!r} of the command has a single {odd.pop()!r}", hint=_BRACES)
    return [found["name"] for found in _BRACED.finditer(word) if found["name"] is not None]


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    plain = _FORMATS.split(name)[0]
    if plain != name and plain in known:
        return UsageError(f"the command formats {{{plain}}}", hint=f"leave out what follows the name: {{{plain}}}")
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
