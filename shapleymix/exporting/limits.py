"""What a mixture's bounds allow a run, whose tokens may be others than those that it was optimised for.

Bounds on ratios stay as they were, for an export changes no ratio. How often a language is seen, and how many tokens
of it, depend on the tokens of the run and on those that there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.errors import DataError, Fault
from shapleymix.fields import ROUNDING
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.sizes import format_size

APART = 0.01
"""Relative difference of two counts of tokens below which they are taken for the same."""
OFTEN = 4.0
"""Epochs from which repetition is told: up to here repeated tokens are worth about as much as fresh ones
(Muennighoff et al., 2023)."""
_HINT = "optimize again for the tokens of this run, or export it all the same (ignore_bounds)"


@dataclass(frozen=True)
class Broken:
    """A bound that a run breaks.

    Attributes
    ----------
    source, told : str
        Whose bound it is, and what is told.
    excess : float
        Factor by which the run goes beyond it.
    kept : bool
        Whether the optimum kept it: of a language whose tokens it did not know, it could not.
    """

    source: str
    told: str
    excess: float
    kept: bool


@dataclass(frozen=True)
class Limits:
    """What a mixture was optimised under, of each language.

    Attributes
    ----------
    own : array (M,)
        Unique tokens, NaN where not known.
    max_epochs, min_tokens : array (M,)
        How often they may be seen, infinite for no limit, and the fewest tokens of the run.
    """

    own: FloatArray
    max_epochs: FloatArray
    min_tokens: FloatArray

    def of(self, chosen: BoolArray) -> Limits:
        """Those of some languages alone."""
        return Limits(self.own[chosen], self.max_epochs[chosen], self.min_tokens[chosen])

    def broken(self, sources: Sequence[str], p: FloatArray, D: float, available: FloatArray) -> list[Broken]:
        """The bounds that a run of ratios p (M,) and D tokens breaks, with unique tokens (M,) as they are now.

        Tokens that are not known break none.
        """
        seen, often = p * D, epochs_of(p, available, D)
        with np.errstate(divide="ignore", invalid="ignore"):
            more, fewer = often / self.max_epochs, self.min_tokens / seen
        kept, found = ~np.isnan(self.own), []
        for row in np.flatnonzero(more > 1 + ROUNDING).tolist():
            told = f"{sources[row]} is seen {often[row]:.6g} times, and the mixture allows {self.max_epochs[row]:.6g}"
            found.append(Broken(sources[row], told, float(more[row]), bool(kept[row])))
        for row in np.flatnonzero(fewer > 1 + ROUNDING).tolist():
            counts = f"{format_size(seen[row])} tokens, and the mixture has {format_size(self.min_tokens[row])} or more"
            found.append(Broken(sources[row], f"{sources[row]} gets {counts}", float(fewer[row]), True))
        return found


def limits_of(mixture: object, count: int) -> Limits:
    """The limits of `count` languages that a mixture knows; ratios by name, and baselines, have none."""
    known = (getattr(mixture, name, None) for name in ("available", "max_epochs", "min_tokens"))
    usual = (np.nan, np.inf, 0.0)
    return Limits(
        *(
            np.full(count, other) if one is None else np.asarray(one, dtype=np.float64)
            for one, other in zip(known, usual, strict=True)
        )
    )


def told_of(broken: Sequence[Broken], ignored: bool) -> list[str]:
    """What to warn of: bounds that are ignored, that the optimum could not keep either, or that are hardly broken.

    Raises
    ------
    DataError
        By name, if others are broken.
    """
    firm = [one for one in broken if one.kept and one.excess > 1 + APART and not ignored]
    if firm:
        raise DataError.of([Fault(one.told, value=one.source, hint=_HINT) for one in firm], "the run")
    return [one.told for one in broken]
