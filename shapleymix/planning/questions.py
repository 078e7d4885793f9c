"""What is to be known better: the losses over a region, or what near-optimal mixtures gain over the optimum.

A question is a mixture whose log loss is asked for, or the difference of its log loss from another mixture's. Its
variance under a belief is what runs are to shrink; questions and targets have weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.planning.belief import ALL, Belief, Targets
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Questions:
    """Mixtures (Q, M) asked for, the one they are compared with (or None), and weights (Q,), (K,)."""

    points: FloatArray
    against: FloatArray | None
    weights: FloatArray
    of_targets: FloatArray

    @classmethod
    def over(cls, points: FloatArray, targets: int) -> Questions:
        """The losses of all targets at mixtures (Q, M), which all count alike."""
        return cls(points, None, _even(len(points)), _even(targets))

    @classmethod
    def around(cls, optimum: FloatArray, others: FloatArray, of_targets: FloatArray) -> Questions:
        """What other mixtures (Q, M), which may be the better ones, gain over the optimum (M,).

        `of_targets` (K,) is what the variance of each target's log loss counts for in that of the objective.
        """
        return cls(others, optimum, _even(len(others)), of_targets)

    def features(self, belief: Belief, targets: Targets = ALL) -> FloatArray:
        """Features (K, Q, P) of what is asked."""
        asked = belief.features(self.points, targets)
        return asked if self.against is None else asked - belief.features(self.against[None], targets)


def _even(count: int) -> FloatArray:
    return np.full(count, 1.0 / count)
