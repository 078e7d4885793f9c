"""From a run log to the matrix of Shapley values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.files import Json
from shapleymix.game.coalitions import Game, coalition_game
from shapleymix.game.sampled import Estimate, estimate_shapley
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_whole
from shapleymix.tables.sizes import parse_size

if TYPE_CHECKING:
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.sheets import Table
    from shapleymix.tables.transfer import TransferMatrix


def shapley_values(
    log: RunLog | Table,
    *,
    sampled: bool = False,
    samples: int | None = None,
    seed: int = 0,
    N: float | str | None = None,
    D: float | str | None = None,
) -> TransferMatrix:
    """Shapley values of the languages of a log, from its coalition runs.

    Parameters
    ----------
    log : RunLog
        With the untrained model (D = 0); or its file, or a data frame.
    sampled : bool
        Estimate from the coalitions that are there, with standard errors, if some are missing; without it, missing
        coalitions are an error. Efficiency holds exactly either way.
    samples : int, optional
        Use only this many coalitions, drawn at random, besides the empty and the grand one (needs `sampled`).
    seed : int
        Of that draw.
    N, D : float or str, optional
        The model size and token count whose coalitions to use, where the log holds several games.

    Returns
    -------
    TransferMatrix
        `sv` in nats. `stderr` where coalitions were repeated (noise of training) or missing (the estimator's
        error), else None. `provenance` holds method, N, D, players, coalitions, repeats, efficiency_residual by
        target and its maximum, seed, and notices.

    Raises
    ------
    DataError, UsageError
        As `coalition_game` and `estimate_shapley` do; and if coalitions are missing, with their names.
    """
    from shapleymix.tables.run_reading import read_runs  # here: games of arrays need no polars
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.transfer import TransferMatrix

    parse_whole(seed, "seed")
    if samples is not None and not sampled:
        raise UsageError("a number of samples was given for exact values", hint="ask for sampled values too (sampled)")
    if samples is not None:
        parse_whole(samples, "samples")
    game = coalition_game(log if isinstance(log, RunLog) else read_runs(log), N=_size(N, "N"), D=_size(D, "D"))
    if not sampled:
        game.require_complete()
    used = game if samples is None else _draw(game, samples, seed)
    estimate = estimate_shapley(used.members, used.payoffs, used.noise, players=game.players)
    known = estimate.method == "exact" and game.noise is None
    provenance = _provenance(used, estimate) | ({} if samples is None else {"seed": seed})
    stderr = None if known else estimate.stderr
    return TransferMatrix.from_sv(estimate.values, game.players, game.targets, stderr, provenance)


def _size(given: float | str | None, name: str) -> float | None:
    return None if given is None else parse_size(given, name)


def efficiency_residual(values: FloatArray, game: Game) -> FloatArray:
    """How far each target's values (K, T) are from adding up to the grand coalition's payoff. (T,), nats."""
    return np.abs(values.sum(axis=0) - game.payoffs[-1])


def _draw(game: Game, samples: int, seed: int) -> Game:
    """The empty and the grand coalition and `samples` others at random."""
    inner = np.arange(1, len(game.masks) - 1)
    if samples < len(inner):
        inner = np.sort(np.random.default_rng(seed).choice(inner, max(samples, 0), replace=False))
    rows = np.concatenate([[0], inner, [len(game.masks) - 1]])
    noise = None if game.noise is None else game.noise[rows]
    return replace(game, masks=game.masks[rows], loss=game.loss[rows], repeats=game.repeats[rows], noise=noise)


def _provenance(game: Game, estimate: Estimate) -> dict[str, Json]:
    residual = efficiency_residual(estimate.values, game)
    return {
        "method": estimate.method,
        "N": game.N,
        "D": game.D,
        "players": len(game.players),
        "coalitions": len(game.masks),
        "coalitions_of": 2 ** len(game.players),
        "repeats": int(game.repeats.max()),
        "efficiency_residual": dict(zip(game.targets, residual.tolist(), strict=True)),
        "efficiency_residual_max": float(residual.max()),
        "untrained": dict(zip(game.targets, game.loss[0].tolist(), strict=True)),
        "log": game.origin,
        "notices": list(game.notices),
    }
