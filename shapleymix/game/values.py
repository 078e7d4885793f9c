"""From a run log to the matrix of Shapley values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shapleymix.files import Json
from shapleymix.game.coalitions import Game, coalition_game
from shapleymix.game.sampled import Estimate, estimate_shapley
from shapleymix.records import FloatArray
from shapleymix.tables.words import parse_size

if TYPE_CHECKING:
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.sheets import Table
    from shapleymix.tables.transfer import TransferMatrix


def shapley_values(
    log: RunLog | Table, *, sampled: bool = False, N: float | str | None = None, D: float | str | None = None
) -> TransferMatrix:
    """Shapley values of the languages of a log, from its coalition runs.

    Parameters
    ----------
    log : RunLog
        With the untrained model (D = 0); or its file, or a data frame.
    sampled : bool
        Estimate from the coalitions that are there, with standard errors, if some are missing; without it, missing
        coalitions are an error. Efficiency holds exactly either way.
    N, D : float or str, optional
        The model size and token count whose coalitions to use, where the log holds several games.

    Returns
    -------
    TransferMatrix
        `sv` in nats. `stderr` where coalitions were repeated (noise of training) or missing (the estimator's
        error), else None. `provenance` holds method, N, D, players, coalitions, repeats, efficiency_residual by
        target and its maximum, and notices.

    Raises
    ------
    DataError, UsageError
        As `coalition_game` and `estimate_shapley` do; and if coalitions are missing, with their names.
    """
    from shapleymix.tables.run_reading import read_runs  # here: games of arrays need no polars
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.transfer import TransferMatrix

    budget = {name: parse_size(given, name) for name, given in (("N", N), ("D", D)) if given is not None}
    game = coalition_game(log if isinstance(log, RunLog) else read_runs(log), **budget)
    if not sampled:
        game.require_complete()
    estimate = estimate_shapley(game.members, game.payoffs, game.noise, players=game.players)
    stderr = None if estimate.method == "exact" and game.noise is None else estimate.stderr
    return TransferMatrix.from_sv(estimate.values, game.players, game.targets, stderr, _provenance(game, estimate))


def efficiency_residual(values: FloatArray, game: Game) -> FloatArray:
    """How far each target's values (K, T) are from adding up to the grand coalition's payoff. (T,), nats."""
    return np.abs(values.sum(axis=0) - game.payoffs[-1])


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
