"""Random problems against a second solver, and against mixtures that the proof says are no better."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from known_fits import second

from shapleymix.fitting.evidence import TRACE
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.bounds import Bounds, polytope_of
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.infeasibility import require_feasible
from shapleymix.mixing.polytope import FEASIBLE, Polytope
from shapleymix.mixing.solving import solve

PROBLEMS = 2500
ROOM = 1e-4  # bounds are typed with four digits at most
SECOND, TIGHT, ROUNDING = 1e-5, 1e-6, 1e-9
"""Relative: what the second solver may be better by, what a proof may leave open in silence, and what is nothing."""


def pieces_of(rng: np.random.Generator, M: int, K: int) -> Pieces:
    """One of the laws' forms, with a base, concave powers, and repeated tokens, or without."""
    floor, scale = rng.uniform(0, 2, K), rng.uniform(0.5, 4, K)
    if rng.random() < 0.25:
        return Pieces("exponential", floor, scale, np.ones(K), rng.normal(0, rng.choice([0.3, 2]), (M, K)))
    phi = rng.uniform(0, rng.choice([0.05, 0.3, 1]), (M, K)) * (rng.random((M, K)) < rng.choice([0.5, 1]))
    phi[np.arange(K) % M, np.arange(K)] += 1
    s = rng.uniform(0.3, 1, (M, K)) if rng.random() < 0.4 else None
    base = rng.uniform(1e-3, 1, K) if rng.random() < 0.4 else None
    found = Pieces("power", floor, scale, rng.uniform(0.02, 1.5, K), phi, s, base)
    if rng.random() < 0.4:
        unique = np.where(rng.random(M) < 0.5, rng.uniform(0.02, 0.8, M), np.inf)
        found = found.with_supply(unique, float(rng.choice([0.0, 1 / 15.4, 0.5])))
    return found


def goal_of(seed: int) -> Goal:
    """A random goal; the bounds hold a mixture."""
    rng = np.random.default_rng(seed)
    M, K = int(rng.integers(2, 9)), int(rng.integers(1, 9))
    names, inside = (
        [f"of/l{i}" if i < 3 else f"l{i}" for i in range(M)],
        rng.dirichlet(np.full(M, rng.choice([0.3, 1, 5]))),
    )
    room = rng.choice([0.0, 0.05, 0.4])
    bounds: dict[str, Any] = {}
    if rng.random() < 0.5:
        bounds["caps"] = dict(zip(names, np.minimum(inside + room + ROOM, 1), strict=True))
    if rng.random() < 0.4:
        bounds["floors"] = dict(zip(names, np.maximum(inside - room - ROOM, 0), strict=True))
    if M > 2 and rng.random() < 0.4:
        held = inside[:2].sum()
        bounds["groups"] = [f"{names[0]}+{names[1]}<={min(held + room + ROOM, 1):.9f}"]
    if rng.random() < 0.3:
        center, kind = (inside + 0.05) / (1 + 0.05 * M), str(rng.choice(["l1", "kl"]))
        away = float(np.abs(inside - center).sum()) if kind == "l1" else 0.3
        center = center if kind == "l1" else inside
        bounds |= {"near": dict(zip(names, center, strict=True)), "within": away + 1e-3, "distance": kind}
    given = dict(zip(names, inside, strict=True))
    if rng.random() < 0.2 and inside[:3].min() > TRACE:
        bounds |= {"keep_within": "of", "kept": given}
    if rng.random() < 0.2:
        bounds |= {"after": given, "trained": f"{rng.uniform(0.1, 0.9):.3f}B"}
    within = require_feasible(polytope_of(Bounds(**bounds), names, 1e9))
    w = rng.dirichlet(np.ones(K)) * (rng.random(K) < 0.9)
    w[0] += 0.1
    worst = bool(rng.random() < 0.25)
    kl = float(rng.choice([1e-3, 0.1])) if not worst and rng.random() < 0.3 else 0.0
    return Goal(pieces_of(rng, M, K), w, within, worst, kl, rng.dirichlet(np.ones(M)) if kl else None)


def others(area: Polytope, p: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Mixtures within the bounds: corners of them, and mixtures of these and the optimum."""
    for _ in range(8):
        found = area.minimise_linear(rng.normal(size=len(p)))
        if found is not None:
            share = rng.choice([1e-4, 0.1, 1])
            yield share * found + (1 - share) * p


def check(seed: int) -> None:
    """The optimum is within its bounds, its proof is tight and holds, and the second solver finds nothing better."""
    goal = goal_of(seed)
    proof = solve(goal)
    total, size = goal.total(proof.p), abs(goal.total(proof.p))
    assert goal.within.violation(proof.p) <= FEASIBLE, f"outside by {goal.within.violation(proof.p):.2g}"
    assert 0 <= proof.certificate.gap <= TIGHT * size, f"gap {proof.certificate.relative_gap:.2g}"
    assert abs(proof.certificate.objective - total) <= ROUNDING * size
    for p in others(goal.within, proof.p, np.random.default_rng(seed)):
        if goal.within.violation(p) <= FEASIBLE:
            below = proof.certificate.lower_bound - goal.total(p)
            assert below <= ROUNDING * size, f"a mixture below the bound by {below:.2g}"
    theirs = second(goal, 1)
    assert total - theirs <= SECOND * size, f"the second solver is better by {total - theirs:.2g}"


def test_no_mixture_is_better_than_the_proof_says(campaign: Any) -> None:
    for seed in (175, 3790, 279072):  # a steep target without a multiplier, a flat worst case, a flat mean in a ball
        check(seed)
    campaign(PROBLEMS, st.integers(0, 2**32), check)
