"""What all laws share: packing, bounds, masks, replicates, rescaling and JSON.

A law is a frozen dataclass whose fields are the paper's symbols (`parameters.py`). A field "per target" has shape
(..., K), a field "per source and target" (..., M, K); leading axes are replicates. The law itself is `__call__`, and
reads like the equation; `elasticities` is its derivative, which fitting needs and tests check by finite differences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.laws.parameters import Parameter, parameters_of
from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix

Terms = PowerTerms | ExponentialTerms
LARGEST = 1e100  # of any symbol; far beyond a fitted A in plain units


@dataclass(frozen=True)
class Inputs:
    """What a law may be given besides the run log: labels, a transfer matrix, a languages table."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    transfer: TransferMatrix | None = None
    languages: Languages | None = None


@dataclass(frozen=True)
class Observations:
    """What starting values may look at: p (R, M), N and D (R,) relative to `scale`, log losses (R, K), weights.

    A loss that was not measured, or a run left out, has weight zero; its log loss is finite and means nothing.
    """

    p: FloatArray
    N: FloatArray
    D: FloatArray
    log_loss: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class Law(Record):
    """Base of all parametric laws; see the module's text for axes."""

    name: ClassVar[str]
    reference: ClassVar[str]
    assumption: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # of "mixture", "transfer", "families"
    linear: ClassVar[tuple[str, ...]] = ()  # symbols in which the loss is linear, for variable projection
    gauge: ClassVar[int] = 0  # directions of the symbols that change nothing at all

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Predicted losses in nats a token, shape (..., R, K), for p (R, M), N (R,), D (R,)."""
        raise NotImplementedError

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Log loss (..., R, K), and its derivative by the logarithm of each fitted symbol (by a real symbol itself).

        Shapes: (..., R, K) for symbols per target, (..., R, M, K) for symbols per source and target. Where the law is
        undefined the numbers are finite and mean nothing.
        """
        raise NotImplementedError

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Starting values of the symbols outside the core, each with a leading axis of S starts."""
        raise NotImplementedError

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        """The symbols that come with the inputs."""
        return {}

    def defined(self, p: FloatArray) -> BoolArray:
        """Where the law gives a finite loss, shape (R, K)."""
        return np.ones((len(p), self.targets_count()), dtype=bool)

    def terms(self, N: float, D: float) -> Terms:
        """The law at one budget as convex pieces in p, or a SolveError that says why it has none."""
        raise NotImplementedError

    @classmethod
    def seen_losses(cls, loss: FloatArray, inputs: Inputs) -> FloatArray:
        """The losses that the law is fitted to; most laws take them as they are."""
        return loss

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """All symbols, in declared order."""
        return parameters_of(cls)

    @classmethod
    def fitted(cls) -> tuple[Parameter, ...]:
        """The symbols that a fit determines."""
        return tuple(parameter for parameter in cls.parameters() if parameter.fitted)

    def targets_count(self) -> int:
        """K."""
        return np.shape(getattr(self, self.parameters()[0].name))[-1]

    def check(self, sources: int, targets: int, leading: int) -> None:
        """Refuse symbols that no fit gives: wrong shapes, NaN, negative values, exponents beyond their bound.

        Raises
        ------
        ValueError
            Naming the symbol.
        """
        counts = {np.shape(getattr(self, known.name))[:leading] for known in self.parameters()}
        if len(counts) > 1:
            raise ValueError(f"the symbols have different numbers of replicates: {sorted(counts)}")
        for known in self.parameters():
            value = np.asarray(getattr(self, known.name))
            shape = (sources, targets) if known.axes == "MK" else (targets,)
            if value.shape[leading:] != shape:
                raise ValueError(f"{known.name} has shape {value.shape}, expected (..., {', '.join(map(str, shape))})")
            limit = known.largest * 1.001 if known.name not in self.linear and known.largest < 1e3 else LARGEST
            if not (np.abs(value) <= limit).all() or (known.positive and (value < 0).any()):
                raise ValueError(f"{known.name} holds a value outside of its bounds")

    def rescaled(self, N0: float, D0: float) -> Self:
        """The same law for N and D in plain units, when it was fitted to N / N0 and D / D0."""
        changes: dict[str, FloatArray] = {}
        if hasattr(self, "A"):
            changes["A"] = self.A * N0**self.alpha  # type: ignore[attr-defined]
        if hasattr(self, "B"):
            changes["B"] = self.B * D0**self.beta  # type: ignore[attr-defined]
        return dataclasses.replace(self, **changes)

    def in_gauge(self) -> Self:
        """The same law in its standard scale, where fitted symbols are known up to one."""
        return self

    def replaced(self, **symbols: FloatArray) -> Self:
        """The law with some symbols changed."""
        return dataclasses.replace(self, **symbols)

    def mapped(self, change: Callable[[Parameter, FloatArray], FloatArray]) -> Self:
        """A law whose every symbol is `change(parameter, value)`."""
        symbols = {known.name: change(known, getattr(self, known.name)) for known in self.parameters()}
        return self.replaced(**symbols)


def require_transfer(inputs: Inputs, law: str) -> TransferMatrix:
    """The transfer matrix in the log's own order of labels, or an error that says how to get one."""
    if inputs.transfer is None:
        hint = "give one with --sv FILE (transfer= in Python); `shapleymix shapley` makes it from coalition runs"
        raise UsageError(f"law {law!r} needs a transfer matrix", hint=hint)
    return inputs.transfer.aligned(inputs.sources, inputs.targets)
