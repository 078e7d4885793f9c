"""Optimal mixtures at several budgets, as one result: every number in one long table, what to beware of by budget.

>>> grid = grid_of("learned-base", optimize_scales(fit, ["25k", "97600"], ["1M", "2M"]))
>>> grid.to_polars().filter(kind="loss")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.files import Json
from shapleymix.fitting.measures import LOSS
from shapleymix.mixing.mixtures import Mixture
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.sizes import format_size

Budget = tuple[float, float]
Row = tuple[str, str, float, float, float]
"""Kind, name, value, and its interval (NaN where there is none)."""

MOST_NAMED = 2
"""Budgets that a warning names; of more it says how many."""


@dataclass(frozen=True)
class MixtureGrid(Tabular, Record):
    """Optimal mixtures of one fit under one set of demands, each at its own budget.

    Attributes
    ----------
    law : str
        Name of the fitted law.
    entries : tuple of Mixture
        The mixtures, N by N and within each N by D.
    provenance : dict
        What the mixtures were made from.
    """

    kind = "mixture-grid"

    law: str
    entries: tuple[Mixture, ...]
    provenance: dict[str, Json]

    def __post_init__(self) -> None:
        if not self.entries:
            raise ValueError("a grid of no budgets")
        first = self.entries[0]
        if any((one.sources, one.targets) != (first.sources, first.targets) for one in self.entries):
            raise ValueError("the mixtures of a grid have not all the same sources and targets")

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """N and D of every mixture."""
        return tuple((one.N, one.D) for one in self.entries)

    @property
    def notices(self) -> tuple[str, ...]:
        """What to beware of, each thing once, with the budgets where it is so."""
        return notices_over(self.entries)

    def columns(self) -> Columns:
        """One row a number: `N, D, kind, name, value, low, high`."""
        rows = [(one.N, one.D, *row) for one in self.entries for row in rows_of(one)]
        names = ("N", "D", "kind", "name", "value", "low", "high")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def summary(self) -> str:
        """How many budgets there are, and the objective at each."""
        told = [
            f"  {_named(one.N, one.D)}: {one.objective_kind} {one.measure} {one.objective:.4f}" for one in self.entries
        ]
        more = [f"  ... and {len(told) - 8} more budgets"] if len(told) > 8 else []
        return "\n".join([f"Mixtures at {len(told)} budgets under law {self.law}", *told[:8], *more])

    def to_document(self) -> dict[str, Json]:
        """The document that is saved and printed: every mixture's own, and what to beware of by budget."""
        return super().to_document() | {"notices": list(self.notices)}


def grid_of(law: str, entries: Sequence[Mixture], provenance: Mapping[str, Json] | None = None) -> MixtureGrid:
    """Mixtures as `optimize_scales` returns them as one result."""
    return MixtureGrid(law, tuple(entries), dict(provenance or {}))


def rows_of(found: Mixture) -> Iterator[Row]:
    """Every number that a mixture answers with: ratios, losses, the objective and its proof, prices and gains."""
    yield from _spread("ratio", found.sources, found.p, found.p_low, found.p_high)
    for source, epochs in zip(found.sources, found.epochs.tolist(), strict=True):
        if np.isfinite(epochs):
            yield _alone("epochs", source, epochs)
    yield from _spread(found.measure, found.targets, found.losses, found.losses_low, found.losses_high)
    kind = f"{found.objective_kind} {found.measure}"
    yield ("objective", kind, found.objective, found.objective_low, found.objective_high)
    if found.kl > 0:
        yield _alone("penalty", "kl", found.penalty)
    if found.repetition is not None and found.repetition.any():
        for target, cost in zip(found.targets, found.repetition.tolist(), strict=True):
            yield _alone("loss by repetition", target, cost)
    yield _alone("gap", "nats" if found.measure == LOSS else found.measure, found.gap)
    yield _alone("gap", "relative", found.relative_gap)
    for price in found.binding:
        yield _alone(f"price of the {price.side}", price.source, price.per_ratio)
    for rival in found.baselines:
        yield _alone("promised gain over", rival.name, rival.promised)
        yield "gain over", rival.name, rival.gain, rival.gain_low, rival.gain_high
    for other in found.what_if:
        yield "gain with", other.name, other.gain, other.gain_low, other.gain_high


def _spread(kind: str, names: Sequence[str], *columns: FloatArray) -> Iterator[Row]:
    """Numbers by name, each with its interval."""
    for name, (value, low, high) in zip(names, np.stack(columns, axis=1).tolist(), strict=True):
        yield kind, name, value, low, high


def notices_over(entries: Sequence[Mixture]) -> tuple[str, ...]:
    """The notices of several mixtures, each once: by itself where it holds at every budget, else with its budgets."""
    further = ([f"with {other.name}: {told}" for other in one.what_if for told in other.notices] for one in entries)
    return _with_budgets(entries, [[*one.notices, *more] for one, more in zip(entries, further, strict=True)])


def verdicts_over(entries: Sequence[Mixture]) -> tuple[str, ...]:
    """The verdicts of several mixtures, each once, with its budgets where it does not hold at every one."""
    return _with_budgets(entries, [[one.verdict] if one.verdict else [] for one in entries])


def _with_budgets(entries: Sequence[Mixture], texts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The texts of each budget, each once with the budgets that it is said at."""
    budgets = [(one.N, one.D) for one in entries]
    places: dict[str, list[Budget]] = {}
    for budget, told in zip(budgets, texts, strict=True):
        for text in dict.fromkeys(told):
            places.setdefault(text, []).append(budget)
    return tuple(f"{_where(held, budgets)}{text}" for text, held in places.items())


def _where(held: Sequence[Budget], budgets: Sequence[Budget]) -> str:
    """`at D = 8M: ` and the like; nothing where all budgets are meant."""
    if len(held) == len(budgets):
        return ""
    sizes, tokens = (dict.fromkeys(budget[axis] for budget in held) for axis in (0, 1))
    if {budget for budget in budgets if budget[1] in tokens} == set(held) and len(tokens) <= MOST_NAMED:
        return f"at D = {' and '.join(map(format_size, tokens))}: "
    if {budget for budget in budgets if budget[0] in sizes} == set(held) and len(sizes) <= MOST_NAMED:
        return f"at N = {' and '.join(map(format_size, sizes))}: "
    if len(held) <= MOST_NAMED:
        return f"at {' and at '.join(_named(N, D) for N, D in held)}: "
    return f"at {len(held)} of {len(budgets)} budgets: "


def _named(N: float, D: float) -> str:
    return f"N = {format_size(N)}, D = {format_size(D)}"


def _alone(kind: str, name: str, value: float) -> Row:
    """A number without an interval."""
    return kind, name, float(value), np.nan, np.nan
