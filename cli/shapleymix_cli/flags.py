"""Keywords of the core in a text as the flags of the command that runs: `caps=0.3` as `--cap 0.3`.

The core words its hints and notices for Python. On the command line the same keyword is a flag, where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import click

from shapleymix.errors import ShapleyMixError

Flags = Mapping[str, str]
"""The flag of each keyword: `min_own_tokens` is `--min-own-tokens`, `caps` is `--cap`."""

_GIVEN = re.compile(r"(?<![\w\"'-])(\w+)=(?:(True\b)|'([\w.-]+)')?")
"""A keyword; what stands in double quotes is its value, such as `map="N=params"`."""
_NAMED = re.compile(r"\((not )?([a-z_]+)\)")


def flags_of(command: click.Command) -> Flags:
    """The flags of a command by the keywords that they are in the core."""
    options = [known for known in command.params if isinstance(known, click.Option)]
    found = {str(known.name): max(known.opts, key=len) for known in options}
    return {flag.removeprefix("--").replace("-", "_"): flag for flag in found.values() if flag[:2] == "--"} | found


def bracketed(text: str, flags: Flags) -> str:
    """A text with `(caps)` as `(--cap)`, and `(not caps)` as `(without --cap)`."""

    def flag(found: re.Match[str]) -> str:
        known = flags.get(found[2])
        return found[0] if known is None else f"({'without ' if found[1] else ''}{known})"

    return _NAMED.sub(flag, text)


def typed(text: str, flags: Flags) -> str:
    """The same, and `caps=0.3` as `--cap 0.3`, `law='auto'` as `--law auto`: for hints, which show what to write."""

    def flag(found: re.Match[str]) -> str:
        name, truth, word = found.groups()
        if name not in flags:
            return found[0]
        if word:
            return f"{flags[name]} {word}"
        after = found.string[found.end() : found.end() + 1]
        ends = not (after.isalnum() or after == '"')
        return flags[name] if truth or ends else f"{flags[name]} "

    return bracketed(_GIVEN.sub(flag, text), flags)


def in_flags(error: ShapleyMixError, flags: Flags) -> ShapleyMixError:
    """An error of the core in flags."""

    def hint(given: str | None) -> str | None:
        return given and typed(given, flags)

    faults = [replace(fault, message=bracketed(fault.message, flags), hint=hint(fault.hint)) for fault in error.faults]
    message = bracketed(error.message, flags)
    return type(error)(message, hint=hint(error.hint), location=error.location, faults=faults)
