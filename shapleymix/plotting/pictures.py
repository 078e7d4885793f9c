"""A figure with its caption and the numbers that are drawn; saved by its suffix, the same bytes each time."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapleymix.display import cut
from shapleymix.errors import Location, UsageError
from shapleymix.files import atomic_write, file_name
from shapleymix.plotting.canvas import WIDTH, blank, caption, style, unshown
from shapleymix.tables.frames import Columns, Tabular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METADATA: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What each format would note of the moment and of matplotlib's version: left out, so that bytes are the same."""


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
    table : Columns
        The numbers that are drawn, one row each.
    notices : tuple of str
        What a reader should know beside.
    """

    name: str
    figure: Figure
    caption: str
    table: Columns
    notices: tuple[str, ...] = ()

    def columns(self) -> Columns:
        """The numbers that are drawn."""
        return self.table

    def summary(self) -> str:
        """What is drawn, and the caption."""
        rows = len(next(iter(self.table.values()), ()))
        width, height = self.figure.get_size_inches()
        head = f"Picture of {self.name}: {width:.1f} x {height:.1f} inches, {rows} numbers"
        return "\n".join([head, cut(self.caption), *(cut(f"note: {text}") for text in self.notices)])

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
        """The figure as a `png`, `svg` or `pdf` file."""
        stream = io.BytesIO()
        with style():
            self.figure.savefig(stream, format=kind, metadata=dict(METADATA[kind]))
        return _smaller(stream, exact=self._has_cells) if kind == "png" else stream.getvalue()

    @property
    def _has_cells(self) -> bool:
        """Whether colours stand for numbers, as those of a heat map do."""
        return any(axes.images for axes in self.figure.axes)

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")


def _smaller(stream: io.BytesIO, *, exact: bool) -> bytes:
    """The PNG without its empty transparency; unless colours must be `exact`, with a palette, in a third of the bytes.

    A palette has 256 colours, by which lines and marks look the same, but near values of a heat map become one.
    """
    from PIL import Image

    smaller = io.BytesIO()
    with Image.open(stream) as whole:
        kept = whole.convert("RGB")
        if not exact:
            kept = kept.quantize(256, Image.Quantize.MAXCOVERAGE, 2, dither=Image.Dither.NONE)
        kept.save(smaller, "png", optimize=True, dpi=whole.info["dpi"])
    return smaller.getvalue()


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that the name of a figure ends in.

    Raises
    ------
    UsageError
        If it is none of PNG, SVG and PDF.
    """
    name = file_name(path)
    kind = os.path.splitext(name)[1][1:].lower()
    if kind not in METADATA:
        raise UsageError(
            "names no format of figures", location=Location(file=name), hint="end it in .png, .svg or .pdf"
        )
    return kind


def picture(
    name: str,
    height: float,
    draw: Callable[[Figure], None],
    text: str,
    table: Columns,
    *,
    labels: Iterable[str] = (),
    notices: Iterable[str] = (),
    width: float = WIDTH,
) -> Picture:
    """A figure of that height (inches), drawn under the common style, with its caption.

    Parameters
    ----------
    labels : iterable of str
        Names from tables: of those that no font can show, a notice says how they are written.
    """
    with style():
        figure = blank(height, width)
        caption(figure, text)
        draw(figure)
        _settle(figure)
    return Picture(name, figure, text, table, (*notices, *unshown(labels)))


def _settle(figure: Figure) -> None:
    """Find everything its place for good: else each saving would move it a little, and change the bytes."""
    for _ in range(2):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
