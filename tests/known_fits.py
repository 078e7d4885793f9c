"""Fits whose laws are known, as the optimiser takes them: no log was fitted."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from shapleymix.fitting.own_fit import OwnFit
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.answers import Mixture
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.optimize import optimize
from shapleymix.mixing.polytope import Ball, Polytope, Supply

SOURCES, TARGETS = ("en", "de", "fi", "code"), ("en", "de", "fi")
TOKENS = {"en": "1T", "de": "100B", "fi": "2B", "code": "50B"}


@dataclass(frozen=True)
class KnownFit:
    """A ShapleyLaw with known parameters: M = 4 sources, K = 3 targets, B bootstrap replicates."""

    B: int = 40
    gamma: float = 1.0
    sources: tuple[str, ...] = SOURCES
    targets: tuple[str, ...] = TARGETS

    def pieces(self, N: float, D: float) -> Pieces:
        scale = np.array([1.6, 1.8, 2.1]) + 400 / N**0.34 + 2000 / D**0.37
        phi = np.array([[1, 0.3, 0.2], [0.15, 1, 0.1], [0.1, 0.05, 1], [0.3, 0.1, 0.05]])
        return Pieces("power", np.zeros(3), scale, self.gamma * np.array([0.08, 0.1, 0.15]), phi)

    def draws(self, N: float, D: float) -> Pieces | None:
        if not self.B:
            return None
        rng, point = np.random.default_rng(7), self.pieces(N, D)
        wobble = lambda *shape: np.exp(0.1 * rng.normal(size=(self.B, *shape)))  # noqa: E731
        return replace(point, scale=point.scale * np.ones((self.B, 1)), gamma=point.gamma * wobble(3),
                       floor=np.zeros((self.B, 3)), phi=point.phi * wobble(4, 3))  # fmt: skip

    def predict(self, p: Any, N: Any, D: Any) -> np.ndarray:
        return self.pieces(float(np.max(N)), float(np.max(D))).losses(np.asarray(p))


class Repeating(OwnFit):
    """The same, which knows what repeated tokens are worth."""

    repetition = object()

    def __init__(self, B: int = 40) -> None:
        super().__init__(KnownFit(B), SOURCES, TARGETS)

    def at(self, N: float, D: float, *, available: Any = None, score: Any = None) -> Any:
        found = super().at(N, D, available=available)
        if available is None:
            return found
        both = (found.pieces, found.draws)
        pieces, draws = (None if one is None else one.with_supply(available / D, 0.1) for one in both)
        return replace(found, pieces=pieces, draws=draws, known=replace(found.known, pieces=pieces, draws=draws))


class Bumpy(KnownFit):
    """A law without convex pieces."""

    pieces = draws = None  # pyright: ignore[reportAssignmentType]

    def predict(self, p: Any, N: Any, D: Any) -> np.ndarray:
        p = np.asarray(p)
        return 2 + 0.1 * np.sin(8 * p[:, :3]) + (p[:, :3] - 0.5) ** 2


def mixture(fit: Any = None, **keywords: Any) -> Mixture:
    """The optimum of the known fit."""
    return optimize(fit or KnownFit(), "1B", "100B", **keywords)


KINDS = ("linear", "concave", "based", "repeated", "exponential")


def pieces_of(kind: str, M: int, K: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Pieces:
    """Random pieces of M sources and K targets."""
    phi = rng.uniform(0, 0.6, (*batch, M, K)) ** 2
    phi[..., np.arange(min(M, K)), np.arange(min(M, K))] = 1.0
    shape = (*batch, K)
    found = Pieces("power", rng.uniform(-0.5, 2, shape), rng.uniform(0.5, 3, shape), rng.uniform(0.03, 0.6, shape), phi)
    if kind == "exponential":
        return replace(found, form="exponential", gamma=np.ones(shape), phi=-3 * phi)
    if kind in ("concave", "based"):
        found = replace(found, s=np.broadcast_to(rng.uniform(0.3, 1, (M, 1)), (*batch, M, K)))
    if kind == "based":
        found = replace(found, base=np.ones(shape), phi=4 * phi)
    if kind == "repeated":
        harm = np.exp(rng.normal(0, 2, (*batch, M, K))) * (rng.random((M, K)) < 0.5)
        return found.with_supply(rng.uniform(0.02, 0.4, M), rng.uniform(0.02, 0.4, (*batch, M)), harm)
    return found


BOUNDS = ("box", "rows", "equal", "l1", "kl", "held")


def box(lower: np.ndarray, upper: np.ndarray) -> Polytope:
    """Bounds on single ratios alone."""
    M, none = len(upper), ("",) * len(upper)
    names, supply = (
        tuple(f"l{i}" for i in range(M)),
        Supply(1.0, np.full(M, np.nan), np.full(M, np.inf), np.zeros(M), np.zeros(M)),
    )
    return Polytope(names, lower, upper, none, none, np.zeros((0, M)), np.zeros(0), np.zeros(0), (), supply)


def bounds_of(kind: str, M: int, rng: np.random.Generator) -> Polytope:
    """Random bounds that leave a mixture: those of a mixture within."""
    inside = rng.dirichlet(np.full(M, 2.0))
    upper = np.minimum(1.0, inside + rng.uniform(0.02, 0.5, M)) if rng.random() < 0.7 else np.ones(M)
    lower = inside * rng.uniform(0, 0.9, M) * (rng.random(M) < 0.4)
    if kind == "held":  # half of the ratios; rows are then sums of these, and of the others
        half = np.arange(M) < M // 2
        lower, upper = np.where(half, inside, 0.0), np.where(half, inside, 1.0)
    found = box(lower, upper)
    for number in range(2 if kind in ("rows", "l1", "held") else int(kind == "equal")):
        row = (rng.random(M) < 0.5 if kind != "held" else half == bool(number)).astype(float)  # pyright: ignore
        at = float(row @ inside)
        low, high = (at, at) if kind in ("equal", "held") else (at - 0.05, at + 0.02)
        found = found.with_row(f"row {number}", row, low, high)
    if kind in ("l1", "kl"):
        found = replace(found, ball=Ball(rng.dirichlet(np.full(M, 3.0)), 0.0, kind))
        radius = found.ball.distance(inside) * rng.uniform(1.05, 1.5)
        found = replace(found, ball=replace(found.ball, radius=radius))
    return found


def goal_of(law: str, bounds: str, seed: int, *, worst: bool = False, kl: bool = False, M: int = 0) -> Goal:
    """A random problem."""
    rng = np.random.default_rng([seed, KINDS.index(law), BOUNDS.index(bounds), worst, kl])
    M = M or int(rng.integers(2, 9))
    K = int(rng.integers(1, M + 2))
    w = rng.uniform(0.2, 1, K) * (rng.random(K) < 0.8)
    w = w if w.any() else np.ones(K)
    anchor = rng.dirichlet(np.ones(M)) if kl else None
    return Goal(pieces_of(law, M, K, rng), w, bounds_of(bounds, M, rng), worst, 0.05 if kl else 0.0, anchor)


def second(goal: Goal, starts: int = 3) -> float:
    """The least of what SLSQP finds from several mixtures within 1e-7 of the bounds, which are written anew; infinite
    where it finds none. Of the goal it asks losses alone, by finite differences."""
    area, M, counted = goal.within, len(goal.within.lower), goal.w > 0

    def losses(x: np.ndarray) -> np.ndarray:
        return goal.w[counted] * goal.law.losses(np.clip(x[:M], 1e-12, 1))[counted]

    def cost(x: np.ndarray) -> float:
        p = np.clip(x[:M], 1e-12, 1)
        pull = goal.kl * float(np.sum(p * np.log(p / goal.anchor))) if goal.anchor is not None else 0.0
        return (x[M] if goal.worst else losses(x).sum()) + pull

    def room(x: np.ndarray) -> np.ndarray:
        p, sums = np.clip(x[:M], 1e-12, 1), area.rows @ x[:M]
        parts = [sums - np.maximum(area.row_low, -9), np.minimum(area.row_high, 9) - sums]
        parts += [] if area.ball is None else [[area.ball.radius - area.ball.distance(p)]]
        return np.concatenate([*parts, x[M] - losses(x) if goal.worst else [1.0]])

    box, found = [*zip(area.lower, area.upper, strict=True), (None, None)], [np.inf]
    rules = [{"type": "eq", "fun": lambda x: x[:M].sum() - 1}, {"type": "ineq", "fun": room}]
    for start in np.random.default_rng(0).dirichlet(np.ones(M), starts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = minimize(cost, [*start, losses(start).max()], bounds=box, constraints=rules, method="SLSQP",
                         options={"ftol": 1e-12, "maxiter": 300}).x  # fmt: skip
        p = np.clip(x[:M], area.lower, area.upper)
        found += [goal.total(p)] if np.isfinite(p).all() and area.violation(p) <= 1e-7 else []
    return float(min(found))
