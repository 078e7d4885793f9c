"""Where a fit has data, and how far points lie from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.fitting.evidence import beyond_line, line_of, parting_run
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.tables.languages import own_data
from shapleymix.tables.runs import RunLog
from shapleymix.tables.words import format_range

BUDGET_SLACK = 1.01  # a budget this close to the fitted range is inside of it: token counts are rounded to batches
RATIO_SLACK = 1e-3
COUNTED = "its siblings, counted with "
"""A source that is like its siblings in the mean, and more of the one that is named."""
BUDGETS = "N", "D", "N D", "D / N"
TIED = 0.01  # a sum of ratios that changes by no more in all runs is one number
FEW_MIXTURES = 3  # below this many with a source, its effect cannot be told from their other differences
TINY_RATIO = 0.01


@dataclass(frozen=True)
class Coverage(Record):
    """What the used losses cover, target by target: a loss that a filter left out covers nothing.

    Attributes
    ----------
    p_range : array (K, M, 2)
        Lowest and highest ratio of each source.
    N_range : array (K, 2)
        Fewest and most parameters.
    D_range : array (K, 2)
        Fewest and most tokens.
    mixtures : int array (K, M)
        Number of different mixtures in which the source has a ratio above 0.
    untrained : array (K,)
        Loss of an untrained model, nats; where nothing tells it, one that no model has.
    alike : dict of str to str
        Sources that no run holds, each with the one that it is taken to be like, or with `text:DIR`.
    compute_range, ratio_range : array (K, 2)
        Lowest and highest N D, and D / N: runs of a few of these fill no rectangle of N and D.
    line : array (3,)
        Where N and D change together, the line a log N + b log D = c on which they do; NaN where runs part the two.
    ties : array (C, M + 1)
        Sums of ratios that are one number in all runs, besides that of all and single ones: weights, and that number.
    """

    kind = "fit/coverage"
    axes: ClassVar[Mapping[str, str]] = {
        "p_range": "KM2", "N_range": "K2", "D_range": "K2", "mixtures": "KM", "untrained": "K",
        "compute_range": "K2", "ratio_range": "K2", "line": "L", "ties": "CW",
    }  # fmt: skip

    p_range: FloatArray
    N_range: FloatArray
    D_range: FloatArray
    mixtures: IntArray
    untrained: FloatArray
    alike: dict[str, str]
    compute_range: FloatArray
    ratio_range: FloatArray
    line: FloatArray = field(default_factory=lambda: np.full(3, np.nan))
    ties: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def with_source(self, row: int) -> Coverage:
        """The same with one more source at a row, which no run holds."""
        p_range, mixtures = (np.insert(one, row, 0, axis=1) for one in (self.p_range, self.mixtures))
        ties = np.insert(self.ties, row, 0.0, axis=1) if len(self.ties) else self.ties
        return replace(self, p_range=p_range, mixtures=mixtures, ties=ties)

    @property
    def together(self) -> bool:
        """Whether N and D change together alone, so that no run tells what either does."""
        return not np.isnan(self.line).any()

    @property
    def parting(self) -> str:
        """That they do, and which run would part them; empty where they do not."""
        return parting_run(self.line, self.N_range, self.D_range) if self.together else ""

    @property
    def rise_together(self) -> bool:
        """Whether they rise together: runs of one compute, whose N falls as D rises, tell the best split of that."""
        return bool(self.line[0] * self.line[1] < 0)

    @property
    def whole_p_range(self) -> FloatArray:
        """(M, 2) lowest and highest ratio of each source over all targets."""
        return np.stack([self.p_range[..., 0].min(axis=0), self.p_range[..., 1].max(axis=0)], axis=1)

    @property
    def has_one_mixture(self) -> bool:
        """Whether all runs have one mixture, so that they tell of no other."""
        return np.ptp(self.p_range, axis=(0, 2)).max(initial=0.0) <= RATIO_SLACK

    def unseen(self, sources: tuple[str, ...]) -> tuple[str, ...]:
        """Sources with ratio 0 in every used run of whose effect nothing is known, nor taken to be."""
        never = (self.mixtures == 0).all(axis=0).tolist()
        return tuple(name for name, empty in zip(sources, never, strict=True) if empty and name not in self.alike)

    def twins(
        self, sources: tuple[str, ...], paths: tuple[str, ...], targets: tuple[str, ...]
    ) -> tuple[tuple[int, int, BoolArray], ...]:
        """Sources without runs that are taken to be more of another, or of a sibling, each with that one, and for which
        targets (K,): all but those whose own data one of the two is.
        """
        own = own_data(paths, targets)
        known = {new: name.removeprefix(COUNTED) for new, name in self.alike.items()}
        pairs = [(sources.index(new), sources.index(name)) for new, name in known.items() if name in sources]
        return tuple((one, other, own[one] == own[other]) for one, other in pairs)

    def thin(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, str]:
        """Sources of whose effect on some target little is known, with the reason and, where not all, the targets.

        A source that no target's runs hold is `unseen`, and not among them unless it is taken to be like another.
        """
        likeness = {new: known.replace("text:", "what its text says, in ") for new, known in self.alike.items()}
        found = {new: f"no run holds it; it is taken to be like {known}" for new, known in likeness.items()}
        for i in np.flatnonzero((self.mixtures > 0).any(axis=0)).tolist():
            ends = zip(self.mixtures[:, i].tolist(), self.p_range[:, i].tolist(), strict=True)
            whys = [_explain_thin(mixtures, *span) for mixtures, span in ends]
            of = {why: [name for name, one in zip(targets, whys, strict=True) if one == why] for why in whys if why}
            if of:
                parts = [why if len(who) == len(targets) else f"{why} for {short(who)}" for why, who in of.items()]
                found[sources[i]] = "; ".join(parts)
        return found

    def beyond_budgets(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """Factors (4, R, K) by which N, D, N D and D / N lie outside of each target's range; 1 inside of it.

        N D and D / N are those of N and D once these are moved inside.
        """
        n, d = (np.clip(one[:, None], *span.T) for one, span in ((N, self.N_range), (D, self.D_range)))
        asked = np.stack(np.broadcast_arrays(N[:, None], D[:, None], n * d, d / n))
        ranges = np.stack([self.N_range, self.D_range, self.compute_range, self.ratio_range])[:, None]
        factor = np.maximum(asked / ranges[..., 1], ranges[..., 0] / asked)
        return np.where(factor > BUDGET_SLACK, factor, 1.0)

    def describe_ties(self, sources: tuple[str, ...]) -> str:
        """Which sources the runs change together alone, in words; empty where there are none."""
        loads = np.abs(self.ties[:, :-1]).max(axis=0, initial=0.0)
        least = min([0.1, *np.sort(loads)[-2:]])  # two at least
        named = [name for name, load in zip(sources, loads.tolist(), strict=False) if load >= least > 0]
        return f"the runs change {short(named)} together alone: what each does by itself is a guess" if named else ""

    def beyond_ties(self, p: FloatArray) -> BoolArray:
        """Which mixtures (R, M) part sources that no run parts."""
        if not len(self.ties):
            return np.zeros(len(p), dtype=bool)
        return np.any(np.abs(p @ self.ties[:, :-1].T - self.ties[:, -1]) > TIED, axis=1)

    def beyond_ratios(self, p: FloatArray) -> FloatArray:
        """Distances (R, K, M) of ratios from each target's range; 0 inside of it."""
        low, high = self.p_range[..., 0], self.p_range[..., 1]
        off = np.maximum(low - p[:, None, :], p[:, None, :] - high)
        return np.where(off > RATIO_SLACK, off, 0.0)


