"""From a fit and a budget to the mixture: optimum, proof, interval, and what it gains over every rival.

>>> mix = optimize(fit, N="243M", D="100B", available={"en": "5T", "fi": "20B"}, epochs=4)
>>> mix.mixture, mix.relative_gap, mix.shadow_prices
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.laws.terms import Terms
from shapleymix.mixing.assembly import Summary, assemble, usable_replicates
from shapleymix.mixing.baselines import named_baselines
from shapleymix.mixing.closed_forms import EXACT, METHODS, closed_form
from shapleymix.mixing.constraints import (
    Amounts,
    Constraints,
    Group,
    Ratios,
    constraints_of,
    tightened,
)
from shapleymix.mixing.feasibility import require_feasible
from shapleymix.mixing.mixtures import Mixture, Rival
from shapleymix.mixing.solving import solve_all, solve_replicates
from shapleymix.mixing.tasks import MEAN, WORST, Answer, Task, certified
from shapleymix.mixing.weights import UNWEIGHTED, Weights, weights_of
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages
from shapleymix.tables.simplex import parse_mixture
from shapleymix.tables.sizes import parse_size

__all__ = ["Group", "Mixture", "Rival", "optimize", "optimize_scales"]

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


def optimize(fit: FitLike, N: Size, D: Size, **demands: Any) -> Mixture:
    """The optimal mixture for N parameters and D tokens.

    Parameters
    ----------
    fit : a `Fit`, or anything with `sources`, `targets`, `terms`, `replicate_terms` and `predict`.
    N, D : numbers, or sizes such as `"243M"`.
    weights : `"unweighted"`, `"normalized"` (with `monolingual`, measured losses, where known), a mapping from
        targets, or a languages table.
    caps : highest ratios, or a languages table; available, epochs : unique tokens and how often each may be seen.
    floors, min_tokens : lowest ratios, lowest token counts. groups : bounds on summed ratios, see `Group`.
    anchor, kl : adds kl * KL(p || anchor), kl in nats.
    objective : `"mean"`, or `"worst"` (the largest weighted loss is minimised).
    constraints : functions from the cvxpy variable p (M,) to cvxpy constraints.
    method : `"exact"`, or one of the closed forms of `closed_forms.METHODS`, for comparison.
    baselines : further mixtures to compare with; smoothing : alpha of smoothed sampling.
    level : probability of the intervals. seed : of anything random (only laws without convexity need it).
    allow_nonconvex : solve laws without convexity by multi-start, without a certificate.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture; says which, by how much, and the smallest repair.
    SolveError
        If the law has no convex form, or no mixture has a finite loss.
    UsageError
        If a name is unknown or an option out of range.
    """
    return optimize_scales(fit, [N], [D], **demands)[0]


def optimize_scales(
    fit: FitLike, Ns: Sequence[Size] | Size, Ds: Sequence[Size] | Size, **demands: Any
) -> tuple[Mixture, ...]:
    """`optimize` at every pair of N and D, N by N; where the engine suffices, all in one batch."""
    known = _demands(demands)
    budgets = list(itertools.product(_sizes(Ns, "N"), _sizes(Ds, "D")))
    if known.allow_nonconvex:
        from shapleymix.mixing.multistart import is_convex, optimize_nonconvex

        if not is_convex(fit, *budgets[0]):
            return tuple(optimize_nonconvex(fit, N, D, known) for N, D in budgets)
    pairs = [known.task(fit, fit.terms(N, D), D) for N, D in budgets]
    tasks = tuple(task for task, _ in pairs)
    exact = solve_all(tasks)
    answers = exact if known.method == EXACT else tuple(_printed(known.method, task) for task in tasks)
    replicates = [usable_replicates(fit.replicate_terms(N, D)) for N, D in budgets]
    optima = _replicate_optima(tasks, [terms for terms, _ in replicates])
    return tuple(
        assemble(
            Summary(fit, N, D, known, task, weights, answer, best, terms, spread, notes, known.level),
            named_baselines(fit.sources, task.constraints.available, known.smoothing, known.baselines),
        )
        for (N, D), (task, weights), answer, best, (terms, notes), spread in zip(
            budgets, pairs, answers, exact, replicates, optima, strict=True
        )
    )


def _demands(given: dict[str, Any]) -> Demands:
    known = Demands.__dataclass_fields__
    for name in given:
        if name not in known:
            raise UsageError(f"optimize has no option {name!r}", hint=did_you_mean(name, known))
    return Demands(**given)


def _printed(method: str, task: Task) -> Answer:
    """A closed form's mixture with its certificate, which tells how far from optimal it may be."""
    if task.objective != MEAN or task.further or task.constraints.grouped or task.kl:
        raise UsageError(f"method {method!r} knows only the mean objective under caps", hint="use method 'exact'")
    return certified(task, closed_form(method, task.terms, task.w, task.constraints), method)


def _replicate_optima(tasks: tuple[Task, ...], replicates: list[Terms | None]) -> list[FloatArray | None]:
    present = [terms for terms in replicates if terms is not None]
    if len(present) < len(tasks) or len({terms.batch for terms in present}) > 1:
        return [
            None if terms is None else solve_replicates((task,), (terms,))[0]
            for task, terms in zip(tasks, replicates, strict=True)
        ]
    return list(solve_replicates(tasks, tuple(present)))


def _sizes(given: Sequence[Size] | Size, name: str) -> list[float]:
    listed = [given] if isinstance(given, (str, int, float)) else list(given)
    numbers = [parse_size(value) for value in listed]
    if not numbers or min(numbers) <= 0:
        raise UsageError(f"{name} must be positive", hint="sizes are written 243M, 100B or 1.5e9")
    return numbers


def optimize_compute(fit: FitLike, flops: Size, **demands: Any) -> Mixture:
    """N, D and the mixture together, under flops = 6 N D; see `compute` and, for `demands`, `optimize`."""
    from shapleymix.mixing.compute import best_split

    known = _demands(demands)
    N, D = best_split(fit, parse_size(flops), known)
    held = [f"{symbol}: {why}" for symbol, why in dict(getattr(fit, "dropped", {})).items() if "held" in why]
    notes = (f"the split into N and D rests on exponents that were not fitted ({'; '.join(held)})",) if held else ()
    found = optimize(fit, N, D, **demands)
    return replace(found, notices=(*notes, *found.notices))
