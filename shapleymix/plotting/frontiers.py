"""The trade-off between two sets of targets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.display import short
from shapleymix.errors import DataError
from shapleymix.mixing.curves import Frontier
from shapleymix.plotting.canvas import in_letters
from shapleymix.plotting.marks import COLOURS
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.shares import map_ratios
from shapleymix.tables.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_frontier(frontier: Frontier | str | os.PathLike[str]) -> Picture:
    """The mean loss of one set of targets against that of the other along the curve, and the mixtures on it.

    Parameters
    ----------
    frontier : Frontier or path
        What `frontier` returns, or the file in which it was saved.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    DataError
        If the curve has no point.
    """
    found = Frontier.taken(frontier)
    if not found.entries:
        raise DataError("the curve has no point to draw", hint="compute it again")
    return picture(
        "frontier",
        3.6,
        lambda figure: _draw(figure, found),
        _caption(found),
        found.columns(),
        labels=(*found.sources, *found.targets),
        notices=found.notices,
    )


def _draw(figure: Figure, found: Frontier) -> None:
    curve, ratios = figure.subplots(1, 2, width_ratios=[1.25, 1])
    _curve(curve, found)
    p = np.array([entry.p for entry in found.entries])
    names = [str(number) for number in range(1, len(p) + 1)]
    map_ratios(figure, ratios, p, found.sources, names, (130 / len(p), 150 / len(found.sources)))
    ratios.set_xlabel("point of the curve")


def _curve(axes: Axes, found: Frontier) -> None:
    x, y = (np.array([getattr(entry, side) for entry in found.entries]) for side in ("first", "second"))
    spread = {side: _spread(found, side) for side in ("first", "second")}
    axes.errorbar(
        x, y, xerr=spread["first"], yerr=spread["second"], color=COLOURS[0], marker="o", ecolor=COLOURS[5],
        elinewidth=0.6,
    )  # fmt: skip
    for number in dict.fromkeys((1, len(found.entries))):
        axes.annotate(str(number), (x[number - 1], y[number - 1]), (5, 3), textcoords="offset points")
    axes.set_xlabel(f"loss of {in_letters(short(found.first_targets))}, nats")
    axes.set_ylabel(f"loss of {in_letters(short(found.second_targets))}, nats")


def _spread(found: Frontier, side: str) -> np.ndarray | None:
    """How far down and up the interval of a side's loss goes (2, points); nothing where there are none."""
    middle, low, high = (
        np.array([getattr(entry, f"{side}{end}") for entry in found.entries]) for end in ("", "_low", "_high")
    )
    spread = np.clip([middle - low, high - middle], 0, None)
    return np.nan_to_num(spread) if np.isfinite(spread).any() else None


def _caption(found: Frontier) -> str:
    ends = [found.entries[0], found.entries[-1]]
    told = " to ".join(f"({entry.first:.4f}, {entry.second:.4f})" for entry in ends)
    return (
        f"Mean losses of {short(found.first_targets)} and of {short(found.second_targets)} at "
        f"N = {format_size(found.N)}, D = {format_size(found.D)}: from {told} nats, along "
        f"{len(found.entries)} mixtures, each optimal for some weights of the two; bars are "
        f"{found.level:.0%} intervals of a run."
    )
