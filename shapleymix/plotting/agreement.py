"""One transfer matrix against another, entry by entry.

Legend: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.plotting.canvas import in_letters
from shapleymix.plotting.marks import COLOURS, FAINT
from shapleymix.plotting.matrices import Matrices, Values, matrices_of
from shapleymix.plotting.numbers import decimals
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.ticks import label_points
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.frames import Columns
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 12
"""So many points of the diagonal, and no more, are named."""


def plot_agreement(
    matrix: TransferMatrix | Table,
    other: TransferMatrix | Table,
    *,
    values: Values | None = None,
    names: Sequence[str] | None = None,
) -> Picture:
    """One transfer matrix against another, such as exact against in-run values: a point for each source and target.

    On the line the two are equal. What a language does for itself is told apart: it is large in any matrix, so that
    the points off the diagonal say more.

    Parameters
    ----------
    matrix, other : TransferMatrix, table or path
        The matrix along the horizontal axis, and the one along the vertical.
    values : {"raw", "normalized"}, optional
        Nats of loss drop, or `exp(SV - column maximum)`; by default raw ones where both have them.
    names : sequence of str, optional
        Titles of the axes; by default the methods, or the files.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    UsageError, DataError
        If values or names do not fit the matrices, or the two have other languages.
    """
    both = matrices_of(matrix, other, values, names)
    return picture(
        "agreement",
        4.0,
        lambda figure: _draw(figure, both),
        _caption(both),
        _table(both),
        labels=(*both.sources, *both.targets, *both.names),
        width=4.6,
    )


def _draw(figure: Figure, both: Matrices) -> None:
    axes = figure.subplots()
    for label, where, colour, mark in _series(both):
        _points(axes, both, label, where, colour, mark)
    low, high = (min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1]))
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.8, linestyle="--", zorder=0, label="equal")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel(f"{in_letters(both.names[0])}, {both.unit}")
    axes.set_ylabel(f"{in_letters(both.names[1])}, {both.unit}")
    figure.legend(loc="outside upper center", ncols=3)
    figure.draw_without_rendering()  # how large the axes are is known only then
    _name_diagonal(axes, both)


def _series(both: Matrices) -> list[tuple[str, BoolArray, str, str]]:
    """Label, entries (M, K), colour and mark of the points off the diagonal and on it, where there are any."""
    off = both.off_diagonal
    known = [("another language", off, COLOURS[0], "o"), ("the target's own", ~off, COLOURS[1], "D")]
    return [one for one in known if one[1].any()]


def _points(axes: Axes, both: Matrices, label: str, where: BoolArray, colour: str, mark: str) -> None:
    x, y = (values[where] for values in both.values)
    spread = [None if error is None else np.nan_to_num(error[where]) for error in both.errors]
    axes.errorbar(
        x, y, yerr=spread[1], xerr=spread[0], label=label, color=colour, marker=mark, linestyle="none",
        elinewidth=0.6, markersize=4, markeredgecolor="white", markeredgewidth=0.4,
    )  # fmt: skip


def _name_diagonal(axes: Axes, both: Matrices) -> None:
    """The language beside each point of the diagonal, unless they are many."""
    places = np.argwhere(~both.off_diagonal).tolist()
    line = np.linspace(*axes.get_xlim(), 81)[:, None] * np.ones(2)
    if len(places) > NAMED:
        return
    label_points(
        axes,
        [(float(both.values[0][i, j]), float(both.values[1][i, j])) for i, j in places],
        [both.targets[j] for _, j in places],
        COLOURS[1],
        np.stack([values.ravel() for values in both.values], axis=1),
        line,
    )


def _table(both: Matrices) -> Columns:
    """One row per source and target."""
    found = both.table()
    count = both.off_diagonal.size
    first, second = found["value"][:count], found["value"][count:]
    errors = found["stderr"][:count], found["stderr"][count:]
    return {
        "source": found["source"][:count],
        "target": found["target"][:count],
        "own": (~both.off_diagonal).ravel().tolist(),
        "x": first,
        "x_stderr": errors[0],
        "y": second,
        "y_stderr": errors[1],
    }


def _caption(both: Matrices) -> str:
    x, y = both.values
    what = "for each source and target; on the dashed line the two are equal"
    parts = [f"{both.long_unit}: {both.names[1]} against {both.names[0]}, {what}.", *both.likeness()]
    parts += [f"Mean difference {_signed((y - x)[where])} ({label})." for label, where, _, _ in _series(both)]
    if any(error is not None for error in both.errors):
        parts.append("Bars are standard errors.")
    return " ".join(parts)


def _signed(difference: FloatArray) -> str:
    return decimals(float(difference.mean()), signed=True)
