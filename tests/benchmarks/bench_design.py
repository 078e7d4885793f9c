"""Runs chosen out of real logs: held-out error and regret against the number of runs, designed and at random.

For each draw some mixtures are kept back; the others are what runs may be chosen from. Random runs are the first of two
permutations; designed ones are `sm.design`'s before any run, which sees mixtures and no loss. The same law is fitted to
both. The last column says how many random runs (interpolated on the logarithm of n) have the median error of the
designed ones: the ratio of the two numbers should be at most .8 on the mean of the logs, and nowhere above 1. The
regret is that of the trained mixture that the law likes best, against the best one trained; the last row is what all
runs to choose from would give.
"""

from __future__ import annotations

import warnings

import numpy as np
from _data import logs
from _report import SMALL, finish, must, on_all_cores, row, table

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning

LAW, RATIO, KEPT_BACK = "learned-base", 0.8, 150
DRAWS, ORDERS = (1, 1) if SMALL else (10, 2)
NUMBERS = {
    "regmix": ((20, 35, 50), (20, 28, 35, 50, 70)),
    "olmix": ((12, 20, 35), (12, 20, 27, 35, 50)),
    "5mix": ((4, 6, 8), (4, 6, 8, 10, 12)),
}
"""Designed runs, and random ones."""
RUNS, FEWEST_JUDGES = (8, 12, 16, 20, 30, 40), 5
Split = tuple[np.ndarray, np.ndarray]
"""Mixtures (as numbers of groups) to choose from, in random order, and those that are kept back."""


def main() -> None:
    numbers = {"multilingual5": ((6,), (6, 10))} if SMALL else NUMBERS
    ratios = [show(name, log, *numbers[name]) for name, log in logs(*numbers).items()]
    if not SMALL:
        must("mean over logs of designed runs over random ones for the same PE", float(np.mean(ratios)), RATIO)
        show_sizes()
    finish()


def show(name: str, log: sm.RunLog, designed: tuple[int, ...], at_random: tuple[int, ...]) -> float:
    """The table of one log, and its mean ratio."""
    splits = [split(log, draw) for draw in range(DRAWS)]
    random = {n: medians(log, [part for one in splits for part in drawn(one, n)]) for n in at_random}
    sizes, errors = np.array(list(random)), np.array([error for error, _ in random.values()])
    heads = ("runs", "random: PE, %", "regret", "designed: PE, %", "regret", "random runs for that PE", "ratio")
    table(f"{name}, law {LAW}, median of {DRAWS} draws; regret in thousandths of a nat", *heads)
    ratios = []
    for n in designed:
        found = medians(log, [(planned(log, pool, n), test) for pool, test in splits])
        needed = random_runs(sizes, errors, found[0])
        row(n, *shown(random[n]), *shown(found), f"{needed:.0f}", f"{n / needed:.2f}")
        must(f"{name}, {n} runs: of the random runs for the same PE", n / needed, 1.0)
        ratios.append(n / needed)
    row("all", *shown(medians(log, splits)), *[""] * 4)
    return float(np.mean(ratios))


def show_sizes() -> None:
    """Whether many small runs or fewer larger ones tell more of differences between mixtures at the largest size."""
    heads = ("log", "N", "runs", "compute", "error of differences, %")
    table("Mixtures at the largest size, from one smaller size; compute in runs of the largest", *heads)
    for name, log in logs("5mix", "redpajama", "slimpajama").items():
        log = log.select(log.ends == log.D)
        sizes = np.unique(log.N)
        largest = log.select(sizes[-1] == log.N)
        for size in sizes[:-1]:
            small = log.select(size == log.N)
            for n in [n for n in RUNS if n <= len(np.unique(small.groups))]:
                found = [differences(small, largest, n, draw) for draw in range(DRAWS)]
                compute = n * size * small.D.max() / (sizes[-1] * largest.D.max())
                if not np.isnan(found).all():
                    row(name, f"{size / 1e6:.0f}M", n, f"{compute:.1f}", f"{np.nanmean(found):.2f}")


def differences(small: sm.RunLog, largest: sm.RunLog, n: int, draw: int) -> float:
    """By how much differences of log losses between unseen mixtures are missed, in per cent, after so many runs."""
    chosen = np.random.default_rng([n, draw]).permutation(np.unique(small.groups))[:n]
    fitted = small.select(np.isin(small.groups, chosen))
    others = largest.select(np.abs(largest.p[:, None] - fitted.p).max(axis=2).min(axis=1) > 1e-3)
    if len(others) < FEWEST_JUDGES:
        return np.nan
    try:
        fit = sm.fit(fitted, LAW, bootstrap=0)
    except sm.FitError:
        return np.nan
    missed = np.log(others.loss / fit.predict(others.p, others.N, others.D).losses)
    return 100 * float(np.sqrt(np.nanmean((missed - np.nanmean(missed, axis=0)) ** 2)))


def split(log: sm.RunLog, draw: int) -> Split:
    order = np.random.default_rng(100 + draw).permutation(int(log.groups.max()) + 1)
    back = min(KEPT_BACK, len(order) // 3)
    return order[:-back], order[-back:]


def drawn(one: Split, n: int) -> list[Split]:
    """Some mixtures of a pool, in more than one order, and those kept back: chance is what varies most."""
    pool, test = one
    orders = [np.random.default_rng([n, turn]).permutation(pool) for turn in range(ORDERS - 1)]
    return [(few[:n], test) for few in (pool, *orders)]


def planned(log: sm.RunLog, pool: np.ndarray, n: int) -> np.ndarray:
    """Mixtures chosen by design, before any run."""
    p = log.p[np.array([np.flatnonzero(log.groups == group)[0] for group in pool])]
    return pool[sm.design(n, sources=log.sources, candidates=p).candidate]


def medians(log: sm.RunLog, parts: list[Split]) -> tuple[float, float]:
    """Of each score over the draws."""
    error, regret = np.median(on_all_cores(scored, [(log, *part) for part in parts]), axis=0).tolist()
    return error, regret


def scored(log: sm.RunLog, chosen: np.ndarray, test: np.ndarray) -> tuple[float, float]:
    """Held-out PE in per cent, and the regret in thousandths of a nat of what is predicted to be the best mixture."""
    try:
        fit = sm.fit(log.select(np.isin(log.groups, chosen)), LAW, bootstrap=0, folds=0)
    except sm.FitError:
        return np.nan, np.nan
    judged = log.select(np.isin(log.groups, test))
    missed = np.abs(fit.predict(judged.p, judged.N, judged.D).losses - judged.loss)
    error = np.nanmean(missed, axis=0) / np.nanmean(judged.loss, axis=0)
    largest = log.select(log.N.max() == log.N)
    last = largest.select(0.99 * largest.D.max() <= largest.D)
    means = last.loss.mean(axis=1)
    best = np.argmin(fit.predict(last.p, last.N, last.D).losses.mean(axis=1))
    return 100 * float(error.mean()), 1000 * float(means[best] - means.min())


def random_runs(sizes: np.ndarray, errors: np.ndarray, goal: float) -> float:
    """How many random runs have this error; at the ends, the number of the end."""
    known = np.isfinite(errors)
    falling = np.minimum.accumulate(errors[known])[::-1]
    return float(np.exp(np.interp(np.log(goal), np.log(falling), np.log(sizes[known][::-1]))))


def shown(scores: tuple[float, float]) -> tuple[str, str]:
    """An error and a regret."""
    return f"{scores[0]:.2f}", f"{scores[1]:.1f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
