"""How often a mixture sees each token, and a warning where the law does not know what that costs."""

from __future__ import annotations

import numpy as np

from shapleymix.mixing.bounds import Constraints
from shapleymix.records import FloatArray

ONCE = 1.0 + 1e-6


def realised_epochs(p: FloatArray, bounds: Constraints) -> FloatArray:
    """p D / available (M,): NaN where the tokens are not known, or none are there and none are asked for."""
    used = p * bounds.D
    return np.divide(used, bounds.available, out=np.full_like(used, np.nan), where=bounds.available > 0)


def repetition(p: FloatArray, bounds: Constraints) -> list[str]:
    """One notice that names the sources seen more than once: no law here knows what repetition costs."""
    epochs = realised_epochs(p, bounds)
    often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable") if epochs[i] > ONCE]
    if not often:
        return []
    named = ", ".join(f"{bounds.sources[i]} {epochs[i]:.3g} times" for i in often)
    return [f"the law takes repeated tokens for fresh ones, and the mixture repeats {named}"]
