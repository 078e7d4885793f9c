"""How to fit and compare: every default stands here, once; the command line reads its own from here."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
LEVEL = 0.9
"""Probability of intervals."""
SEED = 0


@dataclass(frozen=True)
class Settings:
    """How to fit, and which rows to fit to.

    Attributes
    ----------
    delta : float
        Huber's threshold on log residuals; `inf` is plain least squares.
    prior : float
        Precision of the weak prior that pulls log coefficients towards their mean, as a share of the total weight times
        delta.
    starts : int
        Number of starting points for each target that are followed to the end.
    iterations, tolerance : int or float
        Most iterations of the search, and the relative change at which it stops.
    threads : int
        Number of chunks that are worked on at once; the result does not depend on it.
    bootstrap : int
        Number of bootstrap replicates for intervals; 0 for none.
    folds : int
        Folds of the cross-validation that gives the held-out error; 0 for none.
    min_tokens : float
        Runs that give some language fewer tokens than this are left out (1.5e9 in the paper).
    min_own_tokens : float
        Losses of a target whose own language has fewer tokens than this are left out.
    drop_warmup : float
        Checkpoints before this share of their run's last D are left out.
    """

    delta: float = 1e-3
    prior: float = 1e-5
    starts: int = 6
    iterations: int = 1000
    tolerance: float = 1e-8
    threads: int = 2
    bootstrap: int = 200
    folds: int = 10
    min_tokens: float = 0.0
    min_own_tokens: float = 0.0
    drop_warmup: float = 0.0
