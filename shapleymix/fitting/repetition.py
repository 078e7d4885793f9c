"""What repeated tokens are worth: h and R* that all targets share, and what a fit knows of them.

The formulas are `effective` and `harmful` of `laws.pieces`: one h serves the whole log, and each source has an R*.
Where runs repeat tokens both are fitted with the targets' symbols, in folds and bootstrap replicates, too.
Where they do not, both stay at the centre of their prior, and the replicates draw them from it.

Legend: R rows, M sources, K targets, H shared symbols: log h, and log R* of each source; B replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import short
from shapleymix.errors import UsageError, described
from shapleymix.fitting.evidence import HARM_ERROR, Evidence
from shapleymix.fitting.prediction import Names
from shapleymix.fitting.settings import LEVEL
from shapleymix.laws import Law
from shapleymix.laws.pieces import harmful
from shapleymix.records import FloatArray, Record
from shapleymix.statistics import RandomStream, interval_ends
from shapleymix.tables.languages import harm_map
from shapleymix.tables.mixtures import ONCE, epochs_of

SHOWN = 5  # points of a prediction whose repetitions are told one by one

ParameterRow = tuple[str, str | None, str, float, float, float]
"""Symbol, source or None, target, value, and its interval."""
EVERY_TARGET = "*"
"""Target of a symbol that all targets share."""
CUBE = 3.0
"""The best epochs of a source are in proportion to `h ** (-1 / CUBE)`."""
FORM = 0.35
"""Spread of log h for each e-fold of N or D beyond the fitted ones. Fitted to 124M parameters alone, or to short
horizons, h errs by as much on the best epochs that were trained elsewhere (arXiv 2606.07597)."""
WIDER = 0.15
"""A prediction's log error for each e-fold of epochs beyond the fitted ones, by the cube of the ratio that makes them.

