"""The runs that shrink the variance of the questions most: one after another, then exchanged one by one.

Observing a run of candidate c changes the covariances by a rank-one update (Sherman and Morrison's formula), so its
worth is known for all candidates at once: `sum of weights x cov(c, question)^2 / (var(c) + noise)` (I-optimality;
Atkinson, Donev and Tobias 2007, "Optimum Experimental Designs", chapters 10 to 12). The greedy choice is exchanged run
by run (Fedorov 1972) until no exchange helps. Legend: T targets (or groups of them), C candidates, Q questions.

A run costs T C (C + Q) operations to add or to take back, so n runs cost n times that for the greedy choice; a run is
tried for exchange by T C Q operations, and a good one costs two updates. Above `MOST_GROUPS` targets their covariances
are averaged in groups: the one approximation, for 200 languages 16 groups in place of 200 targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_blas_funcs

from shapleymix.planning.belief import Belief
from shapleymix.planning.questions import Questions
from shapleymix.records import FloatArray, IntArray

MOST_GROUPS = 16
"""Above so many targets, their covariances are averaged."""
PASSES = 3
BLOCK = 24  # targets whose features are in memory at once
BETTER = 1e-6
"""An exchange must shrink the variance by this much of it, or rounding would go on exchanging twins."""
(GER,) = get_blas_funcs(("ger",), dtype=np.float64)
Progress = Callable[[str, int, int], None]


@dataclass
class Covariances:
    """Covariances under a belief as runs are added: of candidates (T, C, C), of these with questions (T, C, Q), and the
    variances of the questions (T, Q).

    Beside them `noise` (T, C), the weights of what drives the choice (T, Q), and the group of each target (K,). It is
    the one object here that changes: copies of the matrices would cost more than their updates.
    """

    among: FloatArray
    asked: FloatArray
    variance: FloatArray
    noise: FloatArray
    weights: FloatArray
    groups: IntArray
    _shrunk: FloatArray | None = None

    @classmethod
    def under(cls, belief: Belief, candidates: FloatArray, questions: Sequence[Questions]) -> Covariances:
        """The covariances of candidates (C, M); the first questions drive the choice, the others are followed."""
        points = np.concatenate([one.points for one in questions])
        K, C, Q = len(belief.noise), len(candidates), len(points)
        groups = np.arange(K) * min(K, MOST_GROUPS) // K
        T, sizes = groups[-1] + 1, np.bincount(groups)
        driving = np.zeros(Q)
        driving[: len(questions[0].weights)] = questions[0].weights
        found = cls(
            among=np.zeros((T, C, C)),
            asked=np.zeros((T, C, Q)),
            variance=np.zeros((T, Q)),
            noise=np.zeros((T, C)),
            weights=np.bincount(groups, weights=questions[0].of_targets)[:, None] * driving,
            groups=groups,
        )
        for block in np.array_split(np.arange(K), -(-K // BLOCK)):
            own, noise = belief.features(candidates, block), belief.scatter(candidates, block)
            asked = np.concatenate([one.features(belief, block) for one in questions], axis=1)
            for place, t in enumerate(groups[block].tolist()):
                found.among[t] += own[place] @ own[place].T / sizes[t]
                found.asked[t] += own[place] @ asked[place].T / sizes[t]
                found.variance[t] += np.sum(asked[place] ** 2, axis=1) / sizes[t]
                found.noise[t] += noise[place] / sizes[t]
        return found

    def worth(self, without: int | None = None) -> FloatArray:
        """By how much (C,) each candidate shrinks the weighted variance of what is asked; `without` a run of another.

        Taking the run back is reckoned from its row alone, a product with each candidate in place of an update.
        """
        if self._shrunk is None:
            pairs = zip(self.asked, self.weights, strict=True)
            self._shrunk = np.array([(asked**2) @ weights for asked, weights in pairs])
        shrunk, spread = self._shrunk, np.einsum("tcc->tc", self.among) + self.noise
        if without is not None:
            row, told = self.among[:, without], self.weights * self.asked[:, without]
            share = row / (self.noise[:, without] - row[:, without])[:, None]
            size = np.sum(told * self.asked[:, without], axis=1)[:, None]
            shrunk = shrunk + 2 * share * (self.asked @ told[..., None])[..., 0] + share**2 * size
            spread = spread + share * row
        return np.sum(shrunk / spread, axis=0)

    def total(self) -> float:
        """The weighted variance of what is asked."""
        return float(np.sum(self.weights * self.variance))

    def add(self, candidate: int) -> None:
        """Observe a run of a candidate."""
        self._update(candidate, 1.0)

    def drop(self, candidate: int) -> None:
        """Take a run back."""
        self._update(candidate, -1.0)

    def _update(self, candidate: int, sign: float) -> None:
        """Subtract outer products in place: BLAS sees the transposed blocks, which are in its own order."""
        for t, noise in enumerate(self.noise[:, candidate].tolist()):
            with_all, with_asked = self.among[t, candidate].copy(), self.asked[t, candidate].copy()
            spread = with_all[candidate] + sign * noise
            for block, row in ((self.among[t], with_all), (self.asked[t], with_asked)):
                GER(-1.0 / spread, row, with_all, a=block.T, overwrite_a=1)
            self.variance[t] -= with_asked**2 / spread
        self._shrunk = None


@dataclass(frozen=True)
class Chosen:
    """Candidates in the order in which they shrink the variance most, the variances (n + 1, T, Q) on the way, and the
    group of each target (K,)."""

    order: IntArray
    variance: FloatArray
    groups: IntArray

    def mean(self, questions: Questions, first: int) -> FloatArray:
        """The weighted variance (n + 1,) of some questions, of which `first` were asked before."""
        asked = self.variance[:, :, first : first + len(questions.points)] @ questions.weights
        return asked @ np.bincount(self.groups, weights=questions.of_targets)


def choose(
    belief: Belief,
    candidates: FloatArray,
    questions: Sequence[Questions],
    n: int,
    passes: int = PASSES,
    progress: Progress | None = None,
) -> Chosen:
    """The n candidates (C, M), each at most once, whose runs shrink the variance of the first questions most."""
    now = Covariances.under(belief, candidates, questions)
    chosen: list[int] = []
    for done in range(n):
        chosen.append(_best(now.worth(), chosen))
        now.add(chosen[-1])
        if progress is not None:
            progress("choosing mixtures", done + 1, n)
    for _ in range(passes):
        if not _exchanged(now, chosen):
            break
    chosen.sort()
    order, variance = _ordered(Covariances.under(belief, candidates[chosen], questions))
    return Chosen(np.array(chosen, dtype=np.int64)[order], variance, now.groups)


def _best(worth: FloatArray, taken: Sequence[int]) -> int:
    """The candidate of the highest worth that is not taken, the first of equals."""
    left = worth.copy()
    left[list(taken)] = -np.inf
    return int(np.argmax(left))


def _exchanged(now: Covariances, chosen: list[int]) -> bool:
    """Whether any run was exchanged for a better one; each in turn is tried."""
    moved = False
    for place, old in enumerate(list(chosen)):
        worth = now.worth(without=old)
        new = _best(worth, chosen)
        if len(worth) > len(chosen) and worth[new] > worth[old] + BETTER * now.total():
            now.drop(old)
            now.add(new)
            chosen[place], moved = new, True
    return moved


def _ordered(now: Covariances) -> tuple[IntArray, FloatArray]:
    """All candidates, the most useful first, and the variances (C + 1, T, Q) before the first and after each."""
    order: list[int] = []
    variance = [now.variance.copy()]
    for _ in range(len(now.noise[0])):
        order.append(_best(now.worth(), order))
        now.add(order[-1])
        variance.append(now.variance.copy())
    return np.array(order, dtype=np.int64), np.array(variance)
