"""Model size, tokens and mixture together under a compute budget C = 6 N D: a search over log N, each step a batch.

For every N the inner problem (the mixture at N and D = C / 6N) is solved by the engine, a whole grid at once; the
grid then narrows around its best point. The interval of N is that of the best points of the fit's replicates, each at
the optimal mixture: at an optimum the objective does not feel small changes of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError, caution
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.mixture import Mixture
from shapleymix.mixing.problem import FitSpec, Problem, Size, fit_of, problem, takes_keywords
from shapleymix.mixing.solving import is_convex, solve_all
from shapleymix.records import FloatArray
from shapleymix.tables.words import parse_budget

FLOPS_PER_PARAMETER_TOKEN = 6.0
DECADES = 5.0
GRID = 41
ROUNDS = 7
ZOOM = 2


@takes_keywords
def optimize_compute(fit: FitSpec, flops: Size, **keywords: Any) -> Mixture:
    """N, D and the mixture together, under flops = 6 N D.

    Parameters
    ----------
    fit : FitSpec
        The fit.
    flops : float or str
        FLOPs of the whole training, such as `"1e22"`.
    **keywords : see `problem`
        Weights, bounds and whatever else a problem takes.

    Raises
    ------
    SolveError
        If the runs do not tell how the loss falls with N or with D, or the law is not convex in the mixture. The others
        as for `problem`.
    """
    known, compute = fit_of(fit), parse_budget(flops, "flops")
    _require_told(known)
    N, one = _best_size(known, compute, keywords)
    found = one.solve()
    low, high = _interval(known, compute, keywords, N, found.p, one.level)
    tokens = compute / FLOPS_PER_PARAMETER_TOKEN
    found = replace(found, N_low=low, N_high=high, D_low=tokens / high, D_high=tokens / low)
    caution(found.warnings, 4)
    return found


def _require_told(fit: Any) -> None:
    """Refuse a fit whose runs do not tell how the loss falls with N or D: what is assumed would choose the split."""
    law, held = getattr(fit, "law", None), dict(getattr(fit, "held", None) or {})
    for name in ("N", "D"):
        symbols = law.of_budget(name) if law is not None and hasattr(law, "of_budget") else ()
        span = getattr(fit, f"{name}_range", None)
        why = next((f"{symbol}: {held[symbol]}" for symbol in symbols if symbol in held), "")
        if not why and span is not None and not span[1] > span[0]:
            why = f"all have one {name}"
        if not why and law is not None and hasattr(law, "of_budget") and not symbols:
            why = f"the law has no term in {name}"
        if why:
            message = f"the runs do not show how the loss falls with {name} ({why}): no compute-optimal split"
            raise SolveError(message, hint=f"fit on runs with several {name}, or ask for the mixture at one N and D")


def _problem(fit: Any, flops: float, log_N: float, keywords: dict[str, Any]) -> Problem:
    N = float(np.exp(log_N))
    one = problem(fit, N, flops / FLOPS_PER_PARAMETER_TOKEN / N, **keywords)
    if not isinstance(one.goal.law, Pieces) or not is_convex(one.goal):
        message = "the objective may not be convex in the mixture, and optima without a proof cannot be compared over N"
        raise SolveError(message, hint="ask for several N and D of that budget, and take the best")
    return one


def _best_size(fit: Any, flops: float, keywords: dict[str, Any]) -> tuple[float, Problem]:
    """N of the lowest optimal objective, and the problem there.

    Raises
    ------
    SolveError
        If the law trades N against D nowhere near.
    """
    middle, half = 0.5 * np.log(flops / FLOPS_PER_PARAMETER_TOKEN), DECADES * np.log(10.0)
    edges = low, high = (max(middle - half, 0.0), min(middle + half, 2 * middle))
    best = middle
    for _ in range(ROUNDS):
        grid = np.linspace(low, high, GRID)
        best = float(grid[int(np.argmin(_optima(fit, grid, flops, keywords)))])
        cell = ZOOM * (high - low) / (GRID - 1)
        low, high = max(edges[0], best - cell), min(edges[1], best + cell)
    if min(best - edges[0], edges[1] - best) < 1e-6:
        raise SolveError(
            f"the best N is beyond {np.exp(best):.3g}: the fitted law does not trade N against D here",
            hint="fit on runs with several N and several D, or ask for the mixture at one N and D",
        )
    return float(np.exp(best)), _problem(fit, flops, best, keywords)


def _optima(fit: Any, grid: FloatArray, flops: float, keywords: dict[str, Any]) -> FloatArray:
    """The optimal objective at each log N; +inf where the bounds leave no mixture."""
    values, problems, refusal = np.full(len(grid), np.inf), {}, None
    for place, log_N in enumerate(grid.tolist()):
        try:
            problems[place] = _problem(fit, flops, log_N, keywords)
        except InfeasibleError as error:
            refusal = error
    if not problems and refusal is not None:
        raise refusal
    found = solve_all([one.goal for one in problems.values()])
    values[list(problems)] = [proof.certificate.objective for proof, _ in found]
    return values


def _interval(
    fit: Any, flops: float, keywords: dict[str, Any], N: float, p: FloatArray, level: float
) -> tuple[float, float]:
    """Interval of the best N over the fit's replicates, each at the mixture p (M,); NaN without."""
    middle, half = np.log(N), 0.5 * DECADES * np.log(10.0)
    grid, values = np.linspace(middle - half, middle + half, 2 * GRID - 1), []
    for log_N in grid.tolist():
        try:
            one = _problem(fit, flops, log_N, keywords)
        except (InfeasibleError, SolveError):
            values.append(None)
            continue
        if one.draws is None:
            return np.nan, np.nan
        values.append(one.goal.of(one.draws.losses(p)))
    count = next(len(value) for value in values if value is not None)
    whole = np.stack([np.full(count, np.inf) if value is None else value for value in values])
    best = grid[np.argmin(np.where(np.isfinite(whole), whole, np.inf), axis=0)]
    low, high = np.exp(np.quantile(best, [0.5 - level / 2, 0.5 + level / 2], method="nearest"))
    return float(min(low, N)), float(max(high, N))
