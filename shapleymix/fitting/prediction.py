"""Predicted losses with intervals and warnings, and how points are spelt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Columns, Tabular
from shapleymix.errors import UsageError, described
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.mixtures import HasMixture, MixtureSpec, check, mixture_of
from shapleymix.tables.words import Amounts, Ratio, by_index, is_frame, parse_budget

Spelt = Mapping[str, Ratio] | str | os.PathLike[str] | HasMixture
"""A mixture that is given otherwise than by ratios in the order of the sources."""
Points = ArrayLike | Spelt | Sequence[MixtureSpec]
MOST_WARNINGS = 3
"""Sentences of an answer that are warnings: those that change what a reader would do."""
BudgetSpec = ArrayLike | str | Sequence[float | str]
Names = Sequence[str] | None


@dataclass(frozen=True)
class Prediction(Tabular, Record):
    """Losses (R, K), with the interval that holds a new run's loss with probability `level`.

    Attributes
    ----------
    runs : tuple of str (R,)
        Names of the points.
    sources, targets : tuple of str
        M and K labels.
    N, D : array (R,)
        Parameters and tokens.
    p : array (R, M)
        Ratios.
    losses, low, high : array (R, K)
        Losses with their interval, in the `unit`; NaN where the law is undefined or exceeds the untrained loss.
    level : float
        Probability of the interval.
    outside : bool array (R, K)
        Whether the point lies outside of what that target's fit used.
    above_untrained : bool array (R, K)
        Whether the law gives more than the loss of an untrained model.
    warnings, notices : tuple of str
        What changes what a reader would do, at most three sentences; and what else there is to say.
    unit : str
        "nats" a token, or "bits a byte".
    """

    kind = "prediction"
    axes: ClassVar[Mapping[str, str]] = {
        "runs": "R", "sources": "M", "targets": "K", "N": "R", "D": "R", "p": "RM", "losses": "RK", "low": "RK",
        "high": "RK", "outside": "RK", "above_untrained": "RK",
    }  # fmt: skip

    runs: tuple[str, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: FloatArray
    D: FloatArray
    p: FloatArray
    losses: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    outside: BoolArray
    above_untrained: BoolArray
    warnings: tuple[str, ...]
    notices: tuple[str, ...] = ()
    unit: str = "nats"

    def columns(self) -> Columns:
        """One row per point and target."""
        rows, targets = self.losses.shape
        wide = {"N": self.N, "D": self.D} | {f"p_{name}": self.p[:, i] for i, name in enumerate(self.sources)}
        tall = {name: getattr(self, name) for name in ("low", "high", "outside", "above_untrained")}
        return {
            "run": [run for run in self.runs for _ in range(targets)],
            "target": list(self.targets) * rows,
            **{name: values.ravel().tolist() for name, values in {"loss": self.losses, **tall}.items()},
            "unit": [self.unit] * self.losses.size,
            **{name: np.repeat(values, targets).tolist() for name, values in wide.items()},
        }


def points_of(
    p: Points, N: BudgetSpec | None, D: BudgetSpec | None, sources: tuple[str, ...], supply: FloatArray, runs: Names
) -> tuple[tuple[str, ...], FloatArray, FloatArray, FloatArray]:
    """Names, mixtures (R, M), sizes (R,) and tokens (R,) from whatever spells them, broadcast over each other.

    `supply` (M,) are the unique tokens from which baselines such as `natural` are made; without names for `runs`
    points have numbers.

    Raises
    ------
    UsageError, DataError
        If they spell no points, and why.
    """
    sizes, tokens = _sizes(p, N, "N"), _sizes(p, D, "D")
    mixtures = mixtures_at(p, tokens, sources, supply)
    rows = max(len(mixtures), len(sizes), len(tokens))
    lengths = {"p": len(mixtures), "N": len(sizes), "D": len(tokens)}
    odd = [f"{name} has {length}" for name, length in lengths.items() if length not in (1, rows)]
    if odd:
        hint = "give one of each, or as many of each"
        raise UsageError(f"{', '.join(odd)}, expected 1 or {rows} as the others have", hint=hint)
    spread = np.resize(mixtures, (rows, mixtures.shape[1])), np.resize(sizes, rows), np.resize(tokens, rows)
    return _names(runs, rows), *spread


def _sizes(p: Points, given: BudgetSpec | None, name: Literal["N", "D"]) -> FloatArray:
    """N or D (R,), of one word or number or of several; where none is given that of an optimised mixture."""
    if given is None:
        if not isinstance(p, HasBudget):
            raise UsageError(f"{name} is missing", hint=f"give {name}, for instance {name}='100M', beside the mixture")
        given = p.N if name == "N" else p.D
    listed = np.atleast_1d(np.asarray(given, dtype=object)).tolist()
    return np.array([parse_budget(one, name) for one in listed], dtype=np.float64)


def _names(given: Names, count: int) -> tuple[str, ...]:
    """Names of the points: those given, or their numbers."""
    if given is None:
        return tuple(map(str, range(count)))
    hint = "give a list of one name for each point"
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
        raise UsageError(f"runs: {described(given)} is no list of names", hint=hint)
    if len(given) != count:
        raise UsageError(f"{len(given)} names for {count} points", hint=hint)
    return tuple(given)


def mixtures_at(p: Points, tokens: FloatArray, sources: tuple[str, ...], available: FloatArray) -> FloatArray:
    """Ratios (R, M) in the order of the sources; a baseline's may differ from one count of tokens to the next.

    Raises
    ------
    UsageError, DataError
        If they are no mixtures, and what is expected.
    """
    if is_frame(p):
        raise UsageError(f"{described(p)} is a table, not mixtures", hint="give what read_runs makes of it")
    p = [by_index(one) for one in p] if isinstance(p, (list, tuple)) else by_index(p)
    if listed := _list_spelt(p):
        several = list(listed) * len(tokens) if len(listed) == 1 else listed
        counts = tokens if len(tokens) == len(several) else np.full(len(several), tokens[0])
        pairs = zip(several, counts.tolist(), strict=True)
        return np.stack([mixture_of(one, sources, available, D) for one, D in pairs])
    try:
        numbers = np.asarray(p, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"p is {described(p)}, not numbers", hint=_MIXTURE_HINT) from error
    if numbers.ndim not in (1, 2):
        raise UsageError(f"{described(p)} is no mixture", hint=_MIXTURE_HINT)
    mixtures = np.atleast_2d(numbers)
    if mixtures.shape[1] != len(sources):
        hint = f"the order is {', '.join(sources)}" if sources else "the fitted log had no mixtures"
        raise UsageError(f"a mixture of {mixtures.shape[-1]} ratios, expected {len(sources)}", hint=hint)
    if sources:
        check(mixtures)
    return mixtures


def _list_spelt(p: Points) -> Sequence[Any]:
    """The mixtures, where one of them is given otherwise than by ratios in the order of the sources; else none."""
    if isinstance(p, _SPELT):
        return [p]
    return p if isinstance(p, (list, tuple)) and any(isinstance(one, _SPELT) for one in p) else []


@runtime_checkable
class HasBudget(Protocol):
    """A result at one budget and supply, such as `Mixture`."""

    N: float
    D: float
    tokens_at_hand: Mapping[str, float]


def tokens_of(mixtures: Iterable[object], available: Amounts | None, table: object = None) -> Amounts | None:
    """Unique tokens as they are given, or else those for which mixtures among these were found.

    Raises
    ------
    UsageError
        If mixtures were found for different ones.
    """
    if available is not None or table is not None:
        return available
    known = {tuple(one.tokens_at_hand.items()) for one in mixtures if isinstance(one, HasBudget)}
    if len(known) > 1:
        message = "the mixtures were found for different unique tokens"
        raise UsageError(message, hint="give the available tokens, or a languages table")
    return dict(*known) or None


_SPELT = (str, os.PathLike, Mapping, HasMixture)

_MIXTURE_HINT = "a mixture is written en=0.5,de=0.5, as a mapping, an array of ratios, a Mixture, or a saved one's path"
