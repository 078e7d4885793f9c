"""What all targets of a log share, h and R* of repeated tokens, found beside each target's own symbols.

Every target's loss hangs on its own symbols and on these; a search over targets one by one cannot hold them. So they
take Newton steps of their own, by what is left of their slopes once all other symbols follow (variable projection,
Golub and Pereyra 1973), and after each the targets' symbols are searched for anew, from where they were.

Legend: V weightings of the rows, Q problems (a weighting and a target each), R rows, M sources, K targets, P unknowns,
H shared symbols: log h, and log R* of each source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.fitting.least_squares import Curvature, Prior
from shapleymix.laws.pieces import HARM, WORTH
from shapleymix.records import FloatArray, IntArray
from shapleymix.streams import Stream

if TYPE_CHECKING:
    from shapleymix.fitting.estimation import Problem

ALIKE = 0.5
"""Share of what is believed of log R* that all sources of a log have in common."""
ROUNDS = 12
LARGEST, SMALLEST, MOVED = 1.0, 1e-3, 1e-4
"""Of the logarithms: the longest step, one that ends the search, and that of a difference."""
LEAST_NOISE, RIDGE = 1e-4, 1e-9
QUIET = 1.2533  # standard deviations of normal noise over its mean absolute value
ENTRIES = 3e6  # of Jacobians at once


def believed(sources: int) -> tuple[FloatArray, FloatArray]:
    """Centre (H,) and covariance (H, H) of the shared symbols before any run."""
    covariance = np.zeros((1 + sources, 1 + sources))
    covariance[0, 0] = HARM.spread**2
    covariance[1:, 1:] = WORTH.spread**2 * (ALIKE + (1 - ALIKE) * np.eye(sources))
    return np.append(HARM.center, np.full(sources, WORTH.center)), covariance


def drawn_centers(ranks: IntArray, count: int, seed: int) -> FloatArray:
    """Draws (count, H) of what is believed: the centres of replicates, or their symbols where no run tells any.

    `ranks` (M,) number the sources whatever their order, so that each has the same draws in any.
    """
    center, covariance = believed(len(ranks))
    normal = np.random.default_rng([seed, Stream.RATES]).standard_normal((count, len(center)))
    normal[:, 1:] = normal[:, 1:][:, ranks]
    return center + normal @ np.linalg.cholesky(covariance).T


def worn(
    problem: Problem, shares: FloatArray, x: FloatArray, center: FloatArray | None = None, rounds: int = ROUNDS
) -> tuple[Problem, FloatArray]:
    """The problem at the shared symbols that each weighting (V, R) tells, and the targets' unknowns (V, K, P) there.

    `x` (V, K, P) solve it where it is, and `center` (V, H) is that of what is believed.
    """
    usual, covariance = believed(len(problem.inputs.sources))
    center, precision = usual if center is None else center, np.linalg.inv(covariance)
    problem = replace(problem, repeated=np.broadcast_to(problem.repeated, (len(shares), len(usual))))
    for _ in range(rounds):
        curvature, slope = _told(problem, shares, x)
        slope = slope + (problem.repeated - center) @ precision
        step = np.clip(-np.linalg.solve(precision + curvature, slope[..., None])[..., 0], -LARGEST, LARGEST)
        problem = replace(problem, repeated=problem.repeated + step)
        x = problem.follow(shares, x, SMALLEST**2)
        if np.abs(step).max() < SMALLEST:
            break
    return problem, x


def _told(problem: Problem, shares: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Curvature (V, H, H) and slope (V, H) of minus the log likelihood of each weighting, all unknowns following."""
    V, K = x.shape[:2]
    replicate, target, flat = np.repeat(np.arange(V), K), np.tile(np.arange(K), V), x.reshape(V * K, -1)
    size = max(1, int(ENTRIES / (shares.shape[1] * (x.shape[2] + problem.repeated.shape[1]))))
    found = [
        _told_by(problem, flat[rows], target[rows], shares[replicate[rows]], problem.repeated[replicate[rows]])
        for rows in (slice(first, first + size) for first in range(0, V * K, size))
    ]
    share = _independent(problem, x[0], shares[0]) / K  # targets err together
    curvature, slope = (np.concatenate(part).reshape(V, K, *part[0].shape[1:]) for part in zip(*found, strict=True))
    return share * curvature.sum(axis=1), share * slope.sum(axis=1)


def _told_by(
    problem: Problem, x: FloatArray, target: IntArray, shares: FloatArray, at: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same (Q, H, H) and (Q, H) of each problem, from the Jacobians of both kinds of symbols."""
    number, objective = np.arange(len(x)), problem.objective(target, shares, at=at)
    residual, jacobian = objective.residuals(x, number)
    shared = np.zeros((*residual.shape, at.shape[1]))
    for place in np.flatnonzero(np.append(True, (problem.evidence.log.p > problem.evidence.shares).any(axis=0))):
        step = MOVED * (np.arange(at.shape[1]) == place)
        up, down = (problem.residuals(target, at + side * step)[1](x, number) for side in (1, -1))
        shared[..., place] = (up - down) / (2 * MOVED)
    size = np.maximum(np.abs(residual), LEAST_NOISE)
    root = np.sqrt(objective.weight * np.minimum(1.0, problem.delta / size))[..., None]
    score = (objective.weight * problem.loss.score(residual))[:, None, :]
    prior = objective.prior or Prior(x, np.zeros_like(x))
    pull = (score @ jacobian)[:, 0] + prior.precision * (x - prior.center)
    own = Curvature.of(jacobian * root, prior.precision)
    own = own.plus(RIDGE * own.diagonal() + 1e-300)
    cross, held = (jacobian * root).swapaxes(1, 2) @ (shared * root), objective.held(x, pull)
    follow = np.stack([own.solve(one, held) for one in np.moveaxis(cross, 2, 0)], axis=2)
    curvature = (shared * root).swapaxes(1, 2) @ (shared * root) - cross.swapaxes(1, 2) @ follow
    slope = (score @ shared)[:, 0] - (pull[:, None, :] @ follow)[:, 0]
    runs = 1 / np.square(objective.weight @ problem.alike).sum(axis=1)
    noise = QUIET * np.einsum("qr,qr->q", objective.weight, size)
    factor = np.maximum(runs - x.shape[1], runs / 4) / noise**2
    return factor[:, None, None] * curvature, factor[:, None] * slope


def _independent(problem: Problem, x: FloatArray, share: FloatArray) -> float:
    """How many independent targets the residuals of one solution x (K, P) amount to: between 1 and K."""
    seen = problem.observed
    predicted = replace(problem, repeated=problem.repeated[:1]).predicted(x[None])[0]
    off = np.where(seen.weight * share[:, None] > 0, seen.log_loss - predicted, 0.0)
    if off.shape[1] < 2:
        return 1.0
    values = np.linalg.eigvalsh(np.nan_to_num(np.corrcoef(off.T)))
    return float(values.sum() ** 2 / np.square(values).sum())
