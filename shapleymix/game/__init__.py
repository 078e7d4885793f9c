"""The game that languages play: coalitions, payoffs, exact and sampled Shapley values."""

from __future__ import annotations

from shapleymix.game.exact import exact_shapley

__all__ = ["exact_shapley"]
