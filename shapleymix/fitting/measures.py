"""What predicted numbers are called: losses in nats, or scores of tasks, which are shown for error rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from shapleymix.records import FloatArray

LOSS, ERROR = "loss", "error"
Kind = Literal["loss", "error"]
"""What a result holds: losses, or error rates of tasks, one less their score."""
Numbers = TypeVar("Numbers", float, FloatArray)


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

    @property
    def brings(self) -> str:
        """What a gain is, of one run."""
        return "score that one run gains" if self.flipped else f"{self.unit} that one run saves"

    def objective(self, kind: str, weights: FloatArray) -> str:
        """What is maximised or minimised: the mean or the worst (`kind`), with weights (K,)."""
        if self.flipped and kind == "worst" and np.ptp(weights[weights > 0]) > 0:
            return "one less the largest weighted error"
        return f"{kind} {self.noun}"

    def shown(self, value: Numbers) -> Numbers:
        """The number as it is shown."""
        return 1 - value if self.flipped else value

    def ends(self, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
        """Its interval, the lower end first."""
        return (1 - high, 1 - low) if self.flipped else (low, high)

    def amount(self, text: str) -> str:
        """A difference with its unit."""
        return f"{text} {self.unit}"


LOSSES = Measure("loss", "target", "nats", "nats saved", flipped=False)
SCORES = Measure("score", "task", "of score", "score gained", flipped=True)


def measure_of(kind: str) -> Measure:
    """The words for losses, or for error rates."""
    return SCORES if kind == ERROR else LOSSES
