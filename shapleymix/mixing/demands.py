"""What is asked of a mixture: weights, bounds, objective, method; and the problem that this makes at one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import (
    Amounts,
    Constraints,
    Group,
    Ratios,
    constraints_of,
    require_feasible,
    tightened,
)
from shapleymix.mixing.closed_forms import EXACT, METHODS
from shapleymix.mixing.problem import MEAN, WORST, Task
from shapleymix.mixing.weights import UNWEIGHTED, Weights, weights_of
from shapleymix.tables.languages import Languages
from shapleymix.tables.simplex import parse_mixture

Size = float | str
WeightSpec = str | Mapping[str, float] | Languages
MixtureSpec = Mapping[str, float] | str


class FitLike(Protocol):
    """What is asked of a fit."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    def terms(self, N: float, D: float) -> Terms: ...
    def replicate_terms(self, N: float, D: float) -> Terms | None: ...
    def predict(self, p: Any, N: Any, D: Any, level: float = 0.9) -> Any: ...


@dataclass(frozen=True)
class Demands:
    """All that is asked of a mixture but its budget; see `optimize`."""

    weights: WeightSpec = UNWEIGHTED
    monolingual: Mapping[str, float] | None = None
    caps: Ratios | Languages | None = None
    available: Amounts | None = None
    epochs: float | Mapping[str, float] | None = None
    floors: Ratios | None = None
    min_tokens: float | str | Mapping[str, float | str] | None = None
    groups: Sequence[Group] = ()
    anchor: MixtureSpec | None = None
    kl: float = 0.0
    objective: str = MEAN
    constraints: Sequence[Callable[[Any], Any]] = ()
    method: str = EXACT
    baselines: Mapping[str, MixtureSpec] | None = None
    smoothing: float = 0.5
    level: float = 0.9
    seed: int = 0
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
        if self.objective not in (MEAN, WORST):
            raise UsageError(f"unknown objective {self.objective!r}", hint=did_you_mean(self.objective, (MEAN, WORST)))
        if self.method not in METHODS:
            raise UsageError(f"unknown method {self.method!r}", hint=did_you_mean(self.method, METHODS))
        if not self.kl >= 0 or not np.isfinite(self.kl):
            raise UsageError("the weight of the KL term must be a number that is not negative")
        if self.kl > 0 and self.anchor is None:
            raise UsageError("a KL weight needs an anchor mixture", hint="for instance anchor='uniform'")
        if not 0 < self.level < 1:
            raise UsageError(f"level {self.level} is not between 0 and 1")

    def bounds(self, sources: tuple[str, ...], D: float) -> Constraints:
        """Feasible constraints at D, or an InfeasibleError."""
        found = constraints_of(
            sources,
            D,
            caps=self.caps,
            available=self.available,
            epochs=self.epochs,
            floors=self.floors,
            min_tokens=self.min_tokens,
            groups=self.groups,
        )
        require_feasible(found)
        return tightened(found)

    def task(self, fit: FitLike, terms: Terms, D: float) -> tuple[Task, Weights]:
        """The problem to solve at one budget, and the weights that it uses."""
        weights = weights_of(self.weights, fit.targets, fit.sources, terms, self.monolingual)
        w = weights.mean if self.objective == MEAN else weights.raw
        anchor = None if self.anchor is None or self.kl == 0 else parse_mixture(self.anchor, fit.sources)
        bounds = self.bounds(fit.sources, D)
        return Task(terms, w, bounds, self.objective, self.kl, anchor, tuple(self.constraints)), weights
