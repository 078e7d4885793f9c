"""Aligned plain tables, wide enough for their numbers whatever the terminal; coloured on a terminal only."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shapleymix.errors import printable

_WIDE = 100_000
"""Columns of the canvas: nothing is cut or wrapped, so a number is always whole."""

_PAGE = 120
"""Width to which the columns of a matrix stand side by side, where there is no terminal to ask."""


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
        console.print(printable(part) if isinstance(part, str) else part)
    lines = canvas.getvalue().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A table without lines; the first `left` columns are words, the others numbers."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, header in enumerate(headers):
        side = "left" if place < left else "right"
        grid.add_column(Text(printable(header)), justify=side, no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    return grid


def matrix(
    corner: str, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]
) -> list[Table | str]:
    """A labelled matrix, in blocks of columns where it is wide."""
    rows, columns = [printable(name) for name in rows], [printable(name) for name in columns]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    room = _page() - max(map(len, (corner, *rows)))
    parts: list[Table | str] = []
    for start, end in _blocks(widths, room):
        body = ([name, *row[start:end]] for name, row in zip(rows, cells, strict=True))
        parts += [table([corner, *columns[start:end]], body), ""]
    return parts[:-1]


def _blocks(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Runs of columns that fit side by side, at least one each."""
    blocks: list[tuple[int, int]] = []
    start, used = 0, 0
    for place, width in enumerate(widths):
        if place > start and used + width + 2 > room:
            blocks.append((start, place))
            start, used = place, 0
        used += width + 2
    return [*blocks, (start, len(widths))]


def _page() -> int:
    return shutil.get_terminal_size((_PAGE, 24)).columns if sys.stdout.isatty() else _PAGE


def heading(text: str) -> Text:
    """A line above a table."""
    return Text(printable(text), style="bold")
