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
WIDER = 2.0  # times the best of the seen sources' coefficients, where they are searched over as they are
STREAM = 1  # second word of the seed: these draws are others than those of the bootstrap


def filled(packing: Packing, x: FloatArray, seen: BoolArray) -> FloatArray:
    """Unknowns x (V, K, P) with those of sources not `seen` (V, K, M) in the middle of the range of the others."""
    if seen.all():
        return x
    x = x.copy()
    for place in _of_sources(packing):
        if _above_zero(packing, place):  # most sources help little, and the target's own one is no usual source
            donors = seen | ~seen.any(axis=-1, keepdims=True)  # of a target that nothing is told of, all as they are
            usual = np.nanmedian(np.where(donors, x[..., place], np.nan), axis=-1, keepdims=True)
        else:
            low, high = _range(x[..., place], seen)
            usual = 0.5 * (low + high)
        x[..., place] = np.where(seen, x[..., place], usual)
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
        if _above_zero(packing, place):  # any target's best source may be the one that was not seen: its own
            low, high = np.zeros_like(low), WIDER * np.maximum(high, np.median(high, axis=1, keepdims=True))
        else:
            low, high = low - BEYOND, high + BEYOND
        low, high = np.maximum(low, lowest[place]), np.minimum(high, highest[place])
        x[..., place] = np.where(anew, low + (high - low) * rng.random(anew.shape), x[..., place])
    return x


def _of_sources(packing: Packing) -> list[slice]:
    """Where the unknowns lie of each symbol that has one value a source."""
    return [packing.slices()[known.name] for known in packing.free if known.axes == "MK"]


def _above_zero(packing: Packing, place: slice) -> bool:
    """Whether a symbol is searched over as it is and never negative: zero is then as natural as any other value."""
    return not packing.owners[place.start].positive and packing.owners[place.start].low == 0


def _range(x: FloatArray, donors: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Range (V, K, 1) of one symbol's unknowns (V, K, M) over the donors, no more than SPAN wide."""
    high = np.where(donors, x, -np.inf).max(axis=-1, keepdims=True)
    low = np.where(donors, x, np.inf).min(axis=-1, keepdims=True)
    there = np.isfinite(high)
    return np.where(there, np.maximum(low, high - SPAN), 0.0), np.where(there, high, 0.0)
