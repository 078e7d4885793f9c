"""How often a mixture sees each token, and a warning where the law does not know what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.mixing.baselines import epochs_of
from shapleymix.records import FloatArray

ONCE = 1.0 + 1e-6


def repetition(
    p: FloatArray, sources: Sequence[str], available: FloatArray, D: float, who: str = "the mixture"
) -> list[str]:
    """One warning that names the sources seen more than once: no law here knows what repetition costs.

    Parameters
    ----------
    p : array
        FloatArray (M,) ratios.
    sources : sequence of str
        Sequence[str] Their M names.
    available : array
        FloatArray (M,) unique tokens, NaN where they are not known.
    D : float
        Tokens to train on.
    who : str
        What to call the mixture.

    Returns
    -------
    list[str]
        Empty where no source is repeated.
    """
    epochs = epochs_of(p, available, D)
    often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable") if epochs[i] > ONCE]
    if not often:
        return []
    named = ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in often)
    return [f"the law takes repeated tokens for fresh ones, and {who} repeats {named}"]