def _explain_thin(mixtures: int, least: float, highest: float) -> str:
    """Why a source of so many mixtures and such ratios is little known; nothing where it is known well."""
    if mixtures == 0:
        return "in no fitted run"
    if mixtures < FEW_MIXTURES:
        return f"seen in {mixtures} different {'mixture' if mixtures == 1 else 'mixtures'}"
    if highest - least <= TIED and least > TIED:
        return f"at one ratio, {highest:.3g}, in every run"
    return f"seen only at ratios up to {highest:.2g}" if highest < TINY_RATIO else ""


def coverage_of(log: RunLog, used: BoolArray, untrained: FloatArray) -> Coverage:
    """What the `used` losses (R, K) of a log cover; every target has at least one.

    Parameters
    ----------
    untrained : array (K,)
        Untrained losses, as in `Coverage`.
    """
    rows = used.any(axis=1)
    return Coverage(
        p_range=_ranges(log.p, used),
        N_range=_ranges(log.N[:, None], used)[:, 0],
        D_range=_ranges(log.D[:, None], used)[:, 0],
        mixtures=np.array([[len(np.unique(log.groups[one & there])) for there in log.p.T > 0] for one in used.T]),
        untrained=untrained,
        alike={},
        compute_range=_ranges((log.N * log.D)[:, None], used)[:, 0],
        ratio_range=_ranges((log.D / log.N)[:, None], used)[:, 0],
        ties=_ties(log.p[rows]),
        line=np.full(3, np.nan) if (line := line_of(log.N[rows], log.D[rows])) is None else line,
    )


