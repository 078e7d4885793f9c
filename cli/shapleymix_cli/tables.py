"""What people see of every result: lines, and tables whose columns fold at the width of the page."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import click
from rich.cells import cell_len

from shapleymix.errors import printable

PAGE = 80
"""Columns of the page where no terminal tells them."""
GAP = "  "
MOST_ROWS = 30
"""Rows of a table that are shown without `-v`."""


class Heading(str):
    """A line above a table; bold on a terminal."""


class Whole(str):
    """A line that is there to be copied, and so is never broken."""


@dataclass(frozen=True)
class Table:
    """Columns by their names. The first `words` columns are left-aligned and stand in every block, the others fold.

    A cell is a text, a number, which is written as its column's name says (`FORMS`), or two, which are an interval.
    """

    columns: Mapping[str, Sequence[object]]
    words: int = 1

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, object]], names: Sequence[str], words: int = 1) -> Table:
        """The table of some columns of rows."""
        return cls({name: [row[name] for row in rows] for name in names}, words)


Part = str | Table


def section(title: str, columns: Mapping[str, Sequence[object]] | Table, words: int = 1) -> list[Part]:
    """A table under a heading, below what stands above."""
    return ["", Heading(title), columns if isinstance(columns, Table) else Table(columns, words)]


def size(value: float) -> str:
    """Parameters or tokens as people write them: 243M."""
    from shapleymix.tables.words import format_size

    return format_size(float(value))


def percent(value: float, digits: int = 0) -> str:
    return f"{value:z.{digits}%}"


def significant(value: float) -> str:
    return f"{value:z.4g}"


FORMS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("N", "D", "tokens", "available"), size),
    **dict.fromkeys(("PE", "held-out PE", "SE", "error"), lambda value: percent(value, 2)),
    **dict.fromkeys(("coverage", "P(better)", "defined"), percent),
    **dict.fromkeys(("epochs", "weight", "per 1% of D", "p-value"), lambda value: f"{value:z.3g}"),
    **dict.fromkeys(("value", "low", "high"), significant),
    "gap": lambda value: f"{value:.1e}",
    **dict.fromkeys(("R2", "Spearman", "Pearson r"), lambda value: f"{value:z.3f}"),
}
"""How the numbers of a column are written, by its name; others have four decimals."""


def shown(value: object, name: str = "") -> str:
    """A cell as text: a number in the form of its column, `low .. high`, yes or no, `-` where there is nothing."""
    if isinstance(value, tuple):
        ends = [shown(end, name) for end in value]
        return "" if "-" in ends else " .. ".join(ends)
    if isinstance(value, str):
        return printable(value)
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return FORMS.get(name, lambda number: f"{number:z.4f}")(float(value))  # type: ignore[arg-type]


def score_or_loss(record: Any, value: Any) -> Any:
    """A predicted number as it is shown: the score where a record holds error rates."""
    return 1 - value if record.measure == "error" else value


def intervals(
    record: Any, lows: Iterable[float], highs: Iterable[float], *, gain: bool = False
) -> dict[str, list[Any]]:
    """A column of intervals of predicted numbers, or of gains; none where there are none."""
    pairs = [(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]
    if record.measure == "error" and not gain:
        pairs = [(1 - high, 1 - low) for low, high in pairs]
    there = any(low == low for low, _ in pairs)
    return {f"{percent(record.level)} interval": pairs} if there else {}


def gains(record: Any, entries: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns of gains, with their intervals and the probability of being better."""
    spread = intervals(record, [one.gain_low for one in entries], [one.gain_high for one in entries], gain=True)
    return {"gain": [one.gain for one in entries], **spread, "P(better)": [one.probability for one in entries]}


def show(parts: Iterable[Part], *, everything: bool = False) -> None:
    """Print lines and tables to standard output."""
    page = width_of(sys.stdout)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for part in dropwhile(lambda part: part == "", parts):
        if isinstance(part, Table):
            print("\n".join(_lines(part, page, everything, coloured)))
        elif isinstance(part, Whole):
            print(printable(part))
        else:
            text = folded(printable(part), page)
            print(click.style(text, bold=True) if coloured and isinstance(part, Heading) else text)


def width_of(stream: object) -> int:
    """Columns of the page: those of the terminal where there is one."""
    return shutil.get_terminal_size((PAGE, 24)).columns if getattr(stream, "isatty", bool)() else PAGE


def folded(line: str, page: int) -> str:
    """A line broken between words, its further lines indented."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    kept = textwrap.wrap(line, page, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(kept) if len(kept) > 1 else line


def _lines(table: Table, page: int, everything: bool, coloured: bool) -> list[str]:
    """The table in blocks of columns that fit the page, and how many rows are not shown."""
    count = len(next(iter(table.columns.values())))
    most = count if everything else min(count, MOST_ROWS)
    columns = [[name, *(shown(cell, name) for cell in cells[:most])] for name, cells in table.columns.items()]
    columns = [_aligned(column, left=place < table.words) for place, column in enumerate(columns)]
    first, rest = columns[: table.words], columns[table.words :]
    lines: list[str] = []
    for block in _blocks(rest, page - sum(cell_len(column[0]) + len(GAP) for column in first)):
        rows = [GAP.join(row).rstrip() for row in zip(*first, *block, strict=True)]
        rows[0] = click.style(rows[0], bold=True) if coloured else rows[0]
        lines += [*([""] if lines else []), *rows]
    return lines + ([f"... and {count - most:,} more rows: -v shows all"] if most < count else [])


def _aligned(column: Sequence[str], *, left: bool) -> list[str]:
    """The cells of a column, all of one width."""
    width = max(map(cell_len, column))
    gaps = [" " * (width - cell_len(cell)) for cell in column]
    return [cell + gap if left else gap + cell for cell, gap in zip(column, gaps, strict=True)]


def _blocks(columns: Sequence[list[str]], room: int) -> list[list[list[str]]]:
    """Columns that fit side by side, at least one in each block."""
    blocks: list[list[list[str]]] = [[]]
    left = room
    for column in columns:
        needed = cell_len(column[0]) + len(GAP) * bool(blocks[-1])
        if blocks[-1] and needed > left:
            blocks.append([])
            left, needed = room, cell_len(column[0])
        blocks[-1].append(column)
        left -= needed
    return blocks
