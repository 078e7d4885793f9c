"""How often a mixture sees each token, and a warning where the law does not know what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.records import FloatArray
from shapleymix.tables.baselines import epochs_of

ONCE = 1.0 + 1e-6
SHOWN = 5
"""Points of a prediction whose repetitions are told one by one."""


def repetition(
    p: FloatArray, sources: Sequence[str], available: FloatArray, D: float, who: str = "the mixture"
) -> list[str]:
    """One warning that names the sources seen more than once: no law here knows what repetition costs.

    Parameters
    ----------
    p : array (M,)
        Ratios.
    sources : sequence of str (M,)
        Labels.
    available : array (M,)
        Unique tokens, NaN where they are not known.
    D : float
        Tokens to train on.
    who : str
        What to call the mixture.

    Returns
    -------
    list of str
        Empty where no source is repeated.
    """
    epochs = epochs_of(p, available, D)
    often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable") if epochs[i] > ONCE]
    if not often:
        return []
    named = ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in often)
    return [f"the law takes repeated tokens for fresh ones, and {who} repeats {named}"]


def repetitions(
    p: FloatArray, sources: Sequence[str], available: FloatArray, D: FloatArray, names: Sequence[str] | None
) -> list[str]:
    """The warnings of several mixtures p (R, M), each at its D (R,); only the first few, and how many more there are.

    Parameters
    ----------
    names : sequence of str (R,), optional
        What to call the mixtures; None for their numbers.
    """
    if not np.isfinite(available).any():
        return []
    known = [f"point {row}" for row in range(len(p))] if names is None and len(p) > 1 else names or ["the mixture"]
    rows = zip(p, D.tolist(), known, strict=True)
    told = (text for ratios, tokens, who in rows for text in repetition(ratios, sources, available, tokens, who))
    found = list(dict.fromkeys(told))  # a mixture repeats the same at every N
    hidden = len(found) - SHOWN
    return [*found[:SHOWN], f"{hidden} more points repeat tokens"] if hidden > 0 else found
