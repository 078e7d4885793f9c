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
    log: RunLog, residual: FloatArray, left: FloatArray, seed: int, *, knows_mixtures: bool
) -> dict[str, bool]:
    """Every question, and whether an answer should repeat it, from logs of measured over fitted losses (R, K), and over
    held-out ones (`left`), NaN where they do not count. Of a law that knows no mixtures a large error is no question.
    """
    odd = dict.fromkeys(questions_of_fit(log, residual), False)
    odd |= dict.fromkeys((*questions_of_units(log, residual), *questions_of_budgets(log, ~np.isnan(residual))), True)
    odd |= dict.fromkeys(questions_of_error(log, left) if knows_mixtures else (), True)
    return odd | questions_of_recipes(log, left, seed)


def questions_of_fit(log: RunLog, residual: FloatArray) -> Iterator[str]:
    """Losses so far from the fit that a slip of the pen is likelier than noise, the farthest first.

    `residual` (R, K) are logs of measured over fitted losses.
    """
    size = np.abs(residual - np.nanmedian(residual, axis=0))
    scale = 1.4826 * np.nanmedian(size, axis=0)
    rows, targets = np.nonzero(np.nan_to_num(size) > np.maximum(ROBUST_SCALES * scale, SMALLEST_FAULT))
    if not len(rows):
        return
    order = np.argsort(-size[rows, targets], kind="stable")
    named = [
        f"{log.runs[row]} at D = {log.D[row]:g}: {log.targets[target]} {log.loss[row, target]:.4g} nats, "
        f"fitted {log.loss[row, target] / np.exp(residual[row, target]):.4g}"
        for row, target in zip(rows[order].tolist(), targets[order].tolist(), strict=True)
    ]
    yield (
        f"{len(rows)} of {int((~np.isnan(residual)).sum())} losses lie far from the law, beyond {ROBUST_SCALES:g} "
        f"times the usual residual: {_list_first(named)}. Check these rows"
    )


APART, CLUSTERED, ENOUGH = 0.1, 3.0, 5
"""How far in log loss, and how often their own widths, two clusters of so many runs of one size must lie apart."""


MISSED = 0.05
"""Of the log loss: runs that a law misses by more than that, in the middle, do more than scatter."""


def questions_of_error(log: RunLog, left: FloatArray) -> Iterator[str]:
    """That a law misses half of the runs by far more than runs scatter, and which it misses most, of (R, K)."""
    known = np.flatnonzero(np.isfinite(left).any(axis=1))
    size = np.nanmedian(np.abs(left[known]), axis=1)
    if not len(known) or np.median(size) <= MISSED:
        return
    most = "; ".join(log.runs[row] for row in known[np.argsort(-size, kind="stable")[:LISTED]].tolist())
    yield (
        f"half of the runs are missed by {np.expm1(np.median(size)):.0%} or more, which is no scatter, and most of all "
        f"{most}: check units (bits are 1.44 times nats) and what losses were measured on, or fit another law"
    )


SLIP = 50.0
"""N or D of runs that do as well as others with so many times as much stand in another unit, such as billions."""


def questions_of_budgets(log: RunLog, used: BoolArray) -> Iterator[str]:
    """Runs whose N or D is a tiny part of that of others, or of those of the same D or N, with losses like theirs."""
    shown = np.where(used, np.log(log.loss), np.nan)
    common = np.nanmedian(np.where(used.any(axis=1, keepdims=True), shown - np.nanmedian(shown, axis=0), 0.0), axis=1)
    for name, values, other in (("N", log.N, log.D), ("D", log.D, log.N)):
        levels, odd = levels_of(np.log(other)), np.zeros(len(values), dtype=bool)
        for among in (*(levels == level for level in np.unique(levels)), levels >= 0):
            rows = np.flatnonzero(among & used.any(axis=1))
            rows = rows[np.argsort(values[rows], kind="stable")]
            steps = values[rows][1:] / values[rows][:-1]
            cut = int(steps.argmax()) + 1 if len(steps) else 0
            if cut and steps[cut - 1] >= SLIP and np.median(common[rows[:cut]]) < np.quantile(common[rows[cut:]], 0.9):
                odd[rows[:cut]] = True
        if odd.any():
            yield (
                f"{name} of {_name_runs(log, np.flatnonzero(odd))} is less than that of other runs by a factor of "
                f"{SLIP:g} or more, but losses are like theirs: check its unit"
            )


