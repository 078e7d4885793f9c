"""Aligned plain tables, wide enough for their numbers whatever the terminal; coloured on a terminal only."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 100_000
"""Columns of the canvas: nothing is cut or wrapped, so a number is always whole."""

BLOCK = 12
"""Columns of a matrix that stand side by side."""


def show(parts: Iterable[Any]) -> None:
    """Print texts and tables to standard output."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    canvas = io.StringIO()
    console = Console(
        file=canvas,
        width=_WIDE,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    for part in parts:
        console.print(part)
    lines = canvas.getvalue().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A table without lines; the first `left` columns are words, the others numbers."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, header in enumerate(headers):
        side = "left" if place < left else "right"
        grid.add_column(Text(header), justify=side, no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def matrix(
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    *,
    block: int = BLOCK,
) -> list[Table | str]:
    """A labelled matrix, in blocks of columns where it is wide."""
    parts: list[Table | str] = []
    for start in range(0, len(columns), block):
        part = slice(start, start + block)
        body = ([name, *row[part]] for name, row in zip(rows, cells, strict=True))
        parts += [table([corner, *columns[part]], body), ""]
    return parts[:-1]


def heading(text: str) -> Text:
    """A line above a table."""
    return Text(text, style="bold")
