"""A black box: a law without symbols, that learns by its own means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.base import Inputs, Law, require_ratios
from shapleymix.laws.symbols import Parameter
from shapleymix.laws.terms import Terms
from shapleymix.records import FloatArray, IntArray


@dataclass(frozen=True)
class BlackBox(Law):
    """A law without symbols, that learns by its own means."""

    name: ClassVar[str] = "black-box"

    @classmethod
    def learn(
        cls,
        p: FloatArray,
        N: FloatArray,
        D: FloatArray,
        log_loss: FloatArray,
        weight: FloatArray,
        groups: IntArray,
        seed: int,
    ) -> Self:
        """Learn log losses (R, K) from rows; rows of weight zero must not be looked at."""
        raise NotImplementedError

    @classmethod
    def require(cls, inputs: Inputs) -> None:
        require_ratios(inputs, cls)

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        return ()

    def terms(self, N: float, D: float) -> Terms:
        hint = "fit a convex law, such as 'learned-base'"
        raise SolveError(f"law {self.name!r} is not convex in the mixture", hint=hint)


def folds_of(groups: IntArray, most: int, seed: int) -> IntArray:
    """The fold (R,) of each row, for choosing hyperparameters: rows of one group stay together."""
    names, place = np.unique(groups, return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(len(names))
    return drawn[place] % min(most, len(names))


def merged(
    p: FloatArray, N: FloatArray, D: FloatArray, log_loss: FloatArray, weight: FloatArray, groups: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows of one mixture, N and D taken together: the first of each, their mean log losses and their weights, (G, K).

    A learner that counts rows, or adds a ridge to their kernel, then takes a row twice at half weight for one row.
    """
    alike = np.column_stack([groups, p, N, D])
    _, first, place = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.argsort(order)[place.ravel()]  # (R,) in order of the first rows
    total, mean = np.zeros((2, len(first), weight.shape[1]))
    np.add.at(total, number, weight)
    np.add.at(mean, number, weight * np.where(weight > 0, log_loss, 0.0))
    return first[order], mean / np.where(total > 0, total, 1.0), total


def half_pooled(error: FloatArray) -> IntArray:
    """The best choice (K,) for each target by its own error (choices, K) and the mean over all targets, alike.

    A target alone tells little of its hyperparameters where runs are few; each counts in units of its best error.
    """
    relative = error / np.maximum(error.min(axis=0), 1e-300)
    return (relative + relative.mean(axis=1, keepdims=True)).argmin(axis=0)


def pooled(error: FloatArray) -> int:
    """The best choice for all targets together, by their errors (choices, K) in units of each one's best."""
    return int((error / np.maximum(error.min(axis=0), 1e-300)).mean(axis=1).argmin())
