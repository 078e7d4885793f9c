"""A run log, and what a table holds for one, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix_cli.documents.writing import provenance

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.tables.examining import Examination
    from shapleymix.tables.runs import RunLog
    from shapleymix_cli.console import Output


def runs_document(out: Output, log: RunLog) -> dict[str, Json]:
    """How many runs of what, and what reading changed; the rows are what `-o` writes."""
    return {
        "kind": "run-log",
        "runs": len(set(log.runs)),
        "rows": len(log),
        "N": [float(log.N.min()), float(log.N.max())],
        "D": [float(log.D.min()), float(log.D.max())],
        "sources": list(log.sources),
        "targets": list(log.targets),
        "losses": int(log.measured.sum()),
        "notices": list(log.notices),
        "provenance": provenance(out),
    }


def examination_document(found: Examination) -> dict[str, Json]:
    """`columns[]` with what each is, where it was found and how sure that is; `missing` and `ignored`."""
    columns: list[Json] = [
        {"role": one.role, "written": one.written, "how": one.how, "examples": list(one.examples)}
        for one in found.findings
    ]
    return {
        "kind": "examination",
        "file": found.origin,
        "table": found.kind or None,
        "rows": found.rows,
        "columns": columns,
        "missing": list(found.missing),
        "ignored": list(found.ignored),
        "map": found.toml(),
    }
