"""The mixtures that runs are chosen from, and those over which errors are averaged: given, or drawn within bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.errors import UsageError, described
from shapleymix.planning.region import Region
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.baselines import mixture_of
from shapleymix.tables.runs import RunLog
from shapleymix.tables.simplex import MixtureSpec, check, renormalise, uniform

DRAWN, SPARSE, ASKED = 400, 200, 300
"""How many mixtures are drawn as candidates: at large, and of few sources; and how many make the region."""
USUAL, WIDE = (0.3, 1.0, 3.0), (0.1, 0.3, 1.0, 3.0)
"""Concentrations of the Dirichlet draws: with 0.1 a few sources hold nearly everything, with 3 none holds much more."""
ALIKE = 1e-4
"""Mixtures whose ratios differ by less are one."""

MixturesSpec = RunLog | FloatArray | Sequence[MixtureSpec]
"""Mixtures as they are given: a table of points, ratios (C, M), or a list of whatever may stand for one."""


def mixtures_of(given: MixturesSpec, sources: tuple[str, ...], available: FloatArray, D: float) -> FloatArray:
    """Mixtures (C, M) over the sources.

    Raises
    ------
    UsageError
        If one is no mixture, or there are none.
    """
    if isinstance(given, RunLog):
        return given.aligned(sources, given.targets).p
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != len(sources) or not len(given):
            raise UsageError(f"mixtures of shape {given.shape}, expected (C, {len(sources)})")
        return renormalise(check(given, tolerance=5e-3))
    if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
        raise UsageError(f"{described(given)} is no list of mixtures", hint="give a list, ratios (C, M), or a RunLog")
    return np.stack([mixture_of(one, sources, available, D) for one in given])


def drawn(region: Region, seed: int) -> FloatArray:
    """Candidates (C, M) within bounds: even and random mixtures, some of few sources, the most of each, corners."""
    rng = np.random.default_rng(seed)
    even = np.stack([region.moved(uniform(len(region.inside))[None])[0], region.inside])
    random = (region.draws(DRAWN, rng, WIDE), region.sparse(SPARSE, rng), region.extremes(rng))
    return distinct(np.concatenate([even, *random]))


def asked(region: Region, seed: int) -> FloatArray:
    """Mixtures (Q, M) over which errors are averaged: random ones of several concentrations."""
    return region.draws(ASKED, np.random.default_rng([seed, 1]), USUAL)


def distinct(p: FloatArray) -> FloatArray:
    """Mixtures without repetitions, in their order."""
    _, first = np.unique(np.rint(p / ALIKE), axis=0, return_index=True)
    return p[np.sort(first)]


def trained(p: FloatArray, so_far: FloatArray) -> BoolArray:
    """Which mixtures (C, M) are among those of the runs so far (R, M)."""
    rows = {row.tobytes() for row in np.rint(so_far / ALIKE).astype(np.int64)}
    return np.array([row.tobytes() in rows for row in np.rint(p / ALIKE).astype(np.int64)], dtype=bool)
