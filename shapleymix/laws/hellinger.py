"""Kernel ridge regression of log losses on mixtures, by their Hellinger distance: smooth, with no form of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.black_box import BlackBox, half_pooled, merged
from shapleymix.records import FloatArray, IntArray

LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
RIDGES = tuple(10.0**power for power in (-5, -4, -3, -2, -1, 0))
LINEAR = 10.0  # variance of the level and of the terms in N and D, in units of the kernel's: next to free


@dataclass(frozen=True)
class HellingerRidge(BlackBox):
    """`log L_j = sum_r w_rj k_j(p, p_r) + terms in log N, log D`, `k_j = exp(-|sqrt p - sqrt q|^2 / (2 l_j^2))`.

    Length and ridge are chosen for each target by leaving every mixture out once, which one decomposition gives
    exactly (Rasmussen and Williams 2006, section 5.4.2). The terms in N and D are linear and square in logarithms.
    """

    kind = "law/hellinger"
    name = "hellinger"
    reference = "kernel ridge regression (Saunders et al. 1998) on sqrt p, as olmix (2026) and MARINER (2026) compare"
    assumption = "near mixtures have near log losses"
    needs = ("mixture",)

    rows: FloatArray  # (R, M) the mixtures that were learned from
    budgets: FloatArray  # (R, 2) logarithms of their N and D
    length: FloatArray  # (K,)
    pull: FloatArray  # (R, K)
    level: FloatArray  # (K,)

    def targets_count(self) -> int:
        return len(self.level)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        place = _Budgets.of(self.budgets)
        straight = place.features(_logs(N, D)) @ place.features(self.budgets).T
        logs = np.empty((len(p), len(self.level)))
        for length in np.unique(self.length):
            chosen = self.length == length
            kernel = near(p, self.rows, float(length)) + LINEAR * straight
            logs[:, chosen] = self.level[chosen] + kernel @ self.pull[:, chosen]
        return np.exp(np.clip(logs, -50.0, 50.0))

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
        """Targets whose losses have the same weights share every decomposition."""
        seen = np.flatnonzero((weight > 0).any(axis=1))
        first, y, weight = merged(p[seen], N[seen], D[seen], log_loss[seen], weight[seen], groups[seen])
        rows = seen[first]
        p, budgets, groups = p[rows], _logs(N, D)[rows], groups[rows]
        level = (weight * y).sum(axis=0) / weight.sum(axis=0)
        place = _Budgets.of(budgets)
        straight = LINEAR * place.features(budgets) @ place.features(budgets).T
        kernels = np.stack([near(p, p, length) for length in LENGTHS]) + straight
        length, pull = np.empty(len(level)), np.zeros_like(y)
        patterns, alike = np.unique(weight / weight.max(axis=0), axis=1, return_inverse=True)
        for number, pattern in enumerate(patterns.T):
            columns, rows = np.flatnonzero(alike.ravel() == number), np.flatnonzero(pattern)
            share = pattern[rows] * pattern.sum() / np.square(pattern).sum()  # of the usual row 1: the ridge is of one
            found = _solved(kernels[:, rows[:, None], rows], (y - level)[np.ix_(rows, columns)], share, groups[rows])
            length[columns] = found[0]
            pull[np.ix_(rows, columns)] = found[1]
        return cls(p, budgets, length, pull, level)


def near(p: FloatArray, q: FloatArray, length: float) -> FloatArray:
    """The Gaussian kernel of the Hellinger distance, (rows of p, rows of q)."""
    overlap = np.sqrt(p) @ np.sqrt(q).T
    squared = np.maximum(p.sum(axis=1)[:, None] + q.sum(axis=1) - 2 * overlap, 0.0)
    return np.exp(-squared / (2 * length**2))


@dataclass(frozen=True)
class _Budgets:
    """What standardises log budgets: the mean and spread of those that were learned from, and which vary thrice."""

    center: FloatArray  # (2,)
    spread: FloatArray  # (2,)
    bends: tuple[bool, ...]  # three levels or more: a square, too

    @classmethod
    def of(cls, logs: FloatArray) -> _Budgets:
        spread = logs.std(axis=0)
        levels = [len(np.unique(column)) for column in logs.T]
        return cls(logs.mean(axis=0), np.where(np.array(levels) > 1, spread, np.inf), tuple(n > 2 for n in levels))

    def features(self, logs: FloatArray) -> FloatArray:
        """One, the standardised logarithms, and the squares of those that vary enough, (R, features)."""
        z = (logs - self.center) / self.spread
        return np.concatenate([np.ones((len(z), 1)), z, z[:, self.bends] ** 2], axis=1)


def _logs(N: FloatArray, D: FloatArray) -> FloatArray:
    return np.log(np.stack([N, D], axis=1))


def _solved(kernels: FloatArray, y: FloatArray, weight: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Length (K,) and pull (R, K) of targets with the same weights (R,), from kernels (lengths, R, R)."""
    root = np.sqrt(weight)
    scaled = kernels * root[:, None] * root
    target = y * root[:, None]
    values, vectors = np.linalg.eigh(scaled)
    turned = vectors.swapaxes(1, 2) @ target  # (lengths, R, K)
    members = [np.flatnonzero(groups == name) for name in np.unique(groups)]
    error = np.stack([
        _left_out(vectors[number], 1.0 / (np.maximum(values[number], 0.0) + ridge), turned[number], members)
        for number in range(len(LENGTHS))
        for ridge in RIDGES
    ])  # fmt: skip
    length, ridge = np.divmod(half_pooled(error), len(RIDGES))
    pull = np.empty_like(target)
    for j, (one, other) in enumerate(zip(length.tolist(), ridge.tolist(), strict=True)):
        inverse = 1.0 / (np.maximum(values[one], 0.0) + RIDGES[other])
        pull[:, j] = root * (vectors[one] @ (inverse * turned[one, :, j]))
    return np.array(LENGTHS)[length], pull


def _left_out(vectors: FloatArray, inverse: FloatArray, turned: FloatArray, members: list[IntArray]) -> FloatArray:
    """Sum of squares (K,) of what each group's rows differ by from the fit to the other groups."""
    pulls = vectors @ (inverse[:, None] * turned)
    total = np.zeros(turned.shape[1])
    for rows in members:
        block = (vectors[rows] * inverse) @ vectors[rows].T
        total += (np.linalg.solve(block, pulls[rows]) ** 2).sum(axis=0)
    return total
