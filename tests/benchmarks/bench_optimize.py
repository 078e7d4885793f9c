"""The optimiser: gaps, agreement with cvxpy and SciPy, time against cvxpy, and the paper's closed forms.

Ratios are of one run; under two minutes on two cores.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: threads only get into the way of matrices this small
sys.path.append(str(Path(__file__).parents[1]))

import cvxpy as cp
import numpy as np
from _report import SMALL, finish, must, row, seconds, table
from closed_forms import diagonal, first_order, first_order_printed, interior
from scipy.optimize import minimize

from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.bounds import Group
from shapleymix.mixing.engine import Program, minimise
from shapleymix.mixing.optimize import optimize
from shapleymix.mixing.polytope import linear_minimiser

SIZES = (2, 5) if SMALL else (2, 5, 10, 20, 50, 100, 200)
INSTANCES = 3 if SMALL else 29
TIMED = ((10, 3),) if SMALL else ((10, 60), (50, 30), (200, 5), (1000, 1))  # K, and how many problems
REPLICATES = 20 if SMALL else 1000
DRAWN = ((8, 20),) if SMALL else ((50, 200), (200, 100))  # languages, and replicates
FORMULAS = {
    "diagonal (paper)": diagonal,
    "first order as printed": first_order_printed,
    "first order corrected": first_order,
    "exact interior (where it applies)": interior,
}


def main() -> None:
    measure_certificates()
    measure_times()
    measure_replicates()
    measure_draws()
    measure_closed_forms()
    finish()


def instance(seed: int, K: int, batch: tuple[int, ...] = ()) -> tuple[Pieces, np.ndarray, np.ndarray]:
    """A random square problem; two in three are capped, one in three has concave powers."""
    rng = np.random.default_rng((seed, K))
    phi = rng.uniform(0, rng.choice([0.05, 0.3, 0.9]), (*batch, K, K))
    phi[..., np.arange(K), np.arange(K)] = 1.0
    s = np.broadcast_to(rng.uniform(0.3, 1, (*batch, 1, K)), phi.shape) if seed % 3 == 2 else None
    floor, scale, gamma = (rng.uniform(*ends, (*batch, K)) for ends in ((0, 2), (1, 4), (0.02, 0.4)))
    upper = np.ones(K) if seed % 3 == 0 else np.minimum(1.0, rng.uniform(1.2, 4, K) / K)
    return Pieces("power", floor, scale, gamma, phi, s), np.full(K, 1 / K), upper


def solved(pieces: Pieces, w: np.ndarray, upper: np.ndarray) -> np.ndarray:
    batch, M = pieces.batch or (1,), len(upper)
    sides = {"w": w, "lower": 0 * upper, "upper": upper, "anchor": np.ones(M), "tilt": np.zeros(M)}
    sums = {"equal": np.ones((1, M)), "values": np.ones(1), "rows": np.zeros((1, 0, M)), "limits": np.zeros((1, 0))}
    each = {name: np.broadcast_to(side, (*batch, len(side))) for name, side in sides.items()}
    found = minimise(Program(pieces=pieces.flat() if pieces.batch else pieces, **each, **sums)).p
    return found if pieces.batch else found[0]


def relative_gap(pieces: Pieces, w: np.ndarray, p: np.ndarray, upper: np.ndarray) -> float:
    """The largest of a batch."""
    gradient = pieces.gradient(p, w)
    s, _ = linear_minimiser(gradient, np.zeros_like(upper), upper)
    gap = np.sum(np.where(p == s, 0.0, gradient * (p - s)), axis=-1) / pieces.objective(p, w)
    return float(np.max(gap))


def by_cvxpy(pieces: Pieces, w: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The best way to write it: exp(-gamma log Theta), vectorised over targets; power cones for concave powers."""
    p = cp.Variable(len(upper))
    demands = [cp.sum(p) == 1, p >= 0, p <= upper]
    theta = pieces.phi.T @ p
    if pieces.s is not None:
        M, K = pieces.phi.shape
        u = cp.Variable(M * K)
        source, target = np.divmod(np.arange(M * K), K)
        demands.append(cp.PowCone3D(p[source], np.ones(M * K), u, np.asarray(pieces.s).ravel()))
        total = np.zeros((K, M * K))
        total[target, np.arange(M * K)] = pieces.phi.ravel()
        theta = total @ u
    losses = cp.exp(cp.multiply(-pieces.gamma, cp.log(theta)))
    cp.Problem(cp.Minimize((w * pieces.scale) @ losses), demands).solve(solver=cp.CLARABEL)
    found = np.clip(np.asarray(p.value), 0, upper)
    return found / found.sum()


