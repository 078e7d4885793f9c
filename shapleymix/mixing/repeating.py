"""Repeated tokens in an optimisation: the data term at the unique tokens at hand, and what it costs.

A fit that knows the rate at which repeated tokens lose their worth (`fit.repetition`) takes the term wherever unique
tokens are known: in the objective, under every replicate at its own rate, and in what the fit predicts. Epochs are then
paid for, and no cap on them is needed. A fit without it takes repeated tokens for fresh ones, and epochs are capped.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import DEFAULT_EPOCHS, Constraints
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray
from shapleymix.tables.repetition import repetition


class Rates(Protocol):
    """What a fit knows of repeated tokens: a rate, and one for each replicate."""

    @property
    def rate(self) -> float: ...

    @property
    def rates(self) -> FloatArray | None: ...


def rates_of(fit: object) -> Rates | None:
    """What a fit knows of repeated tokens; None for one that knows nothing."""
    return getattr(fit, "repetition", None)


def epochs_allowed(fit: object) -> float:
    """How often tokens may be seen where nobody says: as often as it pays, where the fit knows what it costs."""
    return DEFAULT_EPOCHS if rates_of(fit) is None else np.inf


def repeated(fit: object, terms: Terms, available: FloatArray, D: float) -> Terms:
    """The terms with `available` unique tokens (M,), NaN where not known; as they are for a fit without a rate."""
    known = rates_of(fit)
    return terms if known is None else terms.without_repetition().with_repetition(available / D, known.rate)


def repeated_replicates(fit: object, terms: Terms | None, available: FloatArray, D: float) -> Terms | None:
    """The same for replicates (B), each at its own rate."""
    known = rates_of(fit)
    if terms is None or known is None:
        return terms
    rates = np.full(terms.batch, known.rate) if known.rates is None else known.rates
    return terms.without_repetition().with_repetition(available / D, rates)


def supply_of(fit: object, sources: tuple[str, ...], available: FloatArray) -> dict[str, float]:
    """Unique tokens by source, for a fit that knows of repetition; nothing for another."""
    known = zip(sources, available.tolist(), strict=True)
    return {} if rates_of(fit) is None else {name: tokens for name, tokens in known if tokens > 0}


def costs(terms: Terms, p: FloatArray) -> FloatArray:
    """Loss (..., K) that repetition costs each target: at the effective ratios less at the ratios, nats."""
    plain = terms.without_repetition()
    return np.zeros(np.shape(terms.floor)[-1]) if plain is terms else terms.losses(p) - plain.losses(p)


def cost_of(problem: Problem, p: FloatArray) -> float:
    """What repetition costs the mean or worst loss of a mixture, nats."""
    plain = problem.terms.without_repetition()
    return float(problem.value(p)) - float(problem.value(p, plain)) if plain is not problem.terms else 0.0


def unpriced(fit: object, p: FloatArray, bounds: Constraints, who: str = "the mixture") -> list[str]:
    """The warning that a mixture repeats tokens, for a fit that takes them for fresh ones."""
    if rates_of(fit) is not None:
        return []  # the fit says itself what is to be said
    return repetition(p, bounds.sources, bounds.available, bounds.D, who)
