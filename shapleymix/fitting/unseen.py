"""Sources that the runs show too little of: their coefficients are not told, and no number pretends to know them.

Such a source is taken for one like those that were seen. Where no run holds it, its coefficients lie in the middle of
the range of theirs; in the replicates they are drawn from that range and a little beyond, so that intervals are as
wide as what is not known. A source seen a little is drawn in a share of the replicates (see `Coverage.told`).

Legend: V weightings of the rows or replicates, K targets, P unknowns, M sources.
"""

from __future__ import annotations

import numpy as np

from shapleymix.fitting.packing import Packing
from shapleymix.records import BoolArray, FloatArray

SPAN = 5.0  # of logarithms below the highest: a source with 1/150 of the best one's coefficient is as good as none
BEYOND = 1.5  # logarithms: a source may help 4.5 times as much as the best that was seen, as a target's own one does
STREAM = 1  # second word of the seed: these draws are others than those of the bootstrap


def filled(packing: Packing, x: FloatArray, seen: BoolArray) -> FloatArray:
    """Unknowns x (V, K, P) with those of sources not `seen` (V, K, M) in the middle of the range of the others."""
    if seen.all():
        return x
    x = x.copy()
    for place in _of_sources(packing):
        low, high = _range(x[..., place], seen)
        x[..., place] = np.where(seen, x[..., place], 0.5 * (low + high))
    return x


def drawn(packing: Packing, x: FloatArray, told: FloatArray, seed: int) -> FloatArray:
    """Replicates x (V, K, P) with the unknowns of sources drawn anew where the runs tell too little of them.

    Parameters
    ----------
    told : array (K, M)
        Share of the replicates in which a source keeps the unknowns that were fitted.
    seed : int
        Of the draws.
    """
    if (told == 1).all():
        return x
    rng, x = np.random.default_rng([seed, STREAM]), x.copy()
    anew = rng.random((len(x), 1, told.shape[1])) >= told  # one answer for all targets alike
    donors = np.broadcast_to(np.where((told == 1).any(axis=1, keepdims=True), told == 1, told > 0), anew.shape)
    lowest, highest = packing.bounds()
    for place in _of_sources(packing):
        low, high = _range(x[..., place], donors)
        low = np.maximum(low - BEYOND, lowest[place])
        high = np.minimum(high + BEYOND, highest[place])
        x[..., place] = np.where(anew, low + (high - low) * rng.random(anew.shape), x[..., place])
    return x


def _of_sources(packing: Packing) -> list[slice]:
    """Where the unknowns lie of each symbol that has one value a source."""
    return [packing.slices()[known.name] for known in packing.free if known.axes == "MK"]


def _range(x: FloatArray, donors: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Range (V, K, 1) of one symbol's unknowns (V, K, M) over the donors, no more than SPAN wide."""
    high = np.where(donors, x, -np.inf).max(axis=-1, keepdims=True)
    low = np.where(donors, x, np.inf).min(axis=-1, keepdims=True)
    there = np.isfinite(high)
    return np.where(there, np.maximum(low, high - SPAN), 0.0), np.where(there, high, 0.0)