Runs of one source alone, fitted to at most 2, 4, 8 or 16 epochs, err so at up to 9,000 (`bench_repetition.py`); beside
other tokens repeats act by their ratio's cube (see `harmful`).
"""
ALONE = 0.95
"""Runs in which the repeated source has a larger ratio do not show what harm repeats do beside other tokens."""
MOST_HARM = 0.1
"""Share of the core from which harm is worth a warning; at optimal mixtures it is .01 to .02."""


@dataclass(frozen=True)
class Repetition(Record):
    """What a fit knows of repeated tokens.

    Attributes
    ----------
    symbols : array (1 + M,)
        Logarithms of h, the strength of harm, and of each source's R*, the epochs beyond which its repeated tokens are
        worth little.
    replicates : array (B, 1 + M), optional
        Those of the replicates.
    identified : bool
        Whether enough runs repeat tokens, so that these were fitted; else they are the centre of what is believed.
    mixed : bool
        Whether such runs mix the repeated tokens with others.
    epochs : array (M, 2)
        Fewest and most epochs of each source in the fitted runs; NaN where the log does not say.
    """

    kind = "repetition"
    axes: ClassVar[Mapping[str, str]] = {"symbols": "H", "replicates": "BH", "epochs": "M2"}

    symbols: FloatArray
    replicates: FloatArray | None
    identified: bool
    mixed: bool
    epochs: FloatArray

    @classmethod
    def of(
        cls, evidence: Evidence, law: type[Law], seed: int, symbols: FloatArray, replicates: FloatArray | None
    ) -> Repetition | None:
        """What a fit will know, given log h and log R* as they were fitted; None without such a law or sources."""
        if not (law.takes_repetition and evidence.log.sources):
            return None
        identified, p, shares = evidence.tells(law), evidence.log.p, evidence.shares
        if identified and replicates is not None:  # one number of one form
            replicates = _move_harm(replicates, HARM_ERROR, [seed, RandomStream.RATES, 0])
        present = (p > 0) & np.any(evidence.weight > 0, axis=1, keepdims=True) & ~np.isnan(evidence.unique).all()
        epochs = np.where(present, p / shares, np.nan)
        ends = np.stack([one.reduce(epochs, axis=0, initial=np.nan) for one in (np.fmin, np.fmax)], axis=1)
        mixed = bool(((p > shares * ONCE) & (p < ALONE)).any())
        return cls(symbols, replicates, identified, mixed, ends)

    def with_source(self, row: int) -> Repetition:
        """The same with one more source at a row, of which nothing is known: its R* is the mean of the others."""

        def wider(values: FloatArray) -> FloatArray:
            return np.insert(values, 1 + row, values[..., 1:].mean(axis=-1), axis=-1)

        drawn = None if self.replicates is None else wider(self.replicates)
        epochs = np.insert(self.epochs, row, np.nan, axis=0)
        return replace(self, symbols=wider(self.symbols), replicates=drawn, epochs=epochs)

    def draw(self, far: float, seed: int) -> FloatArray | None:
        """(B, 1 + M) symbols of the replicates at a budget that lies so many e-folds beyond the fitted ones."""
        if self.replicates is None or far == 0:
            return self.replicates
        return _move_harm(self.replicates, FORM * far, [seed, RandomStream.RATES, 1])

    def form(self, p: FloatArray, epochs: FloatArray) -> float:
        """Spread of log losses at ratios and epochs (M,) since the formula may be wrong; 0 within the fitted epochs."""
        beyond = np.log(np.maximum(np.nan_to_num(epochs) / self.most(), 1.0))
        return WIDER * float((p**3 * beyond).max(initial=0.0))

    def most(self) -> FloatArray:
        """(M,) epochs up to which the fitted runs tell what repeated tokens do."""
        return np.maximum(np.nan_to_num(self.epochs[:, 1]), 1.0)

    def interval(self, level: float) -> FloatArray:
        """(2, 1 + M) bounds of h and each R*; NaN without replicates."""
        if self.replicates is None:
            return np.full((2, len(self.symbols)), np.nan)
        return np.exp(np.quantile(self.replicates, interval_ends(level), axis=0))

    def parameters(self, sources: Sequence[str], level: float) -> list[ParameterRow]:
        """h, and R* of the sources that runs repeat, as rows of a fit's parameters, where the log told them."""
        low, high = self.interval(level).tolist()
        return [
            ("R*" if source else "h", source, EVERY_TARGET, float(np.exp(self.symbols[i])), low[i], high[i])
            for i, source in enumerate((None, *sources))
            if self.identified and (self.epochs[i - 1, 1] > ONCE if i else self.mixed)
        ]

    def lines(self, sources: Sequence[str]) -> list[str]:
        """The numbers in words, and how far they leave the best epochs open; nothing where the log repeats no token."""
        if not self.identified:
            return []
        named = [
            f"{'harm' if source is None else 'worth'} {symbol}{'' if source is None else f' of {source}'} {value:.2g}"
            + ("" if np.isnan(low) else f" ({low:.2g} .. {high:.2g})")
            for symbol, source, _, value, low, high in self.parameters(sources, LEVEL)
        ]
        return [f"Repeated tokens, as the runs tell: {', '.join(named)}. Best epochs are known to {self.open()}."]

    def open(self) -> str:
        """How well h tells the best epochs, in words."""
        low, high = np.log(self.interval(LEVEL)[:, 0]) / CUBE
        return f"a factor of {np.exp((high - low) / 2):.2g} each way"

    def much_harm(
        self, p: FloatArray, unique: FloatArray, N: FloatArray, D: FloatArray,
        paths: Sequence[str], targets: Sequence[str],
    ) -> list[str]:  # fmt: skip
        """Where repeated tokens do so much harm at points (R, M), of N and D (R,), that only its order is known."""
        u = np.where(np.isnan(unique), np.inf, unique) / D[:, None]
        harm = np.exp(self.symbols[0]) * harmful(p, u, N[:, None], D[:, None]) @ harm_map(paths, targets)
        most = harm.max(axis=0, initial=0.0)
        named = [name for name, one in zip(targets, most.tolist(), strict=True) if one > MOST_HARM]
        text = f"repeated tokens add up to {most.max(initial=0.0):.0%} to the loss on {short(named)}"
        return [f"{text}: so much harm is known only roughly"] * bool(named)

    def warnings(
        self, p: FloatArray, unique: FloatArray, D: float, sources: Sequence[str], who: str = "the mixture"
    ) -> list[str]:
        """Where a mixture (M,) makes other epochs than the fitted runs did; `unique` (M,), NaN where not known."""
        epochs, most, least, found = epochs_of(p, unique, D), self.most(), self.epochs[:, 0], list[str]()
        often = _list_often(epochs)
        if untold := [i for i in often if not self.identified or (not self.mixed and p[i] < ALONE)]:
            told = (
                "repeat too few tokens to measure this" if np.isfinite(self.epochs).any() else "name no unique tokens"
            )
            whence = f"{told}, so the published penalty is used"
            if self.identified:
                whence = "repeat tokens only alone, so the harm of repeats beside other tokens is not measured"
            known = "" if self.replicates is None else f": the best epochs are known to {self.open()}"
            found.append(f"{who} repeats {_quote(sources, epochs, untold)}; the fitted runs {whence}{known}")
        elif far := [i for i in often if epochs[i] > most[i] * ONCE]:
            seen = ", ".join(f"{sources[i]} at most {most[i]:.3g}" for i in far)
            found.append(f"{who} repeats {_quote(sources, epochs, far)}; the fitted runs repeat {seen}")
        if fresh := [i for i in np.flatnonzero(p > 0).tolist() if least[i] > ONCE and not epochs[i] >= least[i] / ONCE]:
            seen = ", ".join(f"{sources[i]} at least {least[i]:.3g} times" for i in fresh)
            found.append(f"the fitted runs repeat {seen}, but {who} does so less often or not at all")
        return found