def questions_of_units(log: RunLog, residual: FloatArray) -> Iterator[str]:
    """Runs of a size whose losses lie in a cluster of their own above or below the others, as in another unit."""
    sizes, known = levels_of(np.log(log.N)), np.isfinite(residual).any(axis=1)
    for size in np.unique(sizes):
        rows = np.flatnonzero((sizes == size) & known)
        if len(rows) < ENOUGH:
            continue
        common = np.nanmedian(residual[rows], axis=1)
        rows, common = rows[np.argsort(common, kind="stable")], np.sort(common)
        cut = int(np.diff(common).argmax()) + 1
        below, above = common[:cut], common[cut:]
        if above[0] - below[-1] < max(APART, CLUSTERED * max(np.ptp(below), np.ptp(above))):
            continue
        fewer = rows[cut:] if 2 * cut >= len(rows) else rows[:cut]
        yield (
            f"for all targets the losses of {_name_runs(log, fewer)} lie apart from those of other runs of N = "
            f"{format_size(float(log.N[fewer[0]]))}, by a factor of {np.exp(np.median(above) - np.median(below)):.3g}: "
            "check their unit (bits are 1.44 times nats) and what they were measured on"
        )


def _name_runs(log: RunLog, rows: IntArray) -> str:
    return _list_first(list(dict.fromkeys(log.runs[row] for row in rows.tolist())))


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
        told = f"{what} differ between runs of one size, by up to a factor of {np.exp(spread):.2g}"
        alike = np.unique(np.column_stack([log.groups, np.nan_to_num(logs)]), axis=0, return_inverse=True)[1].ravel()
        follows = {one: explain(by[..., None], logs[:, None], sizes, alike, seed)[1] for one, by in beside.items()}
        goes = [one for one, chance_of in follows.items() if chance_of <= SIGNIFICANT]
        if goes:
            told += f", and go with {' and '.join(goes)}, for whose effect the law takes what they do"
        if chance <= SIGNIFICANT:
            advice = "train all runs of a size by one recipe, or leave these out"
            found[f"{told}, and explain {share:.0%} of what the law leaves (p = {chance:.2g}): {advice}"] = True
        else:
            found[f"{told}; they explain {nothing}"] = bool(goes)
    size = np.log(np.maximum(np.abs(residual), LEAST))
    if (chance := explain(log.p[..., None], size, *runs)[1]) <= SIGNIFICANT:
        told = f"how far runs lie from the law differs by mixture (p = {chance:.2g}), and one scatter is taken for all"
        found[f"{told}: intervals hold in the mean of the mixtures, not at each"] = False
    if log.late is not None:
        own, later = own_data(log.paths, log.targets), log.late - log.p
        of_own = later @ own
        of_own[:, ~own.any(axis=0)] = np.nan
        share, chance = explain(of_own[:, None] if own.any() else later[..., None], residual, *runs)
        spread = _find_spread(np.where(known[:, None], later, np.nan), sizes)
        told = "runs read their languages in phases: the fit takes the sum"
        if chance <= SIGNIFICANT and spread > SAME:
            advice = "what is read last counts for more or less than the law knows"
            found[f"{told}, but the order explains {share:.0%} of what it leaves (p = {chance:.2g}): {advice}"] = True
        elif spread > SAME:
            found[f"{told}, and the order explains {nothing}"] = False
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
    turned, rng = directions[:, ranked].swapaxes(1, 2), np.random.default_rng([seed, RandomStream.RECIPES])
    shuffled = (np.lexsort([rng.random(len(sizes)), sizes]) for _ in range(SHUFFLES))  # within the sizes
    told = np.array([float(np.square(turned @ y[order].T[..., None]).sum()) for order in (ranked, *shuffled)])
    return float(told[0]) / max(int(np.any(y, axis=0).sum()), 1), float((told >= told[0] * (1 - 1e-9)).mean())


def _within(values: FloatArray, known: BoolArray, sizes: IntArray) -> FloatArray:
    """What is left of known values (R, K) without the mean of their size; 0 where not known."""
    same = (sizes[:, None] == sizes).astype(np.float64)
    return np.where(known, values - (same @ values) / np.maximum(same @ known, 1.0), 0.0)
