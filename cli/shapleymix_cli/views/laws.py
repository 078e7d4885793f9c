"""The list of laws on the screen."""

from __future__ import annotations

from shapleymix_cli.documents.laws import LawDocument
from shapleymix_cli.views.tables import Part, entry, heading


def laws_view(described: list[LawDocument]) -> list[Part]:
    """One block per law."""
    return [line for number, law in enumerate(described) for line in _block(law, first=number == 0)]


def _block(law: LawDocument, *, first: bool) -> list[Part]:
    extra = [f"pip install '{law['extra']}'"] if law["extra"] else []
    needs = " and ".join([*law["options"], *extra]) or "nothing but the log"
    return [
        *([] if first else [""]),
        heading(law["law"]),
        f"  {law['formula']}",
        *entry("  assumes     ", law["assumption"]),
        *entry("  fitted      ", _sizes(law)),
        *entry("  needs       ", needs),
        *entry("  reference   ", law["reference"]),
    ]


def _sizes(law: LawDocument) -> str:
    """`6 per target: E, ...`, or `6 per target and 1 per source and target: E, ...`."""
    if not law["parameters"]:
        return "no symbols"
    shared = f" and {law['per_source_and_target']} per source and target" if law["per_source_and_target"] else ""
    return f"{law['per_target']} per target{shared}: {', '.join(law['parameters'])}"
