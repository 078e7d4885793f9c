"""What a fit asks of its log: single losses that lie far from the law, recipes and orders that explain what it leaves.

Each question is a sentence that names the place, what was found, and what to do; nothing is left out for it. Whether
something explains the held-out residuals is told by shuffling it among the runs of one size.

Legend: R rows, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shapleymix.fitting.evidence import SAME, levels_of
from shapleymix.random_streams import RandomStream
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.languages import own_data
from shapleymix.tables.runs import RECIPE, RunLog
from shapleymix.tables.words import format_size

ROBUST_SCALES, SMALLEST_FAULT = 8.0, 0.05  # a residual beyond both is questioned
LISTED = 3


def questions_of_fit(log: RunLog, residual: FloatArray, used: BoolArray) -> tuple[str, ...]:
    """Losses so far from the fit that a slip of the pen is likelier than noise, the farthest first.

    `residual` (R, K) are logs of measured over fitted losses.
    """
    shown = np.where(used & np.isfinite(residual), residual, np.nan)
    size = np.abs(shown - np.nanmedian(shown, axis=0))
    scale = 1.4826 * np.nanmedian(size, axis=0)
    rows, targets = np.nonzero(np.nan_to_num(size) > np.maximum(ROBUST_SCALES * scale, SMALLEST_FAULT))
    if not len(rows):
        return ()
    order = np.argsort(-size[rows, targets], kind="stable")
    named = [
        f"{log.runs[row]} at D = {log.D[row]:g}: {log.targets[target]} {log.loss[row, target]:.4g} nats, "
        f"fitted {log.loss[row, target] / np.exp(residual[row, target]):.4g}"
        for row, target in zip(rows[order].tolist(), targets[order].tolist(), strict=True)
    ]
    return (
        f"{len(rows)} of {int(np.isfinite(shown).sum())} losses lie far from the law, beyond {ROBUST_SCALES:g} times "
        f"the usual residual: {_listed(named)}. Check these rows",
    )


def _listed(parts: list[str]) -> str:
    more = f" and {len(parts) - LISTED} more" if len(parts) > LISTED else ""
    return "; ".join(parts[:LISTED]) + more


SHUFFLES, SIGNIFICANT = 999, 0.01
"""Shuffles among the runs of one size, and the probability from which on they tell something."""


RECIPES = dict(zip(RECIPE, ("learning rates", "batches"), strict=True))


def questions_of_recipes(log: RunLog, residual: FloatArray, seed: int) -> dict[str, bool]:
    """Whether recipes that differ between runs of one size, or what runs read last, explain what the law leaves.

    `residual` (R, K) are logs of measured over held-out losses, NaN where they do not count. A law takes what a recipe
    does for the effect of the mixture or D that it goes with, or of N where each size has its own, so runs should have
    one; and it knows sums of tokens, no order. With each sentence stands whether an answer should repeat it.
    """
    sizes, found = levels_of(np.log(log.N)), dict[str, bool]()
    beside = {"the mixture": log.p, "D": np.log(np.maximum(log.D, 1.0))[:, None]}
    nothing = "nothing that can be told of what the law leaves"
    for name, what in RECIPES.items():
        if (values := getattr(log, name)) is None:
            continue
        cause = np.repeat(np.log(values)[:, None], residual.shape[1], axis=1)
        share, chance, spread = explained(cause, residual, sizes, log.groups, seed)
        told = f"{what} differ between runs of one size, by up to a factor of {np.exp(spread):.2g}"
        rows = np.isfinite(values) & np.isfinite(residual).any(axis=1) & (spread > SAME)
        goes = [one for one, by in beside.items() if followed(values[rows], by[rows], sizes[rows], seed) <= SIGNIFICANT]
        if goes:
            told += f", and go with {' and '.join(goes)}, for whose effect the law takes what they do"
        if chance <= SIGNIFICANT and spread > SAME:
            advice = "train all runs of a size by one recipe, or leave these out"
            found[f"{told}, and explain {share:.0%} of what the law leaves (p = {chance:.2g}): {advice}"] = True
        elif spread > SAME:
            found[f"{told}; they explain {nothing}"] = bool(goes)
        else:
            found |= dict.fromkeys(_with_size(log.N, values, what), False)
    if log.late is not None:
        own = own_data(log.paths, log.targets)
        late = np.where(own.any(axis=0), (log.late - log.p) @ own, np.nan)
        share, chance, spread = explained(late, residual, sizes, log.groups, seed)
        told = "runs read their languages in phases: the fit takes the sum"
        if chance <= SIGNIFICANT and spread > SAME:
            advice = "what is read last counts for more or less than the law knows"
            found[f"{told}, but the order explains {share:.0%} of what it leaves (p = {chance:.2g}): {advice}"] = True
        elif spread > SAME:
            found[f"{told}, and the order explains {nothing}"] = False
    return found


def _with_size(N: FloatArray, values: FloatArray, what: str) -> list[str]:
    """That each size (R,) has a recipe of its own, where the values (R,) say so."""
    known = sorted(np.flatnonzero(np.isfinite(values)).tolist(), key=lambda row: float(N[row]))
    if not known or np.ptp(np.log(values[known])) <= SAME:
        return []
    ends = [f"{values[row]:.2g} at N = {format_size(float(N[row]))}" for row in (known[0], known[-1])]
    return [
        f"{what} go with N, from {' to '.join(ends)}: the law takes what that does for the effect of N, so its "
        "predictions at other N are for runs whose recipe goes on like that"
    ]


ENDS = ((np.min, np.inf), (np.max, -np.inf))


def explained(
    cause: FloatArray, residual: FloatArray, sizes: IntArray, groups: IntArray, seed: int
) -> tuple[float, float, float]:
    """The share of the residuals (R, K) that a cause (R, K) explains within runs of one size, how likely that is by
    chance, and how far the cause spreads there; NaN in either leaves a loss out.

    Runs of one mixture (`groups`), size and cause err alike, and are one: their mean is shuffled.
    """
    keys = np.column_stack([groups, sizes, np.nan_to_num(cause)])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    seen, together = np.isfinite(cause) & np.isfinite(residual), np.arange(len(first))[:, None] == place.ravel()
    cause, residual = (
        together @ np.where(seen, one, 0.0) / np.maximum(together @ seen, 1) for one in (cause, residual)
    )
    known, sizes = together @ seen > 0, sizes[first]
    x, y = (_within(np.where(known, one, 0.0), known, sizes) for one in (cause, residual))
    product, ranked = float((x * y).sum()), np.argsort(sizes, kind="stable")
    by_chance = np.array([abs(float((x[order] * y[ranked]).sum())) for order in _shuffles(sizes, seed)])
    chance = float((1 + (by_chance >= abs(product)).sum()) / (1 + SHUFFLES))
    ends = [[side(np.where(known, cause, far)[sizes == one], axis=0) for side, far in ENDS] for one in np.unique(sizes)]
    spread = max((float(np.max(high - low, initial=0.0)) for low, high in ends), default=0.0)
    return product**2 / max(float((x**2).sum() * (y**2).sum()), 1e-300), chance, spread


def followed(values: FloatArray, by: FloatArray, sizes: IntArray, seed: int) -> float:
    """How likely it is by chance that logs of values (R,) follow others (R, P) so well within runs of one size.

    Runs that are alike in all of these are one.
    """
    first = np.unique(np.column_stack([values, by, sizes]), axis=0, return_index=True)[1]
    values, by, sizes, known = values[first], by[first], sizes[first], np.ones((len(first), 1), dtype=bool)
    y, x = _within(np.log(values)[:, None], known, sizes)[:, 0], _within(by, known, sizes)
    directions, strengths, _ = np.linalg.svd(x[np.argsort(sizes, kind="stable")], full_matrices=False)
    directions = directions[:, strengths > 1e-9 * max(strengths.max(initial=0.0), 1e-300)]
    orders = [np.argsort(sizes, kind="stable"), *_shuffles(sizes, seed)]
    told = np.array([float(((y[order] @ directions) ** 2).sum()) for order in orders])
    return float((told >= told[0] * (1 - 1e-9)).mean())


def _shuffles(sizes: IntArray, seed: int) -> Iterator[IntArray]:
    """Orders that shuffle runs within their sizes, which stand one after another."""
    rng = np.random.default_rng([seed, RandomStream.RECIPES])
    for _ in range(SHUFFLES):
        yield np.lexsort([rng.random(len(sizes)), sizes])


def _within(values: FloatArray, known: BoolArray, sizes: IntArray) -> FloatArray:
    """What is left of known values (R, K) without the mean of their size; 0 where not known."""
    same = (sizes[:, None] == sizes).astype(np.float64)
    return np.where(known, values - (same @ values) / np.maximum(same @ known, 1.0), 0.0)
