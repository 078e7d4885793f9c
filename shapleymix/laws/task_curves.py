"""What a loss is turned into before a curve is drawn through the scores: `s = a g(l) + b`, or a sigmoid above chance.

The five transforms are those of the ShapleyLaw paper (appendix "Additional Experiments on Downstream Tasks"). The
sigmoid is `s = c + (1 - c) / (1 + exp(a l - b))`: a line in `-l` on the scale of log odds, from a chance level c up.

A task's error rate is `e(p) = 1 - s(loss(p))`. With `u = loss - floor` and `kappa = (gamma + 1) / gamma` for power
pieces, 1 for exponential ones, it is convex in the mixture where `kappa e'(l) + u e''(l) >= 0`, which is that

    -l       always
    log l    floor >= 0 (a sum of log-convex functions is log-convex)
    exp(-l)  u <= kappa
    1/l      kappa floor + (kappa - 2) u >= 0, and floor >= 0: for all u where gamma <= 1
    sigmoid  a u (1 - 2 sigma) <= kappa, sigma = 1 / (1 + exp(a l - b))

and each holds for all u from 0 to where it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from shapleymix.records import BoolArray, FloatArray, IntArray

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
    def is_sigmoid(self) -> bool:
        """Whether scores bend between chance and one: a sigmoid of g, not a line in it."""
        return self.name == SIGMOID

    def score(
        self, loss: FloatArray, a: FloatArray | float, b: FloatArray | float, chance: FloatArray | float
    ) -> FloatArray:
        """Scores at losses; all four broadcast. An infinite loss scores what the limit does, infinity if none."""
        line = a * self.value(loss) + b
        return chance + (1 - chance) * expit(line) if self.is_sigmoid else line

    def slopes(
        self, loss: FloatArray, a: FloatArray, b: FloatArray, chance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of the score in the loss."""
        first, second = a * self.first(loss), a * self.second(loss)
        if not self.is_sigmoid:
            return first, second
        at = expit(a * self.value(loss) + b)
        steep = (1 - chance) * at * (1 - at)
        return steep * first, steep * ((1 - 2 * at) * first**2 + second)


def _falling(loss: FloatArray) -> FloatArray:
    return np.exp(-loss)


_MINUS: tuple[Curve, Curve, Curve] = (lambda loss: -loss, lambda loss: -np.ones_like(loss), np.zeros_like)

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


SHAPES = tuple(TRANSFORMS.values())
CODES = {shape.name: float(code) for code, shape in enumerate(SHAPES)}


class TaskCurves(NamedTuple):
    """The curves of T tasks, with any leading axes: numbers a and b, guess (of a sigmoid alone), codes of shapes."""

    a: FloatArray
    b: FloatArray
    guess: FloatArray
    shape: FloatArray

    def errors(self, loss: FloatArray) -> FloatArray:
        """Error rates (..., T) at the losses (..., T) of each task's language."""
        found = np.empty(np.broadcast_shapes(np.shape(loss), np.shape(self.a)))
        for code, tasks in self._by_shape():
            found[..., tasks] = 1 - SHAPES[code].score(loss[..., tasks], *self.select(tasks)[:3])
        return found

    def slopes(self, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of the error rates in the losses."""
        found = np.empty((2, *np.broadcast_shapes(np.shape(loss), np.shape(self.a))))
        for code, tasks in self._by_shape():
            found[..., tasks] = SHAPES[code].slopes(loss[..., tasks], *self.select(tasks)[:3])
        return -found[0], -found[1]

    def convex_up_to(self, u: FloatArray, floor: FloatArray, kappa: FloatArray) -> BoolArray:
        """(..., T) whether error rates are convex in the mixture where losses less their floor are at most u."""
        with np.errstate(over="ignore", invalid="ignore"):
            steep = self.a * (1 - 2 / (1 + np.exp(self.a * (floor + u) - self.b)))
            known = {
                "log": floor >= 0,
                "exp": u <= kappa,
                "inverse": (floor >= 0) & ((kappa >= 2) | (kappa * floor + (kappa - 2) * u >= 0)),
                "sigmoid": u * np.maximum(steep, 0.0) <= kappa,
            }
        found = ~np.isnan(u) & np.ones(np.shape(self.shape), dtype=bool)  # lines in the loss always are
        for name, holds in known.items():
            found &= (self.shape != CODES[name]) | holds
        return found

    def take(self, rows: IntArray | BoolArray | slice | int) -> TaskCurves:
        """Some members of the one leading axis."""
        return TaskCurves(*(value if value.ndim == 1 else value[rows] for value in self))

    def select(self, tasks: IntArray | BoolArray | int) -> TaskCurves:
        """The curves of some tasks."""
        return TaskCurves(*(value[..., tasks] for value in self))

    def _by_shape(self) -> list[tuple[int, IntArray]]:
        """Every shape that occurs, and the tasks of it: the same ones in every member."""
        codes = self.shape.reshape(-1, self.shape.shape[-1])[0]
        return [(int(code), np.flatnonzero(codes == code)) for code in np.unique(codes)]
