"""Model size, tokens and mixture together under a compute budget C = 6 N D: a search over log N, each step a batch.

For every N the inner problem (the mixture at N and D = C / 6N) is solved by the engine, a whole grid at once; the
grid then narrows around its best point.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError, caution
from shapleymix.keywords import checked
from shapleymix.laws import Law
from shapleymix.mixing.assembly import TOLD_IN_THE_RESULT
from shapleymix.mixing.demands import DemandKeywords, Demands, Size, takes_demands
from shapleymix.mixing.engine.envelopes import unproved
from shapleymix.mixing.engine.search import is_convex
from shapleymix.mixing.engine.solving import solve_all
from shapleymix.mixing.fit_like import FitLike, FitSpec, fit_of
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import at_scales
from shapleymix.mixing.pieces import pieces_of
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray
from shapleymix.tables.sizes import parse_size

FLOPS_PER_PARAMETER_TOKEN = 6.0
DECADES = 5.0
GRID = 81
ROUNDS = 6
ZOOM = 2


@takes_demands
def optimize_compute(fit: FitSpec, flops: Size, **keywords: Unpack[DemandKeywords]) -> Mixture:
    """N, D and the mixture together, under flops = 6 N D.

    Parameters
    ----------
    fit : FitSpec
        The fit, as for `optimize`.
    flops : float or str
        FLOPs of the whole training, such as `"1e22"`.
    **keywords : DemandKeywords
        As for `optimize`.

    Raises
    ------
    SolveError
        If the law lacks N or D, so that one of them would grow without end. The others as for `optimize`.
    """
    checked("optimize_compute", keywords, DemandKeywords.__annotations__)
    demands, fit = Demands(**keywords), fit_of(fit)
    compute = parse_size(flops, "flops")
    _require_convex(fit, compute)
    N, D = best_split(fit, compute, demands)
    held = [f"{symbol}: {why}" for symbol, why in dict(getattr(fit, "held", {})).items() if "held" in why]
    notes = (f"the split into N and D rests on exponents that were not fitted ({'; '.join(held)})",) if held else ()
    (found,) = at_scales(fit, [N], [D], demands)
    found = replace(found, notices=(*notes, *found.notices))
    caution(notice for notice in found.notices if notice not in TOLD_IN_THE_RESULT)
    return found


def _require_convex(fit: FitLike, flops: float) -> None:
    """Refuse a law whose optimum can only be searched for without proof: the search's error would choose N and D."""
    middle = float(np.sqrt(max(flops, 0.0) / FLOPS_PER_PARAMETER_TOKEN))
    if not middle > 0 or is_convex(fit, middle, middle):
        return
    name = getattr(getattr(fit, "law", None), "name", "of this fit")
    message = f"law {name!r} is not known to be convex in the mixture: optima without proof cannot be compared over N"
    hint = "ask for several N and D of that budget with a search without proof (allow_nonconvex), and take the best"
    raise SolveError(message, hint=hint)


def best_split(fit: FitLike, flops: float, demands: Demands) -> tuple[float, float]:
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
            hint="fit on runs with several N and several D, or ask for the mixture at one N and D",
        )
    return float(np.exp(best)), float(flops / FLOPS_PER_PARAMETER_TOKEN / np.exp(best))


def _optima(fit: FitLike, grid: FloatArray, flops: float, demands: Demands) -> FloatArray:
    """The optimal objective at each log N; +inf where the bounds leave no mixture."""
    values, problems, index = np.full(len(grid), np.inf), [], []
    refusal: InfeasibleError | None = None
    for position, log_N in enumerate(grid):
        N = float(np.exp(log_N))
        D = flops / FLOPS_PER_PARAMETER_TOKEN / N
        try:
            problems.append(demands.problem(fit, pieces_of(fit, N, D, demands)[0], D)[0])
            index.append(position)
        except InfeasibleError as error:
            refusal = error
    if not problems and refusal is not None:
        raise refusal
    if any(unproved(problem).any() for problem in problems):
        message = "scores are not convex in the mixture at every N and D of that budget"
        raise SolveError(message, hint="ask for several N and D of it, and take the best")
    values[index] = [
        _objective(problem, answer.p) for problem, answer in zip(problems, solve_all(tuple(problems)), strict=True)
    ]
    return values


def _objective(problem: Problem, p: FloatArray) -> float:
    return problem.total(p)


def _require_dependence(fit: FitLike, middle: float) -> None:
    p = np.full(len(fit.sources), 1.0 / len(fit.sources))
    here = fit.terms(middle, middle).losses(p)
    held = dict(getattr(fit, "held", {}) or {})
    law = getattr(fit, "law", Law)
    for name, symbols, other in (
        ("N", law.of_budget("N"), fit.terms(10 * middle, middle).losses(p)),
        ("D", law.of_budget("D"), fit.terms(middle, 10 * middle).losses(p)),
    ):
        if np.array_equal(here, other):
            why = next((held[symbol] for symbol in symbols if symbol in held), f"it has no term in {name}")
            hint = f"fit on runs with several {name}, or ask for the mixture at one N and D"
            raise SolveError(f"the fitted law does not depend on {name} ({why}): no compute-optimal split", hint=hint)
