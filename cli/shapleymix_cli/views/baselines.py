"""Baselines on the screen: their ratios and realised epochs side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.mixing.baselines import Baseline
from shapleymix.tables.languages import Languages
from shapleymix_cli.views.numbers import count, fixed, significant, size
from shapleymix_cli.views.tables import Part, heading, table

MOST_LANGUAGES = 40
"""Languages that are shown without `-v`: those of most tokens."""


def view(found: Sequence[Baseline], known: Languages, D: float, verbose: bool) -> list[Part]:
    """A row a language and a column a mixture: the ratios, then the epochs."""
    order = np.argsort(-np.nan_to_num(known.available_tokens), kind="stable").tolist()
    shown = sorted(order if verbose else order[:MOST_LANGUAGES])
    names = [one.name for one in found]
    ratios = [
        [known.names[row], size(known.available_tokens[row]), *(fixed(one.p[row], 4) for one in found)] for row in shown
    ]
    epochs = [[known.names[row], *(significant(one.epochs[row], 3) for one in found)] for row in shown]
    most = ["most", *(significant(_most(one), 3) for one in found)]
    hidden = len(known.names) - len(shown)
    more = [f"... and {count(hidden, 'smaller language')}: -v, --json and -o show all"] if hidden else []
    return [
        heading(f"Ratios at D = {size(D)}"),
        table(["language", "tokens", *names], ratios, left=1),
        "",
        heading("Epochs of each language's tokens"),
        table(["language", *names], [*epochs, most]),
        *more,
    ]


def _most(one: Baseline) -> float:
    """The highest number of epochs that is known; NaN where none is."""
    return float(np.nanmax(one.epochs)) if np.isfinite(one.epochs).any() else float("nan")
