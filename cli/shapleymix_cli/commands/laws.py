"""`shapleymix laws`: the laws there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.laws import Law
    from shapleymix_cli.documents.laws import LawDocument
    from shapleymix_cli.views.tables import Part


@options.command("shapleymix laws", "shapleymix laws shapley")
@click.argument("names", metavar="[LAW]...", nargs=-1)
def command(out: Output, names: tuple[str, ...]) -> None:
    """The laws, simplest first: formula, parameters per target, what each needs and assumes, and where it is from."""
    from shapleymix.laws import BLACK_BOXES, LAWS
    from shapleymix_cli.documents.laws import describe
    from shapleymix_cli.own_laws import known_law

    known: dict[str, type[Law]] = {**LAWS, **BLACK_BOXES}
    chosen = [known[known_law(name)] for name in names] or list(known.values())
    described = [describe(law) for law in chosen]
    out.emit(lambda: {"kind": "laws", "laws": described}, lambda: _view(described))


def _view(described: list[LawDocument]) -> list[Part]:
    from shapleymix_cli.views.laws import laws_view

    return laws_view(described)
