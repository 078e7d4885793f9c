"""The game that languages play: coalitions, payoffs, exact and sampled Shapley values."""

from __future__ import annotations

from shapleymix.game.coalitions import Game, coalition_game
from shapleymix.game.exact import exact_shapley
from shapleymix.game.sampled import Estimate, estimate_shapley, sampled_shapley
from shapleymix.game.values import efficiency_residual, shapley_values

__all__ = [
    "Estimate",
    "Game",
    "coalition_game",
    "efficiency_residual",
    "estimate_shapley",
    "exact_shapley",
    "sampled_shapley",
    "shapley_values",
]
