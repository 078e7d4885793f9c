"""Mixtures that people use without a law: what an optimum has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.records import FloatArray
from shapleymix.tables.simplex import parse_mixture


def uniform(sources: int) -> FloatArray:
    """Equal ratios (M,)."""
    return np.full(sources, 1.0 / sources)


def smoothed(available: FloatArray, alpha: float = 0.5) -> FloatArray:
    """p_i ~ available_i^alpha (Conneau and Lample 2019; ShapleyLaw paper, "Mixture Optimization Baselines").

    Raises
    ------
    UsageError
        If a corpus size is missing or negative, or all are zero.
    """
    sizes = np.asarray(available, dtype=float)
    if not (np.isfinite(sizes) & (sizes >= 0)).all() or not sizes.any():
        raise UsageError("smoothed sampling needs the available tokens of every source")
    share = np.where(sizes > 0, (sizes / sizes.max()) ** alpha, 0.0)
    return share / share.sum()


def natural(available: FloatArray) -> FloatArray:
    """Ratios in proportion to the available tokens."""
    return smoothed(available, 1.0)


def smoothed_within_families(
    families: Sequence[str], family_ratio: Mapping[str, float], available: FloatArray, alpha: float = 0.5
) -> FloatArray:
    """Ratios of families given, shared out within each by smoothed sampling (FamilyLaw's allocation)."""
    p = np.zeros(len(families))
    for family, ratio in family_ratio.items():
        inside = np.array([own == family for own in families])
        if not inside.any():
            raise UsageError(f"no source belongs to the family {family!r}")
        p[inside] = ratio * smoothed(np.asarray(available, dtype=float)[inside], alpha)
    return p


def named_baselines(
    sources: tuple[str, ...],
    available: FloatArray,
    smoothing: float,
    given: Mapping[str, Mapping[str, float] | str] | None,
) -> dict[str, FloatArray]:
    """Uniform, then smoothed and natural where every corpus size is known, then the given mixtures."""
    table = {"uniform": uniform(len(sources))}
    if np.isfinite(available).all() and available.any():
        table[f"smoothed ({smoothing:g})"] = smoothed(available, smoothing)
        table["natural"] = natural(available)
    for name, mixture in (given or {}).items():
        table[name] = parse_mixture(mixture, sources)
    return table
