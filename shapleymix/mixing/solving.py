"""Problems in, certified answers out: the batched engine for bounds and KL, `general` for everything else."""

from __future__ import annotations

import numpy as np

from shapleymix.laws.terms import Terms
from shapleymix.mixing.barrier import minimise
from shapleymix.mixing.batching import stacked
from shapleymix.mixing.general import solve_general
from shapleymix.mixing.tasks import Answer, Task, certified
from shapleymix.records import FloatArray

ENGINE = "barrier Newton"


def solve(task: Task) -> Answer:
    """The optimum of one problem."""
    return solve_all((task,))[0]


def solve_all(tasks: tuple[Task, ...]) -> tuple[Answer, ...]:
    """The optima of several problems of one kind, those for the engine in one batch."""
    if all(task.standard for task in tasks):
        return tuple(certified(task, p, ENGINE) for task, p in zip(tasks, _batch(tasks), strict=True))
    return tuple(solve_general(task) for task in tasks)


def solve_replicates(tasks: tuple[Task, ...], replicates: tuple[Terms, ...]) -> FloatArray:
    """Optima (S, B, M) of every task under each of its law's replicates, without certificates."""
    if all(task.standard for task in tasks):
        lower, upper, w = (values[:, None] for values in _bounds(tasks))
        return minimise(stacked(replicates), w, lower, upper, kl=tasks[0].kl, anchor=tasks[0].anchor).p
    return np.stack([_one_by_one(task, terms) for task, terms in zip(tasks, replicates, strict=True)])


def _one_by_one(task: Task, replicates: Terms) -> FloatArray:
    """cvxpy solves one problem at a time."""
    flat = replicates.flat()
    return np.stack([solve_general(task.with_terms(flat.take(b))).p for b in range(len(flat.floor))])


def _batch(tasks: tuple[Task, ...]) -> FloatArray:
    lower, upper, w = _bounds(tasks)
    terms = stacked([task.terms for task in tasks])
    return minimise(terms, w, lower, upper, kl=tasks[0].kl, anchor=tasks[0].anchor).p


def _bounds(tasks: tuple[Task, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    lower = np.stack([task.constraints.lower for task in tasks])
    upper = np.stack([task.constraints.upper for task in tasks])
    return lower, upper, np.stack([task.w for task in tasks])
