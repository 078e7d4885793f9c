"""A learning curve on the screen."""

from __future__ import annotations

import math

from shapleymix.fitting.learning_curve import LearningCurve
from shapleymix_cli.views.numbers import count, interval, percent, significant
from shapleymix_cli.views.tables import Part, heading, table

MOST = 1_000_000
"""Mixtures: whether so many or more are needed, or no number does, no curve can tell."""


def learning_curve_view(found: LearningCurve, reach: float | None) -> list[Part]:
    """What the law's held-out error is now and would be with more mixtures; and how many a wish needs."""
    rows = [
        [f"{mixtures:,} (now)" if mixtures == found.now else f"{mixtures:,}", percent(PE), interval(low, high, percent)]
        for mixtures, PE, low, high in zip(
            found.ahead.tolist(), found.expected.tolist(), found.low.tolist(), found.high.tolist(), strict=True
        )
    ]
    measured = f"measured with {', '.join(f'{size:.0f}' for size in found.mixtures)}"
    parts: list[Part] = ["", heading(f"With more mixtures ({measured}; the rest is expected)")]
    parts += [table(["mixtures", "held-out PE", f"{percent(found.level, 0)} interval"], rows)]
    return parts if reach is None else [*parts, _reached(found, reach)]


def _reached(found: LearningCurve, reach: float) -> str:
    middle, low, high = found.needed(reach, found.level)
    wish = f"{significant(100 * reach, 3)}%"
    if middle <= found.now:
        return f"{wish} is reached with the {found.now:,} mixtures at hand."
    if math.isinf(low):
        return f"{wish} is out of reach, whatever the number of mixtures."
    between = f"{percent(found.level, 0)} interval {_number(low)} .. {_number(high)}"
    if math.isinf(middle):
        return f"{wish} is more likely than not out of reach, whatever the number of mixtures ({between})."
    if middle >= MOST:
        return f"{wish} needs a million mixtures, or is never reached ({between})."
    return f"{wish} needs about {count(round(middle), 'mixture')} in all ({between})."


def _number(mixtures: float) -> str:
    return "never" if math.isinf(mixtures) else "a million or more" if mixtures >= MOST else f"{round(mixtures):,}"
