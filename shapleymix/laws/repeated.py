"""What tokens are worth that a run sees more than once: effective ratios q in place of the ratios p.

A source with U unique tokens, of which a run takes D p, gives it as much as S(D p; U) fresh ones would:

    S(T; U) = T                                               T <= U
            = U (1 + (1 - exp(-lambda (T / U - 1))) / lambda)  beyond

with one rate lambda for all sources (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models", eq. 5, whose
R* is 1 / lambda; ATLAS, Longpre et al. 2025). A law takes q = S / D wherever its equation says p. q is concave in p
with a continuous slope, so that a law which is convex and falling in p stays so. q no longer sums to one.

Legend: M sources; u = U / D, unique tokens as a share of D, infinite where nothing is repeated. Arrays broadcast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shapleymix.records import FloatArray

PUBLISHED = 1 / 15.39
"""The rate of Muennighoff et al. 2023 (R*_D = 15.39, C4, up to 9B parameters): a token is worth little beyond some 15
repetitions of it."""
PUBLISHED_SPREAD = 0.6
"""Standard deviation of the rate's logarithm: 90% of R* from 5.7 to 41. No paper gives one; this holds what they say of
theirs: hardly a loss up to 4 epochs, and nothing left to gain at 40."""
SMALLEST = 1e-300


class Effective(NamedTuple):
    """q, and its first and second derivative in p."""

    q: FloatArray
    slope: FloatArray
    bend: FloatArray


def effective(p: FloatArray, u: FloatArray, rate: FloatArray | float) -> FloatArray:
    """Effective ratios q.

    Parameters
    ----------
    p : array (..., M)
        Ratios.
    u : array (..., M)
        Unique tokens as a share of D.
    rate : array (..., M)
        The rate lambda; 0 takes repeated tokens for fresh ones.
    """
    again, unique = _again(p, u)
    return np.minimum(p, u) + unique * _worth(again, rate)


def effective_slopes(p: FloatArray, u: FloatArray, rate: FloatArray | float) -> Effective:
    """Effective ratios with their derivatives in p; the second one jumps where the first token is repeated."""
    again, unique = _again(p, u)
    slope = np.exp(-rate * again)
    bend = np.where(again > 0, -rate * slope / unique, 0.0)
    return Effective(np.minimum(p, u) + unique * _worth(again, rate), slope, bend)


def slope_in_supply(p: FloatArray, u: FloatArray, rate: FloatArray | float) -> FloatArray:
    """d q / d u: what one more unique token is worth, in fresh ones; 0 where none is repeated."""
    again, _ = _again(p, u)
    return np.where(again > 0, 1 + _worth(again, rate) - (1 + again) * np.exp(-rate * again), 0.0)


def _again(p: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How often each token is seen beyond the first time, and u where it is finite (else 1)."""
    unique = np.maximum(np.where(np.isfinite(u), u, 1.0), SMALLEST)
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(u), np.maximum(p / unique - 1, 0.0), 0.0), unique


def _worth(again: FloatArray, rate: FloatArray | float) -> FloatArray:
    """What repetitions are worth, in passes over fresh text: (1 - exp(-lambda R)) / lambda."""
    known = np.maximum(rate, SMALLEST)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.asarray(rate) * again > 1e-12, -np.expm1(-known * again) / known, again)
