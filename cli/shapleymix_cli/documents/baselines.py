"""Baselines as JSON and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapleymix_cli.documents.plain import by_name
from shapleymix_cli.documents.writing import provenance, write_columns, write_document

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.tables.baselines import Baseline
    from shapleymix.tables.writing import Column
    from shapleymix_cli.console import Output


def baselines_document(out: Output, found: Sequence[Baseline], languages: Sequence[str], D: float) -> dict[str, Json]:
    """`baselines[]` with name, mixture and epochs by language; epochs are null where the tokens are not known."""
    baselines = [
        {"name": one.name, "mixture": by_name(languages, one.p), "epochs": by_name(languages, one.epochs)}
        for one in found
    ]
    return {"kind": "baselines", "D": D, "baselines": baselines, "provenance": provenance(out)}


def write_baselines(
    out: Output, found: Sequence[Baseline], languages: Sequence[str], D: float, path: str, force: bool
) -> None:
    """One row per mixture and language; with `.json` the whole document."""
    if path.lower().endswith(".json"):
        write_document(out, baselines_document(out, found, languages, D), path, force)
        return
    columns: dict[str, Column] = {
        "mixture": [one.name for one in found for _ in languages],
        "language": [name for _ in found for name in languages],
        "ratio": [ratio for one in found for ratio in one.p.tolist()],
        "tokens": [ratio * D for one in found for ratio in one.p.tolist()],
        "epochs": [None if epochs != epochs else epochs for one in found for epochs in one.epochs.tolist()],
    }
    write_columns(out, columns, path, force)