def _move_harm(replicates: FloatArray, spread: float, seed: list[int]) -> FloatArray:
    """Symbols (B, 1 + M) of replicates whose log h is spread by so much more."""
    moved = np.random.default_rng(seed).standard_normal(len(replicates))
    return replicates + spread * moved[:, None] * (np.arange(replicates.shape[1]) == 0)


def _quote(sources: Sequence[str], epochs: FloatArray, chosen: Sequence[int]) -> str:
    return ", ".join(f"{sources[i]} {epochs[i]:.3g} times" for i in chosen)


def warnings_of_repetition(
    known: Repetition | None, p: FloatArray, unique: FloatArray, D: FloatArray, sources: Sequence[str], names: Names
) -> list[str]:
    """What to beware of where points (R, M) repeat tokens, or make other epochs than the fitted runs."""
    if known is not None and known.identified and np.isnan(unique).all():
        return ["the fitted runs repeat tokens, but no available tokens are given, so every token counts as fresh"]
    called = [f"point {row}" for row in range(len(p))] if names is None and len(p) > 1 else names or ["the mixture"]
    texts: list[str] = []
    for ratios, limits, tokens, who in zip(p, unique, D.tolist(), called, strict=True):
        epochs = epochs_of(ratios, limits, tokens)
        if known is not None:
            texts += known.warnings(ratios, limits, tokens, sources, who)
        elif often := _list_often(epochs):
            repeats = f"{who} repeats {_quote(sources, epochs, often)}"
            texts.append(f"the law counts repeated tokens as fresh ones, but {repeats}")
    found = list(dict.fromkeys(texts))  # a mixture repeats the same at every N
    hidden = len(found) - SHOWN
    return [*found[:SHOWN], f"{hidden} more points repeat tokens"] if hidden > 0 else found


def _list_often(epochs: FloatArray) -> list[int]:
    """Sources whose tokens are seen more than once, the most often seen first."""
    return [i for i in np.argsort(-np.nan_to_num(epochs), kind="stable").tolist() if epochs[i] > ONCE]


def limits_of_points(given: ArrayLike | None, supply: FloatArray, p: FloatArray) -> FloatArray:
    """Unique tokens (R, M) of points p: those given for each, else the supply (M,) for all; NaN for no limit.

    Raises
    ------
    UsageError
        If a mixture holds a source of which there are none, or those given are not one number a point and source.
    """
    try:
        limits = np.broadcast_to(np.asarray(supply if given is None else given, dtype=np.float64), p.shape)
    except (TypeError, ValueError, OverflowError) as error:
        hint = f"give an array of {p.shape[0]} x {p.shape[1]} (points x sources), NaN where there is no limit"
        message = f"unique tokens: {described(given)} is not one number a point and source"
        raise UsageError(message, hint=hint) from error
    if ((limits <= 0) & (p > 0)).any():
        hint = "leave the source out of the mixture; where there is no limit, do not name its tokens"
        raise UsageError("unique tokens: a mixture holds a source that has 0 of them, or fewer", hint=hint)
    return limits
