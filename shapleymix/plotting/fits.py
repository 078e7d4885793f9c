"""Loss against Theta, or against the prediction, for each target and size.

Legend: R rows, K targets.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.fitting.evidence import Logs
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import LEVEL
from shapleymix.fitting.uncertainty import Spread
from shapleymix.plotting.canvas import across, in_letters
from shapleymix.plotting.marks import FAINT, INK, colour, dash, mark
from shapleymix.plotting.own_logs import own_log
from shapleymix.plotting.paths import Line, lines_of
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.points import Points, points_of_log, theta_of
from shapleymix.plotting.ticks import shortened
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_choice, parse_level
from shapleymix.tables.frames import Columns
from shapleymix.tables.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 12
"""So many targets are drawn, the first ones, unless they are named."""


def plot_fit(
    fit: Fit | str | os.PathLike[str],
    log: Logs | None = None,
    held_out: Logs | None = None,
    *,
    targets: Sequence[str] | None = None,
    D: float | str | None = None,
    against: Literal["theta", "prediction"] | None = None,
    level: float = LEVEL,
) -> Picture:
    """Each target's loss against its Theta, a colour for each size: runs, the fitted law, and its band.

    Parameters
    ----------
    fit : Fit or path
        The fit, or the file in which one was saved.
    log, held_out : RunLog, path, or a sequence of them
        The runs, and runs that the fit did not see, which are marked; so are those that a `split` column sets aside.
        By default the runs are those of the log that was fitted, if its file is unchanged.
    targets : sequence of str, optional
        The targets to draw; by default the first twelve.
    D : float or str, optional
        The token count at which runs are drawn; by default that of most runs of each size.
    against : {"theta", "prediction"}, optional
        What lies along the horizontal axis; by default Theta where the law has it.
    level : float
        Probability of the band, which holds a new run's loss.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    UsageError, DataError
        If a target is unknown, the logs have other languages, no run is left, the law has no Theta, or the log that was
        fitted cannot be read again and none is given.
    """
    fit, level = Fit.taken(fit), parse_level(level)
    chosen, unnamed = _chosen(fit, targets)
    axis = against or ("theta" if hasattr(fit.law, "theta") else "prediction")
    parse_choice(axis, ("theta", "prediction"), "against")
    points = points_of_log(fit, own_log(fit) if log is None else log, held_out, D, level)
    if axis == "theta":
        x = theta_of(fit, points.log.p, points.log.N, points.log.D, points.log.unique)
        lines = lines_of(fit, points, x, chosen, level)
    else:
        x, lines = points.predicted.losses, []
    return picture(
        "fit",
        0.95 + 1.75 * math.ceil(len(chosen) / across(len(chosen))),
        lambda figure: _draw(figure, fit, points, x, lines, chosen),
        _caption(fit, points, lines, level, unnamed),
        _table(fit, points, x, lines, chosen),
        labels=[fit.targets[j] for j in chosen],
    )


def _chosen(fit: Fit, targets: Sequence[str] | None) -> tuple[list[int], int]:
    """Places of the targets to draw, and how many of the fit's are left out unasked."""
    if targets is None:
        return list(range(len(fit.targets)))[:MOST], max(len(fit.targets) - MOST, 0)
    wrong = [name for name in targets if name not in fit.targets]
    if wrong or not targets or isinstance(targets, str):
        message = f"the fit has no target {wrong[0]!r}" if wrong else "no target is named"
        raise UsageError(message, hint=did_you_mean(wrong[0] if wrong else "", fit.targets))
    return [fit.targets.index(name) for name in dict.fromkeys(targets)], 0


def _draw(
    figure: Figure, fit: Fit, points: Points, x: FloatArray, lines: Sequence[Line], chosen: Sequence[int]
) -> None:
    wide = across(len(chosen))
    panels = figure.subplots(math.ceil(len(chosen) / wide), wide, squeeze=False).ravel().tolist()
    for axes, j in zip(panels, chosen, strict=False):
        for line in (one for one in lines if one.target == j):
            _line(axes, line, list(points.budgets).index(line.N))
        for place, N in enumerate(points.budgets):
            _dots(axes, points, x, j, N, place)
        if not lines:
            _diagonal(axes)
        axes.set_title(in_letters(shortened(fit.targets[j])), fontweight="bold", pad=3)
        axes.locator_params(nbins=5)
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    _legend(figure, points, bool(lines))
    for place, axes in enumerate(panels[: len(chosen)]):
        if place % wide == 0:
            axes.set_ylabel("loss, nats")
        if place + wide >= len(chosen):
            axes.set_xlabel("Theta" if lines else "predicted loss, nats")


