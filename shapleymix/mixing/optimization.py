"""From a fit and a budget to the mixture: optimum, proof, interval, and what it gains over every rival.

>>> mix = optimize(fit, N="243M", D="100B", available={"en": "5T", "fi": "20B"}, epochs=4)
>>> mix.mixture, mix.relative_gap, mix.shadow_prices
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError, UsageError, did_you_mean
from shapleymix.laws.terms import Terms
from shapleymix.mixing.baselines import named_baselines
from shapleymix.mixing.bounds import (
    Group,
)
from shapleymix.mixing.closed_forms import EXACT, closed_form
from shapleymix.mixing.demands import Demands, FitLike, Size
from shapleymix.mixing.engine.solving import solve_all, solve_replicates
from shapleymix.mixing.mixtures import Mixture, Rival, Summary, assemble, usable_replicates
from shapleymix.mixing.problem import MEAN, Answer, Task, certified, objective_at
from shapleymix.records import FloatArray
from shapleymix.tables.sizes import parse_size

__all__ = ["Group", "Mixture", "Rival", "optimize", "optimize_scales"]


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
        from shapleymix.mixing.engine.search import is_convex, optimize_nonconvex

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
            named_baselines(fit.sources, task.constraints.available, known.smoothing, known.baselines, D),
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

    known = _demands(demands)
    N, D = best_split(fit, parse_size(flops), known)
    held = [f"{symbol}: {why}" for symbol, why in dict(getattr(fit, "held", {})).items() if "held" in why]
    notes = (f"the split into N and D rests on exponents that were not fitted ({'; '.join(held)})",) if held else ()
    found = optimize(fit, N, D, **demands)
    return replace(found, notices=(*notes, *found.notices))


FLOPS_PER_PARAMETER_TOKEN = 6.0
DECADES = 5.0
GRID = 81
ROUNDS = 6
ZOOM = 2


def best_split(fit, flops: float, demands) -> tuple[float, float]:
    """N and D of the lowest optimal objective.

    Raises
    ------
    SolveError
        If the law lacks N or D, so that one of them would grow without end.
    """
    if not flops > 0:
        raise SolveError("the compute budget must be positive")
    middle = 0.5 * np.log(flops / FLOPS_PER_PARAMETER_TOKEN)
    _require_dependence(fit, float(np.exp(middle)))
    half = DECADES * np.log(10.0)
    edges = (middle - half, middle + half)
    low, high = edges
    best = middle
    for _ in range(ROUNDS):
        grid = np.linspace(low, high, GRID)
        values = _optima(fit, grid, flops, demands)
        best = float(grid[int(np.argmin(values))])
        cell = ZOOM * (high - low) / (GRID - 1)
        low, high = max(edges[0], best - cell), min(edges[1], best + cell)
    if min(best - edges[0], edges[1] - best) < 1e-6:
        raise SolveError(
            f"the best N is beyond {np.exp(best):.3g}: the fitted law does not trade N against D here",
            hint="fit on runs with several N and several D, or give -N and -D",
        )
    return float(np.exp(best)), float(flops / FLOPS_PER_PARAMETER_TOKEN / np.exp(best))


def _optima(fit, grid: FloatArray, flops: float, demands) -> FloatArray:
    """The optimal objective at each log N; +inf where the bounds leave no mixture."""
    values, tasks, index = np.full(len(grid), np.inf), [], []
    refusal: InfeasibleError | None = None
    for position, log_N in enumerate(grid):
        N = float(np.exp(log_N))
        D = flops / FLOPS_PER_PARAMETER_TOKEN / N
        try:
            tasks.append(demands.task(fit, fit.terms(N, D), D)[0])
            index.append(position)
        except InfeasibleError as error:
            refusal = error
    if not tasks and refusal is not None:
        raise refusal
    values[index] = [_objective(task, answer.p) for task, answer in zip(tasks, solve_all(tuple(tasks)), strict=True)]
    return values


def _objective(task: Task, p: FloatArray) -> float:
    return objective_at(task, p)


def _require_dependence(fit, middle: float) -> None:
    p = np.full(len(fit.sources), 1.0 / len(fit.sources))
    here = fit.terms(middle, middle).losses(p)
    held = dict(getattr(fit, "held", {}) or {})
    for name, symbols, other in (
        ("N", ("A", "alpha"), fit.terms(10 * middle, middle).losses(p)),
        ("D", ("B", "beta"), fit.terms(middle, 10 * middle).losses(p)),
    ):
        if np.array_equal(here, other):
            why = next((held[symbol] for symbol in symbols if symbol in held), f"it has no term in {name}")
            hint = f"fit on runs with several {name}, or give -N and -D"
            raise SolveError(f"the fitted law does not depend on {name} ({why}): no compute-optimal split", hint=hint)