def _ties(p: FloatArray) -> FloatArray:
    """Sums of ratios (R, M) that do not change, as `Coverage.ties`; none where mixtures are too few to change them."""
    mixtures, M = np.unique(np.round(p, 6), axis=0), p.shape[1]
    if len(mixtures) <= M + 1:
        return np.zeros((0, 0))
    middle, alone = mixtures.mean(axis=0), np.eye(M)[np.ptp(mixtures, axis=0) <= TIED]
    known = np.concatenate([np.ones((1, M)), alone]) * len(mixtures)  # what need not be told
    _, sizes, directions = np.linalg.svd(np.concatenate([mixtures - middle, known]), full_matrices=False)
    still = directions[sizes <= TIED * np.sqrt(len(mixtures)) / 2]
    return np.column_stack([still, still @ middle]) if len(still) else np.zeros((0, 0))


def _ranges(values: FloatArray, used: BoolArray) -> FloatArray:
    """Lowest and highest of each column of `values` (R, C) among each target's used rows, (K, C, 2)."""
    return np.stack([[values[rows].min(axis=0), values[rows].max(axis=0)] for rows in used.T]).swapaxes(1, 2)


NEAR = 3.0  # intervals of fits without the largest size, 2.2 to 4.1 times the next, hold what they say,
FAR = 10.0  # and those of fits to the smallest size alone up to 10.7 times it (bench_coverage.py); nobody looked beyond


