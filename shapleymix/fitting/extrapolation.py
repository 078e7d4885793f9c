"""Words for points outside of what was fitted: by name, and stronger the further away they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.coverage import Coverage
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.sizes import format_size

NEAR = 3.0  # intervals of fits without the largest size, 2.2 to 4.1 times the next, hold what they say,
FAR = 10.0  # and those of fits to the smallest size alone up to 10.7 times it (bench_coverage.py); nobody looked beyond
FAR_RATIO = 0.1  # distance of a ratio from its range from which a point is called far outside
SHOWN = 8
CHOSEN_WITHIN = (
    "the law was chosen for budgets within the fitted ones: a fit for what lies beyond chooses by the largest left out"
)


@dataclass(frozen=True)
class Place:
    """Where points lie (ratios (R, M), sizes and tokens (R,)), and what the fit says of itself.

    `held` maps a budget, "N" or "D", to the symbols that were not fitted for lack of different values of it, with the
    value at which each was held; an empty dict where all were fitted. Symbols held at 0 have no term at all. `drawn`
    says whether replicates draw them from what public runs have. Losses that are `apart` (R, K) come from runs without
    the target's own language, among which no ratio is called outside, nor a loss above the untrained model's absurd.
    """

    p: FloatArray
    N: FloatArray
    D: FloatArray
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    coverage: Coverage
    held: Mapping[str, Mapping[str, float]]
    drawn: bool
    apart: BoolArray

    @property
    def beyond_ratios(self) -> FloatArray:
        """Distances (R, K, M) of ratios from each target's range."""
        return np.where(self.apart[..., None], 0.0, self.coverage.beyond_ratios(self.p))

    @property
    def outside(self) -> BoolArray:
        """Which losses (R, K) lie outside of what was fitted."""
        budgets = self.coverage.beyond_budgets(self.N, self.D)
        return np.any([factors > 1 for factors in budgets], axis=0) | (self.beyond_ratios > 0).any(axis=2)


def warnings_of(place: Place, *, by_folds: bool = False) -> tuple[str, ...]:
    """One sentence for each budget, and one for each source's ratio, that lies outside; most distant first.

    And one more where the law was chosen `by_folds` of mixtures, though the log could tell which is best beyond.
    """
    sizes, tokens = place.coverage.beyond_budgets(place.N, place.D)
    return (
        *_budget_warnings("N", sizes, place.coverage.N_range, place),
        *_budget_warnings("D", tokens, place.coverage.D_range, place),
        *([CHOSEN_WITHIN] if by_folds and _tells_beyond(place.coverage) and max(sizes.max(), tokens.max()) > 1 else []),
        *_ratio_warnings(place),
    )


def warnings_of_losses(losses: FloatArray, place: Place) -> tuple[str, ...]:
    """One sentence for each target whose losses (R, K) exceed an untrained model's, and one for losses that are NaN."""
    limits = place.coverage.untrained
    above = [
        f"no prediction for {name}{at_points(off)}: the law gives more than the {limit:.4g} nats of an untrained model"
        for name, off, limit in zip(place.targets, ((losses > limits) & ~place.apart).T, limits.tolist(), strict=True)
        if off.any()
    ]
    count = int(np.isnan(losses).sum())
    return (*above, *([f"the law is undefined for {count} of {losses.size} losses"] if count else []))


def distance_in_words(factor: float) -> str:
    """How far outside a budget lies, and what that means for the number.

    Parameters
    ----------
    factor : float
        How many times beyond the nearer end of the range; above 1.
    """
    by = f"by up to a factor of {_grouped(factor)}"
    if factor <= NEAR:
        return by
    if factor <= FAR:
        return f"{by}: far outside, where the interval rests on how other models' losses went on"
    return f"{by}: so far from any run that the number is a guess"


def at_points(off: BoolArray) -> str:
    """How many of the points (R,) are meant; nothing where there is only one."""
    return f" at {int(off.sum())} of {len(off)} points" if len(off) > 1 else ""


