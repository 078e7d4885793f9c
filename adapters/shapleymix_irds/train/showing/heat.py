"""A matrix as a heat table: its colours, and cells on a terminal that fold to its width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shapleymix_irds.train.showing.measured import Measured, ratio_range

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

Colour = tuple[int, int, int]
NEGATIVE, NOTHING, POSITIVE = (49, 104, 180), (247, 247, 244), (196, 70, 33)
DARK, LIGHT = (20, 20, 20), (255, 255, 255)
SHADES = ("256", "truecolor")  # colour systems of terminals that can tell shades apart
STRONG = 0.7  # the shade, a root, of half the largest value
MOST_CELLS = 12  # languages of which a terminal shows the whole matrix
LISTED = 10  # transfers that it lists where there are more
BAR = 20  # columns of a bar, at most


def colour(shade: float) -> Colour:
    """Blue at -1, next to white at 0, red at 1."""
    end = POSITIVE if shade > 0 else NEGATIVE
    weight = min(1.0, abs(shade))
    red, green, blue = (round(a + (b - a) * weight) for a, b in zip(NOTHING, end, strict=True))
    return red, green, blue


def ink(ground: Colour) -> Colour:
    """What can be read on a colour."""
    red, green, blue = ground
    return DARK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else LIGHT


class HeatTable:
    """The matrix on a terminal: with standard errors or, where it is narrow, without; else its largest transfers."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.measured.heading, style="bold")
        width = self._width(options.max_width)
        shaded = console.color_system in SHADES
        yield from self._list(options.max_width) if width is None else self._table(*width, shaded)
        yield Text(self.measured.cost)

    def _width(self, room: int) -> tuple[int, int, bool] | None:
        """Columns of names and of cells, and whether cells have errors; None where no table fits."""
        from rich.cells import cell_len

        found = self.measured
        if len(found.languages) > MOST_CELLS:
            return None
        longest = max(map(cell_len, found.languages))
        for errors in (True, False):
            cell = max(longest, 5, *map(len, (self._cell(i, j, errors) for i, j in np.ndindex(found.values.shape))))
            for name in (max(longest, len("efficiency")), longest):
                if name + len(found.languages) * (cell + 1) <= room:
                    return name, cell, errors
        return None

    def _cell(self, i: int, j: int, errors: bool) -> str:
        found = self.measured
        return found.number(found.values[i, j]) + (found.error(found.stderr[i, j]) if errors else "")

    def _table(self, name: int, cell: int, errors: bool, shaded: bool) -> list[Text]:
        from rich.cells import set_cell_size
        from rich.text import Text

        found = self.measured
        lines = [Text(" " * name + "".join(f" {_right(target, cell)}" for target in found.languages))]
        for i, (source, shades) in enumerate(zip(found.languages, found.shades, strict=True)):
            line = Text(set_cell_size(source, name))
            for j, shade in enumerate(shades):
                line.append(f" {self._cell(i, j, errors):>{cell}}", style=_style(float(shade), shaded))
            lines.append(line)
        if name >= len("efficiency") and np.isfinite(found.efficiency).any():
            ratios = (f"{ratio:.2g}" if np.isfinite(ratio) else "" for ratio in found.efficiency)
            lines.append(Text(f"{'efficiency':{name}}" + "".join(f" {ratio:>{cell}}" for ratio in ratios)))
        for line in lines:
            line.no_wrap = True
        return lines if errors else [*lines, *self._not_shown(name)]

    def _not_shown(self, name: int) -> list[Text]:
        """In a line, what a narrow table has no room for."""
        from rich.text import Text

        found = self.measured
        known = found.stderr[np.isfinite(found.stderr)]
        parts = [f"standard errors {found.number(known.min())} to {found.number(known.max())}"] if len(known) else []
        ratios = ratio_range(found.efficiency.tolist())
        parts += [f"efficiency {ratios}"] if ratios and name < len("efficiency") else []
        return [Text("; ".join(parts))] if parts else []

    def _list(self, room: int) -> list[Text]:
        from rich.cells import cell_len, set_cell_size
        from rich.text import Text

        found, transfers = self.measured, self.measured.largest(LISTED)
        own, ratios = np.diag(found.values), ratio_range(found.efficiency.tolist())
        span = f"own {found.number(own.min())} to {found.number(own.max())}"
        span += f"; efficiency {ratios}" if ratios else ""
        lines = [Text(span), Text(f"largest of {found.values.size - len(own)} transfers")]
        top = max((abs(one.value) for one in transfers), default=0.0) or 1.0
        pairs = [f"{one.source} > {one.target}" for one in transfers]
        name = min(room // 2, max(map(cell_len, pairs), default=0))
        for pair, one in zip(pairs, transfers, strict=True):
            number = f"{found.number(one.value)}{found.error(one.stderr)}"
            bar = "█" * round(min(BAR, room - name - len(number) - 4) * abs(one.value) / top)
            line = Text(f"{set_cell_size(pair, name)}  {number}  ", no_wrap=True)
            lines.append(line.append(bar, style=_rgb(POSITIVE if one.value > 0 else NEGATIVE)))
        return lines


def _right(text: str, width: int) -> str:
    from rich.cells import cell_len

    return " " * (width - cell_len(text)) + text


def _style(shade: float, shaded: bool) -> str:
    """Colours of a cell; where a terminal has too few to tell shades apart, what is large is bold."""
    if not shaded:
        return "bold" if abs(shade) > STRONG else ""
    ground = colour(shade)
    return f"{_rgb(ink(ground))} on {_rgb(ground)}"


def _rgb(one: Colour) -> str:
    return f"rgb({one[0]},{one[1]},{one[2]})"
