"""How often a mixture sees each token: warnings of several mixtures, and that of a law which does not know its cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shapleymix.records import FloatArray
from shapleymix.tables.baselines import epochs_of

ONCE = 1.0 + 1e-6
SHOWN = 5
"""Points of a prediction whose repetitions are told one by one."""


def repetition(
    p: FloatArray, sources: Sequence[str], available: FloatArray, D: float, who: str = "the mixture"
) -> list[str]:
    """One warning that names the sources seen more than once, for a law that does not know what repetition costs.

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
    p: FloatArray,
    unique: FloatArray,
    D: FloatArray,
    names: Sequence[str] | None,
    warn: Callable[[FloatArray, FloatArray, float, str], list[str]],
) -> list[str]:
    """The warnings of several mixtures p (R, M), each at its D (R,); only the first few, and how many more there are.

    Parameters
    ----------
    unique : array (R, M)
        Unique tokens, NaN where they are not known.
    names : sequence of str (R,), optional
        What to call the mixtures; None for their numbers.
    warn : callable
        The warnings of one mixture (M,) from its unique tokens (M,), its D and its name.
    """
    known = [f"point {row}" for row in range(len(p))] if names is None and len(p) > 1 else names or ["the mixture"]
    rows = zip(p, unique, D.tolist(), known, strict=True)
    told = (text for ratios, limits, tokens, who in rows for text in warn(ratios, limits, tokens, who))
    found = list(dict.fromkeys(told))  # a mixture repeats the same at every N
    hidden = len(found) - SHOWN
    return [*found[:SHOWN], f"{hidden} more points repeat tokens"] if hidden > 0 else found
