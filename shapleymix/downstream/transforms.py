"""What a loss is turned into before a line is drawn through the scores: `s = a g(l) + b`, or a sigmoid above chance.

The five transforms are those of the ShapleyLaw paper (appendix "Additional Experiments on Downstream Tasks"). The
sigmoid is `s = c + (1 - c) / (1 + exp(a l - b))`: a line in `-l` on the scale of log odds, from a chance level c up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.records import FloatArray

Curve = Callable[[FloatArray], FloatArray]
"""A function of losses, elementwise."""

SIGMOID = "sigmoid"


@dataclass(frozen=True)
class Transform:
    """One g of the loss.

    Attributes
    ----------
    name, formula : str
        As it is typed, and as it is printed.
    value, first, second : Curve
        g and its derivatives in the loss.
    falls : bool
        Whether g falls where the loss rises, so that a is above 0 where lower losses score higher.
    """

    name: str
    formula: str
    value: Curve
    first: Curve
    second: Curve
    falls: bool

    @property
    def bent(self) -> bool:
        """Whether scores bend between chance and one: a sigmoid of g, not a line in it."""
        return self.name == SIGMOID

    def score(self, loss: FloatArray, a: FloatArray, b: FloatArray, chance: FloatArray) -> FloatArray:
        """Scores at losses; all four broadcast. An infinite loss scores what the limit does, infinity if none."""
        line = a * self.value(loss) + b
        return chance + (1 - chance) * expit(line) if self.bent else line

    def slopes(
        self, loss: FloatArray, a: FloatArray, b: FloatArray, chance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of the score in the loss."""
        first, second = a * self.first(loss), a * self.second(loss)
        if not self.bent:
            return first, second
        at = expit(a * self.value(loss) + b)
        steep = (1 - chance) * at * (1 - at)
        return steep * first, steep * ((1 - 2 * at) * first**2 + second)


def _minus(loss: FloatArray) -> FloatArray:
    return -loss


def _falling(loss: FloatArray) -> FloatArray:
    return np.exp(-loss)


_MINUS: tuple[Curve, Curve, Curve] = (_minus, lambda loss: -np.ones_like(loss), np.zeros_like)

TRANSFORMS: dict[str, Transform] = {
    one.name: one
    for one in (
        Transform("minus", "-l", *_MINUS, falls=True),
        Transform("loss", "l", lambda loss: loss, np.ones_like, np.zeros_like, falls=False),
        Transform("log", "log l", np.log, lambda loss: 1 / loss, lambda loss: -1 / loss**2, falls=False),
        Transform("exp", "exp(-l)", _falling, lambda loss: -np.exp(-loss), _falling, falls=True),
        Transform(
            "inverse", "1/l", lambda loss: 1 / loss, lambda loss: -1 / loss**2, lambda loss: 2 / loss**3, falls=True
        ),
        Transform(SIGMOID, SIGMOID, *_MINUS, falls=True),
    )
}
"""Every transform by its name. Of two that predict alike the earlier is taken: `l` and `-l` are one line."""


def transform_of(given: str) -> Transform:
    """A transform by its name or its formula.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    text = given.strip()
    found = next((one for one in TRANSFORMS.values() if text in (one.name, one.formula)), None)
    if found is None:
        raise UsageError(f"there is no transform {text!r}", hint=did_you_mean(text, TRANSFORMS))
    return found
