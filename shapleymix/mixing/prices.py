"""What the bounds that hold an optimum back are worth: shadow prices, their units, and how far they reach.

A shadow price is a slope: it falls as the bound gives way, and is zero once the bound no longer binds. So each price
says how far the bound must move until half of the price is left, and until it stops to bind, by solving again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shapleymix.mixing.certificate import Answer
from shapleymix.mixing.engine.solving import solve_all
from shapleymix.mixing.problem import Task
from shapleymix.records import FloatArray, Record

CAP, FLOOR, GROUP_CAP, GROUP_FLOOR = "cap", "floor", "cap of the group", "floor of the group"
RANGED = 6
"""How many of the dearest bounds get a range: each costs a few solutions."""
STEPS = 2.0 ** np.arange(-6, 5)
PERCENT = 0.01


@dataclass(frozen=True)
class Price(Record):
    """A bound that binds.

    Attributes
    ----------
    source : name of the source or group; side : which bound; bound, origin : its ratio, and where it comes from.
    per_ratio : nats saved per unit of ratio that it gives way, at the margin; per_percent : per 1% of D.
    unit, per_unit : a round number of unique tokens near 0.1% of D, and the nats saved by as many more (for a cap,
        each seen as often as allowed), or by as many fewer demanded (for a floor).
    half_at, free_at : ratios at which half of the price is left, and at which the bound no longer binds; NaN where not
        asked for, or beyond every ratio.
    """

    kind = "price"

    source: str
    side: str
    bound: float
    origin: str
    per_ratio: float
    per_percent: float
    unit: float
    per_unit: float
    half_at: float
    free_at: float


@dataclass(frozen=True)
class _Bound:
    """Index of a source or group, the side, and the price per unit of ratio."""

    index: int
    side: str
    worth: float

    def at(self, task: Task) -> float:
        return float(getattr(task.constraints, _FIELDS[self.side])[self.index])

    def moved(self, task: Task, value: float) -> Task:
        """The same problem with this bound elsewhere."""
        field = _FIELDS[self.side]
        values = getattr(task.constraints, field).copy()
        values[self.index] = value
        return replace(task, constraints=replace(task.constraints, **{field: values}))

    def left(self, answer: Answer) -> float:
        """Its price at another answer."""
        return float(getattr(answer, _WORTHS[self.side])[self.index])


_FIELDS = {CAP: "upper", FLOOR: "lower", GROUP_CAP: "group_upper", GROUP_FLOOR: "group_lower"}
_WORTHS = {CAP: "worth", FLOOR: "cost", GROUP_CAP: "group_worth", GROUP_FLOOR: "group_cost"}


def prices_of(task: Task, answer: Answer) -> tuple[Price, ...]:
    """The prices of caps, floors and groups that bind at an answer, the dearest first."""
    bounds = task.constraints
    found = [
        _Bound(int(i), side, float(worths[i]))
        for side, worths, there in (
            (CAP, answer.worth, (bounds.upper < 1) & (bounds.upper > bounds.lower)),
            (FLOOR, answer.cost, (bounds.lower > 0) & (bounds.upper > bounds.lower)),
            (GROUP_CAP, answer.group_worth, bounds.group_upper < 1),
            (GROUP_FLOOR, answer.group_cost, bounds.group_lower > 0),
        )
        for i in np.flatnonzero(there & (worths > 1e-9 * max(abs(answer.certificate.objective), 1e-300)))
    ]
    found.sort(key=lambda bound: -bound.worth)
    ranges = _ranges(task, found[:RANGED])
    return tuple(
        _price(task, bound, *(ranges[place] if place < len(ranges) else (np.nan, np.nan)))
        for place, bound in enumerate(found)
    )


def _price(task: Task, bound: _Bound, half_at: float, free_at: float) -> Price:
    bounds = task.constraints
    group = bound.side in (GROUP_CAP, GROUP_FLOOR)
    from_tokens = bound.side == CAP and bounds.cap_origin[bound.index] == "tokens"
    repeats = float(bounds.epochs[bound.index]) if from_tokens else 1.0
    unit = round_tokens(bounds.D)
    return Price(
        source=(bounds.group_names if group else bounds.sources)[bound.index],
        side=bound.side,
        bound=bound.at(task),
        origin=bounds.cap_origin[bound.index] if bound.side == CAP else "given",
        per_ratio=bound.worth,
        per_percent=bound.worth * PERCENT,
        unit=unit,
        per_unit=bound.worth * repeats * unit / bounds.D,
        half_at=half_at,
        free_at=free_at,
    )


def round_tokens(D: float) -> float:
    """The power of ten at or below 0.1% of D, at least one token."""
    return float(10.0 ** max(np.floor(np.log10(D / 1000.0) + 1e-9), 0.0))


def _ranges(task: Task, found: list[_Bound]) -> list[tuple[float, float]]:
    """For each bound the ratios where half of its price is left, and where it no longer binds."""
    if not found or task.further:
        return [(np.nan, np.nan)] * len(found)
    places = [_places(bound, task) for bound in found]
    tasks = [bound.moved(task, value) for bound, values in zip(found, places, strict=True) for value in values]
    answers = iter(solve_all(tuple(tasks)))
    return [
        _crossings(bound, values, [bound.left(next(answers)) for _ in values], task)
        for bound, values in zip(found, places, strict=True)
    ]


def _places(bound: _Bound, task: Task) -> list[float]:
    """Where a bound is tried: at growing distances, up to where it says nothing."""
    here = bound.at(task)
    if bound.side in (CAP, GROUP_CAP):
        return np.unique(np.append(np.minimum(here + max(here, 1e-4) * STEPS, 1.0), 1.0)).tolist()
    return np.unique(np.append(np.maximum(here - here * STEPS[STEPS <= 1], 0.0), 0.0))[::-1].tolist()


def _crossings(bound: _Bound, values: list[float], worths: list[float], task: Task) -> tuple[float, float]:
    """Where the price falls to its half, and to nothing: linear between the places tried."""
    x = np.array([bound.at(task), *values])
    y = np.minimum.accumulate(np.array([bound.worth, *worths]) / bound.worth)
    return _crossing(x, y, 0.5), _crossing(x, y, 1e-6)


def _crossing(x: FloatArray, y: FloatArray, level: float) -> float:
    below = np.flatnonzero(y <= level)
    if not len(below):
        return float("nan")
    i = int(below[0])
    share = (y[i - 1] - level) / max(y[i - 1] - y[i], 1e-300)
    return float(x[i - 1] + min(share, 1.0) * (x[i] - x[i - 1]))
