"""How fast the fits are: against SciPy in the same run, and on the sizes that teams have."""

from __future__ import annotations

import itertools
import resource
import time
import warnings
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from _data import FIXTURES, logs
from _report import SMALL, finish, must, row, seconds, table
from scipy.optimize import least_squares, minimize

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting import regimes, symbols
from shapleymix.fitting.estimation import Estimation, estimate, resample
from shapleymix.fitting.evidence import bootstrap_shares, gather, inputs_of, one_log
from shapleymix.fitting.least_squares import Loss
from shapleymix.fitting.settings import Settings
from shapleymix.laws import LAWS, learned_base

PUBLISHED = {"E": 1.8172, "A": 477.8, "B": 2143.4, "alpha": 0.34731, "beta": 0.36717}
STARTS, SAMPLE = 4500, 90
MANY = (5, 40, 5) if SMALL else (100, 300, 200)  # targets, runs, replicates
TOGETHER = 3 if SMALL else 40
ABLATED = 1 if SMALL else 4
PARENTS = (("regmix", (17, 34, 68)), ("olmix", (24, 48, 96)))


def main() -> None:
    found = logs("chinchilla", "regmix")
    if "chinchilla" in found:
        bench_chinchilla(found["chinchilla"])
    if "regmix" in found:
        bench_regmix(found["regmix"])
    bench_many()
    if not SMALL:
        bench_growth()
    bench_ablation()
    finish()


def bench_chinchilla(log: sm.RunLog) -> None:
    """The published symbols, and the time of the usual grid of 4,500 starts."""
    fit = sm.fit(log, law="chinchilla", bootstrap=0, folds=0)  # imports are not what is measured
    spent = seconds(lambda: sm.fit(log, law="chinchilla", bootstrap=0, folds=0))
    residual = np.log(fit.law(log.p, log.N, log.D)) - np.log(log.loss)
    table("Chinchilla's 240 points", "symbol", "fitted", "published")
    for name, value in PUBLISHED.items():
        own = float(getattr(fit.law, name)[0])
        row(name, own, value)
        must(f"{name} = {own:.6g}: relative distance to {value}", abs(own / value - 1), 2e-3)
    must("Chinchilla, 240 points: sum objective (Huber 1e-3)", float(Loss(1e-3).value(residual).sum()), 1.01829e-3)
    must("Chinchilla: seconds", spent, 0.3)
    must("Chinchilla: times faster than 4,500 L-BFGS starts", grid_seconds(log) / spent, 100, ">=")


def grid_seconds(log: sm.RunLog) -> float:
    """The usual grid of starts, L-BFGS with analytic gradients; a spread sample, scaled up to all."""
    n, d, y = np.log(log.N), np.log(log.D), np.log(log.loss[:, 0])

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, e, alpha, beta = x
        parts = np.exp(np.stack([a - alpha * n, b - beta * d, np.full_like(n, e)]))
        residual = np.log(parts.sum(axis=0)) - y
        share = parts / parts.sum(axis=0) * np.clip(residual, -1e-3, 1e-3)
        slopes = [*share.sum(axis=1), -(share[0] * n).sum(), -(share[1] * d).sum()]
        return float(Loss(1e-3).value(residual).sum()), np.array(slopes)

    wide, narrow = np.arange(0, 30, 5), np.arange(0, 2.5, 0.5)
    starts = np.array(list(itertools.product(wide, wide, narrow - 1, narrow, narrow)))
    chosen = starts[np.random.default_rng(0).permutation(len(starts))[:SAMPLE]]
    with np.errstate(all="ignore"):
        spent = seconds(lambda: [minimize(objective, start, jac=True, method="L-BFGS-B") for start in chosen])
    return spent * STARTS / SAMPLE


def bench_regmix(log: sm.RunLog) -> None:
    """512 runs of 17 sources and 13 targets with 10-fold held-out error; olmix's published settings take 37 minutes."""
    table("RegMix, learned-base", "replicates", "wall s", "CPU s")
    for replicates, limit in ((0, 15), (100, 60))[: 1 if SMALL else None]:
        cpu = time.process_time()
        spent = seconds(lambda replicates=replicates: sm.fit(log, law="learned-base", bootstrap=replicates))
        cpu = time.process_time() - cpu
        row(replicates, spent, cpu)
        must(f"RegMix, learned-base: seconds, {replicates} replicates, with 10-fold held-out error", spent, limit)
        if replicates == 0:
            must("RegMix: times less CPU than olmix's 37 CPU minutes (measured elsewhere)", 2220 / cpu, 100, ">=")


