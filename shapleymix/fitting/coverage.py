"""Where a fit has data: what the losses that it used cover, target by target, and which points lie outside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.fields import AMOUNT, POSITIVE, SHARE, Range
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.tables.runs import RunLog

BUDGET_SLACK = 1.01  # a budget this close to the fitted range is inside of it: token counts are rounded to batches
RATIO_SLACK = 1e-3
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
        Loss of an untrained model, nats; NaN where it is not known.
    alike : dict of str to str
        Sources that no run holds, each with the one that it is taken to be like.
    """

    kind = "fit/coverage"
    ranges: ClassVar[Mapping[str, Range]] = {
        "p_range": SHARE, "N_range": POSITIVE, "D_range": POSITIVE, "mixtures": AMOUNT, "untrained": POSITIVE,
    }  # fmt: skip

    p_range: FloatArray
    N_range: FloatArray
    D_range: FloatArray
    mixtures: IntArray
    untrained: FloatArray
    alike: dict[str, str]

    @property
    def whole_p_range(self) -> FloatArray:
        """(M, 2) lowest and highest ratio of each source over all targets."""
        return np.stack([self.p_range[..., 0].min(axis=0), self.p_range[..., 1].max(axis=0)], axis=1)

    def check(self, labels: Sequence[str], targets: int) -> None:
        """Refuse what does not fit the labels of the sources and the number of targets.

        Raises
        ------
        ValueError
            If a shape is wrong, a range ends below where it begins, or a likeness names no source.
        """
        sources = len(labels)
        expected = {
            "p_range": (targets, sources, 2),
            "N_range": (targets, 2),
            "D_range": (targets, 2),
            "mixtures": (targets, sources),
            "untrained": (targets,),
        }
        for name, shape in expected.items():
            found = getattr(self, name)
            if found.size != np.prod(shape):
                raise ValueError(f"{name} has shape {found.shape}, the languages say {shape}")
            if found.shape != shape:  # JSON keeps no shape of an array without entries
                object.__setattr__(self, name, found.reshape(shape))
        for name in ("p_range", "N_range", "D_range"):
            low, high = np.moveaxis(getattr(self, name), -1, 0)
            if (low > high).any():
                raise ValueError(f"{name} holds a range that ends below where it begins")
        if not {*self.alike, *self.alike.values()} <= set(labels):
            raise ValueError(f"alike names other sources than {short(labels)}")

    def unseen(self, sources: tuple[str, ...]) -> tuple[str, ...]:
        """Sources with ratio 0 in every used run of whose effect nothing is known, nor taken to be."""
        never = (self.mixtures == 0).all(axis=0).tolist()
        return tuple(name for name, empty in zip(sources, never, strict=True) if empty and name not in self.alike)

    def thin(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, str]:
        """Sources of whose effect on some target little is known, with the reason and, where not all, the targets.

        A source that no target's runs hold is `unseen`, and not among them unless it is taken to be like another.
        """
        found = {new: f"no run holds it; it is taken to be like {known}" for new, known in self.alike.items()}
        for i in np.flatnonzero((self.mixtures > 0).any(axis=0)).tolist():
            by_reason: dict[str, list[str]] = {}
            for j, target in enumerate(targets):
                by_reason.setdefault(_seen(int(self.mixtures[j, i]), float(self.p_range[j, i, 1])), []).append(target)
            told = [
                why if len(who) == len(targets) else f"{why} for {short(who)}" for why, who in by_reason.items() if why
            ]
            if told:
                found[sources[i]] = "; ".join(told)
        return found

    @property
    def told(self) -> FloatArray:
        """Share (K, M) of the replicates in which a source's coefficients are those that were fitted.

        0 for a source that was never seen and 1 for one seen well. With few mixtures it is the share of ordinary
        bootstrap samples that hold any of them, about `1 - e^-n`; with tiny ratios, their share of a ratio that is not.
        """
        few = np.where(self.mixtures < FEW_MIXTURES, 1.0 - np.exp(-self.mixtures), 1.0)
        return few * np.minimum(self.p_range[..., 1] / TINY_RATIO, 1.0)

    def beyond_budgets(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Factors (R, K) by which N and D lie outside of each target's range; 1 inside of it."""
        return _factors(N, self.N_range), _factors(D, self.D_range)

    def beyond(self, N: float, D: float) -> bool:
        """Whether a budget lies outside of some target's range."""
        return any((factor > 1).any() for factor in self.beyond_budgets(np.array([N]), np.array([D])))

    def beyond_ratios(self, p: FloatArray) -> FloatArray:
        """Distances (R, K, M) of ratios from each target's range; 0 inside of it."""
        low, high = self.p_range[..., 0], self.p_range[..., 1]
        off = np.maximum(low - p[:, None, :], p[:, None, :] - high)
        return np.where(off > RATIO_SLACK, off, 0.0)

    def outside(self, p: FloatArray, N: FloatArray, D: FloatArray) -> BoolArray:
        """Whether points (R, M) at N and D (R,) lie outside of what each target's fit used, (R, K)."""
        sizes, tokens = self.beyond_budgets(N, D)
        return (sizes > 1) | (tokens > 1) | (self.beyond_ratios(p) > 0).any(axis=2)


def _factors(values: FloatArray, fitted: FloatArray) -> FloatArray:
    factor = np.maximum(values[:, None] / fitted[:, 1], fitted[:, 0] / values[:, None])
    return np.where(factor > BUDGET_SLACK, factor, 1.0)


def _seen(mixtures: int, highest: float) -> str:
    """Why a source of so many mixtures and such a highest ratio is little known; nothing where it is known well."""
    if mixtures == 0:
        return "in no run that is used"
    if mixtures < FEW_MIXTURES:
        return f"seen in {mixtures} different {'mixture' if mixtures == 1 else 'mixtures'}"
    return f"seen at ratios up to {highest:.2g} alone" if highest < TINY_RATIO else ""


def coverage_of(log: RunLog, used: BoolArray, untrained: FloatArray) -> Coverage:
    """What the `used` losses (R, K) of a log cover; every target has at least one.

    Parameters
    ----------
    untrained : array (K,)
        Untrained losses, as in `Coverage`.
    """
    return Coverage(
        p_range=_ranges(log.p, used),
        N_range=_ranges(log.N[:, None], used)[:, 0],
        D_range=_ranges(log.D[:, None], used)[:, 0],
        mixtures=_distinct_mixtures(log.p > 0, used, log.groups),
        untrained=untrained,
        alike={},
    )


def _ranges(values: FloatArray, used: BoolArray) -> FloatArray:
    """Lowest and highest of each column of `values` (R, C) among each target's used rows, (K, C, 2)."""
    pairs = [(values[rows].min(axis=0), values[rows].max(axis=0)) for rows in used.T]
    return np.stack([np.stack(pair, axis=-1) for pair in pairs])


def _distinct_mixtures(there: BoolArray, used: BoolArray, groups: IntArray) -> IntArray:
    """How many different mixtures show each source to each target, (K, M)."""
    counts = np.zeros((used.shape[1], there.shape[1]), dtype=np.int64)
    for j, rows in enumerate(used.T):
        shown = np.zeros((int(groups.max()) + 1, there.shape[1]), dtype=bool)
        np.logical_or.at(shown, groups[rows], there[rows])
        counts[j] = shown.sum(axis=0)
    return counts


def untrained_losses(log: RunLog) -> FloatArray:
    """Highest measured loss of untrained models (D = 0) for each target, (K,); NaN where the log has none."""
    losses = log.loss[~log.trained]
    highest = np.where(np.isnan(losses), -np.inf, losses).max(axis=0, initial=-np.inf)
    return np.where(np.isfinite(highest), highest, np.nan)
