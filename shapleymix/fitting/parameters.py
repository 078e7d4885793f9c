"""The fitted symbols of a law as rows, each with its interval over the replicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shapleymix.laws import Law
from shapleymix.tables.frames import Columns

Parameter = tuple[str, str | None, str, float, float, float]
"""Symbol, source or None, target, value, and its interval."""


def parameters_of(
    law: Law,
    replicates: Law | None,
    held: Mapping[str, str],
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    level: float,
) -> list[Parameter]:
    """Every fitted symbol that means something, but those that were held at zero; bounds are NaN without replicates."""
    tails = [0.5 - level / 2, 0.5 + level / 2]
    rows: list[Parameter] = []
    idle, none = law.idle(), np.zeros(len(targets), dtype=bool)
    for known in type(law).fitted():
        if known.name in held and not np.any(getattr(law, known.name)):
            continue
        value = np.atleast_2d(getattr(law, known.name))
        spread = np.full((2, *value.shape), np.nan)
        if replicates is not None:
            spread = np.quantile(getattr(replicates, known.name), tails, axis=0).reshape(2, *value.shape)
        labels = sources if known.axes == "MK" else (None,)
        rows += [
            (known.name, source, target, float(value[i, j]), float(spread[0, i, j]), float(spread[1, i, j]))
            for j, target in enumerate(targets)
            if not idle.get(known.name, none)[j]
            for i, source in enumerate(labels)
        ]
    return rows


def columns_of(rows: Sequence[Parameter]) -> Columns:
    """One row per fitted symbol, with its interval."""
    names = ("symbol", "source", "target", "value", "low", "high")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
