"""Ratios of several mixtures as a map: a row for each source, a column for each mixture.

Legend: M sources, R mixtures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapleymix.plotting.marks import SEQUENTIAL
from shapleymix.plotting.ticks import label_axis
from shapleymix.records import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def map_ratios(
    figure: Figure, axes: Axes, p: FloatArray, sources: Sequence[str], names: Sequence[str], room: tuple[float, float]
) -> None:
    """Ratios (R, M) as colours, with `room` points for a column's name and a row's."""
    image = axes.imshow(p.T, cmap=SEQUENTIAL, vmin=0, vmax=float(p.max()) or 1.0, aspect="auto")
    label_axis(axes, "x", names, room[0])
    label_axis(axes, "y", sources, room[1])
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=20)
    bar.set_label("ratio of tokens")
    bar.outline.set_linewidth(0.4)
