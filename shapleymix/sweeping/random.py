"""Mixtures drawn at random, within bounds: Dirichlet's around what there is of each source, more or less evened out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.mixing.bounds import Constraints
from shapleymix.planning.region import LEAST_RATIO, Region
from shapleymix.records import FloatArray
from shapleymix.sweeping.listed import Listed, listed_once
from shapleymix.tables.amounts import parse_positive, parse_whole
from shapleymix.tables.baselines import smoothed

TEMPERATURE, CONCENTRATION = 2.0, 1.0


def random_mixtures(
    count: int,
    bounds: Constraints,
    *,
    temperature: float = TEMPERATURE,
    concentration: float = CONCENTRATION,
    seed: int = 0,
) -> Listed:
    """Random mixtures: Dirichlet's with parameters `concentration M b`, where `b ~ available^(1 / temperature)`.

    Where the tokens at hand are not all known, b is even. A draw outside of the bounds is moved to where they begin, on
    the way to a mixture inside of them, so that a floor holds for every mixture.

    Parameters
    ----------
    count : int
        How many.
    bounds : Constraints
        What each must obey, such as floors.
    temperature : float
        1 draws around natural proportions, more around evener ones.
    concentration : float
        Below 1 a few sources hold nearly everything, far above 1 all draws are near to b.
    seed : int
        Of the draws.

    Raises
    ------
    UsageError
        If a number is none that can be drawn with.
    """
    wanted = parse_whole(count, "the number of random mixtures", 1)
    heat = parse_positive(temperature, "temperature")
    total = parse_positive(concentration, "concentration") * len(bounds.sources)
    base = _base(bounds.available, heat)
    drawn = np.random.default_rng(parse_whole(seed, "seed")).dirichlet(np.maximum(total * base, 1e-6), wanted)
    if not np.isfinite(drawn).all():
        raise UsageError(f"concentration {concentration:g} is too small to draw with", hint="give 0.01 or more")
    held = np.where(drawn < LEAST_RATIO, 0.0, drawn)
    p = Region.of(bounds).moved(held / held.sum(axis=1, keepdims=True))
    return listed_once(bounds.sources, list(zip(_names(wanted), _summed(p), strict=True)))


def _base(available: FloatArray, temperature: float) -> FloatArray:
    known = bool(np.isfinite(available).all()) and bool(available.any())
    return smoothed(available, 1 / temperature) if known else np.full(len(available), 1 / len(available))


def _summed(p: FloatArray) -> FloatArray:
    """The mixtures without what rounding left below 0, with sums of 1 again."""
    kept = np.maximum(p, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def _names(count: int) -> Sequence[str]:
    width = len(str(count))
    return [f"random-{place:0{width}d}" for place in range(1, count + 1)]
