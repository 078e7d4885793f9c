"""Lines and aligned plain tables that fold at the width of the page; coloured on a terminal only."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shapleymix.errors import printable

_WIDE = 100_000
"""Columns of the canvas: nothing is cut or wrapped, so a number is always whole."""

_PAGE = 80
"""Width to which columns stand side by side, where there is no terminal to ask."""

_GAP = 2

_NARROW = 20
"""Width below which nothing is broken: words beside it take the page, and a number is always whole."""


@dataclass(frozen=True)
class Grid:
    """A table without lines: the first `left` columns are words and stand in every block, the others are numbers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class Whole:
    """A line that is there to be copied, and so is never broken."""

    text: str


Part = str | Text | Grid | Whole
"""What a view is made of."""


def show(parts: Iterable[Part]) -> None:
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
        for piece in _folded(part) if isinstance(part, Grid) else _lines(part):
            console.print(piece)
    lines = canvas.getvalue().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Grid:
    """A table; the first `left` columns are words, the others numbers."""
    body = tuple(tuple(printable(cell) for cell in row) for row in rows)
    return Grid(tuple(printable(header) for header in headers), body, left)


def matrix(corner: str, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[Part]:
    """A labelled matrix."""
    return [table([corner, *columns], [[name, *row] for name, row in zip(rows, cells, strict=True)])]


def heading(text: str) -> Text:
    """A line above a table."""
    return Text(printable(text), style="bold")


def entry(label: str, text: str) -> list[Part]:
    """A label and what it stands for, whose further lines begin below the first."""
    return [*folded(label + printable(text), _page(), hang=cell_len(label))]


def folded(text: str, width: int, hang: int | None = None) -> list[str]:
    """A line as lines of at most `width` columns, broken between words; a word that is longer stands alone.

    Parameters
    ----------
    hang : int, optional
        Columns by which the further lines are indented; by default two more than the first line is.
    """
    if cell_len(text) <= width:
        return [text]
    words = text.split(" ")
    indent = " " * (len(text) - len(text.lstrip()) + 2 if hang is None else hang)
    lines = [words[0]]
    for word in words[1:]:
        if not lines[-1].strip() or cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word)
    return lines


def _lines(part: str | Text | Whole) -> list[str | Text]:
    """A line that is no longer than the page, or several, in the style of the one."""
    if isinstance(part, Whole):
        return [printable(part.text)]
    if isinstance(part, str):
        return [*folded(printable(part), _page())]
    return [Text(line, style=part.style) for line in folded(part.plain, _page())]


def _folded(grid: Grid) -> list[Table | str]:
    """The table in blocks of columns that fit the page, each with its words."""
    left = [max(map(cell_len, column)) for column in zip(grid.headers, *grid.rows, strict=True)][: grid.left]
    room = _page() - sum(width + _GAP for width in left)
    grid = _narrowed(grid, room)
    widths = [max(map(_width, column)) for column in zip(grid.headers, *grid.rows, strict=True)]
    parts: list[Table | str] = []
    for start, end in _blocks(widths[grid.left :], room):
        parts += [_block(grid, grid.left + start, grid.left + end), ""]
    return parts[:-1]


def _narrowed(grid: Grid, room: int) -> Grid:
    """The table with sentences among its numbers broken into lines that fit the room."""
    rows = tuple(
        (*row[: grid.left], *("\n".join(folded(cell, max(room, _NARROW), hang=0)) for cell in row[grid.left :]))
        for row in grid.rows
    )
    return Grid(grid.headers, rows, grid.left)


def _width(cell: str) -> int:
    """Columns of the longest line of a cell."""
    return max(map(cell_len, cell.split("\n")))


def _block(grid: Grid, start: int, end: int) -> Table:
    """The words, and the columns from `start` to before `end`."""
    shown = [*range(grid.left), *range(start, end)]
    block = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for place in shown:
        side = "left" if place < grid.left else "right"
        block.add_column(Text(grid.headers[place]), justify=side, no_wrap=True)
    for row in grid.rows:
        block.add_row(*(Text(row[place]) for place in shown))
    return block


def _blocks(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Runs of columns that fit side by side, at least one each; one empty run where there are no columns."""
    blocks: list[tuple[int, int]] = []
    start, used = 0, 0
    for place, width in enumerate(widths):
        needed = width + (_GAP if place > start else 0)
        if place > start and used + needed > room:
            blocks.append((start, place))
            start, used, needed = place, 0, width
        used += needed
    return [*blocks, (start, len(widths))]


def _page() -> int:
    return shutil.get_terminal_size((_PAGE, 24)).columns if sys.stdout.isatty() else _PAGE
