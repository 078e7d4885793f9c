"""What a fit asks of its log: single losses that lie far from the law, recipes and orders that explain what it leaves.

Each question is a sentence that names the place, what was found, and what to do; nothing is left out for it. Whether
something explains the held-out residuals is told by shuffling it among the runs of one size.

Legend: R rows, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shapleymix.fitting.evidence import SAME, levels_of
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import RandomStream
from shapleymix.tables.languages import own_data
from shapleymix.tables.runs import RunLog
from shapleymix.tables.words import RECIPE, format_size

ROBUST_SCALES, SMALLEST_FAULT = 8.0, 0.05  # a residual beyond both is questioned
LISTED = 3
LEAST = 1e-12  # of a residual of which the logarithm is taken


def questions_of(
    log: RunLog, residual: FloatArray, left: FloatArray, used: BoolArray, seed: int, *, knows_mixtures: bool
) -> dict[str, bool]:
    """Every question, and whether an answer should repeat it, from logs of measured over fitted losses (R, K), and over
    held-out ones (`left`), NaN where they do not count. Of a law that knows no mixtures a large error is no question.
    """
    odd = questions_of_fit(log, residual, used) | dict.fromkeys(questions_of_budgets(log, used), True)
    odd |= dict.fromkeys(questions_of_error(log, left) if knows_mixtures else (), True)
    return odd | questions_of_recipes(log, left, seed)


def questions_of_fit(log: RunLog, residual: FloatArray, used: BoolArray) -> dict[str, bool]:
    """Losses so far from the fit that a slip of the pen is likelier than noise, the farthest run first.

    `residual` (R, K) are logs of measured over fitted losses. Where a run has most of its several losses so far out,
    an answer should repeat it: it may be in another unit.
    """
    shown = np.where(used & np.isfinite(residual), residual, np.nan)
    size = np.abs(np.nan_to_num(shown - np.nanmedian(shown, axis=0)))
    scale = 1.4826 * np.nanmedian(np.where(np.isnan(shown), np.nan, size), axis=0)
    far = size > np.maximum(ROBUST_SCALES * scale, SMALLEST_FAULT)
    if not far.any():
        return {}
    farthest = np.where(far, size, 0.0)
    order = np.argsort(-farthest.max(axis=1), kind="stable")[: int(far.any(axis=1).sum())]
    named = [
        f"{log.runs[row]} at D = {log.D[row]:g}: {log.targets[target]} {log.loss[row, target]:.4g} nats, "
        f"fitted {log.loss[row, target] / np.exp(residual[row, target]):.4g}"
        for row, target in zip(order.tolist(), farthest[order].argmax(axis=1).tolist(), strict=True)
    ]
    text = (
        f"{int(far.sum())} of {int(np.isfinite(shown).sum())} losses lie far from the law, beyond {ROBUST_SCALES:g} "
        f"times the usual residual: {_list_first(named)}. Check these rows"
    )
    measured = np.isfinite(shown).sum(axis=1)
    whole = bool(((measured > 1) & (far.sum(axis=1) > measured / 2)).any())
    return {f"{text}, and the unit of their losses (bits are 1.44 times nats)" if whole else text: whole}


MISSED = 0.05
"""Of the log loss: runs that a law misses by more than that, in the middle, do more than scatter."""


def questions_of_error(log: RunLog, left: FloatArray) -> tuple[str, ...]:
    """That a law misses half of the runs by far more than runs scatter, and which it misses most, of (R, K)."""
    known = np.flatnonzero(np.isfinite(left).any(axis=1))
    size = np.nanmedian(np.abs(left[known]), axis=1)
    if not len(known) or np.median(size) <= MISSED:
        return ()
    most = "; ".join(log.runs[row] for row in known[np.argsort(-size, kind="stable")[:LISTED]].tolist())
    return (
        f"half of the runs are missed by {np.expm1(np.median(size)):.0%} or more, which is no scatter, and most of all "
        f"{most}: check units (bits are 1.44 times nats) and what losses were measured on, or fit another law",
    )


SLIP = 50.0
"""N or D of runs that do as well as others with so many times as much stand in another unit, such as billions."""


def questions_of_budgets(log: RunLog, used: BoolArray) -> Iterator[str]:
    """Runs whose N or D is a tiny part of that of others, with losses like theirs."""
    rows = np.flatnonzero(used.any(axis=1))
    shown = np.where(used, np.log(log.loss), np.nan)[rows]
    common = np.nanmedian(shown - np.nanmedian(shown, axis=0), axis=1)
    for name, values in (("N", log.N[rows]), ("D", log.D[rows])):
        order = np.argsort(values, kind="stable")
        steps = np.append(values[order][1:] / values[order][:-1], 1.0)
        less, more = np.split(order, [int(steps.argmax()) + 1])
        if steps.max() >= SLIP and np.median(common[less]) < np.quantile(common[more], 0.9):
            names = _list_first(list(dict.fromkeys(log.runs[row] for row in np.sort(rows[less]).tolist())))
            yield (
                f"{name} of {names} is less than that of other runs by a factor of {SLIP:g} or more, but losses are "
                "like theirs: check its unit"
            )


def _list_first(parts: list[str]) -> str:
    more = f" and {len(parts) - LISTED} more" if len(parts) > LISTED else ""
    return "; ".join(parts[:LISTED]) + more


SHUFFLES, SIGNIFICANT = 999, 0.01
"""Shuffles among the runs of one size, and the probability from which on they tell something."""


RECIPES = dict(zip(RECIPE, ("learning rates", "batches"), strict=True))


def questions_of_recipes(log: RunLog, residual: FloatArray, seed: int) -> dict[str, bool]:
    """Whether recipes that differ between runs of one size, or what runs read last, explain what the law leaves.

    `residual` (R, K) are logs of measured over held-out losses, NaN where they do not count. A law takes what a recipe
    does for the effect of the mixture or D that it goes with, or of N where each size has its own, so runs should have
    one; and it knows sums of tokens, no order; and one scatter for all mixtures. With each sentence stands whether an
    answer should repeat it.
    """
    sizes, known, found = levels_of(np.log(log.N)), np.any(np.isfinite(residual), axis=1), dict[str, bool]()
    runs = sizes, log.groups, seed
    beside = {"the mixture": log.p, "D": np.log(np.maximum(log.D, 1.0))[:, None]}
    nothing = "nothing that can be told of what the law leaves"
    for name, what in RECIPES.items():
        if (values := getattr(log, name)) is None:
            continue
        logs = np.where(known, np.log(values), np.nan)
        share, chance = explain(np.stack([logs, logs**2], axis=1)[..., None], residual, *runs)
        spread = _find_spread(logs[:, None], sizes)
        found |= dict.fromkeys(_with_size(log.N, values, what, spread), False)
        if spread <= SAME:
            continue
        text = f"{what} differ between runs of one size, by up to a factor of {np.exp(spread):.2g}"
        alike = np.unique(np.column_stack([log.groups, np.nan_to_num(logs)]), axis=0, return_inverse=True)[1].ravel()
        follows = {one: explain(by[..., None], logs[:, None], sizes, alike, seed)[1] for one, by in beside.items()}
        goes = [one for one, chance_of in follows.items() if chance_of <= SIGNIFICANT]
        if goes:
            text += f", and go with {' and '.join(goes)}, for whose effect the law takes what they do"
        if chance <= SIGNIFICANT:
            advice = "train all runs of a size by one recipe, or leave these out"
            found[f"{text}, and explain {share:.0%} of what the law leaves (p = {chance:.2g}): {advice}"] = True
        else:
            found[f"{text}; they explain {nothing}"] = bool(goes)
    size = np.log(np.maximum(np.abs(residual), LEAST))
    if (chance := explain(log.p[..., None], size, *runs)[1]) <= SIGNIFICANT:
        text = f"how far runs lie from the law differs by mixture (p = {chance:.2g}), and one scatter is taken for all"
        found[f"{text}: intervals hold in the mean of the mixtures, not at each"] = False
    if log.late is not None:
        own, later = own_data(log.paths, log.targets), log.late - log.p
        of_own = later @ own
        of_own[:, ~own.any(axis=0)] = np.nan
        share, chance = explain(of_own[:, None] if own.any() else later[..., None], residual, *runs)
        spread = _find_spread(np.where(known[:, None], later, np.nan), sizes)
        text = "runs read their languages in phases: the fit takes the sum"
        if chance <= SIGNIFICANT and spread > SAME:
            advice = "what is read last counts for more or less than the law knows"
            found[f"{text}, but the order explains {share:.0%} of what it leaves (p = {chance:.2g}): {advice}"] = True
        elif spread > SAME:
            found[f"{text}, and the order explains {nothing}"] = False
    return found


def _with_size(N: FloatArray, values: FloatArray, what: str, spread: float) -> list[str]:
    """That sizes have recipes of their own, where the values (R,) differ by more between sizes than within one."""
    known = sorted(np.flatnonzero(np.isfinite(values)).tolist(), key=lambda row: float(N[row]))
    if not known or abs(np.log(values[known[-1]] / values[known[0]])) <= SAME + 2 * spread:
        return []
    ends = [f"{values[row]:.2g} at N = {format_size(float(N[row]))}" for row in (known[0], known[-1])]
    return [
        f"{what} go with N, from {' to '.join(ends)}: the law takes what that does for the effect of N, so its "
        "predictions at other N are for runs whose recipe goes on like that"
    ]


def _find_spread(values: FloatArray, sizes: IntArray) -> float:
    """How far known values (R, C) lie apart at most within one size."""
    each = [np.ma.masked_invalid(values[sizes == size]) for size in np.unique(sizes)]
    return max(float(np.ma.filled(np.ma.ptp(one, axis=0), 0.0).max(initial=0.0)) for one in each)


def explain(
    cause: FloatArray, residual: FloatArray, sizes: IntArray, groups: IntArray, seed: int
) -> tuple[float, float]:
    """The share of residuals (R, K) that causes (R, P, K or 1) explain within runs of one size, and its p by chance.

    Each target may follow the causes in its own way. Runs of one mixture (`groups`), size and causes err alike, and are
    one: their mean is shuffled. NaN leaves a loss out, and a run none of whose causes is known.
    """
    rows = np.isfinite(cause).any(axis=(1, 2))
    if not rows.any():
        return 0.0, 1.0
    cause, residual, sizes, groups = np.nan_to_num(cause[rows]), residual[rows], sizes[rows], groups[rows]
    keys = np.column_stack([groups, sizes, cause.reshape(len(cause), -1)])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    together, seen = 1.0 * (np.arange(len(first))[:, None] == place.ravel()), np.isfinite(residual)
    count, sizes = together @ seen, sizes[first]
    y = _within(together @ np.where(seen, residual, 0.0) / np.maximum(count, 1), count > 0, sizes)
    y = y / np.maximum(np.linalg.norm(y, axis=0), 1e-300)
    every, x = np.ones((len(first), 1), dtype=bool), np.moveaxis(cause[first], 2, 0)  # (K or 1, U, P)
    directions, strengths, _ = np.linalg.svd(np.stack([_within(one, every, sizes) for one in x]), full_matrices=False)
    directions = directions * (strengths > 1e-9 * np.maximum(strengths.max(axis=1, keepdims=True), 1e-300))[:, None]
    ranked = np.argsort(sizes, kind="stable")
    turned, orders = directions[:, ranked].swapaxes(1, 2), (ranked, *_shuffles(sizes, seed))
    shares = np.array([float(np.square(turned @ y[order].T[..., None]).sum()) for order in orders])
    return float(shares[0]) / max(int(np.any(y, axis=0).sum()), 1), float((shares >= shares[0] * (1 - 1e-9)).mean())


def _shuffles(sizes: IntArray, seed: int) -> Iterator[IntArray]:
    """Orders that shuffle runs within their sizes, which stand one after another."""
    rng = np.random.default_rng([seed, RandomStream.RECIPES])
    for _ in range(SHUFFLES):
        yield np.lexsort([rng.random(len(sizes)), sizes])


def _within(values: FloatArray, known: BoolArray, sizes: IntArray) -> FloatArray:
    """What is left of known values (R, K) without the mean of their size; 0 where not known."""
    same = (sizes[:, None] == sizes).astype(np.float64)
    return np.where(known, values - (same @ values) / np.maximum(same @ known, 1.0), 0.0)
