"""How a fit of `learned-base` grows with its languages: ten folds and 200 replicates, time and memory.

Each size runs in a process of its own, for the memory is that of the process. Prints the results' table; sizes may be
named: `python tests/benchmarks/bench_languages.py 100x400 200x10` (languages x runs; as many targets as sources).
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path

import numpy as np
from _data import shared_logs
from _report import finish, must, row, table

import shapleymix as sm

SIZES = ("olmix", "50x200", "100x400", "200x10", "200x400")
SECONDS, GIBIBYTES = 120.0, 2.0  # that 100 languages x 400 runs may take on two cores
OLMIX_SECONDS = 20.0


def main(*sizes: str) -> None:
    table("learned-base, 10 folds and 200 replicates", "log", "held-out PE, %", "wall s", "CPU s", "peak GB")
    for size in sizes or SIZES:
        found = apart(size)
        if found is None:
            continue
        row(size, *(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in found))
        if size == "100x400":
            must("100 languages, 400 runs: wall seconds on two cores", found[1], SECONDS, "<=")
            must("100 languages, 400 runs: peak GB", found[3], GIBIBYTES, "<=")
        if size == "olmix":
            must(
                "olmix dclm, 127 runs: wall seconds on two cores",
                found[1],
                OLMIX_SECONDS,
                "<=",
            )
    finish()


def apart(size: str) -> list[float] | None:
    """PE, wall and CPU seconds and peak memory of a fit in a process of its own; None without the log."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return json.loads(pool.apply(measured, (size,)))


def measured(size: str) -> str:
    """The same in this process, as text."""
    log = log_of(size)
    if log is None:
        return "null"
    wall, cpu = time.perf_counter(), time.process_time()
    fit = sm.fit(log, "learned-base", bootstrap=200, folds=10)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    error = np.nan if fit.held_out is None else 100 * fit.held_out.mean["PE"]
    return json.dumps([error, *spent, peak])


def log_of(size: str) -> sm.RunLog | None:
    """A real log, or one that a law of the same form made, with 1% of noise."""
    if size == "olmix":
        return shared_logs("olmix_dclm_30m.csv")
    languages, runs = map(int, size.split("x"))
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(languages, 0.3), runs)
    u = rng.exponential(0.1, (languages, languages)) * (rng.random((languages, languages)) < 0.3)
    helped = 1 + p**0.45 @ (u + 2 * np.eye(languages)) / 0.2
    loss = (2 + rng.random(languages)) * helped**-0.2 * np.exp(rng.normal(0, 0.01, (runs, languages)))
    names = tuple(f"l{number}" for number in range(languages))
    labels = tuple(f"r{number}" for number in range(runs))
    return sm.RunLog(labels, np.full(runs, 1e7), np.full(runs, 1e9), p, loss, names, names)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(*sys.argv[1:])
