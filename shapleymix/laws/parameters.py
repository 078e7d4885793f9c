"""How a law declares its symbols: axes, domain, and whether they are fitted or given.

A fitted symbol is searched over `log(value)` when its domain is positive and over the value itself when it is real.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shapleymix.records import FloatArray

Axes = Literal["K", "MK"]


@dataclass(frozen=True)
class Parameter:
    """One symbol of a law.

    `axes` is "K" (one value a target) or "MK" (one a source and target); `low` and `high` bound the value of a
    fitted symbol; `core` names the budget ("N" or "D") without whose variation the symbol cannot be told; `gauge`
    marks a symbol that is known up to a factor (a shift, if it is real) a target, which other symbols absorb.
    """

    name: str
    axes: Axes
    fitted: bool
    positive: bool = True
    low: float = 0.0
    high: float = np.inf
    core: str | None = None
    gauge: bool = False

    @property
    def largest(self) -> float:
        """The largest absolute value that a fit can give; a gauge moves a real symbol by up to its whole box."""
        if not self.fitted or self.positive:
            return self.high
        return self.high - self.low if self.gauge else max(abs(self.low), abs(self.high))

    def encode(self, value: FloatArray) -> FloatArray:
        """From the value to what is searched over."""
        return np.log(np.maximum(value, self.low)) if self.positive else value

    def decode(self, searched: FloatArray) -> FloatArray:
        """From what is searched over to the value."""
        return np.exp(searched) if self.positive else searched


def fitted(
    axes: Axes = "K",
    *,
    low: float = 1e-12,
    high: float = 1e12,
    positive: bool = True,
    core: str | None = None,
    gauge: bool = False,
) -> Any:
    """Declare a symbol that the fit determines, within `[low, high]`."""
    entry = {"axes": axes, "fitted": True, "low": low, "high": high, "positive": positive, "core": core, "gauge": gauge}
    return dataclasses.field(metadata={"parameter": entry})


def given(axes: Axes = "MK") -> Any:
    """Declare a symbol that comes with the inputs and is never fitted."""
    return dataclasses.field(metadata={"parameter": {"axes": axes, "fitted": False}})


def parameters_of(law: Any) -> tuple[Parameter, ...]:
    """The symbols of a law, in the order in which they are declared."""
    return tuple(
        Parameter(name=field.name, **field.metadata["parameter"])
        for field in dataclasses.fields(law)
        if "parameter" in field.metadata
    )


def over_runs(value: FloatArray) -> FloatArray:
    """Insert the run axis: (..., K) becomes (..., 1, K)."""
    return value[..., None, :]
