"""Which symbols a fit cannot tell, because the objective stays where it is while they move.

Where most residuals lie beyond Huber's threshold, the objective is nearly a sum of absolute values: like a median
between two points, its minimum can be a whole plateau. The search takes of all those minima the one of least squares
(`Loss.tail`). Here the objective without tails is tilted by a hundredth of one run's weight: on a plateau the minimum
slides, and the symbols that go with it are those that the runs do not tell.

Legend: R runs, P unknowns, C directions that are tried for a target.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.least_squares import Loss, Objective, minimize
from shapleymix.records import FloatArray

MOVE = 5e-3  # a slide that changes the log losses by so much (root mean square), or by delta, is told
PULL = 0.01  # of one run's weight times delta; on real logs it moves plateaus by 7e-3 and more, others by 7e-4 at most
WEAK = 0.02  # directions with less than this share of the curvature that all residuals would give are tried
TRIED = 3  # directions a target, the weakest first
RIDGE = 1e-9  # of the scaled curvature, so that directions that move no loss at all stay finite
NAMED = 0.1  # a symbol is named if it moves by this share of the one that moves most
ITERATIONS = 40


def untold(problem: Problem, x: FloatArray) -> tuple[tuple[str, ...], ...]:
    """The symbols of each target that slide from x (K, P) along a plateau of the objective; mostly none."""
    if np.isinf(problem.delta):
        return ((),) * len(x)
    return tuple(_untold(problem, target, x[target]) for target in range(len(x)))


def _untold(problem: Problem, target: int, x: FloatArray) -> tuple[str, ...]:
    tilt = _tilts(_huber(problem, target, 1), x)
    if not len(tilt):
        return ()
    huber = replace(_huber(problem, target, len(tilt)), tilt=tilt)
    start = np.broadcast_to(x, tilt.shape)
    slid = minimize(huber, start, iterations=ITERATIONS, damping=1e-3).x
    number = np.arange(len(tilt))
    change = huber.residuals(slid, number)[0] - huber.residuals(start, number)[0]
    moved = np.sqrt((huber.weight * change**2).sum(axis=1))
    far = moved > max(MOVE, problem.delta)
    return _moving(np.array(problem.packing.names), (slid - x)[far])


def _huber(problem: Problem, target: int, copies: int) -> Objective:
    """One target's objective without tails."""
    objective = problem.objective(np.full(copies, target), np.ones((copies, len(problem.observed.N))))
    return replace(objective, loss=Loss(objective.loss.delta))


def _tilts(huber: Objective, x: FloatArray) -> FloatArray:
    """Linear terms (2 C, P) that pull x either way along the directions that the residuals hold least.

    Those are eigenvectors of the curvature of the residuals inside of the threshold, relative to that of all; unknowns
    at a bound stay there. A tilt pulls by the same force for the same change of the log losses.
    """
    residual, jacobian = (part[0] for part in huber.residuals(x[None], np.zeros(1, dtype=np.int64)))
    weight, inside = huber.weight[0], np.abs(residual) < 0.5 * huber.loss.delta
    jacobian = jacobian * ((x > huber.low) & (x < huber.high))
    size = np.sqrt(weight @ jacobian**2)
    scaled = jacobian / np.where(size > 1e-140, size, 1.0)
    every, near = ((scaled * mask[:, None]).T @ scaled for mask in (weight, weight * inside))
    half = np.linalg.cholesky(every + RIDGE * np.eye(len(x)))
    value, vector = np.linalg.eigh(np.linalg.solve(half, np.linalg.solve(half, near).T))
    direction = np.linalg.solve(half.T, vector)
    weak = (value < WEAK) & (RIDGE * (direction**2).sum(axis=0) < 0.5)
    force = PULL * huber.loss.delta * (weight**2).sum()
    pull = force * (every @ direction[:, weak][:, :TRIED]).T * size
    return np.concatenate([pull, -pull])


def _moving(names: FloatArray, slides: FloatArray) -> tuple[str, ...]:
    """The symbols that go with any of the slides (C, P)."""
    if not len(slides):
        return ()
    share = np.abs(slides) / np.abs(slides).max(axis=1, keepdims=True)
    return tuple(dict.fromkeys(names[(share > NAMED).any(axis=0)].tolist()))
