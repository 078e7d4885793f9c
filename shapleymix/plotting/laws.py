"""Laws on the same held-out runs, the best on top; and the held-out error of one against the number of runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.errors import DataError, printable
from shapleymix.fitting.comparisons import Comparison, Entry
from shapleymix.fitting.learning_curve import LearningCurve
from shapleymix.plotting.canvas import in_letters
from shapleymix.plotting.marks import COLOURS, FAINT
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.ticks import label_axis
from shapleymix.tables.frames import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PERCENT = 100.0


def plot_compare(comparison: Comparison | str | os.PathLike[str]) -> Picture:
    """The held-out error of each law with its standard error, the best on top, and that of each target.

    Parameters
    ----------
    comparison : Comparison or path
        What `compare` returns, or the file in which it was saved.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    DataError
        If no law has scores.
    """
    found = Comparison.taken(comparison)
    scored = sorted((one for one in found.entries if one.scores is not None), key=_error)
    if not scored:
        raise DataError("no law of this comparison has scores to draw", hint=found.entries[0].error)
    return picture(
        "compare",
        1.25 + 0.2 * len(scored),
        lambda figure: _draw_laws(figure, scored),
        _caption_of_laws(found, scored),
        _table_of_laws(scored),
        labels=[one.law for one in scored],
    )


def _error(entry: Entry) -> float:
    assert entry.scores is not None
    return entry.scores.mean["PE"]


def _draw_laws(figure: Figure, scored: list[Entry]) -> None:
    axes = figure.subplots()
    for place, entry in enumerate(scored):
        assert entry.scores is not None
        targets = entry.scores.PE * PERCENT
        label = "a target" if place == 0 else None
        axes.plot(targets, np.full(len(targets), place), "|", color=FAINT, markersize=6, label=label)
    axes.errorbar(
        [_error(one) * PERCENT for one in scored], np.arange(len(scored)), linestyle="none", marker="o",
        xerr=[np.nan_to_num(one.standard_error) * PERCENT for one in scored], color=COLOURS[0], elinewidth=1.0,
        capsize=2, label="mean, with its standard error",
    )  # fmt: skip
    axes.set_ylim(len(scored) - 0.5, -0.5)
    axes.set_xlim(0, None)
    axes.set_xlabel("held-out PE, %")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, alpha=0.3, linewidth=0.5)
    label_axis(axes, "y", [one.law for one in scored], 14.0)
    figure.legend(loc="outside upper center", ncols=2)


def _caption_of_laws(found: Comparison, scored: list[Entry]) -> str:
    told = ", ".join(f"{printable(one.law)} {_error(one):.2%} ± {one.standard_error:.2%}" for one in scored)
    parts = [f"Held-out PE: {found.design}, {found.rows} rows of {found.mixtures} mixtures. {told}."]
    lost = [f"{printable(one.law)} ({printable(one.error or '')})" for one in found.entries if one.scores is None]
    return " ".join([*parts, *([f"Not fitted: {'; '.join(lost)}."] if lost else [])])


def _table_of_laws(scored: list[Entry]) -> Columns:
    """One row per law and target, and one of the mean, whose `target` is empty."""
    rows: list[tuple[object, ...]] = []
    for one in scored:
        assert one.scores is not None
        rows.append((one.law, "", _error(one), one.standard_error))
        rows += [
            (one.law, name, PE, np.nan) for name, PE in zip(one.scores.targets, one.scores.PE.tolist(), strict=True)
        ]
    return {name: [row[i] for row in rows] for i, name in enumerate(("law", "target", "PE", "standard_error"))}


def plot_learning_curve(curve: LearningCurve | str | os.PathLike[str]) -> Picture:
    """Held-out error against the number of mixtures: what was fitted, and where more would lead, with its band.

    Parameters
    ----------
    curve : LearningCurve or path
        What `learning_curve` returns, or the file in which it was saved.

    Returns
    -------
    Picture
        The figure with its caption and numbers.
    """
    found = LearningCurve.taken(curve)
    return picture(
        "learning-curve",
        3.4,
        lambda figure: _draw_curve(figure, found),
        _caption_of_curve(found),
        _table_of_curve(found),
        labels=(found.law,),
        notices=found.notices,
        width=4.6,
    )


def _draw_curve(figure: Figure, found: LearningCurve) -> None:
    axes = figure.subplots()
    low, high = found.low * PERCENT, found.high * PERCENT
    axes.fill_between(
        found.ahead, low, high, color=COLOURS[1], alpha=0.15, linewidth=0, label=f"{found.level:.0%} interval"
    )
    axes.plot(found.ahead, found.expected * PERCENT, "--", color=COLOURS[1], marker="s", label="expected")
    axes.errorbar(
        found.mixtures, found.PE * PERCENT, yerr=np.nan_to_num(found.error) * PERCENT, color=COLOURS[0], marker="o",
        elinewidth=0.8, capsize=2, label="fitted",
    )  # fmt: skip
    axes.axvline(found.now, color=FAINT, linewidth=0.8, linestyle=":", zorder=0)
    axes.set_ylim(0, None)
    axes.set_xlabel("mixtures that are fitted (dotted: those at hand)")
    axes.set_ylabel("held-out PE, %")
    axes.set_title(in_letters(found.law))
    figure.legend(loc="outside upper center", ncols=3)


def _caption_of_curve(found: LearningCurve) -> str:
    measured = ", ".join(
        f"{PE:.2%} ± {error:.2%} with {count:.0f}"
        for count, PE, error in zip(found.mixtures, found.PE, found.error, strict=True)
    )
    ahead = ", ".join(
        f"{PE:.2%} ({low:.2%} .. {high:.2%}) with {count}"
        for count, PE, low, high in zip(found.ahead, found.expected, found.low, found.high, strict=True)
    )
    return (
        f"Held-out PE of law {printable(found.law)} against the number of mixtures. Fitted, with standard errors: "
        f"{measured}. Expected, with {found.level:.0%} intervals: {ahead}."
    )


def _table_of_curve(found: LearningCurve) -> Columns:
    """As the curve's own table, with the standard errors."""
    blank = [float("nan")] * len(found.ahead)
    return {**found.columns(), "error": [*found.error.tolist(), *blank]}
