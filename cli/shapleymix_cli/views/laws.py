"""The list of laws on the screen."""

from __future__ import annotations

from typing import Any

from shapleymix_cli.views.tables import heading


def laws_view(described: list[dict[str, Any]]) -> list[Any]:
    """A block a law."""
    return [line for number, law in enumerate(described) for line in _block(law, first=number == 0)]


def _block(law: dict[str, Any], *, first: bool) -> list[Any]:
    needs = " and ".join(law["options"]) or "nothing but the log"
    return [
        *([] if first else [""]),
        heading(law["law"]),
        f"  {law['formula']}",
        f"  assumes     {law['assumption']}",
        f"  fitted      {_sizes(law)}: {', '.join(law['parameters'])}",
        f"  needs       {needs}",
        f"  reference   {law['reference']}",
    ]


def _sizes(law: dict[str, Any]) -> str:
    """`6 a target`, or `6 a target and 1 a source and target`."""
    alone, shared = law["per_target"], law["per_source_and_target"]
    return f"{alone} a target" + (f" and {shared} a source and target" if shared else "")
