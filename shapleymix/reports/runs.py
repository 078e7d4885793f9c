"""The runs themselves on a page: what was measured against what the law says, a panel for each target.

Legend: R rows, K targets.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.fitting.fits import Fit
from shapleymix.plotting.points import Points, points_of_log
from shapleymix.records import FloatArray
from shapleymix.reports.markup import node, number, section
from shapleymix.tables.sizes import format_size

PANEL, EDGE = 210.0, 26.0
"""Pixels of a panel, and of its edge, where the ends of its axes are written."""
MOST = 30
"""So many targets have a panel, the first ones."""
LEVEL = 0.9


def runs_section(fit: Fit, log: Logs) -> Element:
    """Losses of the runs of a log against those that the fit predicts, at each size's most usual token count.

    Parameters
    ----------
    fit : Fit
        The fit.
    log : Logs
        The runs; those that a split column sets aside are hollow.

    Raises
    ------
    DataError
        If the log does not have the fit's languages.
    """
    read = one_log(log)
    points = points_of_log(fit, read, None, None, LEVEL)
    sizes = sorted(points.budgets)
    drawn = ", ".join(f"N {format_size(N)} at D {format_size(points.budgets[N])}" for N in sizes)
    told = "; ".join(f"{name}: {points.told(where)}" for name, where in points.parts())
    left = f" {points.left_out} losses of another regime are not drawn." if points.left_out else ""
    shown = [_panel(points, j, name, sizes) for j, name in enumerate(fit.targets[:MOST])]
    hidden = len(fit.targets) - len(shown)
    strange = bool(read.digest) and read.digest != fit.provenance.get("log_sha256")
    whose = [node("p", "This is not the log that was fitted.", class_="warnings")] if strange else []
    more = [node("p", f"The first {MOST} targets; {hidden} more are not drawn.")] if hidden else []
    legend = f"Across: predicted; up: measured, nats; on the line both agree. {drawn}; larger models are darker."
    panels = node("div", shown, class_="panels")
    return section(
        "runs", "The runs, measured and predicted", whose, node("p", f"{legend} {told}.{left}"), panels, more
    )


def _panel(points: Points, j: int, target: str, sizes: list[float]) -> Element:
    """One target's runs."""
    rows = points.drawn[:, j] & np.isfinite(points.predicted.losses[:, j])
    said, loss = points.predicted.losses[rows, j], points.log.loss[rows, j]
    ends = np.concatenate([said, loss])
    low, high = (float(ends.min()), float(ends.max())) if rows.any() else (0.0, 1.0)
    high = high if high > low else low + 1.0
    dark = np.array([0.35 + 0.65 * (sizes.index(N) + 1) / len(sizes) for N in points.log.N[rows].tolist()])
    marks = _marks(_placed(said, low, high), PANEL - _placed(loss, low, high), dark, points.held[rows])
    label = f"{target}: {int(rows.sum())} losses, predicted against measured"
    corner = {"x1": EDGE, "y1": PANEL - EDGE, "x2": PANEL - 6, "y2": 6}
    words = [
        node("text", target, x=EDGE + 4, y=16, class_="name"),
        node("text", number(low, 2), x=EDGE, y=PANEL - 8),
        node("text", number(high, 2), x=PANEL - 6, y=PANEL - 8, text_anchor="end"),
    ]
    frame = node("rect", x=EDGE, y=6, width=PANEL - EDGE - 6, height=PANEL - EDGE - 6, class_="frame")
    return node(
        "svg", node("title", label), frame, node("line", class_="axis", **corner), marks, words,
        width=PANEL, height=PANEL, viewBox=f"0 0 {PANEL:g} {PANEL:g}", class_="scatter", role="img", aria_label=label,
    )  # fmt: skip


def _placed(values: FloatArray, low: float, high: float) -> FloatArray:
    """Pixels from the panel's start, within its frame."""
    return EDGE + (PANEL - EDGE - 6) * (values - low) / (high - low)


def _marks(x: FloatArray, y: FloatArray, dark: FloatArray, held: np.ndarray) -> list[Element]:
    """A dot for each run, hollow where it was held out."""
    columns = zip(x.round(1).tolist(), y.round(1).tolist(), dark.round(2).tolist(), held.tolist(), strict=True)
    return [
        node("circle", cx=a, cy=b, r=2.6, opacity=shade, class_="held" if aside else "dot")
        for a, b, shade, aside in columns
    ]
