"""How a law declares its symbols: their axes, domain, role, and where a search for them begins.

The rest of the program knows a symbol by what is declared here, never by its name: what a weak prior pulls on, which
symbols a log with one size cannot tell, which may vanish, what a starting grid crosses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

import numpy as np

from shapleymix.records import FloatArray

Axes = Literal["K", "MK"]
Budget = Literal["N", "D"]
Role = Literal["linear", "exponent", "coefficients", "shape", "given"]
"""What a symbol is to those who do not know its law.

- linear: the loss is linear in it and zero is allowed (E, A, B): starting values solve for it exactly;
- exponent: of N or D (alpha, beta);
- coefficients: one value for each source and target, which a weak prior holds where the log does not tell;
- shape: any other fitted symbol;
- given: it comes with the inputs and is never fitted.
"""


@dataclass(frozen=True)
class Belief:
    """What is believed of a symbol before any run: a centre and a spread, in the units of the search.

    Both broadcast to (K,), or to (M, K) for a symbol of that kind; an infinite spread believes nothing.
    """

    center: FloatArray | float
    spread: FloatArray | float


Knobs = Mapping[str, float]
"""Numbers by name that say what is believed, chosen by cross-validation."""

EXPONENTS = (0.1, 0.25, 0.45, 0.8)
SHAPES = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Parameter:
    """One symbol of a law; see `fitted` for the fields.

    A fitted symbol is searched over as `log(value)` where it is positive, and as the value itself where it is real.
    """

    name: str
    axes: Axes
    role: Role
    positive: bool = True
    low: float = 0.0
    high: float = np.inf
    budget: Budget | None = None
    usual: float | None = None
    start: tuple[float, ...] = ()
    typical: tuple[float, float] = (0.3, 0.9)
    gauge: bool = False

    @property
    def fitted(self) -> bool:
        """Whether a fit determines the symbol."""
        return self.role != "given"

    @property
    def vanishes(self) -> bool:
        """Whether the lower bound stands for zero: the term with this symbol is then absent."""
        return self.role == "linear"

    @property
    def largest(self) -> float:
        """The largest absolute value that a fit can give; a gauge moves a real symbol by up to its whole box."""
        if not self.fitted or self.positive:
            return self.high
        return self.high - self.low if self.gauge else max(abs(self.low), abs(self.high))

    @property
    def starts(self) -> FloatArray:
        """Values from which a search begins, where the law itself names none."""
        listed = self.start or (EXPONENTS if self.role == "exponent" else SHAPES if self.positive else (-1.0, 0.0, 1.0))
        return np.unique(np.clip(listed, self.low, self.high))

    def encode(self, value: FloatArray) -> FloatArray:
        """From the value to what is searched over."""
        return np.log(np.maximum(value, self.low)) if self.positive else value

    def decode(self, searched: FloatArray) -> FloatArray:
        """From what is searched over to the value."""
        return np.exp(searched) if self.positive else searched


def fitted(
    axes: Axes = "K",
    *,
    role: Role = "shape",
    low: float = 1e-6,
    high: float = 1e12,
    positive: bool = True,
    budget: Budget | None = None,
    usual: float | None = None,
    start: tuple[float, ...] = (),
    typical: tuple[float, float] = (0.3, 0.9),
    gauge: bool = False,
) -> FloatArray:
    """Declare a symbol that the fit determines.

    Parameters
    ----------
    axes : {"K", "MK"}
        One value for each target, or one for each source and target.
    role : str
        `"linear"`: the loss is linear in it and zero is allowed (E, A, B); then the axes are "K". `"exponent"`: of N or
        D. `"coefficients"`: one for each source and target, held by a weak prior where the log does not tell.
        `"shape"`: any other.
    low, high : float
        Bounds of the search. A linear symbol at `low` counts as zero.
    positive : bool
        Searched over by its logarithm, or (a real symbol) as it is.
    budget : {"N", "D"}, optional
        The budget that must vary for the symbol to be fitted: with one value of it in the log, the symbol is 0.
    usual : float, optional
        The value at which an exponent is held where the log has two values of its budget.
    start : tuple of float
        Where the search begins, crossed with the other symbols' values; not needed for linear symbols, nor for those
        that the law's `starts` gives.
    typical : tuple of float
        The range that real logs give, in plain units; simulated logs draw from it.
    gauge : bool
        The symbol is known up to a factor for each target (a shift, if it is real), which other symbols absorb.
    """
    entry = {"axes": axes, "role": role, "low": low, "high": high, "positive": positive, "budget": budget}
    entry |= {"usual": usual, "start": start, "typical": typical, "gauge": gauge}
    if role == "linear" and (axes != "K" or not positive):
        raise TypeError("a linear symbol has one value for each target, and none is negative")
    return cast(FloatArray, dataclasses.field(metadata={"parameter": entry}))


def given(axes: Axes = "MK") -> FloatArray:
    """Declare a symbol that comes with the inputs (see `Law.givens`) and is never fitted."""
    return cast(FloatArray, dataclasses.field(metadata={"parameter": {"axes": axes, "role": "given"}}))


@cache
def parameters_of(law: type) -> tuple[Parameter, ...]:
    """The symbols of a law, in the order in which they are declared."""
    return tuple(
        Parameter(name=field.name, **field.metadata["parameter"])
        for field in dataclasses.fields(law)
        if "parameter" in field.metadata
    )


def over_runs(value: FloatArray) -> FloatArray:
    """Insert the run axis: (..., K) becomes (..., 1, K)."""
    return value[..., None, :]
