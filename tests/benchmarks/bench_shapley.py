"""Shapley values: time, memory, the ratio to shapiq, and the error of sampled values at equal budgets."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: threads only get into the way of matrices this small

import numpy as np
from _data import FIXTURES
from _report import SMALL, finish, must, row, seconds, table

from shapleymix.game.coalitions import coalition_game
from shapleymix.game.exact import exact_shapley, masks_of, members_of
from shapleymix.game.kriging import estimate_shapley, sample_coalitions
from shapleymix.tables.run_reading import read_runs

SEEDS = 2 if SMALL else 24
Estimator = Callable[[np.ndarray, int, int], np.ndarray]
"""(payoffs, coalitions to evaluate besides the empty and the grand one, seed) -> values (K, T)."""


def main() -> None:
    measure_large(12 if SMALL else 20)
    if find_spec("shapiq"):
        measure_ratio(8 if SMALL else 14)
    measure_sampled()
    finish()


def measure_large(players: int) -> None:
    """As many targets, in a process of their own; memory is its peak, the payoffs included."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spent, gigabytes, residual = pool.apply(large, (players,))
    table(f"Exact values, {players} players, {players} targets", "seconds", "peak GB", "efficiency residual")
    row(spent, gigabytes, residual)
    must("K = 20, T = 20: seconds", spent, 3.0)
    must("K = 20, T = 20: peak GB", gigabytes, 2.0)
    must("K = 20, T = 20: efficiency residual", residual, 1e-12)


def large(players: int) -> tuple[float, float, float]:
    """Seconds, gigabytes, and how far the values are from the whole."""
    v = np.random.default_rng(0).random((2**players, players))
    start = time.perf_counter()
    values = exact_shapley(v)
    spent = time.perf_counter() - start
    residual = float(abs(values.sum(axis=0) - v[-1] + v[0]).max())
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, residual


def measure_ratio(players: int) -> None:
    """The same table of payoffs for both. shapiq enumerates coalitions and looks each payoff up; then it sums."""
    from shapiq.game_theory.exact import ExactComputer

    payoffs = np.random.default_rng(1).random(2**players)
    bits = 1 << np.arange(players)
    ours = min(seconds(lambda: exact_shapley(payoffs[:, None])) for _ in range(5))
    start = time.perf_counter()
    computer = ExactComputer(lambda members: payoffs[members @ bits], players)
    computer.game_values  # noqa: B018  enumerates coalitions and looks payoffs up
    looked_up = time.perf_counter()
    values = computer("SV", order=1)
    end = time.perf_counter()
    gap = np.abs([values[(i,)] for i in range(players)] - exact_shapley(payoffs[:, None])[:, 0]).max()
    table(f"Exact values, {players} players, one target", "", "ms", "ratio")
    row("shapleymix", ours * 1e3, 1)
    for name, spent in (("whole", end - start), ("payoffs already looked up", end - looked_up)):
        row(f"shapiq, {name}", spent * 1e3, spent / ours)
        must(f"K = {players}: shapiq / ours, {name}", spent / ours, 20.0, ">=")
    must(f"K = {players}: largest difference from shapiq", float(gap), 1e-12)


def measure_sampled() -> None:
    """Mean squared error over players, targets and seeds, at equal numbers of evaluations."""
    log = read_runs(FIXTURES / "multilingual5_coalitions.csv")
    compare("Five languages, measured payoffs", coalition_game(log).payoffs, (12, 16, 20))
    for title, triples in (("pairwise interactions", 0), ("pairwise and 30 triple interactions", 30)):
        compare(f"12 players, random {title}", random_game(12, triples), (60,) if SMALL else (60, 120, 240))


def compare(title: str, payoffs: np.ndarray, budgets: tuple[int, ...]) -> None:
    exact = exact_shapley(payoffs)
    table(title, "mean squared error", *(f"{budget} coalitions" for budget in budgets))
    errors: dict[str, list[float]] = {}
    for name, estimate in estimators(len(exact)).items():
        squares = [[(estimate(payoffs, n, seed) - exact) ** 2 for seed in range(SEEDS)] for n in budgets]
        errors[name] = [float(np.mean(each)) for each in squares]
        row(name, *errors[name])
    for place, budget in enumerate(budgets if len(errors) > 1 else ()):
        ours, *others = (found[place] for found in errors.values())
        must(f"{title}, {budget}: squared error / best of shapiq", ours / max(min(others), 1e-20), 1.0)


def estimators(players: int) -> dict[str, Estimator]:
    """Ours first, then those of shapiq where it is installed."""

    def own(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
        held = sample_coalitions(players, budget, np.random.default_rng(seed))
        return estimate_shapley(held, payoffs[masks_of(held)]).values

    found: dict[str, Estimator] = {"shapleymix smooth": own}
    if not find_spec("shapiq"):
        return found
    from shapiq import approximator

    paired = {"pairing_trick": True}
    makers = {
        "KernelSHAP": (approximator.KernelSHAP, {}),
        "KernelSHAP, paired": (approximator.KernelSHAP, paired),
        "kADD-SHAP (order 2), paired": (approximator.kADDSHAP, {"max_order": 2} | paired),
        "SVARM": (approximator.SVARM, {}),
        "permutations": (approximator.PermutationSamplingSV, {}),
    }
    return found | {f"shapiq {name}": shapiq_of(players, *one) for name, one in makers.items()}


def shapiq_of(players: int, kind: Callable, options: dict) -> Estimator:
    """One target at a time, as shapiq has it; its budget counts the empty and the grand coalition, too."""
    bits = 1 << np.arange(players)

    def estimate(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
        columns = []
        for v in payoffs.T:
            maker = kind(players, random_state=seed, **options)
            found = maker.approximate(budget + 2, lambda held, v=v: v[np.atleast_2d(held).astype(int) @ bits])
            columns.append([found[(i,)] for i in range(players)])
        return np.array(columns).T

    return estimate


def random_game(players: int, triples: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    held = members_of(np.arange(2**players), players).astype(float)
    pairs = np.triu(generator.normal(scale=0.3, size=(players, players)), 1)
    payoffs = held @ generator.normal(size=players) + np.einsum("si,ij,sj->s", held, pairs, held)
    for _ in range(triples):
        trio = generator.choice(players, 3, replace=False)
        payoffs += generator.normal(scale=0.5) * held[:, trio].prod(axis=1)
    return payoffs[:, None]


if __name__ == "__main__":
    main()
