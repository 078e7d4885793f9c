"""Mixtures without a target's own language, where a fit knows them for another regime: what it believes of them.

Where the bounds leave no token of a target's own language, its loss is the other regime's: a convex piece like any
other. Else no optimum is looked for among such mixtures, as the loss jumps there; but rivals may lie among them, and a
gain over one must be that which `predict` gives. Axes: B replicates, M sources, K targets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from shapleymix.fitting.absent import Absent, traceless
from shapleymix.fitting.misfit import Misfit
from shapleymix.laws.terms import SOURCES, Terms
from shapleymix.mixing.repeating import repeated, repeated_replicates
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Regime:
    """Both regimes at one budget: the law of mixtures with the targets' own languages, and that of those without.

    `replicates` and `other_replicates` are the bootstrap's, or None.
    """

    absent: Absent
    terms: Terms
    replicates: Terms | None
    other: Terms
    other_replicates: Terms | None

    @classmethod
    def of(cls, fit: object, terms: Terms, replicates: Terms | None, N: float, D: float) -> Regime | None:
        """What a fit knows, with `terms` and `replicates` of its own law; None if it knows of one regime alone."""
        known = absent_of(fit)
        if known is None:
            return None
        again = None if replicates is None else known.replicate_terms(N, D)
        return cls(known, terms, replicates, known.terms(N, D), again)

    def with_supply(self, fit: object, available: FloatArray, D: float) -> Regime:
        """The same with `available` unique tokens (M,)."""
        return replace(
            self,
            terms=repeated(fit, self.terms, available, D),
            replicates=repeated_replicates(fit, self.replicates, available, D),
            other=repeated(fit, self.other, available, D),
            other_replicates=repeated_replicates(fit, self.other_replicates, available, D),
        )

    def losses(self, p: FloatArray, *, replicated: bool) -> FloatArray:
        """Losses (K,) of a mixture (M,) under the law, or (B, K) under the replicates."""
        there = self.absent.entries(p[None])[0]
        one, other = (self.replicates, self.other_replicates) if replicated else (self.terms, self.other)
        if one is None or other is None:
            one, other = self.terms, self.other
        return np.where(there, other.losses(traceless(p)), one.losses(p)) if there.any() else one.losses(p)

    def held_at_zero(self, upper: FloatArray) -> Regime:
        """The same where the targets whose own source has an upper bound (M,) of 0 have one law, the other regime's."""
        there = self.absent.entries(upper[None])[0]
        again = self.replicates
        if again is not None and self.other_replicates is not None:
            again = _mixed(again, self.other_replicates, there)
        return replace(self, terms=_mixed(self.terms, self.other, there), replicates=again)


def _mixed(one: Terms, other: Terms, there: BoolArray) -> Terms:
    """Terms of which some targets (K,) are those of another law of the same form."""
    if not there.any():
        return one
    changed = {
        field.name: np.where(there, getattr(other, field.name), getattr(one, field.name))
        for field in fields(one)
        if field.name not in SOURCES and getattr(one, field.name) is not None
    }
    return replace(one, **changed)


def absent_of(fit: object) -> Absent | None:
    """What a fit knows of the other regime; one of a user's own need not know."""
    known = getattr(fit, "absent", None)
    return known if isinstance(known, Absent) else None


def rougher(absent: Absent | None, misfit: Misfit | None, p: FloatArray) -> FloatArray | float:
    """How many times as much (K,) as the misfit says held-out losses scatter at a mixture (M,)."""
    if absent is None or misfit is None or absent.residuals is None:
        return 1.0
    ratio = absent.scale() / np.where(misfit.scale > 0, misfit.scale, np.inf)
    return np.where(absent.entries(p[None])[0] & (ratio > 1), ratio, 1.0)
