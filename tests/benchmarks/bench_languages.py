"""How a fit of `learned-base` grows with its languages: ten folds and 200 replicates, time and memory.

Each size (languages x runs; as many targets as sources) runs in a process of its own, whose memory is the peak.
"""

from __future__ import annotations

import multiprocessing
import resource
import time

import numpy as np
from _data import logs
from _report import SMALL, finish, must, row, seconds, table

import shapleymix as sm

SIZES = ("8x30",) if SMALL else ("olmix", "50x200", "100x400", "200x10")
REPLICATES, FOLDS = (5, 3) if SMALL else (200, 10)
SECONDS, GIBIBYTES, OLMIX_SECONDS = 90.0, 2.0, 20.0  # that 100 languages x 400 runs may take on two cores
BARE = (8, 30) if SMALL else (24, 1000)
BARE_SECONDS = 30.0  # of a CPU, that a fit to so many languages and runs may take without folds and replicates


def main() -> None:
    heads = ("log", "held-out PE, %", "wall s", "CPU s", "peak GB")
    table(f"learned-base, {FOLDS} folds and {REPLICATES} replicates", *heads)
    for size in SIZES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(measured, (size,))
        if found is None:
            continue
        row(size, *(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in found))
        if size == "100x400":
            must("100 languages, 400 runs: wall seconds on two cores", found[1], SECONDS)
            must("100 languages, 400 runs: peak GB", found[3], GIBIBYTES)
        if size == "olmix":
            must("olmix dclm, 127 runs: wall seconds on two cores", found[1], OLMIX_SECONDS)
    log = drawn(*BARE, sizes=(1e7, 4e7, 1.6e8), ratios=(5.0, 20.0, 60.0))
    spent = seconds(lambda: sm.fit(log, bootstrap=0, folds=0), time.process_time)
    table("A fit by default, without folds and replicates, at several N and D", "languages x runs", "CPU s")
    row("x".join(map(str, BARE)), spent)
    must("24 languages, 1,000 runs: CPU seconds", spent, BARE_SECONDS)
    finish()


def measured(size: str) -> list[float] | None:
    """PE, wall and CPU seconds and peak memory of a fit; None without the log."""
    log = logs(size).get(size) if size == "olmix" else drawn(*map(int, size.split("x")))
    if log is None:
        return None
    wall, cpu = time.perf_counter(), time.process_time()
    fit = sm.fit(log, "learned-base", bootstrap=REPLICATES, folds=FOLDS)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    error = np.nan if fit.held_out is None else 100 * fit.held_out.mean["PE"]
    return [error, *spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]


def drawn(
    languages: int, runs: int, sizes: tuple[float, ...] = (1e7,), ratios: tuple[float, ...] = (100.0,)
) -> sm.RunLog:
    """A log that a law of the same form made, with 1% of noise, at budgets drawn from sizes and their D / N."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(languages, 0.3), runs)
    u = rng.exponential(0.1, (languages, languages)) * (rng.random((languages, languages)) < 0.3)
    helped = 1 + p**0.45 @ (u + 2 * np.eye(languages)) / 0.2
    N = rng.choice(sizes, runs)
    D = N * rng.choice(ratios, runs)
    core = 2 + rng.random(languages) + 300 * N[:, None] ** -0.34 + 500 * D[:, None] ** -0.3
    loss = core * helped**-0.2 * np.exp(rng.normal(0, 0.01, (runs, languages)))
    names, labels = (tuple(f"{kind}{n}" for n in range(count)) for kind, count in (("l", languages), ("r", runs)))
    return sm.RunLog(labels, N, D, p, loss, names, names)


if __name__ == "__main__":
    main()
