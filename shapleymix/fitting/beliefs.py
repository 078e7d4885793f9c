"""What is believed of a law's unknowns before any run, as the search takes it.

Legend: K targets, P unknowns, Q problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.display import short
from shapleymix.fitting.least_squares import Prior
from shapleymix.fitting.packing import Packing
from shapleymix.laws.symbols import Knobs
from shapleymix.records import FloatArray, IntArray

NOISE = 0.02  # of a log loss, where cross-validation has not yet told it


@dataclass(frozen=True)
class Believed:
    """Centre and spread of every unknown of every target, both (K, P); an infinite spread believes nothing.

    `noise` (K,) is the usual error of a log loss: so many times a spread's worth of it weigh one run.
    """

    center: FloatArray
    spread: FloatArray
    noise: FloatArray

    @classmethod
    def of(cls, packing: Packing, knobs: Knobs, givens: dict[str, FloatArray], noise: FloatArray) -> Believed:
        """What the law says at one value of its knobs."""
        shape = (len(noise), len(packing.names))
        center, spread = np.zeros(shape), np.full(shape, np.inf)
        place = packing.slices()
        for name, belief in packing.law.beliefs(knobs, givens).items():
            if name not in place:
                continue  # held: the log cannot tell it, and nothing is searched
            for array, value in ((center, belief.center), (spread, belief.spread)):
                array[:, place[name]] = _by_target(np.asarray(value, dtype=np.float64), len(noise))
        return cls(center, spread, noise)

    @classmethod
    def chosen(cls, several: Sequence[Believed], which: IntArray) -> Believed:
        """Of several beliefs, for each target the one of that number (K,)."""
        place = (which, np.arange(len(which)))
        center, spread = (np.stack([getattr(one, name) for one in several])[place] for name in ("center", "spread"))
        return cls(center, spread, several[0].noise)

    def same(self, other: Believed) -> bool:
        """Whether two beliefs are one."""
        return np.array_equal(self.center, other.center) and np.array_equal(self.spread, other.spread)

    def only(self, targets: IntArray) -> Believed:
        """The same for some targets alone."""
        return Believed(self.center[targets], self.spread[targets], self.noise[targets])

    def prior(self, target: IntArray, alone: FloatArray, draws: FloatArray | None = None) -> Prior:
        """The pull on each problem's unknowns, given its target (Q,) and the weight (Q,) of one run, of 1 for all.

        Parameters
        ----------
        draws : array (Q, P), optional
            Standard normal draws that move the centres: then a replicate is as unsure as what is believed.
        """
        center = self.center[target]
        if draws is not None:
            center = center + np.where(np.isfinite(self.spread[target]), self.spread[target], 0.0) * draws
        return Prior(center, (self.noise[target] ** 2 * alone)[:, None] / self.spread[target] ** 2)


def _by_target(value: FloatArray, targets: int) -> FloatArray:
    """(K, 1) or (K, M) of a number, a value a target, or one a source and target."""
    if value.ndim == 2:
        return value.T
    return np.broadcast_to(value, (targets,))[:, None]


def check_knobs(knobs: Mapping[str, FloatArray], targets: int) -> None:
    """Refuse what no choice of beliefs gives: not one finite number for each of so many targets.

    Raises
    ------
    ValueError
        Naming the knob.
    """
    for name, values in knobs.items():
        if values.shape != (targets,) or not np.isfinite(values).all():
            raise ValueError(f"knobs: {name} holds not one finite number for each of {targets} targets")


def knobs_told(knobs: Mapping[str, FloatArray], targets: Sequence[str]) -> list[str]:
    """What cross-validation chose, in words: nothing where it chose nothing."""
    told = [f"{name} {_usual_and_others(values, targets)}" for name, values in knobs.items()]
    return [f"believed before any run, by cross-validation: {', '.join(told)}"] if told else []


def _usual_and_others(values: FloatArray, targets: Sequence[str]) -> str:
    """The value (K,) of most targets, then the others, each with its targets."""
    found, count = np.unique(values, return_counts=True)
    first, *rest = found[np.argsort(-count, kind="stable")].tolist()
    others = [f"{one:g} for {short([targets[j] for j in np.flatnonzero(values == one).tolist()])}" for one in rest]
    return f"{first:g} ({'; '.join(others)})" if others else f"{first:g}"
