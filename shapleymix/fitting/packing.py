"""Between a law's named symbols and the vectors that the search works on.

Legend: Q problems (a target, a start and a replicate each), P unknowns. In a problem every array of the law has one
target, and the problems are its replicates: shapes (Q, 1) and (Q, M, 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws import Law, Observations, Parameter
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Packing:
    """The layout of one law's unknowns for M sources, with the symbols that the data cannot tell held fixed."""

    law: type[Law]
    sources: int
    held: dict[str, float]

    @property
    def free(self) -> tuple[Parameter, ...]:
        """The symbols that are searched over."""
        return tuple(parameter for parameter in self.law.fitted() if parameter.name not in self.held)

    def width(self, parameter: Parameter) -> int:
        """How many unknowns a symbol takes."""
        return self.sources if parameter.axes == "MK" else 1

    @property
    def owners(self) -> tuple[Parameter, ...]:
        """The declaration of every unknown's symbol, length P."""
        return tuple(parameter for parameter in self.free for _ in range(self.width(parameter)))

    @property
    def names(self) -> tuple[str, ...]:
        """The symbol of every unknown, length P."""
        return tuple(parameter.name for parameter in self.owners)

    def slices(self) -> dict[str, slice]:
        """Where each symbol lies in the vector."""
        ends = np.cumsum([self.width(parameter) for parameter in self.free])
        return {known.name: slice(end - self.width(known), end) for known, end in zip(self.free, ends, strict=True)}

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The box of the search, two arrays (P,)."""
        pairs = [
            (float(known.encode(np.array(known.low))), float(known.encode(np.array(known.high))))
            for known in self.owners
        ]
        low, high = np.array(pairs).reshape(-1, 2).T
        return low, high

    def pack(self, symbols: dict[str, FloatArray]) -> FloatArray:
        """Vectors (Q, P) from symbols of shape (Q,) or (Q, M)."""
        rows = max(len(value) for value in symbols.values())
        x = np.empty((rows, len(self.names)))
        place = self.slices()
        for known in self.free:
            x[:, place[known.name]] = known.encode(symbols[known.name]).reshape(rows, -1)
        return x

    def unpack(self, x: FloatArray, givens: dict[str, FloatArray]) -> Law:
        """The law with one target a problem, from vectors (Q, P) and given symbols (Q, M, 1)."""
        place = self.slices()
        symbols: dict[str, FloatArray] = dict(givens)
        for known in self.law.fitted():
            if known.name in self.held:
                symbols[known.name] = np.full((len(x), 1), self.held[known.name])
            else:
                symbols[known.name] = known.decode(x[:, place[known.name], None].reshape(len(x), -1, 1))
                if known.axes == "K":
                    symbols[known.name] = symbols[known.name][:, :, 0]
        return self.law(**symbols)

    def jacobian(self, slopes: dict[str, FloatArray]) -> FloatArray:
        """Derivatives (Q, R, P) from the law's named slopes."""
        first = slopes[self.free[0].name]
        out = np.empty((*first.shape[:2], len(self.names)))
        place = self.slices()
        for known in self.free:
            out[:, :, place[known.name]] = slopes[known.name][..., 0].reshape(*first.shape[:2], -1)
        return out

    def defined(self, givens: dict[str, FloatArray], observed: Observations) -> BoolArray:
        """Where the law has a loss, (R, K): its given symbols alone decide that, so that any fitted ones will do."""
        targets = observed.log_loss.shape[1]
        columns = {name: value.T[..., None] for name, value in givens.items()}
        law = self.unpack(np.zeros((targets, len(self.names))), columns)
        return law.defined(observed.p).reshape(-1, len(observed.p)).T
