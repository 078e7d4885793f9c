"""What is to be minimised, and a certified answer to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.certificate import Certificate, certify, objective_gradient, objective_value
from shapleymix.records import FloatArray

MEAN, WORST = "mean", "worst"


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


def certified(task: Task, p: FloatArray, engine: str) -> Answer:
    """The answer that p is, with the certificate of the mean objective, whoever found p."""
    gradient = objective_gradient(task.terms, task.w, p, task.kl, task.anchor)
    certificate, prices = certify(task.terms, task.w, p, task.constraints, kl=task.kl, anchor=task.anchor)
    return Answer(p, certificate, prices, gradient, engine)


def objective_at(task: Task, p: FloatArray) -> float:
    """The objective of one mixture, with its KL term."""
    plain = float(task.value(p))
    return plain + objective_value(task.terms, np.zeros_like(task.w), p, task.kl, task.anchor)
