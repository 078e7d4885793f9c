"""What an optimisation's numbers are called: losses in nats, or scores of tasks, which are shown for error rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.mixing.mixtures import ERROR, Mixture
from shapleymix.mixing.problem import WORST
from shapleymix_cli.views.numbers import fixed, interval


@dataclass(frozen=True)
class Measure:
    """Words for one kind of number.

    Attributes
    ----------
    noun, of, unit : str
        "loss" or "score"; what has one ("target", "task"); and what is written behind a number.
    gained : str
        What more of a bound brings: "nats saved" or "score gained".
    flipped : bool
        Whether one less the number is shown.
    """

    noun: str
    of: str
    unit: str
    gained: str
    flipped: bool

    @property
    def heading(self) -> str:
        """What stands above predicted numbers."""
        return f"Predicted scores, by {self.of}" if self.flipped else f"Predicted losses in {self.unit}"

    def objective(self, found: Mixture) -> str:
        """What is maximised or minimised."""
        uneven = np.ptp(found.weights[found.weights > 0]) > 0
        if self.flipped and found.objective_kind == WORST and uneven:
            return "one less the largest weighted error"
        return f"{found.objective_kind} {self.noun}"

    def shown(self, value: float) -> float:
        """The number as it is shown."""
        return 1 - value if self.flipped else value

    def fixed(self, value: float, digits: int = 3) -> str:
        """The number with so many decimals."""
        return fixed(self.shown(value), digits)

    def interval(self, low: float, high: float) -> str:
        """Its interval, the lower end first."""
        return interval(1 - high, 1 - low) if self.flipped else interval(low, high)

    def amount(self, text: str) -> str:
        """A difference with its unit."""
        return f"{text} {self.unit}"


_LOSSES = Measure("loss", "target", "nats", "nats saved", flipped=False)
_SCORES = Measure("score", "task", "of score", "score gained", flipped=True)


def measure_of(found: Mixture) -> Measure:
    """What the numbers of a mixture are."""
    return _SCORES if found.measure == ERROR else _LOSSES
