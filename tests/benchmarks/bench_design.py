"""Runs chosen out of real logs: held-out error and regret against the number of runs, designed and at random.

For each draw some mixtures are kept back; the others are what runs may be chosen from. Random runs are the first of two
permutations; designed ones are `sm.design`'s before any run, which sees mixtures and no loss. The same law is fitted to
both. The last column says how many random runs (interpolated on the logarithm of n) have the median error of the
designed ones: the ratio of the two numbers should be at most two thirds. The regret is that of the trained mixture that
the law likes best, against the best one trained; the last row is what all runs to choose from would give.
`bench_design.py regmix 3` prints one log, with 3 draws.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from _data import regmix, shared_logs
from _report import finish, must, row, table

import shapleymix as sm
from shapleymix.fitting.settings import FitKeywords
from shapleymix.records import FloatArray, IntArray

DRAWS = 5
LAW = "learned-base"
RATIO = 2 / 3
ORDERS = 2
KEPT_BACK = 150
WITHOUT_SPREAD: FitKeywords = {"bootstrap": 0, "folds": 0, "threads": 1}


@dataclass(frozen=True)
class Task:
    """A log, the numbers of mixtures to choose from it, and those at which random ones are scored."""

    log: sm.RunLog
    designed: tuple[int, ...]
    random: tuple[int, ...]


def tasks() -> dict[str, Task]:
    """The logs that are at hand."""
    five = shared_logs("mixlaws_5mix_*.csv")
    logs = {"regmix": regmix(), "olmix dclm": shared_logs("olmix_dclm_30m.csv"), "5mix": five}
    numbers = {
        "regmix": ((20, 35, 50), (20, 28, 35, 50, 70)),
        "olmix dclm": ((12, 20, 35), (12, 20, 27, 35, 50)),
        "5mix": ((4, 6, 8), (4, 6, 8, 10, 12)),
    }
    return {name: Task(log, *numbers[name]) for name, log in logs.items() if log is not None}


def main() -> None:
    wanted, draws = (sys.argv[1:2] or [""])[0], int((sys.argv[2:3] or [DRAWS])[0])
    for name, task in tasks().items():
        if name.startswith(wanted):
            show(name, task, draws)
    finish()


def show(name: str, task: Task, draws: int) -> None:
    """The table of one log."""
    splits = [split(task.log, draw) for draw in range(draws)]
    random = {n: medians([scored(task.log, few, test) for few, test in at_random(splits, n)]) for n in task.random}
    sizes, errors = np.array(list(random)), np.array([error for error, _ in random.values()])
    heads = ("runs", "random: PE, %", "regret", "designed: PE, %", "regret", "random runs for that PE", "ratio")
    table(f"{name}, law {LAW}, median of {draws} draws; regret in thousandths of a nat", *heads)
    for n in task.designed:
        found = medians([scored(task.log, planned(task.log, pool, n), test) for pool, test in splits])
        needed = random_runs(sizes, errors, found[0])
        row(n, *shown(random[n]), *shown(found), f"{needed:.0f}", f"{n / needed:.2f}")
        must(f"{name}, {n} runs: of the random runs for the same PE", n / needed, RATIO)
    row("all", *shown(medians([scored(task.log, pool, test) for pool, test in splits])), *[""] * 4)


def split(log: sm.RunLog, draw: int) -> tuple[IntArray, IntArray]:
    """Mixtures (as numbers of groups) to choose from, in random order, and those that are kept back."""
    order = np.random.default_rng(100 + draw).permutation(int(log.groups.max()) + 1)
    back = min(KEPT_BACK, len(order) // 3)
    return order[:-back], order[-back:]


def at_random(splits: list[tuple[IntArray, IntArray]], n: int) -> list[tuple[IntArray, IntArray]]:
    """Some mixtures of each pool, in more than one order, and those kept back: chance is what varies most."""
    orders = [np.random.default_rng([n, turn]) for turn in range(ORDERS - 1)]
    return [(few[:n], test) for pool, test in splits for few in (pool, *(order.permutation(pool) for order in orders))]


def planned(log: sm.RunLog, pool: IntArray, n: int) -> IntArray:
    """Mixtures chosen by design, before any run."""
    p = log.p[np.array([np.flatnonzero(log.groups == group)[0] for group in pool])]
    plan = sm.design(n, sources=log.sources, targets=log.targets, purpose="region", candidates=p)
    return pool[plan.candidate]


def fitted(log: sm.RunLog) -> sm.Fit | None:
    """The law, or None where it refuses so few runs."""
    try:
        return sm.fit(log, LAW, **WITHOUT_SPREAD)
    except sm.FitError:
        return None


def scored(log: sm.RunLog, chosen: IntArray, test: IntArray) -> tuple[float, float]:
    """Held-out PE in per cent, and the regret in thousandths of a nat of what the law says is the best mixture."""
    fit = fitted(log.select(np.isin(log.groups, chosen)))
    if fit is None:
        return np.nan, np.nan
    held = np.isin(log.groups, test)
    predicted = fit.law.losses(log.p[held], log.N[held], log.D[held])
    error = np.nanmean(np.abs(predicted - log.loss[held]), axis=0) / np.nanmean(log.loss[held], axis=0)
    last = np.flatnonzero((log.N.max() == log.N) & (0.99 * log.D[log.N.max() == log.N].max() <= log.D))
    means = log.loss[last].mean(axis=1)
    best = np.argmin(fit.law.losses(log.p[last], log.N[last], log.D[last]).mean(axis=1))
    return 100 * float(error.mean()), 1000 * float(means[best] - means.min())


def medians(scores: list[tuple[float, float]]) -> tuple[float, float]:
    """Of each score over the draws."""
    error, regret = np.median(np.array(scores), axis=0).tolist()
    return error, regret


def random_runs(sizes: FloatArray, errors: FloatArray, goal: float) -> float:
    """How many random runs have this error; at the ends, the number of the end."""
    known = np.isfinite(errors)
    falling = np.minimum.accumulate(errors[known])[::-1]
    return float(np.exp(np.interp(np.log(goal), np.log(falling), np.log(sizes[known][::-1]))))


def shown(scores: tuple[float, float]) -> tuple[str, str]:
    """An error and a regret."""
    return f"{scores[0]:.2f}", f"{scores[1]:.1f}"


if __name__ == "__main__":
    main()
