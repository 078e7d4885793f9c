"""The convex pieces of a law at one budget, as far as the bounds say which regime a target is in.

See `regimes`: a target whose own language the bounds leave out has the law that the fit knows of such mixtures.
"""

from __future__ import annotations

from shapleymix.errors import InfeasibleError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.fit_like import FitLike, unseen_sources
from shapleymix.mixing.regimes import Regime, absent_of
from shapleymix.mixing.repeating import epochs_allowed


def pieces_of(fit: FitLike, N: float, D: float, demands: Demands) -> tuple[Terms, Terms | None]:
    """The law and its replicates with unlimited data, within the bounds that are asked for.

    Raises
    ------
    SolveError
        If the law has none, with the reason.
    """
    regime = regime_of(fit, N, D)
    if regime is None:
        return fit.terms(N, D), fit.replicate_terms(N, D)
    try:
        upper = demands.bounds(fit.sources, D, unseen_sources(fit), epochs_allowed(fit)).upper
    except InfeasibleError:  # is refused, with its reason, where the problem is made
        return regime.terms, regime.replicates
    held = regime.held_at_zero(upper)
    return held.terms, held.replicates


def regime_of(fit: FitLike, N: float, D: float) -> Regime | None:
    """Both regimes that a fit knows, with unlimited data; None if it knows of one alone."""
    return None if absent_of(fit) is None else Regime.of(fit, fit.terms(N, D), fit.replicate_terms(N, D), N, D)


def supplied(fit: FitLike, N: float, bounds: Constraints) -> Regime | None:
    """Both regimes with the unique tokens at hand."""
    known = regime_of(fit, N, bounds.D)
    return None if known is None else known.with_supply(fit, bounds.available, bounds.D)