def bench_many() -> None:
    """The paper's law with many targets, against a loop over SciPy's solver."""
    targets, runs, replicates = MANY
    spent = seconds(lambda: fitted(*MANY))
    each, excess = scipy_loop()
    table("law shapley", "targets", "runs", "replicates", "seconds", "SciPy's, s a problem", "worst replicate's excess")
    row(targets, runs, replicates, spent, each, float(excess[2]))
    must("100 targets x 300 runs x 200 replicates: seconds", spent, 30)
    must("peak memory, GB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 4)
    ratio = each * targets * (replicates + 1) / spent
    must("times faster than a loop over scipy.optimize.least_squares", ratio, 20, ">=")
    must("objective of 40 replicates together over SciPy's, less 1", float(excess[0]), 1e-4)
    must("objective of the median replicate over SciPy's, less 1", float(excess[1]), 1e-6)


def bench_growth() -> None:
    """CPU time when one of the sizes doubles."""
    base = seconds(lambda: fitted(40, 200, 100), time.process_time)
    for what, size in (("targets", (80, 200, 100)), ("runs", (40, 400, 100)), ("replicates", (40, 200, 200))):
        spent = seconds(lambda size=size: fitted(*size), time.process_time)
        must(f"CPU time when {what} double", spent / base, 2.5)


def bench_ablation() -> None:
    """What each part of the default earns: PE in % of runs that were not fitted, with it and without, and CPU time."""
    found = logs("multilingual5", "regmix", "olmix", "5mix", "redpajama", "slimpajama")
    five = found["multilingual5"]
    files = [FIXTURES / f"multilingual5_{name}.csv" for name in ("runs", "coalitions")]
    games = sm.read_runs(files).select(sm.read_runs(files).trained)
    wide = [log for name, log in found.items() if name == "olmix"]
    several = [found[name] for name in ("5mix", "redpajama", "slimpajama") if name in found]
    knobs = learned_base.LearnedBase.knobs
    nested = sm.read_runs(FIXTURES / "nested_runs.csv")
    parents = [(nested, (6, 12, 24)), *((one_parent(found[name]), runs) for name, runs in PARENTS if name in found)]
    parts = {
        "beliefs: every knob walked, not u alone": (
            [*(drawn(five, runs) for runs in (6, 12, 20)), *(drawn(log, 60) for log in wide)],
            (learned_base.LearnedBase, "knobs", {name: one[: 9 if name == "u" else 1] for name, one in knobs.items()}),
        ),
        "parts of a language are its own data": (
            [drawn(nested, runs, 4 * ABLATED) for runs in (6, 12, 24)],
            (learned_base, "own_data", lambda sources, targets: np.equal.outer(sources, targets)),
        ),
        "siblings act alike": (
            [drawn(log, runs, ABLATED * (4 if log is nested else 1)) for log, counts in parents for runs in counts],
            (learned_base.LearnedBase, "knobs", knobs | {"kin": (0.0,)}),
        ),
        "growth of own data's help": ([smaller(log) for log in several], (learned_base, "GROWTH", 1e-6)),
        "exponents lent by public runs": (
            [smallest(log) for log in several],
            (symbols.Levels, "complete", lambda _, law: law),
        ),
        "two regimes": ([drawn(games, 40)], (regimes, "ENOUGH", 10**6)),
    }  # fmt: skip
    table("the default with each part and without", "part", "runs", "with", "without", "CPU s with", "without")
    for part, (cases, without_it) in parts.items():
        for draws in [case[:1] for case in cases[:1]] if SMALL else cases:
            with_it, spent = erred(draws)
            with patch.object(*without_it):
                without, longer = erred(draws)
            row(part, len(draws[0][0]), with_it, without, spent, longer)


Split = tuple[sm.RunLog, sm.RunLog]
"""Rows to fit, and rows to predict."""


def drawn(log: sm.RunLog, runs: int, draws: int = ABLATED) -> list[Split]:
    """So many random rows, and the others."""
    orders = [np.random.default_rng(100 + draw).permutation(len(log)) for draw in range(draws)]
    return [(log.select(order[:runs]), log.select(order[runs:])) for order in orders]


def one_parent(log: sm.RunLog) -> sm.RunLog:
    """The same with all sources as parts of one."""
    return replace(log, sources=tuple(f"all/{name}" for name in log.sources))


def smaller(log: sm.RunLog) -> list[Split]:
    """All sizes but the largest, and that."""
    return [(log.select(log.N.max() > log.N), log.select(log.N.max() == log.N))]


def smallest(log: sm.RunLog) -> list[Split]:
    """The smallest size, and the larger ones."""
    return [(log.select(log.N.min() == log.N), log.select(log.N.min() < log.N))]


def erred(draws: list[Split]) -> tuple[float, float]:
    """Mean PE over draws and targets, %, and the mean CPU seconds of a fit."""
    errors, begin = [], time.process_time()
    for learn, test in draws:
        predicted = sm.fit(learn, "learned-base", bootstrap=0, folds=5).predict(test.p, test.N, test.D).losses
        errors.append(np.nanmean(np.abs(predicted - test.loss), axis=0) / np.nanmean(test.loss, axis=0))
    return 100 * float(np.mean(errors)), (time.process_time() - begin) / len(draws)


def simulated(targets: int, rows: int) -> tuple[sm.RunLog, sm.TransferMatrix]:
    """A log that obeys the printed law up to 1% noise."""
    rng = np.random.default_rng(0)
    names = tuple(f"l{index}" for index in range(targets))
    sv = -3 * rng.random((targets, targets)) * (1 - np.eye(targets))
    p = rng.dirichlet(np.ones(targets), rows)
    N, D = rng.choice([5e7, 2.43e8, 6.84e8], rows), rng.choice([2e10, 5e10, 1e11], rows)
    core = 1.5 + 300 / N[:, None] ** 0.34 + 1500 / D[:, None] ** 0.35
    loss = core * (p @ np.exp(sv)) ** -0.15 * np.exp(0.01 * rng.normal(size=(rows, targets)))
    log = sm.RunLog(tuple(f"r{index}" for index in range(rows)), N, D, p, loss, names, names)
    return log, sm.TransferMatrix.from_sv(sv, names, names)


def fitted(targets: int, rows: int, replicates: int) -> sm.Fit:
    """The law on such a log, its replicates and nothing else."""
    log, matrix = simulated(targets, rows)
    return sm.fit(log, law="shapley", transfer=matrix, bootstrap=replicates, folds=0)


def scipy_loop() -> tuple[float, np.ndarray]:
    """Seconds a problem in SciPy, and by what share our objective is higher: in all, at the median, at worst."""
    log, matrix = simulated(*MANY[:2])
    evidence = gather(one_log(log), Settings())
    problem = Estimation.of(LAWS["shapley"], evidence, inputs_of(evidence.log, matrix), Settings())
    shares = bootstrap_shares(evidence.log, 1, 0)
    point = estimate(problem, np.ones((1, len(log))))
    ours = resample(problem, shares, point.x[0], 0)
    weight = problem.observed.weight.T * shares[0]
    weight /= weight.sum(axis=1, keepdims=True)
    theirs, spent, tail = np.empty(TOGETHER), 0.0, problem.loss.tail
    for target in range(TOGETHER):
        residuals = problem.residuals(np.array([target]), problem.repeated[:1])[0]

        def rho(z: np.ndarray, w: np.ndarray = weight[target]) -> np.ndarray:
            size = np.sqrt(np.maximum(z, 1e-300))
            far = size > 1e-3
            value = np.where(far, 2e-3 * size - 1e-6 + tail * (size - 1e-3) ** 2, z)
            slope = np.where(far, (1 - tail) * 1e-3 / size + tail, 1.0)
            return w * np.stack([value, slope, np.where(far, -0.5e-3 * (1 - tail) / size**3, 0.0)])

        def part(x: np.ndarray, which: int, of=residuals) -> np.ndarray:
            return of(x[None], np.array([0]))[which][0]

        begin = time.perf_counter()
        found = least_squares(part, point.x[0, target], jac=lambda x, w, of=part: of(x, 1), args=(0,), loss=rho)
        spent += time.perf_counter() - begin
        theirs[target] = found.cost
    mine = ours.cost[0, :TOGETHER]
    each = mine / theirs - 1
    return spent / TOGETHER, np.array([mine.sum() / theirs.sum() - 1, np.median(each), each.max()])


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
