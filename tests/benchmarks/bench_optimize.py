"""The optimiser: certificates, agreement with cvxpy, time against it, and the paper's closed forms.

Run: `python tests/benchmarks/bench_optimize.py` (under two minutes on two cores). Ratios are of one run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from types import SimpleNamespace

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: threads only get into the way of matrices this small

import cvxpy as cp
import numpy as np
from _report import finish, must, row, table

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.certificate import frank_wolfe_gap
from shapleymix.mixing.closed_forms import diagonal, first_order, first_order_printed, interior
from shapleymix.mixing.engine.barrier import minimise
from shapleymix.mixing.optimization import optimize

SIZES = (2, 5, 10, 20, 50, 100, 200)


def instance(seed: int, K: int, batch: tuple[int, ...] = ()) -> tuple[PowerTerms, np.ndarray, np.ndarray]:
    """A random square problem; two in three are capped, one in three has concave powers."""
    rng = np.random.default_rng((seed, K))
    phi = rng.uniform(0, rng.choice([0.05, 0.3, 0.9]), (*batch, K, K))
    phi[..., np.arange(K), np.arange(K)] = 1.0
    s = np.broadcast_to(rng.uniform(0.3, 1, (*batch, 1, K)), phi.shape) if seed % 3 == 2 else None
    vector = (*batch, K)
    terms = PowerTerms(rng.uniform(0, 2, vector), rng.uniform(1, 4, vector), rng.uniform(0.02, 0.4, vector), phi, s)
    upper = np.ones(K) if seed % 3 == 0 else np.minimum(1.0, rng.uniform(1.2, 4, K) / K)
    return terms, np.full(K, 1 / K), upper


def relative_gap(terms: PowerTerms, w: np.ndarray, p: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return frank_wolfe_gap(p, terms.gradient(p, w), np.zeros_like(upper), upper) / terms.objective(p, w)


def by_cvxpy(terms: PowerTerms, w: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The best way to write it: exp(-gamma log Theta), vectorised over targets; power cones for concave powers."""
    p = cp.Variable(len(upper))
    demands = [cp.sum(p) == 1, p >= 0, p <= upper]
    theta = terms.phi.T @ p
    if terms.s is not None:
        M, K = terms.phi.shape
        u = cp.Variable(M * K)
        source, target = np.divmod(np.arange(M * K), K)
        demands.append(cp.PowCone3D(p[source], np.ones(M * K), u, np.asarray(terms.s).ravel()))
        total = np.zeros((K, M * K))
        total[target, np.arange(M * K)] = terms.phi.ravel()
        theta = total @ u
    losses = cp.exp(cp.multiply(-terms.gamma, cp.log(theta)))
    cp.Problem(cp.Minimize((w * terms.a) @ losses), demands).solve(solver=cp.CLARABEL)
    found = np.clip(np.asarray(p.value), 0, upper)
    return found / found.sum()


def measure_certificates() -> None:
    """200 instances over all sizes; cvxpy solves those up to K = 50 again (concave ones up to K = 10)."""
    table("200 random instances", "K", "instances", "largest relative gap", "largest excess over cvxpy (relative)")
    worst_gap, worst_excess = 0.0, 0.0
    for position, K in enumerate(SIZES):
        gap, excess = 0.0, -np.inf
        count = 29 if position < 4 else 28
        for seed in range(count):
            terms, w, upper = instance(seed, K)
            p = minimise(terms, w, np.zeros(K), upper).p
            gap = max(gap, float(relative_gap(terms, w, p, upper)))
            if (K <= 50 and terms.s is None) or K <= 10:
                value = terms.objective(by_cvxpy(terms, w, upper), w)
                excess = max(excess, float(abs(terms.objective(p, w) - value) / value))
        row(K, count, f"{gap:.1e}", f"{excess:.1e}" if np.isfinite(excess) else "not compared")
        worst_gap, worst_excess = max(worst_gap, gap), max(worst_excess, excess)
    must("200 instances, K = 2 to 200: relative Frank-Wolfe gap", worst_gap, 1e-9)
    must("objective agrees with cvxpy, relative", worst_excess, 1e-6)


def timed(work, repeats: int) -> float:
    """Median CPU seconds of a call, after one that warms up; CPU time, so that a busy machine does not matter."""
    work()
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return float(np.median(spent))


def timed_engine(terms: PowerTerms, w: np.ndarray, upper: np.ndarray, repeats: int) -> float:
    return timed(lambda: minimise(terms, w, np.zeros_like(upper), upper), repeats)


