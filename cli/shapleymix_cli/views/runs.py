"""A run log, and what a table holds for one, on the screen."""

from __future__ import annotations

from shapleymix.display import short
from shapleymix.tables.examining import Examination
from shapleymix.tables.runs import RunLog
from shapleymix_cli.views.numbers import count, interval, size
from shapleymix_cli.views.tables import Part, Whole, heading, table

MOST_IGNORED = 12


def runs_view(log: RunLog) -> list[Part]:
    """How many runs of what, in a few lines."""
    runs, losses = count(len(set(log.runs)), "run"), count(int(log.measured.sum()), "loss", "losses")
    lines: list[Part] = [heading(f"{runs}, {count(len(log), 'row')}, {losses}")]
    for name, values in (("N", log.N), ("D", log.D)):
        low, high = float(values.min()), float(values.max())
        lines.append(f"{name}: {size(low) if low == high else interval(low, high, size)}")
    return [*lines, f"sources: {short(log.sources)}", f"targets: {short(log.targets)}"]


def examination_view(found: Examination, command: str) -> list[Part]:
    """A row for each thing that a log has, and the command that reads the table so."""
    rows = [[one.role, one.written or "-", one.how, ", ".join(one.examples[:5])] for one in found.findings]
    kind = f", {found.kind}" if found.kind else ""
    parts: list[Part] = [
        heading(f"{found.origin}: {count(found.rows, 'row')}{kind}"),
        table(["of a log", "in the table", "", "such as"], rows, left=4),
    ]
    if found.ignored:
        more = ", ..." if len(found.ignored) > MOST_IGNORED else ""
        parts.append(f"Not used: {', '.join(found.ignored[:MOST_IGNORED])}{more}")
    if found.missing:
        parts.append(f"Missing: {', '.join(found.missing)}; fill in the dots.")
    return [*parts, "", Whole(command)]
