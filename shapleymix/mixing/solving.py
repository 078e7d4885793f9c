"""One problem in, one certified answer out: the engine for bounds and KL, cvxpy for everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapleymix.laws.terms import Terms
from shapleymix.mixing.barrier import minimise
from shapleymix.mixing.batching import stacked
from shapleymix.mixing.certificate import Certificate, certify, objective_gradient, objective_value
from shapleymix.mixing.constraints import Constraints
from shapleymix.records import FloatArray

MEAN, WORST = "mean", "worst"
ENGINE = "barrier Newton"


@dataclass(frozen=True)
class Task:
    """min of sum_j w_j loss_j(p), or of max_j w_j loss_j(p), plus kl KL(p || anchor), under constraints.

    `further` holds functions from a cvxpy variable p (M,) to cvxpy constraints.
    """

    terms: Terms
    w: FloatArray
    constraints: Constraints
    objective: str = MEAN
    kl: float = 0.0
    anchor: FloatArray | None = None
    further: tuple[Callable[[Any], Any], ...] = ()

    @property
    def standard(self) -> bool:
        """Whether the engine solves it: bounds on single sources, a smooth objective."""
        return self.objective == MEAN and not self.further and not self.constraints.grouped

    def value(self, p: FloatArray, terms: Terms | None = None) -> FloatArray:
        """The objective at mixtures p, without the KL term; `terms` may have replicate axes."""
        law = self.terms if terms is None else terms
        if self.objective == MEAN:
            return law.objective(p, self.w)
        return np.max(np.where(self.w > 0, self.w * law.losses(p), -np.inf), axis=-1)

    def with_terms(self, terms: Terms) -> Task:
        """The same problem under another law, for instance a bootstrap replicate."""
        return replace(self, terms=terms)


@dataclass(frozen=True)
class Answer:
    """Mixture (M,), its certificate, the prices (M,) of a unit of ratio, the gradient (M,), and who solved it."""

    p: FloatArray
    certificate: Certificate
    prices: FloatArray
    gradient: FloatArray
    engine: str


def solve(task: Task) -> Answer:
    """The optimum of one problem."""
    return solve_all((task,))[0]


def solve_all(tasks: tuple[Task, ...]) -> tuple[Answer, ...]:
    """The optima of several problems of one kind, those for the engine in one batch."""
    if all(task.standard for task in tasks):
        return tuple(certified(task, p, ENGINE) for task, p in zip(tasks, _batch(tasks), strict=True))
    return tuple(_general(task) for task in tasks)


def certified(task: Task, p: FloatArray, engine: str) -> Answer:
    """The answer that p is, with the certificate of the mean objective, whoever found p."""
    gradient = objective_gradient(task.terms, task.w, p, task.kl, task.anchor)
    certificate, prices = certify(task.terms, task.w, p, task.constraints, kl=task.kl, anchor=task.anchor)
    return Answer(p, certificate, prices, gradient, engine)


def solve_replicates(tasks: tuple[Task, ...], replicates: tuple[Terms, ...]) -> FloatArray:
    """Optima (S, B, M) of every task under each of its law's replicates, without certificates."""
    if all(task.standard for task in tasks):
        lower, upper, w = (values[:, None] for values in _bounds(tasks))
        anchor = None if tasks[0].anchor is None else tasks[0].anchor
        return minimise(stacked(replicates), w, lower, upper, kl=tasks[0].kl, anchor=anchor).p
    return np.stack([_one_by_one(task, terms) for task, terms in zip(tasks, replicates, strict=True)])


def _one_by_one(task: Task, replicates: Terms) -> FloatArray:
    """cvxpy solves one problem at a time."""
    flat = replicates.flat()
    return np.stack([_general(task.with_terms(flat.take(b))).p for b in range(len(flat.floor))])


def _general(task: Task) -> Answer:
    from shapleymix.mixing.general import solve_general

    return solve_general(task)


def _batch(tasks: tuple[Task, ...]) -> FloatArray:
    lower, upper, w = _bounds(tasks)
    terms = stacked([task.terms for task in tasks])
    return minimise(terms, w, lower, upper, kl=tasks[0].kl, anchor=tasks[0].anchor).p


def _bounds(tasks: tuple[Task, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    lower = np.stack([task.constraints.lower for task in tasks])
    upper = np.stack([task.constraints.upper for task in tasks])
    return lower, upper, np.stack([task.w for task in tasks])


def objective_at(task: Task, p: FloatArray) -> float:
    """The objective of one mixture, with its KL term."""
    plain = float(task.value(p))
    return plain + objective_value(task.terms, np.zeros_like(task.w), p, task.kl, task.anchor)
