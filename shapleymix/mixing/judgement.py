"""What the fit itself says of the optimum and of its rivals: outside of what was fitted, or above an untrained model.

Every mixture is judged by the fit's own ranges before its number is shown; under `strict` an optimum outside of them
is an error, and a rival outside of them has no number.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shapleymix.errors import ShapleyMixWarning
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.fit_like import FitLike, Predicted, predicted
from shapleymix.mixing.repeating import supply_of
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Judgement:
    """The optimum in row 0, then the rivals.

    Attributes
    ----------
    optimum : Predicted
        Prediction of the optimum alone.
    targets : tuple of str
        Names of the K targets.
    outside, above : bool array (1 + rivals, K)
        Whether a target is outside of what its fit used, or above an untrained model's loss.
    warnings : tuple of str
        Of the optimum, then of each rival what is not said of the optimum already.
    strict : bool
        Whether what lies outside has no number.
    """

    optimum: Predicted
    targets: tuple[str, ...]
    outside: BoolArray
    above: BoolArray
    warnings: tuple[str, ...]
    strict: bool

    def reason(self, row: int, w: FloatArray) -> str:
        """Why the objective of a mixture is no number ("" if it is one); `w` (K,) are the targets' weights."""
        lost = self.above[row] & (w > 0)
        if lost.any():
            return f"above an untrained model's loss for {self._named(lost)}"
        far = self.outside[row] & (w > 0)
        return f"outside of what was fitted for {self._named(far)}" if self.strict and far.any() else ""

    def _named(self, mask: BoolArray) -> str:
        return ", ".join(name for name, one in zip(self.targets, mask.tolist(), strict=True) if one)


def judged(
    fit: FitLike, p: FloatArray, rivals: Mapping[str, FloatArray], N: float, bounds: Constraints, demands: Demands
) -> Judgement:
    """What the fit says of the optimum p (M,) and of its rivals, with the unique tokens of the bounds.

    Raises
    ------
    OutsideError
        Under `strict`, if the optimum lies outside of what was fitted.
    """
    level, D = demands.level, bounds.D
    supply = supply_of(fit, bounds.sources, bounds.available)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)  # said once, by `optimize`, for the whole answer
        optimum = predicted(fit, p[None], N, D, supply, level=level, strict=demands.strict)
        others = [predicted(fit, rival[None], N, D, supply, level=level) for rival in rivals.values()]
    rows = [optimum, *others]
    own = tuple(getattr(optimum, "warnings", ()))
    found = [
        f"the rival {name}: {text.replace('the mixture ', 'it ')}"
        for name, one in zip(rivals, others, strict=True)
        for text in getattr(one, "warnings", ())
        if text not in own
    ]
    outside, above = (np.concatenate([_mask(one, name) for one in rows]) for name in ("outside", "above_untrained"))
    return Judgement(optimum, tuple(fit.targets), outside, above, (*own, *found), demands.strict)


def _mask(predicted: Predicted, name: str) -> BoolArray:
    """(1, K); false where a fit of a user's own does not say."""
    shape = np.shape(predicted.losses)
    return np.asarray(getattr(predicted, name, np.zeros(shape)), dtype=bool)
