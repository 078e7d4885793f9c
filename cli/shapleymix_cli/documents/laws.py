"""A law as JSON: formula, parameters, needs, assumption and reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from shapleymix.laws import Law

NEEDED = {"transfer": "--transfer", "families": "--languages"}
"""The option that gives what a law needs beside the log."""

EXTRAS = {"gbm": "lightgbm>=4.3"}
"""What must be installed for a law, beyond the program itself."""


class LawDocument(TypedDict):
    """A law as `shapleymix laws --json` prints it."""

    law: str
    formula: str
    parameters: list[str]
    per_target: int
    per_source_and_target: int
    needs: list[str]
    options: list[str]
    extra: str | None
    assumption: str
    reference: str


def describe(law: type[Law]) -> LawDocument:
    """A law's name, formula, parameters, needs, assumption and reference."""
    fitted = law.fitted()
    return {
        "law": law.name,
        "formula": formula_of(law),
        "parameters": [symbol.name for symbol in fitted],
        "per_target": len([symbol for symbol in fitted if symbol.axes == "K"]),
        "per_source_and_target": len([symbol for symbol in fitted if symbol.axes == "MK"]),
        "needs": list(law.needs),
        "options": [NEEDED[need] for need in law.needs if need in NEEDED],
        "extra": EXTRAS.get(law.name),
        "assumption": law.assumption,
        "reference": law.reference,
    }


def formula_of(law: type) -> str:
    """The first paragraph of a law's documentation, which states its formula."""
    paragraph = (law.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.replace("`", "").split())
