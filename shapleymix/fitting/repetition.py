"""What a fit knows of repeated tokens: how fast they lose their worth, and what harm they do in the end.

Two numbers serve the whole log, h of `laws.pieces.harmful` and R* of `laws.pieces.effective`. Where runs repeat tokens
the search finds them beside each target's symbols (`Problem.told`), in folds and bootstrap replicates, too. Where they
do not, both stay at the centre of what is believed, and the replicates draw them from it.

Legend: R rows, M sources, K targets, B replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import UsageError, described
from shapleymix.fitting.evidence import Evidence
from shapleymix.laws import Law
from shapleymix.laws.pieces import HARM
from shapleymix.records import FloatArray, Record
from shapleymix.streams import Stream
from shapleymix.tables.baselines import ONCE, epochs_of, repetition, repetitions

EVERY_TARGET = "*"
"""Target of a symbol that all targets share."""
CUBE = 3.0
"""The best ratio of a repeated source goes as h to the power of minus one over this."""
FAR = 2.0
"""Times the fitted epochs: beyond, a prediction rests on the form of the term alone."""
FORM = 0.35
"""Spread of log h for each e-fold of N or D beyond the fitted ones: fitted to one size or to short horizons, h errs by as
much on the best epochs that were trained at others (arXiv 2606.07597: N from 30M to 757M, D four times as large)."""
ALONE = 0.95
"""Runs in which the repeated source has a larger ratio say nothing of harm beside other tokens."""


@dataclass(frozen=True)
class Repetition(Record):
    """What a fit knows of repeated tokens.

    Attributes
    ----------
    symbols : array (2,)
        Logarithms of h, the strength of harm, and of R*, the epochs beyond which a repeated token is worth little.
    replicates : array (B, 2), optional
        Those of the replicates.
    told : bool
        Whether enough runs repeat tokens, so that both were fitted; else they are the centre of what is believed.
    mixed : bool
        Whether such runs mix the repeated tokens with others: alone they do not show what harm repeats do in a mixture.
    epochs : array (M, 2)
        Fewest and most epochs of each source in the fitted runs; NaN where the log does not say.
    """

    kind = "repetition"

    symbols: FloatArray
    replicates: FloatArray | None
    told: bool
    mixed: bool
    epochs: FloatArray

    def __post_init__(self) -> None:
        drawn = np.zeros(0) if self.replicates is None else self.replicates
        if self.symbols.shape != (2,) or not np.isfinite(np.append(self.symbols, drawn)).all():
            raise ValueError("repetition: log h and log R* are not two finite numbers")

    def check(self, sources: int, replicates: Law | None) -> None:
        """Raise a ValueError unless there are epochs of each of so many sources, and a rate for each replicate."""
        if self.epochs.shape != (sources, 2):
            raise ValueError(f"repetition: epochs of shape {self.epochs.shape}, expected ({sources}, 2)")
        if (self.epochs[:, 0] > self.epochs[:, 1]).any():
            raise ValueError("repetition: fewest epochs above the most")
        if replicates is not None and (self.replicates is None or self.replicates.shape != (*replicates.batch(), 2)):
            count = "no" if self.replicates is None else len(self.replicates)
            raise ValueError(f"repetition: {count} draws for {replicates.batch()} replicates")

    def with_source(self, row: int) -> Repetition:
        """The same with one more source at a row, of whose epochs nothing is known."""
        return replace(self, epochs=np.insert(self.epochs, row, np.nan, axis=0))

    def drawn(self, far: float, seed: int) -> FloatArray | None:
        """(B, 2) log h and log R* of the replicates at a budget that lies so many e-folds beyond the fitted ones."""
        if self.replicates is None or far == 0:
            return self.replicates
        moved = np.random.default_rng([seed, Stream.RATES, 1]).standard_normal(len(self.replicates))
        return self.replicates + FORM * far * moved[:, None] * (1.0, 0.0)

    def interval(self, level: float) -> FloatArray:
        """(2, 2) bounds of h and R*, the lower ones first; NaN without replicates."""
        tails = [0.5 - level / 2, 0.5 + level / 2]
        if self.replicates is None:
            return np.full((2, 2), np.nan)
        return np.exp(np.quantile(self.replicates, tails, axis=0))

    def parameters(self, level: float) -> list[tuple[str, None, str, float, float, float]]:
        """h and R* as rows of a fit's parameters, where the log told them."""
        rows = zip(("h", "R*"), np.exp(self.symbols).tolist(), self.interval(level).T.tolist(), strict=True)
        return [(name, None, EVERY_TARGET, value, low, high) for name, value, (low, high) in rows if self.told]

    def lines(self, level: float = 0.9) -> list[str]:
        """Both numbers in words, whence they are, and how far they leave the best epochs open."""
        if not self.told and not (np.nan_to_num(self.epochs[:, 1]) > ONCE).any():
            return []
        h, star = np.exp(self.symbols)
        (h_low, low), (h_high, high) = self.interval(level)
        spread = [
            f", {level:.0%} interval {a:.2g} .. {b:.2g}" if a == a else "" for a, b in ((low, high), (h_low, h_high))
        ]
        whence = "fitted" if self.told else "not shown by the runs, so taken from public ones"
        found = [f"  repeated tokens ({whence}): worth R* = {star:.3g} epochs{spread[0]}; harm h = {h:.2g}{spread[1]}"]
        if self.replicates is not None:
            found.append(f"    this leaves the best epochs of a source open by {self.open(level)}")
        return found

    def open(self, level: float = 0.9) -> str:
        """How far h leaves the best epochs open, in words: these go as h to the power of -1/3."""
        low, high = np.log(self.interval(level)[:, 0]) / CUBE
        return f"a factor of {np.exp((high - low) / 2):.2g} each way ({level:.0%})"

    def warnings(
        self, p: FloatArray, unique: FloatArray, D: float, sources: Sequence[str], who: str = "the mixture"
    ) -> list[str]:
        """Where a mixture (M,) makes other epochs than the fitted runs did; `unique` (M,), NaN where not known."""
        epochs = epochs_of(p, unique, D)
        often = [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable").tolist() if epochs[i] > ONCE]
        most = np.nan_to_num(self.epochs[:, 1])
        if often and not (self.told and self.mixed):
            few = "too few runs" if (most > ONCE).any() else "no run"
            which = f"{few} of the fit repeat" + ("" if few[0] == "t" else "s")
            text = (
                f"{who} repeats {_named(sources, epochs, often)}; {which} tokens beside others, so the harm is that of"
            )
            open_ = "" if self.replicates is None else f", which leaves its best epochs open by {self.open()}"
            return [f"{text} public runs (h = {np.exp(HARM.center):.2g}){open_}"]
        found = []
        if far := [i for i in often if epochs[i] > max(most[i], 1) * ONCE]:
            seen = ", ".join(f"{sources[i]} at most {max(most[i], 1):.3g}" for i in far)
            wider = (
                ", and the interval is wider for that" if (epochs[far] > FAR * np.maximum(most[far], 1)).any() else ""
            )
            found.append(f"{who} repeats {_named(sources, epochs, far)}; the fitted runs repeat {seen}{wider}")
        least = self.epochs[:, 0]
        if fresh := [i for i in np.flatnonzero(p > 0).tolist() if least[i] > ONCE and not epochs[i] >= least[i] / ONCE]:
            seen = ", ".join(f"{sources[i]} at least {least[i]:.3g} times" for i in fresh)
            found.append(f"the fitted runs repeat {seen}, but {who} does so less often or not at all")
        return found


def repetition_of(
    evidence: Evidence, law: type[Law], symbols: FloatArray | None = None, replicates: FloatArray | None = None
) -> Repetition | None:
    """What a fit will know, given log h and log R* (2,) and those of replicates (B, 2); None for a law without."""
    if not law.takes_repetition:
        return None
    told, log = evidence.tells(law), evidence.log
    again = (log.p > evidence.shares * ONCE) & (log.p < ALONE)
    epochs = np.where(
        np.isfinite(evidence.shares), log.p / evidence.shares, 0.0 if evidence.unique is not None else np.nan
    )
    held = (log.p > 0) & np.any(evidence.weight > 0, axis=1, keepdims=True) & ~np.isnan(epochs)
    low = np.where(held, epochs, np.inf).min(axis=0, initial=np.inf)
    high = np.where(held, epochs, -np.inf).max(axis=0, initial=-np.inf)
    both = np.stack([low, high], axis=1)
    both = np.where(np.isfinite(both), both, np.nan)
    return Repetition(evidence.usual if symbols is None else symbols, replicates, told, bool(again.any()), both)


def _named(sources: Sequence[str], epochs: FloatArray, chosen: Sequence[int]) -> str:
    return ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in chosen)


def warnings_of_repetition(
    known: Repetition | None,
    p: FloatArray,
    unique: FloatArray,
    D: FloatArray,
    sources: Sequence[str],
    names: Sequence[str] | None,
) -> list[str]:
    """What to beware of where points (R, M) repeat tokens, or make other epochs than the fitted runs."""
    if known is None:
        return repetitions(p, unique, D, names, lambda p, u, D, who: repetition(p, sources, u, D, who))
    if known.told and np.isnan(unique).all():
        return ["the fitted runs repeat tokens, but no available tokens are given, so every token counts as fresh"]
    return repetitions(p, unique, D, names, lambda p, u, D, who: known.warnings(p, u, D, sources, who))


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
