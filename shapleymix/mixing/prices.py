"""What the bounds that hold an optimum back are worth: shadow prices, their units, and how far they reach.

A shadow price is a slope: it falls as the bound gives way, and is zero once the bound no longer binds. So each price
says how far the bound must move until half of the price is left, and until it stops to bind, by solving again. Where
several bounds meet, the slope differs between relaxing and tightening: the price is that of relaxing (`relaxing`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shapleymix.laws.repeated import slope_in_supply
from shapleymix.mixing.certificate import Answer
from shapleymix.mixing.engine.branching import NAME as BRANCHING
from shapleymix.mixing.engine.solving import solve_all
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.relaxing import CAP, FLOOR, GROUP_CAP, GROUP_FLOOR, Kinks
from shapleymix.records import FloatArray, Record

RANGED, RANGED_DEAR, MANY = 6, 2, 100
"""How many of the dearest bounds get a range, each at the cost of a few solutions: where one batch solves them all,
and where each is solved alone, or there are `MANY` sources."""
SHARES = np.array([0.002, 0.01, 0.03, 0.07, 0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.85, 1.0])
"""Where a bound is tried, on its way to where it stops to bind; prices fall fastest at first. A third of them
where one batch does not solve them all, or there are `MANY` sources."""
PERCENT = 0.01


@dataclass(frozen=True)
class Price(Record):
    """A bound that binds.

    Attributes
    ----------
    source : str
        Name of the source or group.
    side : str
        Which bound it is.
    bound, origin : float and str
        The ratio of the bound, and where it comes from.
    per_ratio : float
        Nats saved per unit of ratio by which the bound is relaxed, at the margin.
    per_percent : float
        Nats saved per 1% of D.
    unit, per_unit : float
        A round number of unique tokens near 1% of D, and the nats saved by as many more (for a cap, each seen as
        often as allowed, and the others less often), or by as many fewer demanded (for a floor).
    half_at, free_at : float
        Ratios at which half of the price is left, and at which the bound no longer binds; NaN for all but the dearest
        bounds, and under constraints of the user's own.
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

    def at(self, problem: Problem) -> float:
        return float(getattr(problem.constraints, _FIELDS[self.side])[self.index])

    def moved(self, problem: Problem, value: float) -> Problem:
        """The same problem with this bound elsewhere."""
        field = _FIELDS[self.side]
        values = getattr(problem.constraints, field).copy()
        values[self.index] = value
        return replace(problem, constraints=replace(problem.constraints, **{field: values}))

    @property
    def end(self) -> float:
        """Where the bound says nothing."""
        return 1.0 if self.side in (CAP, GROUP_CAP) else 0.0

    def reached(self, answer: Answer, problem: Problem) -> float:
        """The ratio, of the source or the group, at another answer."""
        group = self.side in (GROUP_CAP, GROUP_FLOOR)
        return float((problem.constraints.members @ answer.p if group else answer.p)[self.index])

    def left(self, answer: Answer) -> float:
        """Its price at another answer."""
        return float(getattr(answer, _WORTHS[self.side])[self.index])


_FIELDS = {CAP: "upper", FLOOR: "lower", GROUP_CAP: "group_upper", GROUP_FLOOR: "group_lower"}
_WORTHS = {CAP: "worth", FLOOR: "cost", GROUP_CAP: "group_worth", GROUP_FLOOR: "group_cost"}


def prices_of(problem: Problem, answer: Answer) -> tuple[Price, ...]:
    """The prices of caps, floors and groups that bind at an answer, the dearest first."""
    found = sorted(_one_sided(problem, answer, _binding(problem, answer)), key=lambda bound: -bound.worth)
    many = len(problem.constraints.sources) >= MANY
    alone = answer.engine == BRANCHING  # each range would be a search of its own
    ranges = [] if alone else _ranges(problem, found[: RANGED if problem.standard and not many else RANGED_DEAR])
    worths = worths_of_tokens(problem, answer)
    return tuple(
        _price(problem, bound, worths, *(ranges[place] if place < len(ranges) else (np.nan, np.nan)))
        for place, bound in enumerate(found)
    )


def worths_of_tokens(problem: Problem, answer: Answer) -> FloatArray:
    """What more unique tokens save (M,) by being repeated less: nats per unit of D; 0 where none is repeated."""
    terms = problem.terms
    if terms.unique is None or terms.rate is None:
        return np.zeros(terms.n_sources)
    more = slope_in_supply(answer.p, terms.unique, terms.rate)
    by_effective = terms.without_repetition().gradient(terms.effective(answer.p), answer.of_targets)
    return np.multiply(-by_effective, more, out=np.zeros_like(more), where=more > 0)


