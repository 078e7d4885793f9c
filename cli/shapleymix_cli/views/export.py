"""A mixture for a trainer on the screen: its file as it is, or what is in it."""

from __future__ import annotations

from shapleymix.exporting.export import FORMATS, Export
from shapleymix_cli.views.numbers import fixed, significant, size
from shapleymix_cli.views.tables import Part, Whole, heading, table


def export_view(found: Export) -> list[Part]:
    """A row a stream: its weight, and its language's share of tokens, tokens and epochs."""
    columns = found.columns()
    names = ("weight", "ratio", "tokens", "available", "epochs")
    forms = (_six, _six, size, size, _epochs)
    rows = [
        [name, *(form(float(value)) for form, value in zip(forms, row, strict=True))]
        for name, *row in zip(columns["stream"], *(columns[name] for name in names), strict=True)
    ]
    head = ["stream", f"weight ({found.unit.split()[0]})", "of tokens", "tokens", "available", "epochs"]
    return [heading(f"{FORMATS[found.format].title}; weights are of {found.unit}"), table(head, rows)]


def file_view(found: Export) -> list[Part]:
    """The file, to be redirected or copied."""
    return [Whole(line) for line in found.text.splitlines()]


def _six(value: float) -> str:
    return fixed(value, 6)


def _epochs(value: float) -> str:
    return significant(value, 3)
