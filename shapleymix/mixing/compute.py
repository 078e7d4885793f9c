"""Model size, tokens and mixture together under a compute budget C = 6 N D: a search over log N, each step a batch.

For every N the inner problem (the mixture at N and D = C / 6N) is solved by the engine, a whole grid at once; the
grid then narrows around its best point.
"""

from __future__ import annotations

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.mixing.solving import Task, objective_at, solve_all
from shapleymix.records import FloatArray

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
    dropped = dict(getattr(fit, "dropped", {}) or {})
    for name, symbols, other in (
        ("N", ("A", "alpha"), fit.terms(10 * middle, middle).losses(p)),
        ("D", ("B", "beta"), fit.terms(middle, 10 * middle).losses(p)),
    ):
        if np.array_equal(here, other):
            why = next((dropped[symbol] for symbol in symbols if symbol in dropped), f"it has no term in {name}")
            hint = f"fit on runs with several {name}, or give -N and -D"
            raise SolveError(f"the fitted law does not depend on {name} ({why}): no compute-optimal split", hint=hint)
