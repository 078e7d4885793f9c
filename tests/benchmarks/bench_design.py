"""Runs chosen out of real logs: held-out error and regret against the number of runs, designed and at random.

For each draw some mixtures are kept back; the others are what runs may be chosen from. Random runs are the first of a
permutation; designed ones are `sm.design`'s, before any run (all at once), or in batches, where each but the first
looks at the losses of the runs before it, and never at others. The same law is fitted to both. The last column says
how many random runs (interpolated on the logarithm of n) have the median error of the designed ones: the ratio of the
two numbers must be at most two thirds. `bench_design.py regmix 3` prints one log, with 3 draws.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np
from _data import regmix, shared_logs
from _report import finish, must, row, table

import shapleymix as sm
from shapleymix.records import FloatArray, IntArray

DRAWS = 5
LAW = "learned-base"
RATIO = 2 / 3
BATCHES = 2
KEPT_BACK = 150
FEWEST = 4  # mixtures that a law can be fitted to
WITHOUT_SPREAD = {"bootstrap": 0, "folds": 0, "threads": 1}


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
    many, few = (20, 35, 50, 70, 100), (4, 6, 8, 10)
    numbers = {
        "regmix": (many, (*many, 140, 200, 300)),
        "olmix dclm": ((12, 20, 35, 50), (12, 20, 35, 50, 70, 85)),
        "5mix": (few, (*few, 12, 14)),
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
    random = {n: medians([scored(task.log, pool[:n], test) for pool, test in splits]) for n in task.random}
    sizes, errors = np.array(list(random)), np.array([error for error, _ in random.values()])
    heads = ("runs", "random: PE, %", "regret", "at once: PE, %", "regret", f"{BATCHES} batches: PE, %", "regret")
    table(f"{name}, law {LAW}, median of {draws} draws", *heads, "random runs for the best PE", "ratio")
    for n in task.designed:
        once = medians([scored(task.log, planned(task.log, pool, n, 1), test) for pool, test in splits])
        later = medians([scored(task.log, planned(task.log, pool, n, BATCHES), test) for pool, test in splits])
        needed = random_runs(sizes, errors, min(once[0], later[0]))
        row(n, *shown(random[n]), *shown(once), *shown(later), f"{needed:.0f}", f"{n / needed:.2f}")
        if n >= task.designed[1]:
            must(f"{name}, {n} runs: of the random runs for the same PE", n / needed, RATIO)


def split(log: sm.RunLog, draw: int) -> tuple[IntArray, IntArray]:
    """Mixtures (as numbers of groups) to choose from, in random order, and those that are kept back."""
    order = np.random.default_rng(100 + draw).permutation(int(log.groups.max()) + 1)
    back = min(KEPT_BACK, len(order) // 3)
    return order[:-back], order[-back:]


def planned(log: sm.RunLog, pool: IntArray, n: int, batches: int) -> IntArray:
    """Mixtures chosen by design, in batches of like size; the losses of those chosen are seen by the next batch."""
    first = np.array([np.flatnonzero(log.groups == group)[0] for group in pool])
    chosen: list[int] = []
    goals = np.maximum(np.arange(1, batches + 1) * n // batches, FEWEST)
    for goal in dict.fromkeys(goals.tolist()):
        so_far = log.select(np.isin(log.groups, pool[chosen])) if chosen else None
        fit = None if so_far is None else fitted(so_far)
        if fit is None and so_far is not None:
            so_far = replace(so_far, loss=np.full_like(so_far.loss, np.nan))
        labels = {"fit": fit, "targets": log.targets} | ({} if chosen else {"sources": log.sources})
        mixtures = {"candidates": log.p[first], "region": log.p[first]}
        plan = sm.design(goal - len(chosen), so_far, purpose="region", **mixtures, **labels)
        chosen += plan.candidate.tolist()
    return pool[chosen]


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