def _line(axes: Axes, line: Line, place: int) -> None:
    axes.fill_between(line.theta, line.low, line.high, color=colour(place), alpha=0.14, linewidth=0)
    axes.plot(line.theta, line.loss, color=colour(place), linestyle=dash(place))


def _dots(axes: Axes, points: Points, x: FloatArray, j: int, N: float, place: int) -> None:
    """Runs of a size in its colour and mark; those held out are hollow."""
    rows = points.rows_of(N) & points.drawn[:, j]
    draw = partial(axes.plot, linestyle="none", marker=mark(place), markersize=3.4, markeredgecolor=colour(place))
    for held, inside in ((False, colour(place)), (True, "white")):
        some = rows & (points.held == held)
        if some.any():
            draw(x[some, j], points.log.loss[some, j], color=inside, markeredgewidth=0.9 if held else 0.0)


def _diagonal(axes: Axes) -> None:
    """The line on which losses are as predicted, over what is in view."""
    low, high = (min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1]))
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)


def _legend(figure: Figure, points: Points, with_lines: bool) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=colour(place), marker=mark(place), linestyle=dash(place) if with_lines else "",
               markersize=3.4, label=f"N = {format_size(N)}, D = {format_size(D)}")
        for place, (N, D) in enumerate(points.budgets.items())
    ]  # fmt: skip
    if points.held.any():
        hollow = {"color": "white", "markeredgecolor": INK, "markeredgewidth": 0.9, "markersize": 3.4}
        entries.append(Line2D([], [], marker="o", linestyle="none", label="held out", **hollow))
    figure.legend(handles=entries, loc="outside upper center", ncols=min(len(entries), 4))


def _caption(fit: Fit, points: Points, lines: Sequence[Line], level: float, unnamed: int) -> str:
    what = "Theta" if lines else "the predicted loss"
    parts = [f"Loss of each target against {what}, law {fit.law.name}: a point for each run."]
    if any(np.isfinite(line.low).any() for line in lines):
        lacks = Spread(fit.replicates, fit.residuals, fit.coverage, fit.cells).lacks(fit.targets)
        hold = "hold a new run's loss with probability" if not lacks else "are intervals of"
        parts.append("; ".join([f"Lines are the fitted law; bands {hold} {level:.0%}", *lacks]) + ".")
    told = "; ".join(f"{name} {points.told(where)}" for name, where in points.parts())
    parts.append(told[:1].upper() + told[1:] + ".")
    if points.left_out:
        text = "losses of runs with none or too little of the target's own language, another regime, are not drawn"
        parts.append(f"{points.left_out} {text}.")
    if unnamed:
        parts.append(f"{unnamed} further targets are not drawn.")
    return " ".join(parts)


def _table(fit: Fit, points: Points, x: FloatArray, lines: Sequence[Line], chosen: Sequence[int]) -> Columns:
    """One row per drawn run and target, then one per step of each line (whose `run` is empty)."""
    rows: list[tuple[object, ...]] = []
    for j in chosen:
        for r in np.flatnonzero(points.drawn[:, j]).tolist():
            said = (values[r, j] for values in (points.predicted.losses, points.predicted.low, points.predicted.high))
            place = points.log.runs[r], fit.targets[j], points.log.N[r], points.log.D[r], bool(points.held[r])
            rows.append((*place, x[r, j], points.log.loss[r, j], *said))
    for line in lines:
        steps = np.stack([line.theta, line.loss, line.low, line.high], axis=1).tolist()
        fixed = "", fit.targets[line.target], line.N, line.D, False
        rows += [(*fixed, theta, math.nan, *said) for theta, *said in steps]
    names = ("run", "target", "N", "D", "held_out", "x", "loss", "predicted", "low", "high")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