def measure_times() -> None:
    table(
        "Time a solve, ms", "K", "one call", "in a batch of 200", "cvxpy, vectorised", "ratio, one call", "ratio, batch"
    )
    for K, repeats in ((10, 60), (50, 30), (200, 5), (1000, 1)):
        problems = [instance(3 * seed, K) for seed in range(max(repeats // 3, 1))]
        ours = np.median([timed_engine(*problem, 3) for problem in problems])
        if K == 1000:
            row(K, 1e3 * ours, "-", "-", "-", "-")
            must("K = 1000: seconds", float(ours), 5.0)
            continue
        theirs = np.median([timed(lambda p=problem: by_cvxpy(*p), 3) for problem in problems[:10]])
        batch = 200 if K <= 50 else 20
        terms, w, upper = instance(0, K, (batch,))
        together = timed_engine(terms, w, upper, 3) / batch
        row(K, 1e3 * ours, 1e3 * together, 1e3 * theirs, theirs / ours, theirs / together)
        if K == 10:
            must("K = 10: median ms of one call", float(1e3 * ours), 3.0)
        if K <= 50:
            must(f"K = {K}: times faster than cvxpy, batch of {batch}", theirs / together, 10.0, ">=")
            must(f"K = {K}: times faster than cvxpy, one call", theirs / ours, 5.0 if K == 10 else 10.0, ">=")


def measure_replicates() -> None:
    table("1,000 replicates at K = 10 in one batch", "law", "seconds", "largest relative gap")
    for name, seed in (("Theta linear", 1), ("concave powers", 2)):
        terms, w, upper = instance(seed, 10, (1000,))
        spent = timed_engine(terms, w, upper, 3)
        found = minimise(terms, w, np.zeros(10), upper).p
        row(name, spent, f"{relative_gap(terms, w, found, upper).max():.1e}")
        must(f"1,000 replicates, {name}: seconds", spent, 1.5)


@dataclass(frozen=True)
class Known:
    """A fit whose law and replicates are given, as many targets as sources."""

    point: PowerTerms
    drawn: PowerTerms

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(f"l{place}" for place in range(self.point.n_sources))

    targets = sources

    def terms(self, N: float, D: float) -> PowerTerms:
        return self.point

    def replicate_terms(self, N: float, D: float) -> PowerTerms:
        return self.drawn

    def predict(self, p: np.ndarray, N: float, D: float, level: float = 0.9) -> SimpleNamespace:
        losses = self.point.losses(np.asarray(p))
        return SimpleNamespace(losses=losses, low=losses, high=losses, warnings=())


def measure_many_languages() -> None:
    """`optimize` as a whole at 200 sources and targets: optimum, proof, prices, intervals and rivals."""
    table("200 languages, caps, 100 replicates", "replicates", "CPU seconds", "relative gap", "caps that bind")
    K, B = 200, 100
    point, _, upper = instance(1, K)
    rng = np.random.default_rng(0)
    gamma, phi = (value * np.exp(0.1 * rng.normal(size=(B, *value.shape))) for value in (point.gamma, point.phi))
    drawn = PowerTerms(point.floor * np.ones((B, 1)), point.a * np.ones((B, 1)), gamma, phi)
    for replicates in (1, B):
        fit = Known(point, drawn.take(slice(0, replicates)))
        spent = timed(lambda fit=fit: optimize(fit, 1e9, 1e11, caps=upper), 3)
        found = optimize(fit, 1e9, 1e11, caps=upper)
        row(replicates, spent, f"{found.relative_gap:.1e}", len(found.binding))
    must("200 languages, 100 replicates: seconds", spent, 2.0)


def measure_closed_forms() -> None:
    """50 problems a scale, K = 10: mean L1 distance to the optimum; the printed sign is the paper's erratum."""
    formulas = (diagonal, first_order_printed, first_order, interior)
    table(
        "Closed forms: mean L1 distance to the optimum (off-diagonals uniform in (0, s))",
        "s", "diagonal (paper)", "first order as printed", "first order corrected", "exact interior (where it applies)",
    )  # fmt: skip
    for scale in (0.02, 0.05, 0.1, 0.2):
        rng, rows = np.random.default_rng(0), []
        for _ in range(50):
            phi = rng.uniform(0, scale, (10, 10))
            np.fill_diagonal(phi, 1.0)
            a, gamma = rng.uniform(0.5, 2, 10), rng.uniform(0.05, 0.4, 10)
            best = minimise(PowerTerms(np.zeros(10), a, gamma, phi), np.ones(10), np.zeros(10), np.ones(10)).p
            distances = [float(np.abs(formula(a, gamma, phi) - best).sum()) for formula in formulas]
            rows.append([*distances[:3], distances[3] if (interior(a, gamma, phi) >= 0).all() else np.nan])
        mean = np.nanmean(np.array(rows), axis=0)
        row(scale, *(f"{value:.3f}" for value in mean[:3]), f"{mean[3]:.1e}")
        must(f"s = {scale}: corrected nearer than printed, ratio", float(mean[2] / mean[1]), 1.0, "<")


if __name__ == "__main__":
    measure_certificates()
    measure_times()
    measure_replicates()
    measure_many_languages()
    measure_closed_forms()
    finish()
