"""What a fit knows of repeated tokens: the rate at which they lose their worth, and the epochs of its runs.

Legend: R rows, M sources, K targets, B replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import UsageError, described
from shapleymix.fields import AMOUNT, Range
from shapleymix.laws import Law
from shapleymix.laws.repeated import effective
from shapleymix.records import FloatArray, Record
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.repetition import ONCE, repetition, repetitions

FASTEST = 1e6
"""No rate is higher: nothing is left of a token that was seen once."""
EVERY_TARGET = "*"
"""Target of a symbol that all targets share."""


@dataclass(frozen=True)
class Repetition(Record):
    """What a fit knows of repeated tokens.

    Attributes
    ----------
    rate : float
        The rate lambda; 1 / rate is R*, the number of repetitions beyond which little is left. At 0 nothing is lost.
    rates : array (B,), optional
        The rates of the replicates.
    told : bool
        Whether enough runs repeat tokens, so that the rate was fitted; else it is the published one.
    epochs : array (M, 2)
        Fewest and most epochs of each source in the fitted runs; NaN where the log does not say.
    """

    kind = "repetition"
    ranges: ClassVar[Mapping[str, Range]] = {"rate": (0.0, FASTEST), "rates": (0.0, FASTEST), "epochs": AMOUNT}

    rate: float
    rates: FloatArray | None
    told: bool
    epochs: FloatArray

    def __post_init__(self) -> None:
        rates = np.append(self.rate, [] if self.rates is None else self.rates)
        if not (np.isfinite(rates) & (rates >= 0)).all():
            raise ValueError("the rates of repetition are not all finite and at least 0")

    def check(self, sources: int, replicates: Law | None) -> None:
        """Raise a ValueError unless there are epochs of each of so many sources, and a rate for each replicate."""
        if self.epochs.shape != (sources, 2):
            raise ValueError(f"repetition: epochs of shape {self.epochs.shape}, expected ({sources}, 2)")
        if (self.epochs[:, 0] > self.epochs[:, 1]).any():
            raise ValueError("repetition: fewest epochs above the most")
        if replicates is not None and (self.rates is None or self.rates.shape != replicates.batch()):
            count = "no" if self.rates is None else len(self.rates)
            raise ValueError(f"repetition: {count} rates for {replicates.batch()} replicates")

    def with_source(self, row: int) -> Repetition:
        """The same with one more source at a row, of whose epochs nothing is known."""
        return replace(self, epochs=np.insert(self.epochs, row, np.nan, axis=0))

    def effective(self, p: FloatArray, unique: FloatArray, D: FloatArray | float) -> FloatArray:
        """The ratios (R, M) that the law takes for p, with `unique` tokens (R, M) of D (R,); NaN is no limit."""
        return effective(p, _shares(unique, D), self.rate)

    def effective_replicates(self, p: FloatArray, unique: FloatArray, D: FloatArray | float) -> FloatArray:
        """The same for each replicate (B, R, M); p itself where nothing is repeated, or there are no replicates."""
        u = _shares(unique, D)
        if self.rates is None or not (p > u).any():
            return p
        return effective(p, u, self.rates[:, None, None])

    def interval(self, level: float) -> FloatArray:
        """(2,) bounds of the rate; NaN without replicates."""
        tails = [0.5 - level / 2, 0.5 + level / 2]
        return np.full(2, np.nan) if self.rates is None else np.quantile(self.rates, tails)

    def parameters(self, level: float) -> list[tuple[str, None, str, float, float, float]]:
        """The rate as a row of a fit's parameters, where the log told it."""
        return [("lambda", None, EVERY_TARGET, self.rate, *self.interval(level).tolist())] if self.told else []

    def stars(self, level: float = 0.9) -> FloatArray:
        """R*, the epochs beyond which little is left, with the bounds of its interval (3,); infinite at rate 0."""
        rates = np.array([self.rate, *self.interval(level)[::-1]])
        return np.divide(1.0, rates, out=np.full(3, np.inf), where=rates != 0)

    def told_lines(self, level: float = 0.9) -> list[str]:
        """The rate in words, where the log told it."""
        if not self.told:
            return []
        star, low, high = self.stars(level)
        spread = "" if np.isnan(low) else f", {level:.0%} interval {low:.3g} .. {high:.3g}"
        worth = f"worth little beyond R* = {star:.3g} epochs" if np.isfinite(star) else "worth as much as fresh ones"
        return [f"  repeated tokens: {worth}{spread}"]

    def warnings(
        self, p: FloatArray, unique: FloatArray, D: float, sources: Sequence[str], who: str = "the mixture"
    ) -> list[str]:
        """Where a mixture (M,) makes other epochs than the fitted runs did; `unique` (M,), NaN where not known."""
        epochs = epochs_of(p, unique, D)
        often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable").tolist() if epochs[i] > ONCE]
        most = np.nan_to_num(self.epochs[:, 1])
        if not self.told:
            named = _named(sources, epochs, often)
            star = f"R* = {self.stars()[0]:.3g} epochs"
            few = "too seldom to tell" if (most > ONCE).any() else "nothing"
            text = f"{who} repeats {named}, the fitted runs {few}: what it costs rests on the published {star}"
            return [text] if often else []
        found = []
        if far := [i for i in often if epochs[i] > max(most[i], 1) * ONCE]:
            seen = ", ".join(f"{sources[i]} at most {max(most[i], 1):.3g}" for i in far)
            found.append(f"{who} repeats {_named(sources, epochs, far)}; the fitted runs repeat {seen}")
        least = self.epochs[:, 0]
        if fresh := [i for i in np.flatnonzero(p > 0).tolist() if least[i] > ONCE and not epochs[i] >= least[i] / ONCE]:
            seen = ", ".join(f"{sources[i]} at least {least[i]:.3g} times" for i in fresh)
            found.append(f"the fitted runs repeat {seen}, {who} less often or not at all")
        return found