def by_scipy(pieces: Pieces, w: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """SLSQP, from the middle of the bounds."""
    found = minimize(
        lambda p: pieces.objective(np.maximum(p, 1e-12), w),
        upper / upper.sum(),
        jac=lambda p: pieces.gradient(np.maximum(p, 1e-12), w),
        bounds=[(0, cap) for cap in upper],
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    p = np.clip(found.x, 0, upper)
    return p / p.sum()


def measure_certificates() -> None:
    """Random instances; cvxpy and SciPy solve those up to K = 50 again (concave ones up to K = 10)."""
    heads = ("K", "instances", "largest relative gap", "from cvxpy (relative)", "below SciPy's SLSQP")
    table("200 random instances", *heads)
    worst_gap = worst = 0.0
    for place, K in enumerate(SIZES):
        count, gaps, apart, below = INSTANCES - (place > 3), [], [], []
        for seed in range(count):
            pieces, w, upper = instance(seed, K)
            p = solved(pieces, w, upper)
            value = pieces.objective(p, w)
            gaps.append(relative_gap(pieces, w, p, upper))
            if (K <= 50 and pieces.s is None) or K <= 10:
                apart.append(abs(1 - pieces.objective(by_cvxpy(pieces, w, upper), w) / value))
                below.append(pieces.objective(by_scipy(pieces, w, upper), w) / value - 1)
        told = [f"{max(found):.1e}" if found else "not compared" for found in (apart, below)]
        row(K, count, f"{max(gaps):.1e}", *told)
        worst_gap, worst = max(worst_gap, *gaps), max([worst, *apart])
    must("200 instances, K = 2 to 200: relative Frank-Wolfe gap", worst_gap, 1e-9)
    must("objective agrees with cvxpy, relative", worst, 1e-6)


def timed(work, repeats: int) -> float:
    """Median CPU seconds of a call, after one that warms up; CPU time, so that a busy machine does not matter."""
    work()
    return float(np.median([seconds(work, time.process_time) for _ in range(repeats)]))


def measure_times() -> None:
    heads = ("K", "one call", "in a batch", "cvxpy, vectorised", "ratio, one call", "ratio, batch")
    table("Time a solve, ms", *heads)
    for K, repeats in TIMED:
        problems = [instance(3 * seed, K) for seed in range(max(repeats // 3, 1))]
        ours = float(np.median([timed(lambda one=one: solved(*one), 3) for one in problems]))
        if K == 1000:
            row(K, 1e3 * ours, *["-"] * 4)
            must("K = 1000: seconds", ours, 5.0)
            continue
        theirs = float(np.median([timed(lambda one=one: by_cvxpy(*one), 3) for one in problems[:10]]))
        batch = 200 if K <= 50 else 20
        many = instance(0, K, (batch,))
        together = timed(lambda many=many: solved(*many), 3) / batch
        row(K, 1e3 * ours, 1e3 * together, 1e3 * theirs, theirs / ours, theirs / together)
        if K == 10:
            must("K = 10: median ms of one call", 1e3 * ours, 3.0)
        if K <= 50:
            must(f"K = {K}: times faster than cvxpy, batch of {batch}", theirs / together, 10.0, ">=")
            must(f"K = {K}: times faster than cvxpy, one call", theirs / ours, 10.0 if K == 10 else 15.0, ">=")


def measure_replicates() -> None:
    table(f"{REPLICATES:,} replicates at K = 10 in one batch", "law", "seconds", "largest relative gap")
    for name, seed in (("Theta linear", 1), ("concave powers", 2)):
        pieces, w, upper = instance(seed, 10, (REPLICATES,))
        spent = timed(lambda one=(pieces, w, upper): solved(*one), 3)
        row(name, spent, f"{relative_gap(pieces, w, solved(pieces, w, upper), upper):.1e}")
        must(f"1,000 replicates, {name}: seconds", spent, 1.5)


@dataclass(frozen=True)
class Known:
    """A fit whose law and replicates are given, as many targets as sources."""

    point: Pieces
    drawn: Pieces

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(f"l{place}" for place in range(self.point.n_sources))

    targets = sources

    def pieces(self, N: float, D: float) -> Pieces:
        return self.point

    def draws(self, N: float, D: float) -> Pieces:
        return self.drawn

    def predict(self, p: np.ndarray, N: np.ndarray, D: np.ndarray) -> np.ndarray:
        return self.point.losses(np.asarray(p))


def measure_draws() -> None:
    """`optimize` as a whole with as many targets as sources: optimum, proof, prices, intervals and rivals.

    The group is of a quarter of the sources; the worst case is that of the loss of any target.
    """
    table("`optimize` with replicates", "sources", "replicates", "bounds", "CPU s", "of caps alone", "gap", "that bind")
    for K, B in DRAWN:
        point, _, upper = instance(1, K)
        rng, ones = np.random.default_rng(0), np.ones((B, 1))
        gamma, phi = (value * np.exp(0.1 * rng.normal(size=(B, *value.shape))) for value in (point.gamma, point.phi))
        fit = Known(point, Pieces("power", point.floor * ones, point.scale * ones, gamma, phi))
        spent, group = {}, Group(fit.sources[: K // 4], lower=0.3)
        for name, more in (("caps", {}), ("a group", {"groups": [group]}), ("worst case", {"objective": "worst"})):
            ask = partial(optimize, fit, 1e9, 1e11, caps=upper, **more)
            found, spent[name] = ask(), timed(ask, 3 if K < 100 or name == "caps" else 1)
            row(K, B, name, spent[name], spent[name] / spent["caps"], f"{found.relative_gap:.1e}", len(found.binding))
        if K < 100:
            must(f"{K} languages, {B} replicates, a group: times caps", spent["a group"] / spent["caps"], 2.0)
            must(f"{K} languages, {B} replicates, worst case: times caps", spent["worst case"] / spent["caps"], 3.0)
        else:
            must("200 languages, 100 replicates: seconds", spent["caps"], 2.0)
            must("200 languages, 100 replicates, worst case: seconds", spent["worst case"], 60.0)


def measure_closed_forms() -> None:
    """50 problems a scale, K = 10: mean L1 distance to the optimum; the printed sign is the paper's erratum."""
    table("Closed forms: mean L1 distance to the optimum (off-diagonals uniform in (0, s))", "s", *FORMULAS)
    for scale in (0.1,) if SMALL else (0.02, 0.05, 0.1, 0.2):
        rng, rows = np.random.default_rng(0), []
        for _ in range(50):
            phi = rng.uniform(0, scale, (10, 10))
            np.fill_diagonal(phi, 1.0)
            a, gamma = rng.uniform(0.5, 2, 10), rng.uniform(0.05, 0.4, 10)
            best = solved(Pieces("power", np.zeros(10), a, gamma, phi), np.ones(10), np.ones(10))
            found = [formula(a, gamma, phi) for formula in FORMULAS.values()]
            rows.append([float(np.abs(p - best).sum()) if (p >= 0).all() else np.nan for p in found])
        mean = np.nanmean(np.array(rows), axis=0)
        row(scale, *(f"{value:.3g}" for value in mean))
        must(f"s = {scale}: corrected nearer than printed, ratio", float(mean[2] / mean[1]), 1.0, "<")


if __name__ == "__main__":
    main()
