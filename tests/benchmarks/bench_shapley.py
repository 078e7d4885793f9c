"""Shapley values: time, memory, the ratio to shapiq, and the error of sampled values at equal budgets.

Run: `python tests/benchmarks/bench_shapley.py` (under 60 s on two cores).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: threads only get into the way of matrices this small

import numpy as np
from _report import finish, must, row, table

from shapleymix.game import coalition_game, exact_shapley, sampled_shapley
from shapleymix.game.exact import masks_of, members_of
from shapleymix.tables.run_reading import read_runs

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SEEDS = 24
LARGE = """
import json, resource, time
import numpy as np
from shapleymix.game import exact_shapley
v = np.random.default_rng(0).random((2**20, 20))
start = time.perf_counter()
values = exact_shapley(v)
seconds = time.perf_counter() - start
residual = float(abs(values.sum(axis=0) - v[-1] + v[0]).max())
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, residual]))
"""


def measure_large() -> None:
    """20 players and 20 targets in a process of their own; memory is its peak, the payoffs included."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    seconds, gigabytes, residual = json.loads(done.stdout)
    table("Exact values, 20 players, 20 targets", "seconds", "peak GB", "efficiency residual")
    row(seconds, gigabytes, residual)
    must("K = 20, T = 20: seconds", seconds, 3.0)
    must("K = 20, T = 20: peak GB", gigabytes, 2.0)
    must("K = 20, T = 20: efficiency residual", residual, 1e-12)


def measure_ratio(players: int = 14) -> None:
    """The same table of payoffs for both. shapiq enumerates coalitions and looks each payoff up; then it sums."""
    from shapiq.game_theory.exact import ExactComputer

    payoffs = np.random.default_rng(1).random(2**players)
    bits = 1 << np.arange(players)

    def look_up(members: np.ndarray) -> np.ndarray:
        return payoffs[members @ bits]

    ours = min(_seconds(lambda: exact_shapley(payoffs[:, None])) for _ in range(5))
    theirs, summing, found = _shapiq_values(ExactComputer, look_up, players)
    gap = np.abs(found - exact_shapley(payoffs[:, None])[:, 0]).max()
    table(f"Exact values, {players} players, one target", "", "ms", "ratio")
    row("shapleymix", ours * 1e3, 1)
    row("shapiq, whole", theirs * 1e3, theirs / ours)
    row("shapiq, payoffs already looked up", summing * 1e3, summing / ours)
    must(f"K = {players}: shapiq / ours, whole", theirs / ours, 20.0, ">=")
    must(f"K = {players}: shapiq / ours, payoffs already looked up", summing / ours, 20.0, ">=")
    must(f"K = {players}: largest difference from shapiq", gap, 1e-12)


def measure_sampled() -> None:
    """Mean squared error over players, targets and seeds, at equal numbers of evaluations."""
    log = read_runs(FIXTURES / "multilingual5_coalitions.csv")
    _compare("Five languages, measured payoffs", coalition_game(log).payoffs, (12, 16, 20))
    _compare("12 players, random pairwise interactions", _random_game(12, triples=0), (60, 120, 240))
    _compare("12 players, pairwise and 30 triple interactions", _random_game(12, triples=30), (60, 120, 240))


def _compare(title: str, payoffs: np.ndarray, budgets: tuple[int, ...]) -> None:
    exact = exact_shapley(payoffs)
    players = len(exact)
    table(title, "mean squared error", *(f"{budget} coalitions" for budget in budgets))
    errors = {
        name: [_mean_squared(estimate, payoffs, exact, budget) for budget in budgets]
        for name, estimate in _estimators(players).items()
    }
    for name, found in errors.items():
        row(name, *found)
    rivals = [found for name, found in errors.items() if name.startswith("shapiq")]
    for index, budget in enumerate(budgets if rivals else ()):
        best = min(found[index] for found in rivals)
        ratio = errors["shapleymix smooth"][index] / max(best, 1e-20)
        must(f"{title}, {budget}: squared error / best of shapiq", ratio, 1.0)


def _mean_squared(estimate: Callable, payoffs: np.ndarray, exact: np.ndarray, budget: int) -> float:
    return float(np.mean([(estimate(payoffs, budget, seed) - exact) ** 2 for seed in range(SEEDS)]))


def _estimators(players: int) -> dict[str, Callable]:
    """Name -> (payoffs, coalitions to evaluate besides the empty and the grand one, seed) -> values (K, T)."""

    def own(method: str) -> Callable:
        def estimate(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
            def look_up(members: np.ndarray) -> np.ndarray:
                return payoffs[masks_of(members)]

            return sampled_shapley(look_up, players, budget, seed, method=method).values  # type: ignore[arg-type]

        return estimate

    named = {f"shapleymix {method}": own(method) for method in ("smooth", "kernel")}
    return named | (_shapiq_estimators(players) if find_spec("shapiq") else {})


def _shapiq_estimators(players: int) -> dict[str, Callable]:
    from shapiq import approximator as rivals

    makers = {
        "KernelSHAP": lambda seed: rivals.KernelSHAP(players, random_state=seed),
        "KernelSHAP, paired": lambda seed: rivals.KernelSHAP(players, pairing_trick=True, random_state=seed),
        "kADD-SHAP (order 2), paired": lambda seed: rivals.kADDSHAP(
            players, max_order=2, pairing_trick=True, random_state=seed
        ),
        "SVARM": lambda seed: rivals.SVARM(players, random_state=seed),
        "permutations": lambda seed: rivals.PermutationSamplingSV(players, random_state=seed),
    }
    return {f"shapiq {name}": _shapiq_estimate(maker, players) for name, maker in makers.items()}


def _shapiq_estimate(maker: Callable, players: int) -> Callable:
    """One target at a time, as shapiq has it; its budget counts the empty and the grand coalition, too."""
    bits = 1 << np.arange(players)

    def estimate(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
        columns = []
        for column in payoffs.T:
            found = maker(seed).approximate(
                budget + 2, lambda held, v=column: v[np.atleast_2d(held).astype(int) @ bits]
            )
            columns.append([found[(i,)] for i in range(players)])
        return np.array(columns).T

    return estimate


def _random_game(players: int, triples: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    held = members_of(np.arange(2**players), players).astype(float)
    pairs = np.triu(generator.normal(scale=0.3, size=(players, players)), 1)
    payoffs = held @ generator.normal(size=players) + np.einsum("si,ij,sj->s", held, pairs, held)
    for _ in range(triples):
        trio = generator.choice(players, 3, replace=False)
        payoffs += generator.normal(scale=0.5) * held[:, trio].prod(axis=1)
    return payoffs[:, None]


def _shapiq_values(computer: type, look_up: Callable, players: int) -> tuple[float, float, np.ndarray]:
    """Seconds in all, seconds after the payoffs are looked up, and the values (K,)."""
    start = time.perf_counter()
    instance = computer(look_up, players)
    instance.game_values  # noqa: B018  enumerates coalitions and looks payoffs up
    looked_up = time.perf_counter()
    found = instance("SV", order=1)
    end = time.perf_counter()
    return end - start, end - looked_up, np.array([found[(player,)] for player in range(players)])


def _seconds(timed: Callable[[], object]) -> float:
    start = time.perf_counter()
    timed()
    return time.perf_counter() - start


if __name__ == "__main__":
    measure_large()
    if find_spec("shapiq"):
        measure_ratio()
    else:
        print("\nshapiq is not installed: no comparison with it")
    measure_sampled()
    finish()
