"""Figures of fits: losses against Theta or against predictions, laws compared, learning curves, scores on tasks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from shapleymix import Comparison, Downstream, Fit, LearningCurve
from shapleymix.errors import ShapleyMixWarning, UsageError
from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.tables.words import format_size
from shapleymix_view.canvas import ACCENT, COLOURS, FAINT, INK, MARKS, Picture, bars, panels, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 12
"""So many targets or tasks are drawn, the first ones."""


def plot_fit(fit: Fit, log: Logs, *, against: str = "theta") -> Picture:
    """Each target's loss at the last checkpoints of a log, a colour for each size, against Theta or the prediction.

    Parameters
    ----------
    fit : Fit
        The fit.
    log : RunLog, path, or a sequence of them
        The runs, those that were fitted or others.
    against : {"theta", "prediction"}
        What lies along the horizontal axis; a law without Theta is drawn against its predictions.
    """
    rows = one_log(log).aligned(fit.sources, fit.targets)
    rows = rows.select(rows.trained)
    ends = {
        key: row for row, key in sorted(enumerate(zip(rows.runs, rows.N, strict=True)), key=lambda one: rows.D[one[0]])
    }
    rows = rows.select(np.array(sorted(ends.values())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        said = fit.predict(rows.p, rows.N, rows.D, unique=rows.unique)
    pieces = fit.law.pieces(rows.N, rows.D) if against == "theta" else None
    by_theta = pieces is not None and pieces.form == "power"
    x = pieces.theta(rows.p) if pieces is not None and by_theta else said.losses
    count, sizes = min(len(fit.targets), MOST), np.unique(rows.N)
    there = ~np.isnan(rows.loss) & ~np.isnan(said.losses)

    own = np.array([fit.sources.index(name) if name in fit.sources else -1 for name in fit.targets])
    without = (own >= 0) & (rows.p[:, np.maximum(own, 0)] == 0)

    def draw(figure: Figure) -> None:
        for j, axes in enumerate(panels(figure, count)):
            for place, N in enumerate(sizes.tolist()):
                some, colour = (N == rows.N) & there[:, j], COLOURS[place % len(COLOURS)]
                axes.vlines(x[some, j], said.low[some, j], said.high[some, j], color=colour, alpha=0.3, linewidth=1.6)
                for hollow, label in ((False, f"N = {format_size(N)}"), (True, None)):
                    shown = some & (without[:, j] == hollow)
                    axes.plot(x[shown, j], rows.loss[shown, j], MARKS[place % len(MARKS)], color=colour, label=label,
                              markersize=3, markerfacecolor="white" if hollow else colour)  # fmt: skip
            if not by_theta:
                ends = [float(np.nanmin(x[:, j])), float(np.nanmax(x[:, j]))]
                axes.plot(ends, ends, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
            axes.set_title(fit.targets[j], fontweight="bold", pad=3)
            axes.set_xlabel("Theta" if by_theta else "predicted loss, nats")
        figure.axes[0].legend()

    error = np.abs(rows.loss - said.losses)[there].sum() / rows.loss[there].sum()
    inside = ((rows.loss >= said.low) & (rows.loss <= said.high))[there & ~np.isnan(said.low)]
    hollow = ", hollow marks those of runs without the target's language" if without[there].any() else ""
    caption = (
        f"Loss (nats) of each run against {'Theta' if by_theta else 'its prediction'} under law {fit.law.name}; lines "
        f"are the {said.level:.0%} intervals of single runs{hollow}. These runs: PE {error:.2%}"
        f"{f', {inside.mean():.0%} within their interval' if len(inside) else ''}."
    )
    r, k = np.nonzero(there)
    table = {"run": [rows.runs[i] for i in r], "target": [fit.targets[j] for j in k], "x": x[r, k].tolist()}
    table |= {"loss": rows.loss[r, k].tolist(), "low": said.low[r, k].tolist(), "high": said.high[r, k].tolist()}
    return picture("fit", 0.95 + 1.75 * -(-count // 3), draw, caption, table)


def plot_compare(comparison: Comparison) -> Picture:
    """The held-out errors of laws on the same runs, the best on top, with standard errors."""
    scored = [(one.law, one.scores.mean["PE"], one.standard_error) for one in comparison.entries if one.scores]
    if not scored:
        raise UsageError("no law of the comparison could be scored", hint="compare laws that the log allows")
    names, values, errors = map(list, zip(*sorted(scored, key=lambda one: one[1]), strict=True))
    PE, error = 100 * np.array(values), 100 * np.array(errors)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars(axes, names, PE, PE - error, PE + error)
        axes.set_xlabel("held-out error (PE), %")

    caption = (
        f"Held-out errors of {len(names)} laws: {comparison.design}, {comparison.rows} rows; bars with standard errors."
    )
    return picture(
        "compare", 0.9 + 0.2 * len(names), draw, caption, {"law": names, "PE": values, "standard_error": errors}
    )


def plot_learning_curve(curve: LearningCurve) -> Picture:
    """Held-out error against the number of mixtures, and how far more would bring it."""
    shown = sorted({*curve.mixtures.tolist(), *curve.ahead.tolist()})

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.errorbar(curve.mixtures, 100 * curve.PE, 100 * curve.error, fmt="o", color=INK, label="measured")
        axes.plot(curve.ahead, 100 * curve.expected, color=ACCENT, label="expected")
        axes.fill_between(curve.ahead, 100 * curve.low, 100 * curve.high, color=ACCENT, alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel="mixtures fitted", ylabel="held-out error (PE), %")
        axes.set_xticks(shown, [f"{one:.0f}" for one in shown])
        axes.minorticks_off()
        axes.legend()

    caption = (
        f"Held-out error of law {curve.law} against the number of fitted mixtures; the band holds {curve.level:.0%}."
    )
    table = {"mixtures": curve.ahead.tolist(), "PE": curve.expected.tolist(), "low": curve.low.tolist()}
    return picture("learning curve", 3.0, draw, caption, table | {"high": curve.high.tolist()})


def plot_downstream(tasks: Downstream) -> Picture:
    """The scores of runs on each task against the losses of its language, and the line through them."""
    found = tasks.calibrations[:MOST]

    def draw(figure: Figure) -> None:
        for axes, one in zip(panels(figure, len(found)), found, strict=True):
            line = np.linspace(one.losses.min(), one.losses.max(), 60)
            axes.plot(one.losses, one.scores, "o", color=INK, markersize=3)
            axes.plot(line, one.score(line), color=ACCENT)
            axes.set_title(f"{one.label}: held-out R2 {one.held_out_R2:.2f}", pad=3)
            axes.set(xlabel="loss, nats", ylabel="score")

    table = {
        "task": [one.label for one in found for _ in one.losses],
        "loss": [loss for one in found for loss in one.losses.tolist()],
        "score": [score for one in found for score in one.scores.tolist()],
    }
    more = f" (the first {len(found)} of {len(tasks.calibrations)})" if len(found) < len(tasks.calibrations) else ""
    caption = (
        f"Scores of runs on {len(found)} tasks{more} against the losses of their languages, and the curve that "
        "predicts held-out mixtures best."
    )
    return picture("downstream", 0.6 + 1.75 * -(-len(found) // 3), draw, caption, table)
