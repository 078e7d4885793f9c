"""Where the optimum may lie, under the fitted law and each of its replicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.fitting.fits import Fit
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.solving import solve, solve_replicates, usable_replicates
from shapleymix.mixing.repeating import repeated_replicates
from shapleymix.planning.questions import Questions
from shapleymix.records import FloatArray

MOST = 64
"""Replicates whose optima are asked about."""
NEARBY = 0.25
"""Without replicates, mixtures this far on the way from the optimum to those of the region stand for their optima."""


@dataclass(frozen=True)
class Optimum:
    """The predicted optimum (M,), the optima of replicates (Q, M) if there are any, and `of_targets` (K,).

    The last is the square of what a relative error of each target's loss costs the objective, nats.
    """

    p: FloatArray
    others: FloatArray | None
    of_targets: FloatArray

    def questions(self, region: FloatArray) -> Questions:
        """What mixtures that may be the best gain over the predicted optimum."""
        near = self.p + NEARBY * (region - self.p) if self.others is None else self.others
        return Questions.around(self.p, near, self.of_targets)


def optimum_of(fit: Fit, N: float, D: float, demands: Demands) -> Optimum:
    """The optimum under a fit at one budget.

    Raises
    ------
    SolveError
        If the law has no convex form, or no mixture has a finite loss.
    """
    problem, _ = demands.problem(fit, fit.terms(N, D), D)
    best = solve(problem).p
    losses = problem.terms.losses(best)
    replicates = repeated_replicates(fit, fit.replicate_terms(N, D), problem.constraints.available, D)
    terms, _ = usable_replicates(replicates)
    others = None if terms is None else solve_replicates((problem,), (terms.flat().take(slice(MOST)),))[0]
    sizes = problem.w * np.where(np.isfinite(losses), losses, 0.0)
    if not np.any(sizes > 0):
        raise SolveError("no target with a weight has a loss at the optimum", hint="change the weights")
    return Optimum(best, others, sizes**2)