@dataclass(frozen=True)
class Extrapolation:
    """Where points lie (ratios (R, M), sizes and tokens (R,)), and what the fit says of itself.

    `held` maps a budget, "N" or "D", to the symbols that were not fitted for lack of different values of it, with the
    value at which each was held; an empty dict where all were fitted. Symbols held at 0 have no term at all. Losses
    that are `foreign` (R, K) come from runs without the target's own language, among which no ratio is called outside,
    nor a loss above the untrained model's absurd.
    """

    p: FloatArray
    N: FloatArray
    D: FloatArray
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    coverage: Coverage
    held: Mapping[str, Mapping[str, float]]
    foreign: BoolArray

    @property
    def beyond_ratios(self) -> FloatArray:
        """Distances (R, K, M) of ratios from each target's range."""
        return np.where(self.foreign[..., None], 0.0, self.coverage.beyond_ratios(self.p))

    @property
    def outside(self) -> BoolArray:
        """Which losses (R, K) lie outside of what was fitted."""
        budgets = self.coverage.beyond_budgets(self.N, self.D)
        off = (beyond_line(self.coverage.line, self.N, self.D) > 1) | self.coverage.beyond_ties(self.p)
        return (budgets > 1).any(axis=0) | off[:, None] | (self.beyond_ratios > 0).any(axis=2)

    def lacking(self, losses: FloatArray) -> Iterator[str]:
        """A sentence for losses (R, K) that no model has."""
        absurd = (losses > self.coverage.untrained) & ~self.foreign
        if absurd.any():
            yield f"no prediction for {self.name(absurd)}: the law gives more than the loss of an untrained model"
        if np.isnan(losses).any():
            yield f"the law is undefined for {int(np.isnan(losses).sum())} of {losses.size} losses"

    def beyond(self) -> Iterator[str]:
        """A sentence for each budget, and for ratios, outside of what was fitted."""
        for name, factors in zip(BUDGETS, self.coverage.beyond_budgets(self.N, self.D), strict=True):
            if name in ("N", "D") and (factors > 1).any():
                yield self._budget(name, factors)
            elif (factors > 1).any() and not self.coverage.together:
                yield f"{name} lies outside of that of the runs by up to a factor of {factors.max():.3g}"
        if (factor := beyond_line(self.coverage.line, self.N, self.D).max(initial=1.0)) > 1:
            yield (
                f"in the runs N and D change together, and the budget is off their line by a factor of {factor:.3g}: "
                "what either does by itself is told by public runs alone"
            )
        if (self.beyond_ratios > 0).any():
            yield self._ratio()
        if self.coverage.beyond_ties(self.p).any():
            yield self.coverage.describe_ties(self.sources)

    def _budget(self, name: str, factors: FloatArray) -> str:
        row, target = np.unravel_index(int(factors.argmax()), factors.shape)
        span = (self.coverage.N_range if name == "N" else self.coverage.D_range)[target]
        text = format_range(span)
        held, factor = self.held.get(name, {}), float(factors[row, target])
        far = ""
        if factor > NEAR:
            far = ": far outside, where the interval relies on how losses of public models continued"
        if factor > FAR:
            far = ": so far from any run that the number is a guess"
        if len(held) > 1 or (held and not any(held.values())):  # no exponent alone: the term is held with it
            known = "is taken from public runs" if any(held.values()) else "is unknown"
            asked = f"and one off by a factor of {factor:.3g} is asked for{far}"
            return f"the log holds one {name} ({text}): its effect {known}, {asked}"
        symbols = "".join(f"; {symbol} was held at {value:g}, not fitted" for symbol, value in held.items())
        off = factors > 1
        of = "" if np.all(off) else f" for {self.name(off)}"
        return f"{name} lies outside of the fitted range {text}{of}, by up to a factor of {factor:.3g}{far}{symbols}"

    def _ratio(self) -> str:
        """The source whose ratio lies furthest out, and how many others do."""
        if self.coverage.has_one_mixture:
            return "all runs have one mixture: of another nothing is known"
        off = self.beyond_ratios
        row, target, i = np.unravel_index(int(off.argmax()), off.shape)
        low, high = self.coverage.p_range[target, i].tolist()
        name, others = self.sources[i], int((off > 0).any(axis=(0, 1)).sum()) - 1
        text = f"p_{name} lies outside of the fitted range {low:.4g} to {high:.4g}, by up to {off[row, target, i]:.3g}"
        text += f" (and so do {others} more)" if others else ""
        if self.p[row, i] == 0:
            return f"{text}: every fitted run has some {name}, and models without it may behave differently"
        return f"{text}: no fitted run has any {name}, so its effect is a guess" if high == 0 else text

    def name(self, off: BoolArray) -> str:
        """The targets of a mask (R, K), and at how many points."""
        names = np.array(self.targets)[np.any(off, axis=0)].tolist()
        points = int(off.any(axis=1).sum())
        return f"{short(names)}{f' at {points} of {len(off)} points' if len(off) > 1 else ''}"
