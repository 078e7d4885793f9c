"""Laws without convexity: random search and SLSQP from its best points. No certificate, and the result says so."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.mixing.baselines import named_baselines
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.certificate import Certificate
from shapleymix.mixing.demands import unseen_sources
from shapleymix.mixing.mixtures import Mixture, Rival
from shapleymix.mixing.problem import MEAN
from shapleymix.records import FloatArray

DRAWS = 4096
ROUNDS = 8
LOCAL = 4
SHRINK = 0.5
NAME = "multi-start"


def is_convex(fit: Any, N: float, D: float) -> bool:
    """Whether the law has convex pieces in the mixture."""
    try:
        fit.terms(N, D)
    except SolveError:
        return False
    return True


def optimize_nonconvex(fit: Any, N: float, D: float, demands: Any) -> Mixture:
    """The best mixture that a seeded search finds under caps, floors and groups.

    Raises
    ------
    UsageError
        If the demands need convexity: a KL term, cvxpy constraints, a closed form, or predicted monolingual losses.
    """
    if demands.kl or demands.constraints or demands.method != "exact":
        raise UsageError("a law without convexity takes caps, floors and groups only")
    bounds = demands.bounds(tuple(fit.sources), D, unseen_sources(fit))
    weights = demands.weights_for(fit, None)
    w, origin = (weights.mean if demands.objective == MEAN else weights.raw), weights.origin

    def value(p: FloatArray) -> FloatArray:
        losses = np.asarray(fit.predict(p, N, D, level=demands.level).losses, dtype=float)
        scaled = np.where(np.isfinite(losses), losses, np.inf) * w
        return scaled.sum(axis=1) if demands.objective == MEAN else scaled.max(axis=1)

    p = _refined(value, _searched(value, bounds, demands.seed), bounds)
    rivals = named_baselines(tuple(fit.sources), bounds.available, demands.smoothing, demands.baselines, D)
    return _mixture(fit, N, D, demands, bounds, w, origin, p, value, rivals)


def _searched(value: Any, bounds: Constraints, seed: int) -> FloatArray:
    """The best few of several rounds of draws, each nearer to the best so far."""
    rng = np.random.default_rng(seed)
    M = len(bounds.sources)
    pool = _feasible(rng.dirichlet(np.ones(M), DRAWS), bounds)
    best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=DRAWS)] + share * rng.dirichlet(np.ones(M), DRAWS)
        pool = np.concatenate([best, _feasible(near, bounds)])
        best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    return best


def _feasible(p: FloatArray, bounds: Constraints) -> FloatArray:
    """Draws moved into the bounds; those outside a group's bounds are dropped."""
    p = np.clip(p, bounds.lower, bounds.upper)
    for _ in range(60):
        excess = p.sum(axis=1, keepdims=True) - 1
        room = np.where(excess > 0, p - bounds.lower, bounds.upper - p)
        total = np.maximum(room.sum(axis=1, keepdims=True), 1e-300)
        p = np.clip(p - excess * room / total, bounds.lower, bounds.upper)
    sums = p @ bounds.members.T
    inside = np.all((sums >= bounds.group_lower - 1e-9) & (sums <= bounds.group_upper + 1e-9), axis=1)
    if not inside.any():
        raise InfeasibleError("no random mixture meets the groups' bounds", hint="widen the groups' bounds")
    return p[inside]


def _refined(value: Any, starts: FloatArray, bounds: Constraints) -> FloatArray:
    """SLSQP from each start; a step-shaped law keeps the start."""
    rows = np.concatenate([np.ones((1, starts.shape[1])), bounds.members])
    low, high = (np.append(1.0, side) for side in (bounds.group_lower, bounds.group_upper))
    linear = LinearConstraint(rows, low, high)  # pyright: ignore[reportArgumentType]
    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))

    def one(p: FloatArray) -> float:
        inside = np.clip(p, bounds.lower, bounds.upper)
        return float(value((inside / inside.sum())[None])[0])

    found = [minimize(one, start, method="SLSQP", bounds=box, constraints=[linear]).x for start in starts]
    tried = np.concatenate([starts, _feasible(np.array(found), bounds)])
    return tried[int(np.argmin(value(tried)))]


def _mixture(
    fit: Any,
    N: float,
    D: float,
    demands: Any,
    bounds: Constraints,
    w: FloatArray,
    origin: str,
    p: FloatArray,
    value: Any,
    rivals: dict[str, FloatArray],
) -> Mixture:
    predicted = fit.predict(p[None], N, D, level=demands.level)
    objective, nan = float(value(p[None])[0]), float("nan")
    unknown = np.full(len(p), nan)
    table = []
    for name, rival in rivals.items():
        other = float(value(rival[None])[0])
        within = bool(np.all((rival >= bounds.lower - 1e-9) & (rival <= bounds.upper + 1e-9)))
        table.append(Rival(name, rival, other, nan, nan, other - objective, nan, nan, nan, within))
    used = p * D
    notice = "the law is not convex in the mixture: the best of a random search, without a certificate"
    return Mixture(
        sources=tuple(fit.sources),
        targets=tuple(fit.targets),
        N=N,
        D=D,
        p=p,
        p_low=unknown,
        p_high=unknown,
        losses=np.asarray(predicted.losses, dtype=float)[0],
        losses_low=np.asarray(predicted.low, dtype=float)[0],
        losses_high=np.asarray(predicted.high, dtype=float)[0],
        weights=w,
        weights_origin=origin,
        objective_kind=demands.objective,
        objective=objective,
        objective_low=nan,
        objective_high=nan,
        certificate=Certificate(objective, nan, nan, nan, nan),
        caps=bounds.upper,
        floors=bounds.lower,
        binding=(),
        available=bounds.available,
        epochs=np.divide(used, bounds.available, out=np.full_like(used, nan), where=bounds.available > 0),
        baselines=tuple(table),
        method=NAME,
        engine="random search and SLSQP",
        excess=nan,
        distance=nan,
        level=demands.level,
        replicates=0,
        notices=(notice, *getattr(predicted, "warnings", ())),
        provenance={"seed": demands.seed},
    )