def _binding(problem: Problem, answer: Answer) -> list[_Bound]:
    """The bounds with a multiplier, which is the price where no others meet them."""
    bounds = problem.constraints
    sides = (
        (CAP, answer.worth, (bounds.upper < 1) & (bounds.upper > bounds.lower)),
        (FLOOR, answer.cost, (bounds.lower > 0) & (bounds.upper > bounds.lower)),
        (GROUP_CAP, answer.group_worth, bounds.group_upper < 1),
        (GROUP_FLOOR, answer.group_cost, bounds.group_lower > 0),
    )
    least = _least(answer)
    return [
        _Bound(int(i), side, float(worths[i]))
        for side, worths, there in sides
        for i in np.flatnonzero(there & (worths > least))
    ]


def _least(answer: Answer) -> float:
    """A price below this is rounding."""
    return 1e-9 * max(abs(answer.certificate.objective), 1e-300)


def _one_sided(problem: Problem, answer: Answer, found: list[_Bound]) -> list[_Bound]:
    """The bounds with what relaxing saves, without those that another bound holds in their stead."""
    kinks = None if problem.further or not found else Kinks.of(problem, answer.p)
    if kinks is None or kinks.determined:
        return found
    savings = kinks.savings([(bound.side, bound.index) for bound in found])
    worths = np.where(np.isnan(savings), [bound.worth for bound in found], savings)
    again = [replace(bound, worth=worth) for bound, worth in zip(found, worths.tolist(), strict=True)]
    return [bound for bound in again if bound.worth > _least(answer)]


def _price(problem: Problem, bound: _Bound, worths: FloatArray, half_at: float, free_at: float) -> Price:
    bounds = problem.constraints
    group = bound.side in (GROUP_CAP, GROUP_FLOOR)
    from_tokens = bound.side == CAP and bounds.cap_origin[bound.index] == "tokens"
    repeats = float(bounds.epochs[bound.index]) if from_tokens else 1.0
    unit = round_tokens(bounds.D)
    per_token = bound.worth * repeats + (float(worths[bound.index]) if from_tokens else 0.0)
    return Price(
        source=(bounds.group_names if group else bounds.sources)[bound.index],
        side=bound.side,
        bound=bound.at(problem),
        origin=bounds.cap_origin[bound.index] if bound.side == CAP else "given",
        per_ratio=bound.worth,
        per_percent=bound.worth * PERCENT,
        unit=unit,
        per_unit=per_token * unit / bounds.D,
        half_at=half_at,
        free_at=free_at,
    )


def round_tokens(D: float) -> float:
    """The power of ten nearest to 1% of D, at least one token: 1B at 100B."""
    return float(10.0 ** max(np.round(np.log10(D * PERCENT)), 0.0))


def _ranges(problem: Problem, found: list[_Bound]) -> list[tuple[float, float]]:
    """For each bound the ratios where half of its price is left, and where it no longer binds."""
    if not found or problem.further:
        return [(np.nan, np.nan)] * len(found)
    free = solve_all(tuple(bound.moved(problem, bound.end) for bound in found))
    ends = [bound.reached(answer, problem) for bound, answer in zip(found, free, strict=True)]
    shares = SHARES if problem.standard and len(problem.constraints.sources) < MANY else SHARES[2::3]
    places = [bound.at(problem) + (end - bound.at(problem)) * shares for bound, end in zip(found, ends, strict=True)]
    problems = [
        bound.moved(problem, value) for bound, values in zip(found, places, strict=True) for value in values.tolist()
    ]
    answers = iter(solve_all(tuple(problems)))
    return [
        (_half(bound, values, np.array([bound.left(next(answers)) for _ in values]), problem), end)
        for bound, values, end in zip(found, places, ends, strict=True)
    ]


def _half(bound: _Bound, values: FloatArray, worths: FloatArray, problem: Problem) -> float:
    """Where half of the price is left: linear between the places tried."""
    x = np.append(bound.at(problem), values)
    return _crossing(x, np.minimum.accumulate(np.append(bound.worth, worths) / bound.worth), 0.5)


def _crossing(x: FloatArray, y: FloatArray, level: float) -> float:
    below = np.flatnonzero(y <= level)
    if not len(below):
        return float("nan")
    i = int(below[0])
    share = (y[i - 1] - level) / max(y[i - 1] - y[i], 1e-300)
    return float(x[i - 1] + min(share, 1.0) * (x[i] - x[i - 1]))
