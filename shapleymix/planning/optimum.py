"""Where the optimum may lie, under the fitted law and each of its replicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.fitting.fits import Fit
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.solving import solve, solve_replicates, usable_replicates
from shapleymix.mixing.pieces import pieces_of
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.repeating import repeated_replicates
from shapleymix.planning.questions import Questions
from shapleymix.records import FloatArray

MOST = 64
"""Replicates whose optima are asked about."""
NEARBY = 0.25
"""Without replicates, mixtures this far on the way from the optimum to those of the region stand for their optima."""
WORSE = 0.05
"""Of the objective: a mixture that is predicted to lose more over the optimum is not where the optimum may lie.

Tried on eight simulated laws of another form than the fitted one, 6 runs after 10 at random, by the regret of the
optimum in thousandths of a nat, .87 without them: .17 with .05, .25 with .02, .19 with .1, .16 with candidates
everywhere (on a log of real runs they were nearly monolingual), .23 at random, .52 for the purpose of a region, .47
right beside the optimum.
"""
HALVINGS = 30


@dataclass(frozen=True)
class Optimum:
    """The predicted optimum (M,), the optima of replicates (Q, M) if there are any, and `of_targets` (K,).

    The last is the square of what a relative error of each target's loss costs the objective, nats; `problem` is the
    one that the optimum solves.
    """

    p: FloatArray
    others: FloatArray | None
    of_targets: FloatArray
    problem: Problem

    def questions(self, region: FloatArray) -> Questions:
        """What mixtures that may be the best gain over the predicted optimum."""
        near = self.p + NEARBY * (region - self.p) if self.others is None else self.others
        return Questions.around(self.p, near, self.of_targets)

    def candidates(self, p: FloatArray) -> FloatArray:
        """Mixtures (C, M) to choose from: where the optimum may lie under replicates, and others on the way there."""
        return np.concatenate([self.p[None], *([] if self.others is None else [self.others]), self.nearby(p)])

    def nearby(self, p: FloatArray) -> FloatArray:
        """Mixtures (R, M), those where the optimum cannot lie on the way to it, where they lose `WORSE` over it.

        The objective is convex, so along the way it falls, and bounds hold all along.
        """
        limit = (1 + WORSE) * self.problem.value(self.p)
        low, high = np.zeros(len(p)), np.ones(len(p))
        kept = self.problem.value(p) <= limit
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            holds = self.problem.value(self.p + middle[:, None] * (p - self.p)) <= limit
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        return self.p + np.where(kept, 1.0, low)[:, None] * (p - self.p)


def optimum_of(fit: Fit, N: float, D: float, demands: Demands) -> Optimum:
    """The optimum under a fit at one budget.

    Raises
    ------
    SolveError
        If the law has no convex form, or no mixture has a finite loss.
    """
    problem, _ = demands.problem(fit, pieces_of(fit, N, D, demands)[0], D)
    best = solve(problem).p
    losses = problem.terms.losses(best)
    replicates = repeated_replicates(fit, pieces_of(fit, N, D, demands)[1], problem.constraints.available, D)
    terms, _ = usable_replicates(replicates)
    others = None if terms is None else solve_replicates((problem,), (terms.flat().take(slice(MOST)),))[0]
    sizes = problem.w * np.where(np.isfinite(losses), losses, 0.0)
    if not np.any(sizes > 0):
        raise SolveError("no target with a weight has a loss at the optimum", hint="change the weights")
    return Optimum(best, others, sizes**2, problem)
