"""Predicted losses or scores, and mixtures side by side, on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.fitting.measures import measure_of
from shapleymix.fitting.prediction import Prediction
from shapleymix.mixing.candidates import Candidates
from shapleymix_cli.views.measures import ends, printed
from shapleymix_cli.views.numbers import MISSING, count, fixed, interval, percent, size
from shapleymix_cli.views.tables import Part, heading, table

MOST_TARGETS = 20
"""Targets of one point that are shown without `-v`; the highest losses, or lowest scores, come first."""

MOST_COLUMNS = 8
"""Targets of several points that are shown without `-v`."""

MOST_POINTS = 100

LONGEST_NAME = 24
"""A longer name, such as ratios, stands once above the table, and its number within."""


def prediction_view(found: Prediction, verbose: bool) -> list[Part]:
    """One row per target for one point; for several one row per point, with the intervals below."""
    if len(found.runs) == 1:
        return _point(found, verbose)
    return _grid(found, verbose)


def _point(found: Prediction, verbose: bool) -> list[Part]:
    measure = measure_of(found.measure)
    chosen, left_out = _targets(found, None if verbose else MOST_TARGETS)
    body = [
        [
            found.targets[place],
            printed(measure, found.losses[0, place]),
            ends(measure, found.low[0, place], found.high[0, place]),
        ]
        for place in chosen
    ]
    title = f"{found.runs[0]} at N = {size(found.N[0])}, D = {size(found.D[0])}"
    return [heading(title), table([measure.of, measure.noun, f"{percent(found.level, 0)} interval"], body), *left_out]


def _grid(found: Prediction, verbose: bool) -> list[Part]:
    names, legend = _short(found.runs)
    measure = measure_of(found.measure)
    chosen, left_out = _targets(found, None if verbose else MOST_COLUMNS)
    points = len(found.runs) if verbose else min(len(found.runs), MOST_POINTS)
    rows: list[list[str]] = []
    for place in range(points):
        rows.append([names[place], size(found.N[place]), size(found.D[place])])
        rows[-1] += [printed(measure, found.losses[place, target]) for target in chosen]
        spread = [ends(measure, found.low[place, target], found.high[place, target]) for target in chosen]
        rows += [["", "", "", *spread]] if any(spread) else []
    grid = table(["mixture", "N", "D", *(found.targets[place] for place in chosen)], rows, left=3)
    title = f"{measure.heading}, {percent(found.level, 0)} intervals below"
    hidden = len(found.runs) - points
    more = [f"... and {count(hidden, 'more point')}: -v, --json and -o show all"] if hidden else []
    return [*legend, heading(title), grid, *more, *left_out]


def _targets(found: Prediction, most: int | None) -> tuple[list[int], list[Part]]:
    """Places of the targets to show, and a word on those that are not."""
    everyone = list(range(len(found.targets)))
    if most is None or len(everyone) <= most:
        return everyone, []
    worst = np.argsort(-np.nan_to_num(found.losses[0], nan=np.inf), kind="stable")[:most]
    measure = measure_of(found.measure)
    hidden = count(len(everyone) - most, f"more {measure.of}")
    rest = "higher scores" if measure.flipped else "lower losses"
    return worst.tolist(), [f"... and {hidden} with {rest}: -v, --json and -o show all"]


def _short(names: Sequence[str]) -> tuple[list[str], list[Part]]:
    """Names for a column, and the lines that say what the numbers among them stand for."""
    long = {name: f"mixture {place}" for place, name in enumerate(dict.fromkeys(names), start=1)}
    long = {name: short for name, short in long.items() if len(name) > LONGEST_NAME}
    legend: list[Part] = [f"{short}: {name}" for name, short in long.items()]
    return [long.get(name, name) for name in names], [*legend, *([""] if legend else [])]


def candidates_view(found: Candidates) -> list[Part]:
    """What each mixture gains over the first."""
    names, _ = _short([entry.name for entry in found.entries])
    spread = any(np.isfinite(entry.gain_low) for entry in found.entries)
    measure = measure_of(found.measure)
    headers = ["mixture", f"mean {measure.noun}", "gain"]
    headers += [f"{percent(found.level, 0)} interval", "P(better)"] if spread else []
    rows = []
    for name, entry in zip(names, found.entries, strict=True):
        row = [name, printed(measure, entry.objective, 4)]
        first = entry is found.entries[0]
        row.append(MISSING if first else fixed(entry.gain, 4))
        if spread:
            row.append("" if first else interval(entry.gain_low, entry.gain_high, lambda gain: fixed(gain, 4)))
            row.append("" if first else percent(entry.probability, 0))
        rows.append(row)
    place = f"N = {size(found.N)}, D = {size(found.D)}"
    title = f"Against {names[0]} at {place} (gain: {measure.gained}; {found.weights_origin.split(':')[0]})"
    verdict = found.verdict
    told: list[Part] = [f"{verdict[0].upper()}{verdict[1:]}."] if verdict else []
    return ["", *told, heading(title), table(headers, rows)]
