"""A figure with its caption and the numbers that are drawn, in one style, saved as the same bytes each time.

Nothing here touches pyplot: a figure belongs to its picture alone, and the user's own settings of matplotlib neither
change a figure nor are changed by one.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shapleymix.display import Tabular, cut
from shapleymix.errors import Location, UsageError
from shapleymix.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.3
"""Width of a page's text, inches: figures are made to be printed at their own size."""
INK, FAINT, ACCENT = "#1b1f24", "#8a939c", "#0b5fa5"
COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d")
MARKS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[str, Any] = {
    "font.size": 8.0, "axes.titlesize": 8.0, "axes.labelsize": 8.0, "xtick.labelsize": 7.0, "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 4.0, "text.parse_math": False,
    "axes.unicode_minus": True, "savefig.dpi": 200.0, "svg.hashsalt": "shapleymix", "svg.fonttype": "none",
    "pdf.fonttype": 42, "font.family": ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR"],
}  # fmt: skip
METADATA: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What each format would note of the moment and of matplotlib's version is left out, so that bytes are the same."""


@dataclass(frozen=True, eq=False)
class Picture(Tabular):
    """A figure, and in words and numbers what it shows.

    Attributes
    ----------
    name : str
        What is drawn: `transfer`, `fit`, ...
    figure : matplotlib.figure.Figure
        The figure, to be altered by matplotlib's own means; it is not known to pyplot.
    caption : str
        The text under it.
    table : mapping of str to sequence
        The numbers that are drawn, one row each.
    """

    name: str
    figure: Figure
    caption: str
    table: Mapping[str, Sequence[Any]]

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The numbers that are drawn."""
        return self.table

    def summary(self) -> str:
        """What is drawn, and the caption."""
        width, height = self.figure.get_size_inches()
        return f"Picture of {self.name}, {width:.1f} x {height:.1f} inches\n{cut(self.caption)}"

    def __repr__(self) -> str:
        return self.summary()

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the figure as PNG, SVG or PDF, as the name ends.

        Raises
        ------
        UsageError
            If the name ends otherwise, or the file exists and `force` is not set.
        """
        atomic_write(path, self.to_bytes(format_of(path)), force=force)

    def to_bytes(self, kind: str) -> bytes:
        """The figure as a `png`, `svg` or `pdf` file; an SVG's title is the caption."""
        stream = io.BytesIO()
        title = {} if kind == "png" else {"Title": self.caption}
        with style():
            self.figure.savefig(stream, format=kind, metadata={**METADATA[kind], **title})
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that the name of a figure ends in.

    Raises
    ------
    UsageError
        If it is none of PNG, SVG and PDF.
    """
    kind = os.path.splitext(os.fspath(path))[1][1:].lower()
    if kind not in METADATA:
        place = Location(file=os.fspath(path))
        raise UsageError("names no format of figures", location=place, hint="end it in .png, .svg or .pdf")
    return kind


@contextmanager
def style() -> Iterator[None]:
    """Draw, and save, under the one style; matplotlib's settings are as before afterwards.

    Raises
    ------
    UsageError
        If matplotlib is not installed.
    """
    try:
        import logging

        import matplotlib
    except ImportError as error:
        raise UsageError("figures need matplotlib", hint="pip install 'matplotlib>=3.10.7'") from error
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # fonts of the list that are not installed
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # pyright: ignore[reportArgumentType, reportCallIssue]
        yield


def picture(
    name: str, height: float, draw: Callable[[Figure], None], caption: str, table: Mapping[str, Sequence[Any]]
) -> Picture:
    """A figure of that height (inches), drawn under the common style, with its caption below."""
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        lines = textwrap.wrap(caption, int(WIDTH * 72 / 3.8))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7, linespacing=1.25)
        draw(figure)
        for _ in range(2):  # everything finds its place for good: else each saving would move it a little
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return Picture(name, figure, caption, table)


def wide(count: int) -> int:
    """How many of so many axes stand side by side."""
    return min(count, 2 if count in (2, 4) else 3 if count <= 12 else 4)


def panels(figure: Figure, count: int) -> list[Axes]:
    """So many axes, two to four side by side; the others of the last row stay empty."""
    axes = figure.subplots(-(-count // wide(count)), wide(count), squeeze=False).ravel().tolist()
    for empty in axes[count:]:
        empty.set_visible(False)
    return axes[:count]


def bars(
    axes: Axes, names: Sequence[str], values: np.ndarray, low: np.ndarray, high: np.ndarray, room: int = 0,
    sums: Sequence[int] = (),
) -> None:  # fmt: skip
    """Lying bars with their intervals, the first on top, `sums` in grey; as thin as if there were at least `room`."""
    places = np.arange(len(names))
    axes.barh(places, values, color=[FAINT if place in sums else ACCENT for place in places.tolist()], height=0.7)
    known = np.isfinite(low) & np.isfinite(high)
    spread = np.abs(np.stack([values - low, high - values])[:, known])
    axes.errorbar(values[known], places[known], xerr=spread, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    axes.set_yticks(places, names)
    axes.set_ylim(max(len(names), room) - 0.4, -0.6)


def luminance(rgb: Sequence[float]) -> float:
    """Relative luminance of a colour of sRGB, 0 to 1 (WCAG 2.2)."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def readable_on(rgb: Sequence[float]) -> str:
    """Black or white, whichever contrasts more with a colour: at least 4.5 to 1 (WCAG 2.2)."""
    return "#000000" if (luminance(rgb) + 0.05) ** 2 >= 1.05 * 0.05 else "#ffffff"
