"""What a law says between the runs, as a line with its band.

Legend: S steps of a path, M sources, K targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.fits import Fit
from shapleymix.plotting.points import Points, quietly, theta_of
from shapleymix.records import FloatArray

STEPS = 41


@dataclass(frozen=True)
class Line:
    """The loss of one target at one budget along Theta (S,), with the interval of a new run."""

    target: int
    N: float
    D: float
    theta: FloatArray
    loss: FloatArray
    low: FloatArray
    high: FloatArray


def lines_of(fit: Fit, points: Points, theta: FloatArray, targets: list[int], level: float) -> list[Line]:
    """A line for each target and size, over the Theta (R, K) of the rows that are drawn.

    Each follows the mixtures between the drawn one with the least Theta and the one with the most: with the law's Theta
    goes the law's loss, whatever the mixture, and the band is that of the mixtures on the way.
    """
    ends = [(j, N, *pair) for j in targets for N in points.budgets if (pair := _ends(points, theta, j, N))]
    if not ends:
        return []
    p = np.concatenate([_between(points.log.p[low], points.log.p[high]) for _, _, low, high in ends])
    sizes = np.repeat([N for _, N, _, _ in ends], STEPS)
    tokens = np.repeat([points.budgets[N] for _, N, _, _ in ends], STEPS)
    said, along = quietly(fit, p, sizes, tokens, level), theta_of(fit, p, sizes, tokens)
    found = []
    for place, (j, N, _, _) in enumerate(ends):
        rows = slice(place * STEPS, (place + 1) * STEPS)
        order = np.argsort(along[rows, j], kind="stable")
        shown = (array[rows, j][order] for array in (along, said.losses, said.low, said.high))
        found.append(Line(j, N, points.budgets[N], *shown))
    return found


def _ends(points: Points, theta: FloatArray, target: int, N: float) -> tuple[int, int] | None:
    """The rows with the least and the most Theta among those drawn; nothing where these are one."""
    rows = np.flatnonzero(points.rows_of(N) & points.drawn[:, target] & np.isfinite(theta[:, target]))
    if len(rows) < 2:
        return None
    values = theta[rows, target]
    low, high = int(rows[values.argmin()]), int(rows[values.argmax()])
    return (low, high) if theta[low, target] < theta[high, target] else None


def _between(start: FloatArray, end: FloatArray) -> FloatArray:
    """Mixtures (S, M) along the straight line from one to another, close where Theta is small and the loss is steep."""
    share = np.linspace(0.0, 1.0, STEPS)[:, None] ** 2
    return (1 - share) * start + share * end
