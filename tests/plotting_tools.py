"""What the tests of figures share: texts that are drawn, and which of them lie over one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from shapleymix.plotting.pictures import Picture

matplotlib = pytest.importorskip("matplotlib")
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RUNS = FIXTURES / "multilingual5_runs.csv"


def texts_of(found: Picture) -> list:
    """All texts that a figure shows; an axis keeps labels of ticks beyond its ends, too, and shows them not."""
    found.figure.draw_without_rendering()
    hidden = set()
    for axes in found.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            hidden |= {
                label
                for tick in axis.get_major_ticks()
                if not low <= tick.get_loc() <= high
                for label in (tick.label1, tick.label2)
            }
    every = found.figure.findobj(matplotlib.text.Text)
    return [one for one in every if one not in hidden and one.get_visible() and one.get_text().strip()]


def overlaps(found: Picture) -> list[str]:
    """Texts that leave the figure, and pairs that share more than a point of it."""
    extent = matplotlib.text.Text.get_window_extent  # of the words alone: an annotation has a line, too
    boxes = [(one.get_text(), extent(one)) for one in texts_of(found)]
    page = found.figure.bbox
    outside = [text for text, box in boxes if min(box.x0, box.y0, page.x1 - box.x1, page.y1 - box.y1) < -1]
    return outside + [
        f"{one} / {two}"
        for place, (one, a) in enumerate(boxes)
        for two, b in boxes[place + 1 :]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
