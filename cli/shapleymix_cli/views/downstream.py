"""Calibrated tasks on the screen."""

from __future__ import annotations

from shapleymix.downstream.calibrations import Calibration, Downstream, formula
from shapleymix.downstream.transforms import TRANSFORMS
from shapleymix_cli.views.numbers import MISSING, fixed, interval, percent, significant
from shapleymix_cli.views.tables import Part, heading, table


def downstream_view(found: Downstream, verbose: bool) -> list[Part]:
    """The line of every task with its errors, the intervals of its numbers, and the transforms that were tried."""
    rows = found.calibrations
    headers = [
        "task",
        "score s at loss l",
        "held-out error",
        "held-out R2",
        "R2",
        "Pearson r",
        "p-value",
        "runs",
        "mixtures",
    ]
    cells = [
        [
            one.label,
            formula(one),
            fixed(one.held_out, 4),
            fixed(one.held_out_R2),
            fixed(one.R2),
            fixed(one.pearson),
            significant(one.p_value, 2),
            str(one.rows),
            str(one.mixtures),
        ]
        for one in rows
    ]
    parts: list[Part] = [heading("Scores as losses tell them (held out: one mixture at a time)"), table(headers, cells)]
    parts += ["p-values take each mixture for one run."]
    parts += ["", heading(f"{percent(found.level, 0)} intervals, and the losses that were fitted"), _numbers(found)]
    parts += ["", heading("Held-out error by transform (in brackets: R2 in the sample)"), _tried(rows)]
    parts += ["", *_alike(rows)]
    parts += [f"{label} is left out: {why}." for label, why in found.left_out.items()]
    return parts


def _numbers(found: Downstream) -> Part:
    cells = [
        [
            one.label,
            interval(one.a_low, one.a_high),
            interval(one.b_low, one.b_high),
            fixed(one.scatter, 4),
            interval(*one.losses.tolist()),
        ]
        for one in found.calibrations
    ]
    return table(["task", "a", "b", "scatter", "losses"], cells)


def _alike(rows: tuple[Calibration, ...]) -> list[Part]:
    """Which transforms the held-out errors do not tell from the one that is taken."""
    lines: list[Part] = []
    for one in rows:
        others = [TRANSFORMS[tried.transform].formula for tried in one.tried[1:] if tried.alike]
        if others:
            lines.append(f"{one.label}: {one.shape.formula} is not told from {', '.join(others)}.")
    return lines


def _tried(rows: tuple[Calibration, ...]) -> Part:
    cells = []
    for one in rows:
        known = {tried.transform: tried for tried in one.tried}
        row = [
            f"{fixed(known[name].held_out, 4)} ({fixed(known[name].R2)})" if name in known else MISSING
            for name in TRANSFORMS
        ]
        cells.append([one.label, *row])
    return table(["task", *(shape.formula for shape in TRANSFORMS.values())], cells)
