"""How wide branch and bound leaves the gap of scores that are not convex, by the number of languages.

Languages from 5 to 100, a task for each, whose transforms take turns: sigmoid, exp(-l), 1/l, -l, log l; laws and lines
are drawn, and every sigmoid is steep enough to bend within the bounds. `python tests/benchmarks/bench_scores.py` prints
the table of shapleymix/docs/limits.md; CPU seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from shapleymix.downstream.pieces import CODES, Lines, scored_terms
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.engine.envelopes import unproved
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.problem import Problem

SIZES = (5, 10, 20, 50, 100)
SEEDS = (0, 1, 2)
TURNS = ("sigmoid", "exp", "inverse", "minus", "log")
SLOPES = {"sigmoid": 6.0, "exp": 4.0, "inverse": 1.0, "minus": 0.2, "log": -0.4}


def problem_of(M: int, seed: int) -> Problem:
    """One task a language; each helps itself most, its family (of five) some, others little."""
    rng = np.random.default_rng(seed)
    kin = np.arange(M)[:, None] % 5 == np.arange(M) % 5
    helps = rng.uniform(0.05, 0.3, (M, M)) * np.where(kin, 1.0, 0.2) + np.diag(rng.uniform(1, 2, M))
    law = PowerTerms(rng.uniform(0.8, 1.5, M), rng.uniform(0.5, 1.0, M), rng.uniform(0.3, 1.0, M), helps, None)
    names = [TURNS[j % len(TURNS)] for j in range(M)]
    a = np.array([SLOPES[name] for name in names])
    bent = np.array([name == "sigmoid" for name in names])
    middle = law.losses(np.full(M, 1 / M))  # half of its rise is where an even mixture is
    b, guess = np.where(bent, middle * a, 0.9), np.where(bent, 0.25, 0.0)
    lines = Lines(a, b, guess, np.array([CODES[name] for name in names]))
    terms = scored_terms(law, np.arange(M), lines)
    sources = tuple(f"s{i}" for i in range(M))
    return Problem(terms, np.full(M, 1 / M), Bounds().at(sources, 1e9))


def main(sizes: tuple[int, ...]) -> None:
    print("| languages | tasks not proved convex | gap of the score, median | largest | CPU s, median | largest |")
    print("|---|---|---|---|---|---|")
    for M in sizes:
        gaps, seconds, bent = [], [], []
        for seed in SEEDS:
            problem = problem_of(M, seed)
            start = time.process_time()
            gaps.append(solve(problem).certificate.gap)
            seconds.append(time.process_time() - start)
            bent.append(int(unproved(problem).sum()))
        numbers = (np.median(gaps), max(gaps), np.median(seconds), max(seconds))
        told = " | ".join(f"{value:.2g}" for value in numbers)
        print(f"| {M} | {max(bent)} | {told} |", flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)