def _named(sources: Sequence[str], epochs: FloatArray, chosen: Sequence[int]) -> str:
    return ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in chosen)


def _shares(unique: FloatArray, D: FloatArray | float) -> FloatArray:
    """Unique tokens as a share of D (R, M), infinite where there is no limit."""
    limits = np.where(np.isnan(unique), np.inf, unique)
    return limits / (np.asarray(D)[:, None] if np.ndim(D) else D)


@dataclass(frozen=True)
class Taken:
    """What a law takes for the ratios of some points.

    Attributes
    ----------
    known : Repetition, optional
        What the fit knows of repeated tokens; None for a law that has no place for them.
    p, unique : array (R, M)
        Ratios, and unique tokens; NaN where there is no limit.
    D : array (R,)
        Tokens.
    q : array (R, M)
        Effective ratios.
    replicates : array (B, R, M)
        Those of each replicate, or (R, M) where they agree.
    """

    known: Repetition | None
    p: FloatArray
    unique: FloatArray
    D: FloatArray
    q: FloatArray
    replicates: FloatArray

    def warnings(self, sources: Sequence[str], names: Sequence[str] | None) -> list[str]:
        """What to beware of where points repeat tokens, or make other epochs than the fitted runs."""
        points, known = (self.p, self.unique, self.D, names), self.known
        if known is None:
            return repetitions(*points, lambda p, u, D, who: repetition(p, sources, u, D, who))
        if known.told and np.isnan(self.unique).all():
            return ["the fitted runs repeat tokens; here every token counts as fresh, as no available tokens are given"]
        return repetitions(*points, lambda p, u, D, who: known.warnings(p, u, D, sources, who))


def taken(
    known: Repetition | None, p: FloatArray, unique: ArrayLike | None, supply: FloatArray, D: FloatArray
) -> Taken:
    """What a law takes for ratios p, with the unique tokens of each point (R, M), or else the supply (M,) for all.

    Raises
    ------
    UsageError
        If unique tokens are no positive numbers, or not one a point and source.
    """
    limits = limits_of_points(unique, supply, p)
    if known is None:
        return Taken(known, p, limits, D, p, p)
    return Taken(known, p, limits, D, known.effective(p, limits, D), known.effective_replicates(p, limits, D))


def limits_of_points(given: ArrayLike | None, supply: FloatArray, p: FloatArray) -> FloatArray:
    """Unique tokens (R, M) of points p: those given for each, else the supply (M,) for all; NaN for no limit.

    Raises
    ------
    UsageError
        If those given are no positive numbers, or not one a point and source.
    """
    if given is None:
        return np.broadcast_to(supply, p.shape)
    try:
        limits = np.broadcast_to(np.asarray(given, dtype=np.float64), p.shape)
    except (TypeError, ValueError, OverflowError) as error:
        hint = f"give an array of {p.shape[0]} x {p.shape[1]} (points x sources), NaN where there is no limit"
        raise UsageError(
            f"unique tokens: {described(given)} is not one number a point and source", hint=hint
        ) from error
    if (limits <= 0).any():
        raise UsageError("unique tokens must be above 0", hint="NaN stands for no limit")
    return limits


def replicate_losses(law: Law, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
    """Losses (B, R, K) of replicates at ratios (R, M), or at those of each replicate (B, R, M)."""
    if p.ndim == 2:
        return law.losses(p, N, D)

    def one(place: int) -> Law:
        return law.mapped(lambda known, value: value[place] if np.ndim(value) > len(known.axes) else value)

    return np.stack([one(place).losses(ratios, N, D) for place, ratios in enumerate(p)])
