"""Losses, or scores of tasks, as they are printed."""

from __future__ import annotations

from shapleymix.fitting.measures import Measure
from shapleymix_cli.views.numbers import fixed, interval


def printed(measure: Measure, value: float, digits: int = 3) -> str:
    """A number with so many decimals."""
    return fixed(measure.shown(value), digits)


def ends(measure: Measure, low: float, high: float) -> str:
    """Its interval, the lower end first."""
    return interval(*measure.ends(low, high))
