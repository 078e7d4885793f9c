"""The runs that shrink the variance of the questions most: one after another, then exchanged one by one.

Observing a run of candidate c changes the covariances by a rank-one update (Sherman and Morrison's formula), so its
worth is known for all candidates at once: `sum of weights x cov(c, question)^2 / (var(c) + noise)` (I-optimality;
Atkinson, Donev and Tobias 2007, "Optimum Experimental Designs", chapters 10 to 12). The greedy choice is exchanged run
by run (Fedorov 1972) until no exchange helps. Legend: T targets (or groups of them), C candidates, Q questions.

A run costs T C (C + Q) operations to add or to leave out, so n runs cost n times that for the greedy choice, and twice
as much again for each pass of exchanges. Above `MOST_GROUPS` targets their covariances are averaged in groups: the one
approximation, for 200 languages 16 groups in place of 200 targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dger

from shapleymix.planning.belief import Belief
from shapleymix.planning.questions import Questions
from shapleymix.records import FloatArray, IntArray

MOST_GROUPS = 16
PASSES = 3
BETTER = 1e-6
"""An exchange must shrink the variance by this much of it, or rounding would go on exchanging twins."""
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

    @classmethod
    def under(cls, belief: Belief, candidates: FloatArray, questions: Sequence[Questions]) -> Covariances:
        """The covariances of candidates (C, M); the first questions drive the choice, the others are followed."""
        own, noise = belief.features(candidates), belief.scatter(candidates)
        asked = np.concatenate([one.features(belief) for one in questions], axis=1)
        K = max(len(own), len(questions[0].of_targets))
        groups = np.arange(K) * min(K, MOST_GROUPS) // K
        driving = np.zeros(asked.shape[1])
        driving[: len(questions[0].weights)] = questions[0].weights
        return cls(
            among=_averaged(lambda k: own[k % len(own)] @ own[k % len(own)].T, groups),
            asked=_averaged(lambda k: own[k % len(own)] @ asked[k % len(asked)].T, groups),
            variance=_averaged(lambda k: np.sum(asked[k % len(asked)] ** 2, axis=1), groups),
            noise=_averaged(lambda k: noise[k], groups),
            weights=np.bincount(groups, weights=questions[0].of_targets)[:, None] * driving,
            groups=groups,
        )

    def grouped(self, of_targets: FloatArray) -> FloatArray:
        """What the targets (K,) count for, summed over each group (T,)."""
        return np.bincount(self.groups, weights=of_targets)

    def worth(self) -> FloatArray:
        """By how much (C,) each candidate shrinks the weighted variance of what is asked."""
        spread = np.einsum("tcc->tc", self.among) + self.noise
        shrunk = [(asked**2) @ weights for asked, weights in zip(self.asked, self.weights, strict=True)]
        return np.sum(np.array(shrunk) / spread, axis=0)

    def copy(self) -> Covariances:
        """The same, with matrices of its own."""
        return Covariances(**{name: np.copy(value) for name, value in vars(self).items()})

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
        """Subtract outer products in place: `dger` sees the transposed blocks, which are in its own order."""
        for t, noise in enumerate(self.noise[:, candidate].tolist()):
            with_all, with_asked = self.among[t, candidate].copy(), self.asked[t, candidate].copy()
            spread = with_all[candidate] + sign * noise
            for block, row in ((self.among[t], with_all), (self.asked[t], with_asked)):
                dger(-1.0 / spread, row, with_all, a=block.T, overwrite_a=1)
            self.variance[t] -= with_asked**2 / spread


def _averaged(of_target: Callable[[int], FloatArray], groups: IntArray) -> FloatArray:
    """The mean over each group's targets of an array, one target in memory at a time."""
    counts = np.bincount(groups)
    first = np.asarray(of_target(0), dtype=np.float64)
    total = np.zeros((len(counts), *first.shape))
    for k, group in enumerate(groups.tolist()):
        total[group] += of_target(k) / counts[group]
    return total


@dataclass(frozen=True)
class Chosen:
    """Candidates in the order in which they shrink the variance most, and the variances (n + 1, T, Q) on the way."""

    order: IntArray
    variance: FloatArray


def choose(start: Covariances, n: int, passes: int = PASSES, progress: Progress | None = None) -> Chosen:
    """The n candidates, each at most once, whose runs shrink the weighted variance most."""
    now = start.copy()
    chosen: list[int] = []
    for done in range(n):
        chosen.append(_best(now, chosen))
        now.add(chosen[-1])
        if progress is not None:
            progress("choosing mixtures", done + 1, n)
    for number in range(passes):
        if not _exchanged(now, chosen, number, progress):
            break
    return _ordered(start.copy(), chosen)


def _best(now: Covariances, taken: Sequence[int]) -> int:
    """The candidate of the highest worth that is not taken, the first of equals."""
    worth = now.worth()
    worth[list(taken)] = -np.inf
    return int(np.argmax(worth))


def _exchanged(now: Covariances, chosen: list[int], number: int, progress: Progress | None) -> bool:
    """Whether any run was exchanged for a better one; each in turn is tried."""
    moved = False
    for place, old in enumerate(list(chosen)):
        before = now.total()
        now.drop(old)
        rest = chosen[:place] + chosen[place + 1 :]
        new = _best(now, rest)
        now.add(new)
        if new != old and now.total() > before * (1 - BETTER):
            now.drop(new)
            now.add(old)
            new = old
        chosen[place], moved = new, moved or new != old
        if progress is not None:
            progress(f"exchanging, pass {number + 1}", place + 1, len(chosen))
    return moved


def _ordered(now: Covariances, chosen: Sequence[int]) -> Chosen:
    """The chosen ones, the most useful first."""
    left, order, variance = sorted(chosen), [], [now.variance.copy()]
    while left:
        worth = now.worth()
        order.append(left.pop(int(np.argmax(worth[left]))))
        now.add(order[-1])
        variance.append(now.variance.copy())
    return Chosen(np.array(order, dtype=np.int64), np.array(variance))
