"""Predicted losses on the screen."""

from __future__ import annotations

from typing import Any

from shapleymix.fitting.prediction import Prediction
from shapleymix_cli.views.numbers import each, fixed, interval, percent, size
from shapleymix_cli.views.tables import heading, table

FEW = 8
"""Points that are shown with their intervals; of more, the losses alone."""


def prediction_view(found: Prediction) -> list[Any]:
    """A block a point with intervals, or one row a point where there are many."""
    if len(found.runs) <= FEW:
        return [part for place in range(len(found.runs)) for part in _point(found, place)][:-1]
    headers = ["run", "N", "D", *found.targets]
    rows = zip(found.runs, found.N, found.D, found.losses, strict=True)
    body = [[run, size(N), size(D), *each(losses)] for run, N, D, losses in rows]
    return [heading("Predicted losses in nats (intervals: --json)"), table(headers, body)]


def _point(found: Prediction, place: int) -> list[Any]:
    title = f"{found.runs[place]} at N = {size(found.N[place])}, D = {size(found.D[place])}"
    rows = zip(found.targets, found.losses[place], found.low[place], found.high[place], strict=True)
    body = [[name, fixed(loss), interval(low, high)] for name, loss, low, high in rows]
    return [heading(title), table(["target", "loss", f"{percent(found.level, 0)} interval"], body), ""]
