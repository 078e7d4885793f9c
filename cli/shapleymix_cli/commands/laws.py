"""`shapleymix laws`: the laws there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.laws import Law

NEEDED = {"transfer": "--sv", "families": "--languages"}
"""The option that gives what a law needs beside the log."""

EXTRAS = {"gbm": "shapleymix[gbm]"}
"""What must be installed for a law, beyond the program itself."""


@options.command("shapleymix laws", "shapleymix laws shapley")
@click.argument("names", metavar="[LAW]...", nargs=-1)
def command(out: Output, names: tuple[str, ...]) -> None:
    """The laws, simplest first: formula, parameters a target, what each needs and assumes, and where it is from."""
    from shapleymix.laws import BLACK_BOXES, LAWS
    from shapleymix_cli.inputs import known_law

    known: dict[str, type[Law]] = {**LAWS, **BLACK_BOXES}
    chosen = [known[known_law(name)] for name in names] or list(known.values())
    described = [describe(law) for law in chosen]
    out.emit(lambda: {"kind": "laws", "laws": described}, lambda: _view(described))


def describe(law: type[Law]) -> dict[str, Any]:
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


def _view(described: list[dict[str, Any]]) -> Any:
    from shapleymix_cli.views.laws import laws_view

    return laws_view(described)
