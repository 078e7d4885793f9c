"""The game that languages play: coalitions, payoffs, exact and sampled Shapley values.

Modules, in reading order:

  exact       exact Shapley values of a game given as a table of all its coalitions
  coalitions  the game in a run log: coalitions, payoffs, and what is missing
  smooth      Shapley values from some of the coalitions, by a smooth model of the payoffs
  sampled     where not every coalition is known: choose, evaluate, estimate
  values      from a run log to the matrix of Shapley values
"""

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
