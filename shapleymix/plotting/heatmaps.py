"""A transfer matrix as a heat map, or two side by side.

Legend: M sources (rows), K targets (columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from shapleymix.errors import printable
from shapleymix.plotting.canvas import SMALL, WIDTH, columns, in_letters, widest
from shapleymix.plotting.marks import DIVERGING, INK, SEQUENTIAL
from shapleymix.plotting.matrices import Matrices, Values, matrices_of
from shapleymix.plotting.numbers import decimals
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.ticks import LETTER, label_axis
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LEGIBLE = 4.6
"""Points of the smallest number in a cell: where there is no room for it, colours speak alone."""


@dataclass(frozen=True)
class Scale:
    """Which colours stand for which numbers, and whether some lie beyond."""

    low: float
    high: float
    colours: str
    extend: Literal["neither", "min", "max", "both"]


def plot_transfer(
    matrix: TransferMatrix | Table,
    other: TransferMatrix | Table | None = None,
    *,
    values: Values | None = None,
    names: Sequence[str] | None = None,
) -> Picture:
    """A heat map of a transfer matrix, sources by targets, with standard errors; of two, side by side in one scale.

    Parameters
    ----------
    matrix, other : TransferMatrix, table or path
        The matrices; the second is brought into the order of the first.
    values : {"raw", "normalized"}, optional
        Nats of loss drop, or `exp(SV - column maximum)`; by default raw ones where all matrices have them.
    names : sequence of str, optional
        Titles of the panels; by default the methods, or the files.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    UsageError, DataError
        If values or names do not fit the matrices, or the two have other languages.
    """
    shown = matrices_of(matrix, other, values, names)
    sources, targets = shown.sources, shown.targets
    return picture(
        "transfer",
        _height(len(sources), len(targets), len(shown.names)),
        lambda figure: _draw(figure, shown),
        caption_of(shown),
        shown.table(),
        labels=(*sources, *targets, *shown.names),
        width=_width(len(targets), len(shown.names)),
    )


def _width(targets: int, panels: int) -> float:
    """Inches: a page's, unless one matrix of a few targets needs less."""
    return WIDTH if panels > 1 else float(np.clip(1.6 + 0.5 * targets, 4.4, WIDTH))


def _height(sources: int, targets: int, panels: int) -> float:
    """Inches that make cells about square, within those of a page; the caption has its own."""
    cell = (_width(targets, panels) - 1.4) / panels / max(targets, 4)
    return float(np.clip(cell * sources, 1.2, 6.0)) + 1.5


def _draw(figure: Figure, shown: Matrices) -> None:
    panels = np.atleast_1d(figure.subplots(1, len(shown.names), sharey=True)).tolist()
    scale = scale_of(shown)
    room = _room(figure, shown)
    images = [_map(axes, values, scale) for axes, values in zip(panels, shown.values, strict=True)]
    for number, (axes, name, image) in enumerate(zip(panels, shown.names, images, strict=True)):
        _write_numbers(axes, shown.values[number], shown.errors[number], image, room)
        label_axis(axes, "x", shown.targets, room[0])
        if number == 0:
            label_axis(axes, "y", shown.sources, room[1])
            axes.set_ylabel("source")
        axes.tick_params(length=0)
        axes.set_xlabel("target")
        axes.set_title(in_letters(name))
    bar = figure.colorbar(images[0], ax=panels, extend=scale.extend, shrink=0.9, pad=0.02, aspect=28)
    bar.set_label(shown.unit)
    bar.outline.set_linewidth(0.4)


def _room(figure: Figure, shown: Matrices) -> tuple[float, float]:
    """About how many points a cell is wide and high."""
    names = min(widest(shown.sources), 24) * LETTER * SMALL
    wide = (figure.get_figwidth() * 72 - names - 75) / len(shown.names) - 8
    high = figure.get_figheight() * 72 - 95
    return wide / len(shown.targets), high / len(shown.sources)


def scale_of(shown: Matrices) -> Scale:
    """Colours for values: shares from 0 to 1, and nats about 0, as far as they go off the diagonal.

    A language helps itself most by far; in colours that reached so far, the others would all look alike.
    """
    if shown.kind == "normalized":
        return Scale(0.0, 1.0, SEQUENTIAL, "neither")
    values = np.stack(shown.values)
    others = np.abs(values[:, shown.off_diagonal])
    bound = float(others.max(initial=0.0)) or float(np.abs(values).max()) or 1.0
    low, high = bool((values < -bound).any()), bool((values > bound).any())
    ends: dict[tuple[bool, bool], Literal["neither", "min", "max", "both"]] = {
        (False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both",
    }  # fmt: skip
    return Scale(-bound, bound, DIVERGING, ends[low, high])


def _map(axes: Axes, values: FloatArray, scale: Scale) -> AxesImage:
    image = axes.imshow(values, cmap=scale.colours, vmin=scale.low, vmax=scale.high, aspect="auto")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return image


def _write_numbers(
    axes: Axes, values: FloatArray, errors: FloatArray | None, image: AxesImage, room: tuple[float, float]
) -> None:
    """Each value in its cell, its standard error below it, where letters of a legible size fit."""
    cells = [[cell_text(value, None if errors is None else errors[i, j]) for j, value in enumerate(row)]
             for i, row in enumerate(values.tolist())]  # fmt: skip
    lines = [line for row in cells for cell in row for line in cell.split("\n")]
    size = min(
        SMALL, 0.94 * room[0] / (LETTER * max(map(columns, lines))), 0.9 * room[1] / (1 if errors is None else 2.4)
    )
    if size < LEGIBLE:
        return
    for (i, j), value in np.ndenumerate(values):
        ink = "white" if _is_dark(image, float(value)) else INK
        axes.text(j, i, cells[i][j], ha="center", va="center", fontsize=size, color=ink, linespacing=1.05)


def cell_text(value: float, error: float | None) -> str:
    """A value, and below it its standard error."""
    number = decimals(value, 2).replace("-", "−")
    return number if error is None or np.isnan(error) else f"{number}\n±{decimals(error)}"


def _is_dark(image: AxesImage, value: float) -> bool:
    """Whether a cell's colour asks for white letters (relative luminance of sRGB, roughly)."""
    red, green, blue, _ = image.to_rgba(np.array([value]))[0]
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def caption_of(shown: Matrices) -> str:
    """What is drawn, its range on and off the diagonal, and how alike two are."""
    parts = [f"{shown.long_unit}: what a source (row) does for a target (column)."]
    if any(error is not None for error in shown.errors):
        parts.append("Below each value its standard error.")
    if scale_of(shown).extend != "neither":
        parts.append("Colours end at the largest value off the diagonal.")
    for name, values in zip(shown.names, shown.values, strict=True):
        parts.append(f"{printable(name)}: {_ranges(values, shown.off_diagonal)}.")
    return " ".join([*parts, *shown.likeness()])


def _ranges(values: FloatArray, off: BoolArray) -> str:
    """The span of a matrix on and off the diagonal, where it has both."""
    spans = [
        f"{what} {decimals(part.min())} .. {decimals(part.max())}"
        for what, part in (("diagonal", values[~off]), ("off the diagonal", values[off]))
        if part.size
    ]
    means = [f"mean {decimals(values[off].mean())}"] if off.any() else []
    return ", ".join([*spans, *means])
