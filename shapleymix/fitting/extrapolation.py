"""Words for points outside of what was fitted: by name, and stronger the further away they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.coverage import Coverage
from shapleymix.records import FloatArray
from shapleymix.tables.sizes import format_size

NEAR = 3.0  # intervals of `learned-own` still hold 77 to 85% of new runs at 1.5 to 1.8 times the largest size, not 90%
FAR = 10.0  # at 4 times 65 to 72%, at 4 times in both N and D 12% (math.md, 2c): beyond 10, nobody has checked
FAR_RATIO = 0.1  # distance of a ratio from its range from which a point is called far outside
SHOWN = 6


@dataclass(frozen=True)
class Place:
    """Where points lie (ratios (R, M), sizes and tokens (R,)), and what the fit says of itself.

    `held` maps a budget, "N" or "D", to the symbols that were not fitted for lack of different values of it, with the
    value at which each was held; an empty dict where all were fitted. Symbols held at 0 have no term at all.
    """

    p: FloatArray
    N: FloatArray
    D: FloatArray
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    coverage: Coverage
    held: Mapping[str, Mapping[str, float]]


def warnings_of(place: Place) -> tuple[str, ...]:
    """One sentence for each budget, and one for each source's ratio, that lies outside; most distant first."""
    sizes, tokens = place.coverage.beyond_budgets(place.N, place.D)
    return (
        *_budget_warnings("N", sizes, place.coverage.N_range, place),
        *_budget_warnings("D", tokens, place.coverage.D_range, place),
        *_ratio_warnings(place),
    )


def distance_in_words(factor: float) -> str:
    """How far outside a budget lies, and what that means for the number.

    Parameters
    ----------
    factor : how many times beyond the nearer end of the range; above 1.
    """
    by = f"by up to a factor of {_grouped(factor)}"
    if factor <= NEAR:
        return by
    if factor <= FAR:
        return f"{by}: far outside, where fewer losses lie inside the interval than it says"
    return f"{by}: so far from any run that the number is a guess"


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
        count = f"at {int((worst > 1).sum())} of {len(worst)} points"
        held = place.held.get(name, {})
        if held and not any(held.values()):
            message = f"the log holds one {name} ({text}): its effect is unknown, and {count} another is asked for"
            far = f", {distance_in_words(float(worst.max()))}"
        else:
            message = f"{name} lies outside of the fitted range {text} {count}"
            far = f", {distance_in_words(float(worst.max()))}{_assumed(held)}"
        found.append(message + _for(members, place.targets) + far)
    return found


def _assumed(held: Mapping[str, float]) -> str:
    """What of the extrapolation was not measured."""
    if not held:
        return ""
    symbols = " and ".join(f"{symbol} was held at {value:g}" for symbol, value in held.items())
    return f"; {symbols}, not fitted: the interval does not know that"


def _ratio_warnings(place: Place) -> list[str]:
    """Targets with one range of every ratio share a sentence; a source without any data is named as such."""
    off = place.coverage.beyond_ratios(place.p)
    found = []
    for ranges, members in _alike(place.coverage.p_range):
        far = off[:, members[0]]
        worst = far.max(axis=0, initial=0.0)
        order = [int(i) for i in np.argsort(-worst, kind="stable") if worst[i] > 0]
        for i in order[:SHOWN]:
            low, high = ranges[i]
            points = f"at {int((far[:, i] > 0).sum())} of {len(far)} points"
            text = f"p_{place.sources[i]} lies outside of the fitted range {low:.4g} to {high:.4g} {points}"
            by = f", by up to {worst[i]:.3g}" + (", far from any run" if worst[i] > FAR_RATIO else "")
            found.append(text + _for(members, place.targets) + by)
        if len(order) > SHOWN:
            rest = ", ".join(place.sources[i] for i in order[SHOWN:])
            found.append(f"so do the ratios of {len(order) - SHOWN} more sources{_for(members, place.targets)}: {rest}")
    return found


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
