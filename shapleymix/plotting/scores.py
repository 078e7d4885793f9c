"""Scores on tasks against the losses of runs: the line of each task with its band.

Legend: S scored runs of a task.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shapleymix.downstream.calibrations import Calibration, Downstream, formula, told_R2
from shapleymix.downstream.doubts import spread
from shapleymix.errors import UsageError, did_you_mean, printable
from shapleymix.plotting.canvas import across, in_letters
from shapleymix.plotting.marks import COLOURS, FAINT
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.ticks import shortened
from shapleymix.records import FloatArray
from shapleymix.tables.frames import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 12
"""So many tasks are drawn unless they are named."""
STEPS = 81


class _Line(NamedTuple):
    """Scores (STEPS,) along the losses that a task was calibrated on, and the band of a run."""

    loss: FloatArray
    score: FloatArray
    low: FloatArray
    high: FloatArray


def plot_downstream(downstream: Downstream | str | os.PathLike[str], *, tasks: Sequence[str] | None = None) -> Picture:
    """The score of each scored run against its loss, and the line of the task with the band that holds a new run.

    Parameters
    ----------
    downstream : Downstream or path
        What `calibrate_scores` returns, or the file in which it was saved.
    tasks : sequence of str, optional
        The tasks to draw, such as `hellaswag/en`; by default the first twelve.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    UsageError
        If a task is unknown.
    """
    found = Downstream.taken(downstream)
    chosen = _chosen(found, tasks)
    lines = [_line_of(one, found.level) for one in chosen]
    left_out = len(found.calibrations) - len(chosen) if tasks is None else 0
    return picture(
        "downstream",
        0.95 + 1.75 * math.ceil(len(chosen) / across(len(chosen))),
        lambda figure: _draw(figure, chosen, lines),
        _caption(found, chosen, left_out),
        _table(chosen, lines),
        labels=[one.label for one in chosen],
    )


def _chosen(found: Downstream, tasks: Sequence[str] | None) -> list[Calibration]:
    if tasks is None:
        return list(found.calibrations[:MOST])
    if isinstance(tasks, str) or not tasks:
        raise UsageError("no task is named", hint=f"give a list, such as [{found.labels[0]!r}]")
    for name in tasks:
        if name not in found.labels:
            raise UsageError(f"no calibration of {name!r}", hint=did_you_mean(name, found.labels))
    return [found.calibration(name) for name in dict.fromkeys(tasks)]


def _line_of(task: Calibration, level: float) -> _Line:
    loss = np.linspace(task.losses[0], task.losses[1], STEPS)
    score, half = task.score(loss), spread(task, loss, level)
    return _Line(loss, score, score - half, score + half)


def _draw(figure: Figure, chosen: Sequence[Calibration], lines: Sequence[_Line]) -> None:
    wide = across(len(chosen))
    panels = figure.subplots(math.ceil(len(chosen) / wide), wide, squeeze=False).ravel().tolist()
    for place, (axes, task, line) in enumerate(zip(panels, chosen, lines, strict=False)):
        _panel(axes, task, line)
        if place % wide == 0:
            axes.set_ylabel("score")
        if place + wide >= len(chosen):
            axes.set_xlabel("loss, nats")
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)


def _panel(axes: Axes, task: Calibration, line: _Line) -> None:
    axes.fill_between(line.loss, line.low, line.high, color=COLOURS[0], alpha=0.14, linewidth=0)
    axes.plot(line.loss, line.score, color=COLOURS[0])
    axes.plot(task.run_losses, task.run_scores, "o", color=COLOURS[1], markersize=3.2, markeredgewidth=0)
    if np.isfinite(task.chance) and task.chance > axes.get_ylim()[0]:
        axes.axhline(task.chance, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_title(in_letters(shortened(task.label)), fontweight="bold", pad=3)
    axes.locator_params(nbins=5)


def _caption(found: Downstream, chosen: Sequence[Calibration], left_out: int) -> str:
    band = f"lines are fitted, bands hold a new run's score with probability {found.level:.0%}"
    parts = [f"Scores on tasks against losses: a point for each scored run; {band}."]
    told = [
        f"{printable(one.label)} {formula(one)}, held-out R2 {told_R2(one)}, error {one.held_out:.4f}" for one in chosen
    ]
    parts.append(f"{'; '.join(told)}.")
    if any(np.isfinite(one.chance) for one in chosen):
        parts.append("A dashed line is the score of a guess, where it is in view.")
    return " ".join([*parts, *([f"{left_out} further tasks are not drawn."] if left_out else [])])


def _table(chosen: Sequence[Calibration], lines: Sequence[_Line]) -> Columns:
    """One row per scored run and task, then one per step of each line, with its band."""
    rows: list[tuple[object, ...]] = []
    for task, line in zip(chosen, lines, strict=True):
        scored = zip(task.run_losses.tolist(), task.run_scores.tolist(), strict=True)
        rows += [(task.label, "run", loss, score, math.nan, math.nan) for loss, score in scored]
        rows += [(task.label, "line", *step) for step in np.stack(line, axis=1).tolist()]
    names = ("task", "what", "loss", "score", "low", "high")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
