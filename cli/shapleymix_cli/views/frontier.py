"""A trade-off curve on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.mixing.curves import Frontier, FrontierPoint
from shapleymix_cli.views.numbers import count, fixed, interval, size
from shapleymix_cli.views.tables import Part, heading, table

LARGEST = 6
"""Sources whose ratios are shown without `-v`: those that are largest anywhere on the curve."""


def frontier_view(found: Frontier, law: str, verbose: bool) -> list[Part]:
    """A row a point: the two mean losses with their intervals, and the ratios of the largest sources."""
    ratios = np.array([entry.p for entry in found.entries])
    order = np.argsort(-ratios.max(axis=0), kind="stable").tolist()
    shown = sorted(order if verbose else order[:LARGEST])
    first, second = _name(found.first_targets), _name(found.second_targets)
    spread = any(np.isfinite((entry.first_low, entry.second_low)).any() for entry in found.entries)
    headers = ["point", first, *["interval"] * spread, second, *["interval"] * spread]
    rows = [
        [
            str(place + 1),
            fixed(entry.first, 4),
            *[interval(entry.first_low, entry.first_high)] * spread,
            fixed(entry.second, 4),
            *[interval(entry.second_low, entry.second_high)] * spread,
            *(fixed(ratio) for ratio in entry.p[shown].tolist()),
        ]
        for place, entry in enumerate(found.entries)
    ]
    title = f"Mean losses of {first} against {second} at N = {size(found.N)}, D = {size(found.D)} under law {law}"
    hidden = len(found.sources) - len(shown)
    more = [f"... and {count(hidden, 'source')} more: -v, --json and -o show all"] if hidden else []
    return [
        heading(title),
        table([*headers, *(found.sources[i] for i in shown)], rows),
        *more,
        "",
        *_missing(found.entries),
        _proof(found.entries),
    ]


def _name(targets: Sequence[str]) -> str:
    """A side by its targets, of many by how many."""
    return "+".join(targets) if len(targets) <= 4 else count(len(targets), "target")


def _missing(entries: Sequence[FrontierPoint]) -> list[str]:
    """Why a loss is no number."""
    return [f"Point {place + 1}: {entry.reason}." for place, entry in enumerate(entries) if entry.reason]


def _proof(entries: Sequence[FrontierPoint]) -> str:
    worst = max(entry.certificate.relative_gap for entry in entries)
    exactly = "rounding (1e-15)" if worst < 1e-15 else f"{worst:.1e}"
    return f"Certificate: no mixture improves on a point's weighted sum of both losses by more than {exactly} of it."
