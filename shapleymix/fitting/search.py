"""From nothing, or from a finished fit, to a law: the best of several starts, what repeats are worth, replicates.

Legend: V weightings of the rows (the data itself, cross-validation folds, bootstrap replicates), R rows, K targets, S
starts, P unknowns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shapleymix.fitting.estimation import EXACT, NEARBY, REPLICATE, Estimation, FittedLaws, Stage, Stop
from shapleymix.fitting.repetition import draw_centers, fit_repetition
from shapleymix.fitting.symbols import COMMON
from shapleymix.records import FloatArray
from shapleymix.statistics import RandomStream, ranks_of

FOLLOWED = 2  # starts, of all that a few iterations compare
BELIEVED_REPLICATE = 3e-3  # where beliefs hold every unknown: intervals are .2 to .4% narrower than at a tenth of it
REPLICATE_ROUNDS = 2  # of finding h and R*


def estimate(
    problem: Estimation, shares: FloatArray, progress: Stage = None, known: FloatArray | None = None, stop: Stop = EXACT
) -> FittedLaws:
    """Fit from scratch under each weighting `shares` (V, R); `known` (K, P) is one more start."""
    start = problem.find_starts(shares)  # (V, S, K, P)
    if known is not None:
        start = np.concatenate([start, np.broadcast_to(known, (len(shares), 1, *known.shape))], axis=1)
    start = problem.select_starts(shares, start, FOLLOWED, stop.tolerance)
    solution = problem.search(shares, start, stop, progress)
    seen = problem.find_seen(shares)
    found = problem.as_estimate(solution, seen)
    if not problem.evidence.tells(problem.packing.law):
        return found
    there, x = fit_repetition(problem, shares, found.x)
    return there.as_estimate(there.search(shares, x[:, None], replace(stop, damping=NEARBY)), seen)


def resample(problem: Estimation, shares: FloatArray, x: FloatArray, seed: int, progress: Stage = None) -> FittedLaws:
    """Fit under each weighting from a known solution x (K, P): for replicates of a finished fit.

    What is believed is drawn anew for each, so that what no run tells is as unsure as the belief.
    """
    rng = np.random.default_rng([seed, RandomStream.BELIEFS])
    draws = rng.standard_normal((len(shares), 1, *x.shape))[:, :, ranks_of(problem.observed.log_loss)]
    of_core = np.isin(problem.packing.names, [*problem.core])
    common = rng.standard_normal((len(shares), 1, 1, of_core.sum()))
    draws[..., of_core] = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * draws[..., of_core]
    for place in problem.packing.of_sources():
        draws[..., place] = draws[..., place][..., ranks_of(problem.evidence.log.p)]
    start, there = np.broadcast_to(x, (len(shares), 1, *x.shape)), problem
    if problem.packing.law.takes_repetition and problem.evidence.repeated is None:
        center = draw_centers(ranks_of(problem.evidence.log.p), len(shares), seed)
        there = replace(problem, repeated=center)
        if problem.evidence.tells(problem.packing.law):
            there, again = fit_repetition(problem, shares, start[:, 0], center, REPLICATE_ROUNDS)
            start = again[:, None]
    if of_core.any():  # on a line of N and D there are several valleys, of which the belief may draw another
        believed = problem.beliefs.center + problem.beliefs.spread * draws
        start, draws = np.concatenate([start, np.where(of_core, believed, start)], axis=1), draws.repeat(2, axis=1)
    drawn = bool(problem.packing.law.knobs)  # from what is believed, where no run tells it
    stop = replace(REPLICATE, tolerance=BELIEVED_REPLICATE) if drawn else REPLICATE
    solution = there.search(shares, start, stop, progress, draws)
    return there.as_estimate(solution, problem.find_seen(shares) | drawn)
