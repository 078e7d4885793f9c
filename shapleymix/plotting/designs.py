"""Planned runs: their mixtures in the order in which to train them, and what each brings.

Legend: R planned runs, M sources.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.planning.designs import Design
from shapleymix.plotting.canvas import SMALL, WIDTH, widest
from shapleymix.plotting.marks import COLOURS
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.shares import map_ratios
from shapleymix.plotting.ticks import LETTER
from shapleymix.tables.frames import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_design(design: Design | str | os.PathLike[str]) -> Picture:
    """The ratios of planned runs, and the expected error before the first and after each.

    Parameters
    ----------
    design : Design or path
        What `design` returns, or the file in which it was saved.

    Returns
    -------
    Picture
        The figure with its caption and numbers.
    """
    found = Design.taken(design)
    return picture(
        "design",
        2.6 + float(np.clip(0.2 * len(found.sources), 0.8, 4.5)),
        lambda figure: _draw(figure, found),
        _caption(found),
        _table(found),
        labels=(*found.sources, *found.runs),
        notices=found.notices,
    )


def _draw(figure: Figure, found: Design) -> None:
    high = float(np.clip(0.2 * len(found.sources), 0.8, 4.5))
    errors, ratios = figure.subplots(2, 1, height_ratios=[1.2, high], sharex=True)
    _errors(errors, found)
    names = min(widest(found.sources), 24) * LETTER * SMALL
    room = (WIDTH * 72 - names - 90) / len(found), high * 72 / len(found.sources)
    map_ratios(figure, ratios, found.p, found.sources, found.runs, room)
    ratios.set_xlabel("run, in the order of training")


def _errors(axes: Axes, found: Design) -> None:
    """The error over the region after each run, at its column; before the first at the left edge of it."""
    places = np.arange(len(found) + 1) - 1.0
    places[0] = -0.5
    axes.plot(places, found.region_error * 100, color=COLOURS[0], marker="o")
    axes.set_ylabel("expected error, %")
    axes.set_ylim(0, None)
    for place in np.flatnonzero(np.diff(found.batch)).tolist():
        axes.axvline(place + 0.5, color="#bbbbbb", linewidth=0.8, linestyle=":")
    axes.tick_params(axis="x", labelbottom=False, length=0)


def _caption(found: Design) -> str:
    parts = [f"{len(found)} planned runs for the {found.purpose}, after {found.trained} mixtures."]
    first, last = found.region_error[0], found.region_error[-1]
    if np.isfinite(last):
        before = "unknown" if np.isnan(first) else f"{first:.2%}"
        parts.append(f"Expected error of the law's losses over the region: {before} before, {last:.2%} after.")
    if np.isfinite(found.optimum_error).all():
        one, two = found.optimum_error[0], found.optimum_error[-1]
        parts.append(f"Of gains near the optimum: {one:.2g} to {two:.2g} nats.")
    if found.batch.max() > 1:
        parts.append("Dotted lines part the batches.")
    return " ".join(parts)


def _table(found: Design) -> Columns:
    """One row per run: its ratios, and the expected errors after it."""
    after = {"region_error": found.region_error[1:], "optimum_error": found.optimum_error[1:]}
    return {**found.columns(), **{name: values for name, values in after.items() if len(values) == len(found)}}
