"""Mixtures drawn at random, within bounds: Dirichlet's around what there is of each source, more or less evened out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.mixing.bounds import Constraints
from shapleymix.planning.candidates import distinct
from shapleymix.planning.region import LEAST_RATIO, Region
from shapleymix.records import FloatArray
from shapleymix.sweeping.listed import Listed, listed_once
from shapleymix.tables.amounts import parse_positive, parse_whole
from shapleymix.tables.baselines import smoothed

TEMPERATURE, CONCENTRATION = 2.0, 1.0
MOST_ROUNDS = 20
LEAST = 1e-3
"""Least parameter of a draw: of smaller ones all can come out as 0."""


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
    base = _base(bounds, heat)
    region, rng = Region.of(bounds), np.random.default_rng(parse_whole(seed, "seed"))
    p = np.empty((0, len(base)))
    for _ in range(MOST_ROUNDS):
        p = distinct(np.concatenate([p, _drawn(region, rng, np.maximum(total * base, LEAST), wanted)]))[:wanted]
        if len(p) == wanted:
            break
    told = [f"the bounds and draws leave {len(p)} different mixtures of {wanted}"] if len(p) < wanted else []
    return listed_once(bounds.sources, list(zip(_names(len(p)), p, strict=True)), told)


def supply_known(bounds: Constraints) -> bool:
    """Whether draws are around what there is of each source, which a temperature evens out."""
    return bool(np.isfinite(bounds.available).all()) and bool(bounds.available.any())


def _base(bounds: Constraints, temperature: float) -> FloatArray:
    count = len(bounds.sources)
    return smoothed(bounds.available, 1 / temperature) if supply_known(bounds) else np.full(count, 1 / count)


def _drawn(region: Region, rng: np.random.Generator, parameters: FloatArray, count: int) -> FloatArray:
    """Draws (count, M) within the bounds; ratios below a thousandth are none."""
    drawn = rng.dirichlet(parameters, count)
    held = np.where(drawn < LEAST_RATIO, 0.0, drawn)
    kept = np.maximum(region.moved(held / held.sum(axis=1, keepdims=True)), 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def _names(count: int) -> Sequence[str]:
    width = len(str(count))
    return [f"random-{place:0{width}d}" for place in range(1, count + 1)]
