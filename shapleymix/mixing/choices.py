"""What would have been chosen under each replicate, by what the runs tell of: its optimum, or as near as that can be.

Where the runs tell little of a source, the replicates draw its effect, and their optima chase what was drawn. The
fitted law did not choose by that: its luck is told by optima that hold as much of such sources as its own one does.

Axes: B replicates, M sources.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.certificate import Answer
from shapleymix.mixing.engine.solving import solve_replicates
from shapleymix.mixing.fit_like import FitLike, drawn_sources, little_told
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray


def chosen(
    fit: FitLike, problem: Problem, best: Answer, replicates: Terms | None, optima: FloatArray | None
) -> FloatArray | None:
    """Choices (B, M) under each replicate; None without replicates, or where none hold as much as the optimum.

    Parameters
    ----------
    best : Answer
        The optimum of the fitted law.
    optima : array (B, M), optional
        That of each replicate.
    """
    bounds = problem.constraints
    if replicates is None or not drawn_sources(fit, bounds):
        return optima
    drawn = little_told(fit, bounds.sources)
    held = np.clip(best.p, bounds.lower, bounds.upper)
    lower, upper = (np.where(drawn, held, side) for side in (bounds.lower, bounds.upper))
    try:
        return solve_replicates(
            (replace(problem, constraints=replace(bounds, lower=lower, upper=upper)),), (replicates,)
        )[0]
    except SolveError:  # what is left between the bounds is too little to search in
        return None
