"""The coalitions that a Shapley value needs, all or a sample of them, and how sure the sample makes it.

K players, C coalitions of them that are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.game.exact import members_of
from shapleymix.game.sampled import estimate_shapley, exact_variance, sample_coalitions
from shapleymix.records import BoolArray
from shapleymix.sweeping.controlled import JOIN
from shapleymix.sweeping.listed import Listed
from shapleymix.tables.amounts import parse_whole

MOST_EXACT = 10
"""Players of whom all coalitions are trained where nobody asks for fewer: 1,023 runs."""
PER_PLAYER = 12
"""Coalitions a player where more players come."""
MANY = 30
"""Players whose coalitions nobody counts in digits."""
_PRETENDED = 64  # random games on which the estimator's error is measured
SMALL = 1e-12


def coalitions(sources: Sequence[str], samples: int | None = None, seed: int = 0) -> Listed:
    """The uniform mixtures of coalitions: all 2^K - 1, or a sample of them; the notices state what it makes of errors.

    Parameters
    ----------
    sources : sequence of str (K,)
        The players.
    samples : int, optional
        How many to train, the coalition of all besides; None = all of at most ten players, 12 a player of more.
    seed : int
        Of the draw.

    Raises
    ------
    UsageError
        If there are too few samples for this many players.
    """
    count = len(sources)
    wanted = None if samples is None else parse_whole(samples, "samples", 1)
    if wanted is None and count > MOST_EXACT:
        wanted = PER_PLAYER * count
    if wanted is None or wanted >= 2**count - 2:
        if count > 2 * MOST_EXACT:
            raise UsageError(f"{wanted} samples of {count} players", hint="ask for fewer: nobody trains as many")
        members = members_of(np.arange(2**count), count)
    else:
        members = sample_coalitions(count, wanted, np.random.default_rng(parse_whole(seed, "seed")))
    trained = members[members.any(axis=1)]
    trained = trained[np.lexsort((*trained.T, trained.sum(axis=1)))]
    names = tuple(JOIN.join(compress(sources, row)) for row in trained.tolist())
    p = trained / trained.sum(axis=1, keepdims=True)
    return Listed(tuple(sources), names, p, (_stated(members, len(trained)),))


def _stated(members: BoolArray, trained: int) -> str:
    """What a value's standard error will be, from the design alone."""
    noise, sampling = standard_errors(members)
    players = members.shape[1]
    total = f"{2**players - 1}" if players < MANY else f"2^{players} - 1"
    said = (
        f"{trained} of {total} coalitions; a seed noise of .01 nats gives values a standard error of {0.01 * noise:.2g}"
    )
    if sampling < SMALL:
        return f"{said}, and there is no sampling error"
    extra = f"{0.1 * sampling:.2g} for each .1 nats (standard deviation) by which payoffs are not additive"
    return f"{said}, the sample {extra} (least squares; the smooth estimator, the default, errs less)"


def standard_errors(members: BoolArray) -> tuple[float, float]:
    """Standard error of a Shapley value (root mean square over players) from these coalitions (C, K), for one unit of
    noise in each run, and for one unit of standard deviation by which payoffs depart from additive ones.

    The second is measured on random games of independent payoffs; it is 0 where all coalitions are there.
    """
    ends = ~members.any(axis=1) | members.all(axis=1)
    noise = np.where(members.any(axis=1), 1.0, 0.0)[:, None]  # the untrained model has next to none
    if len(members) == 2 ** members.shape[1]:
        return float(np.sqrt(exact_variance(noise).mean())), 0.0
    still = estimate_shapley(members, np.zeros((len(members), 1)), noise, method="kernel")
    games = np.random.default_rng(0).normal(size=(len(members), _PRETENDED))
    games[ends] = 0.0
    moved = estimate_shapley(members, games, method="kernel")
    return float(np.sqrt((still.stderr**2).mean())), float(np.sqrt((moved.stderr**2).mean()))