def _tells_beyond(coverage: Coverage) -> bool:
    """Whether the fitted runs have several sizes or token counts, so that the largest can be left out."""
    return any(bool((spans[:, 0] < spans[:, 1]).any()) for spans in (coverage.N_range, coverage.D_range))


def _grouped(factor: float) -> str:
    return f"{float(f'{factor:.3g}'):,.12g}" if factor < 1e6 else f"{factor:.3g}"


def _budget_warnings(name: str, factors: FloatArray, ranges: FloatArray, place: Place) -> list[str]:
    """Targets with one range share a sentence."""
    found = []
    for span, members in _alike(ranges):
        worst = factors[:, members[0]]
        if (worst == 1).all():
            continue
        text = " to ".join(format_size(value) for value in dict.fromkeys(span.tolist()))
        head, tail = _of_budget(name, text, at_points(worst > 1), place)
        found.append(f"{head}{_for(members, place.targets)}, {distance_in_words(float(worst.max()))}{tail}")
    return found


def _of_budget(name: str, text: str, where: str, place: Place) -> tuple[str, str]:
    """What is asked for, and what of the extrapolation was not measured."""
    held = place.held.get(name, {})
    if len(held) > 1 or (held and not any(held.values())):  # no exponent alone: the term is held with it
        known = "is taken from public runs" if any(held.values()) else "is unknown"
        return f"the log holds one {name} ({text}): its effect {known}, and{where} another is asked for", ""
    head = f"{name} lies outside of the fitted range {text}{where}"
    if not held:
        return head, ""
    symbols = " and ".join(f"{symbol} was held at {value:g}" for symbol, value in held.items())
    interval = "spans what public runs have" if place.drawn else "does not know that"
    return head, f"; {symbols}, not fitted: the interval {interval}"


def _ratio_warnings(place: Place) -> list[str]:
    """Targets with one range of a source's ratio share a sentence; most distant first."""
    off = place.beyond_ratios
    found: list[tuple[float, str, str]] = []
    for i in np.flatnonzero((off > 0).any(axis=(0, 1))).tolist():
        for span, members in _alike(place.coverage.p_range[:, i]):
            far = off[:, members, i].max(axis=1)
            if (far > 0).any():
                found.append((-float(far.max()), place.sources[i], _ratio_warning(place, i, span, members, far)))
    found.sort(key=lambda one: one[0])
    shown = [text for _, _, text in found[:SHOWN]]
    rest = dict.fromkeys(name for _, name, _ in found[SHOWN:])
    return [*shown, f"so do, less far, ratios of {', '.join(rest)}"] if rest else shown


def _ratio_warning(place: Place, i: int, span: FloatArray, members: Sequence[int], far: FloatArray) -> str:
    low, high = span.tolist()
    name, worst = place.sources[i], float(far.max())
    points = f"{at_points(far > 0)}{_for(members, place.targets)}"
    text = f"p_{name} lies outside of the fitted range {low:.4g} to {high:.4g}{points}, by up to {worst:.3g}"
    if (place.p[far > 0, i] == 0).any():
        return f"{text}: every run that is used has some {name}, and a model without any is another regime"
    if high == 0:
        return f"{text}: no run that is used has any {name}, and its effect is a guess"
    return f"{text}: far from any run" if worst > FAR_RATIO else text


def _for(members: Sequence[int], targets: tuple[str, ...]) -> str:
    """Which targets a sentence is about, where not all."""
    if len(members) == len(targets):
        return ""
    return f" for {', '.join(targets[j] for j in members)}"


def _alike(ranges: FloatArray) -> list[tuple[FloatArray, list[int]]]:
    """Each different range with the targets that have it, in their order."""
    groups: dict[bytes, list[int]] = {}
    for j, own in enumerate(ranges):
        groups.setdefault(np.ascontiguousarray(own).tobytes(), []).append(j)
    return [(ranges[members[0]], members) for members in groups.values()]
