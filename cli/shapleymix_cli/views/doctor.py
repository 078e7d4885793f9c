"""The checks of an installation: what was found, and the next step where something is amiss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from shapleymix_cli.health import DOUBT, FAULT, Check
from shapleymix_cli.views.tables import Part, entry, heading


def doctor_view(found: Sequence[Check]) -> list[Part]:
    """A block for each thing that was looked at, and what it comes to."""
    parts: list[Part] = []
    for about, group in groupby(found, key=lambda one: one.about):
        parts += [heading(about[:1].upper() + about[1:]), *(line for one in group for line in _lines(one)), ""]
    faults = sum(one.state == FAULT for one in found)
    return [*parts, f"{faults} broken: see above." if faults else "All is there that a run needs."]


def _lines(one: Check) -> list[Part]:
    mark = f"{one.state}: " if one.state in (DOUBT, FAULT) else ""
    lines = entry(f"  {one.name:<16}", mark + one.found)
    return lines if one.hint is None else [*lines, *entry(" " * 18 + "hint: ", one.hint)]
