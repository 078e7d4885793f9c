"""Baselines on the screen: their ratios and realised epochs side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.tables.baselines import Baseline
from shapleymix.tables.languages import Languages
from shapleymix_cli.views.numbers import count, each, fixed, significant, size
from shapleymix_cli.views.tables import Part, heading, table

MOST_LANGUAGES = 40
"""Languages that are shown without `-v`: those of most tokens."""


def view(found: Sequence[Baseline], known: Languages, D: float, verbose: bool) -> list[Part]:
    """One row per language and one column per mixture: the ratios, then the epochs."""
    order = np.argsort(-np.nan_to_num(known.available_tokens), kind="stable").tolist()
    shown = sorted(order if verbose else order[:MOST_LANGUAGES])
    names = [one.name for one in found]
    ratios = np.array([one.p for one in found])[:, shown].T
    epochs = np.array([one.epochs for one in found])[:, shown].T
    languages = [known.names[row] for row in shown]
    tokens = [size(float(known.available_tokens[row])) for row in shown]
    body = [[name, held, *each(row, _ratio)] for name, held, row in zip(languages, tokens, ratios, strict=True)]
    below = [[name, *each(row, _epochs)] for name, row in zip(languages, epochs, strict=True)]
    most = ["most", *(_epochs(_most(one)) for one in found)]
    hidden = len(known.names) - len(shown)
    more = [f"... and {count(hidden, 'smaller language')}: -v, --json and -o show all"] if hidden else []
    return [
        heading(f"Ratios at D = {size(D)}"),
        table(["language", "tokens", *names], body),
        "",
        heading("Epochs of each language's tokens"),
        table(["language", *names], [*below, most]),
        *more,
    ]


def _most(one: Baseline) -> float:
    """The highest number of epochs that is known; NaN where none is."""
    return float(np.nanmax(one.epochs)) if np.isfinite(one.epochs).any() else float("nan")


def _ratio(value: float) -> str:
    return fixed(value, 4)


def _epochs(value: float) -> str:
    return significant(value, 3)
