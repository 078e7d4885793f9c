"""Labels along an axis, turned and thinned, and beside points: never one over another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from shapleymix.plotting.canvas import SMALL, columns, in_letters, widest
from shapleymix.records import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER, LINE = 0.62, 1.15
"""Width of a letter and height of a line, as shares of the font's size."""

LONGEST = 24
"""Letters of a label; of a longer name the middle is left out."""


def label_axis(axes: Axes, which: Literal["x", "y"], names: Sequence[str], room: float) -> None:
    """Names at 0, 1, 2, ... of an axis on which each has `room` points; turned where long, left out where too many."""
    texts = [shortened(in_letters(name)) for name in names]
    flat = which == "x" and widest(texts) * LETTER * SMALL < 0.95 * room
    step = 1 if flat else max(1, math.ceil(LINE * SMALL / max(room, 1e-9)))
    places = range(0, len(texts), step)
    chosen = [texts[place] for place in places]
    if which == "y":
        axes.set_yticks(list(places), chosen)
    else:
        axes.set_xticks(list(places), chosen, rotation=0 if flat else 90)


def label_points(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    colour: str,
    others: FloatArray,
    line: FloatArray,
) -> None:
    """Names beside points, each where marks at `others` (n, 2) and the names so far leave it room.

    Off the `line` (n, 2), too, where there is room beside the point; farther away, a thin line leads to it. The axes
    must have found their place.
    """
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    scale = np.array(axes.bbox.size) * 72 / axes.figure.dpi / np.array([right - left, top - bottom])
    marks, taken = others * scale, np.empty((0, 4))
    both = np.concatenate([marks, line * scale])
    for point, name in zip(points, names, strict=True):
        text = shortened(in_letters(name))
        half = np.array([columns(text) * LETTER * SMALL / 2, LINE * SMALL / 2])
        far, shift = _place(np.array(point) * scale, half, (both, marks), taken)
        taken = np.vstack([taken, np.concatenate([point * scale + shift, half])])
        axes.annotate(
            text, point, (shift[0], shift[1]), textcoords="offset points", fontsize=SMALL, color=colour,
            ha="center", va="center", arrowprops={**LEADER, "color": colour} if far else None,
        )  # fmt: skip


def _place(
    point: FloatArray, half: FloatArray, avoided: Sequence[FloatArray], taken: FloatArray
) -> tuple[bool, FloatArray]:
    """Whether a box of that half size goes far from its point, and how it is shifted: the nearest place with room."""
    shifts = [[np.array(side) * (half + gap) for side in SIDES] for gap in GAPS]
    for far, near in enumerate(shifts):
        for marks in avoided:
            for shift in near:
                if _room(point + shift, half, marks, taken) >= 1:
                    return far > 0, shift
    every = [shift for near in shifts for shift in near]
    return True, max(every, key=lambda shift: _room(point + shift, half, avoided[-1], taken))


GAPS = (2.5, 10.0, 20.0, 32.0)
"""Points between a mark and its name, the nearest first."""

LEADER: Mapping[str, str | float] = {"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 2.0}
"""The line to a name that is not next to its mark."""

SIDES = ((1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))


def _room(spot: FloatArray, half: FloatArray, marks: FloatArray, taken: FloatArray) -> float:
    """How far a box about a spot is from marks, and from the boxes `taken` (n, 4); below 1 they meet."""
    from_marks = np.abs(marks - spot) / (half + 2.0)
    from_boxes = np.abs(taken[:, :2] - spot) / (taken[:, 2:] + half)
    return float(np.concatenate([from_marks, from_boxes]).max(axis=1).min(initial=np.inf))


def shortened(text: str) -> str:
    """A name of at most `LONGEST` letters, its beginning and its end."""
    half = (LONGEST - 1) // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half:]}"
