"""Random mixture problems: a law, a budget and bounds, each made again from a few plain numbers.

Bounds are drawn around a witness mixture that obeys them all, so that the tightest problems still have an answer;
a few are then pushed out of reach on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.mixing.bounds import Group
from shapleymix.records import FloatArray

LAWS = ("linear", "concave", "exponential")
SCALES = ("plain", "plain", "large", "tiny", "spread")
SLACKS = (0.0, 1e-9, 1e-6, 1e-3, 0.1)
BUDGET = (1e9, 1e11)


@dataclass(frozen=True)
class Case:
    """The plain numbers that make a problem; its repr is the reproducer."""

    seed: int
    M: int
    K: int
    law: str = "linear"
    scale: str = "plain"
    objective: str = "mean"
    weights: str = "none"
    caps: str = "none"
    floors: bool = False
    fixed: int = 0
    groups: tuple[str, ...] = ()
    slack: float = 0.1
    anchor: str = "none"
    near: str = "none"
    sparse: bool = False
    out_of_reach: bool = False

    @cached_property
    def problem(self) -> Problem:
        """The same problem every time."""
        return _problem(self)


@dataclass
class Problem:
    """Numbers of one problem: the law's arrays, raw weights w (K,), bounds, and the words for `sm.optimize`."""

    case: Case
    terms: PowerTerms | ExponentialTerms
    w: FloatArray
    lower: FloatArray
    upper: FloatArray
    members: FloatArray
    group_lower: FloatArray
    group_upper: FloatArray
    kl: float = 0.0
    anchor: FloatArray | None = None
    center: FloatArray | None = None
    radius: float = np.inf
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources."""
        return tuple(f"s{i}" for i in range(self.case.M))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        return tuple(f"t{j}" for j in range(self.case.K))

    @property
    def fit(self) -> Any:
        """Anything with the methods of a fit."""
        return FakeFit(self.sources, self.targets, self.terms)


@dataclass(frozen=True)
class FakeFit:
    """A fit that is its law: no replicates, no uncertainty."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    law: PowerTerms | ExponentialTerms
    unseen: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)

    def terms(self, N: float, D: float) -> PowerTerms | ExponentialTerms:
        """The same at every budget."""
        return self.law

    def replicate_terms(self, N: float, D: float) -> None:
        """None: no interval is asked for."""
        return

    def predict(self, p: Any, N: Any, D: Any, **_: Any) -> Any:
        """The law's own losses as a prediction without a spread."""
        losses = np.atleast_2d(self.law.losses(np.asarray(p, dtype=float)))
        never = np.zeros(losses.shape, dtype=bool)
        return SimpleNamespace(
            losses=losses, low=losses, high=losses, warnings=(), outside=never, above_untrained=never
        )


@st.composite
def cases(draw: Any) -> Case:
    """Every feature meets every other; about half of the problems have each."""
    some = st.booleans()
    groups = st.lists(st.sampled_from(["cap", "floor", "equal", "band"]), max_size=4).map(tuple)
    anchor = st.sampled_from(["none", "none", "none", "uniform", "random", "zeros"])
    return Case(
        seed=draw(st.integers(0, 2**31 - 1)),
        M=draw(st.integers(1, 30)),
        K=draw(st.integers(1, 30)),
        law=draw(st.sampled_from(LAWS)),
        scale=draw(st.sampled_from(SCALES)),
        objective=draw(st.sampled_from(["mean", "mean", "worst"])),
        weights=draw(st.sampled_from(["none", "random", "zeros", "extreme"])),
        caps=draw(st.sampled_from(["none", "loose", "tight", "tokens"])),
        floors=draw(some),
        fixed=draw(st.sampled_from([0, 0, 0, 1, 3])),
        groups=draw(groups),
        slack=draw(st.sampled_from(SLACKS)),
        anchor=draw(anchor),
        near=draw(st.sampled_from(["none", "none", "none", "l1", "kl"])),
        sparse=draw(some),
        out_of_reach=draw(st.integers(0, 19)) == 13,
    )


def _problem(case: Case) -> Problem:
    rng = np.random.default_rng(case.seed)
    witness = rng.dirichlet(np.full(case.M, 0.7))
    if case.sparse:
        witness = np.where(witness < np.median(witness), 0.0, witness)
        witness /= witness.sum()
    terms = _law(case, rng)
    lower, upper, options = _box(case, rng, witness)
    members, low, high = _groups(case, rng, witness)
    made = Problem(case, terms, _weights(case, rng), lower, upper, members, low, high, options=options)
    made.options["objective"] = case.objective
    made.options["weights"] = dict(zip(made.targets, made.w.tolist(), strict=True))
    made.options["groups"] = [
        Group(tuple(name for name, inside in zip(made.sources, row, strict=True) if inside), float(a), float(b))
        for row, a, b in zip(members, low, high, strict=True)
    ]
    _anchor(case, rng, witness, made)
    _near(case, rng, witness, made)
    if case.out_of_reach:
        _push_out(made)
    return made


def _law(case: Case, rng: np.random.Generator) -> PowerTerms | ExponentialTerms:
    M, K = case.M, case.K
    unit = {"plain": 1.0, "large": 1e6, "tiny": 1e-6, "spread": 10 ** rng.uniform(-4, 4, K)}[case.scale]
    floor = rng.uniform(0, 2, K) * (0 if case.scale == "large" else 1)
    if case.law == "exponential":
        return ExponentialTerms(floor, unit * rng.uniform(0.1, 2, K), rng.uniform(-3, 0.5, (M, K)))
    phi = rng.uniform(0.01, 1, (M, K)) if case.scale != "spread" else 10 ** rng.uniform(-6, 0, (M, K))
    if case.sparse:
        phi = phi * (rng.random((M, K)) < 0.4)
    own = np.arange(K) % M
    phi[own, np.arange(K)] = 1.0
    gamma = rng.uniform(0.02, 0.5, K) if case.scale != "spread" else 10 ** rng.uniform(-3, 0.5, K)
    s = np.where(rng.random((M, K)) < 0.2, 1.0, rng.uniform(0.2, 1, (M, K))) if case.law == "concave" else None
    return PowerTerms(floor, unit * rng.uniform(0.5, 3, K), gamma, phi, s)


def _weights(case: Case, rng: np.random.Generator) -> FloatArray:
    w = {
        "none": np.ones(case.K),
        "random": rng.uniform(0.1, 3, case.K),
        "zeros": rng.uniform(0.1, 3, case.K) * (rng.random(case.K) < 0.5),
        "extreme": 10 ** rng.uniform(-6, 6, case.K),
    }[case.weights]
    return w if w.any() else np.ones(case.K)


def _box(case: Case, rng: np.random.Generator, q: FloatArray) -> tuple[FloatArray, FloatArray, dict[str, Any]]:
    M, options = case.M, {}
    names = [f"s{i}" for i in range(M)]
    lower, upper = np.zeros(M), np.ones(M)
    room = {"none": 1.0, "loose": 0.3, "tight": 0.01, "tokens": 0.1}[case.caps]
    capped = np.flatnonzero((rng.random(M) < 0.7) & (case.caps != "none"))
    # The two additions keep the witness inside of the caps, whatever rounding does.
    upper[capped] = np.minimum(1.0, q[capped] + room * rng.random(len(capped)) + 1e-15)
    if case.caps == "tokens":
        options["available"] = {names[i]: float(upper[i] * BUDGET[1] / 4) for i in capped}
        upper[capped] = np.array([options["available"][names[i]] for i in capped]) * 4 / BUDGET[1]
    elif len(capped):
        options["caps"] = {names[i]: float(upper[i]) for i in capped}
    if case.floors:
        floored = np.flatnonzero(rng.random(M) < 0.5)
        lower[floored] = q[floored] * np.where(rng.random(len(floored)) < 0.2, 1.0, rng.random(len(floored)))
        options["floors"] = {names[i]: float(lower[i]) for i in floored}
    held = rng.permutation(M)[: case.fixed] if case.fixed < M else []
    if len(held):
        lower[held] = upper[held] = q[held]
        options["fix"] = {names[i]: float(q[i]) for i in held}
        for kind in ("caps", "floors", "available"):
            options[kind] = {name: v for name, v in options.get(kind, {}).items() if name not in options["fix"]}
    return lower, upper, {name: value for name, value in options.items() if value}


def _groups(case: Case, rng: np.random.Generator, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    members, low, high = [], [], []
    for kind in case.groups:
        row = (rng.random(case.M) < rng.uniform(0.1, 0.9)).astype(float)
        row[rng.integers(case.M)] = 1.0
        total = min(float(row @ q), 1.0)
        members.append(row)
        low.append(0.0 if kind == "cap" else max(0.0, total - (0.0 if kind == "equal" else case.slack)))
        high.append(1.0 if kind == "floor" else min(1.0, total + (0.0 if kind == "equal" else case.slack)))
    return np.array(members).reshape(-1, case.M), np.array(low), np.array(high)


def _anchor(case: Case, rng: np.random.Generator, q: FloatArray, made: Problem) -> None:
    if case.anchor == "none":
        return
    anchor = {
        "uniform": np.full(case.M, 1 / case.M),
        "random": rng.dirichlet(np.ones(case.M)),
        "zeros": np.where(q > 0, rng.uniform(0.1, 1, case.M), 0.0),
    }[case.anchor]
    made.anchor = anchor / anchor.sum()
    made.kl = float(10 ** rng.uniform(-4, 1))
    made.options |= {"kl": made.kl, "anchor": dict(zip(made.sources, made.anchor.tolist(), strict=True))}


def _near(case: Case, rng: np.random.Generator, q: FloatArray, made: Problem) -> None:
    if case.near == "none":
        return
    center = 0.8 * q + 0.2 * rng.dirichlet(np.ones(case.M))
    made.center = center / center.sum()
    inside = q > 0
    far = np.abs(q - made.center).sum()
    if case.near == "kl":
        far = np.sum(q[inside] * np.log(q[inside] / made.center[inside]))
    made.radius = float(far * rng.uniform(1.001, 2) + 1e-6)
    made.options |= {
        "near": dict(zip(made.sources, made.center.tolist(), strict=True)),
        "within": made.radius,
        "distance": case.near,
    }


def _push_out(made: Problem) -> None:
    """A group whose floor is above all that its one source may have: no mixture is left."""
    most = min(float(made.upper[0]), 1 - float(made.lower[1:].sum()))
    if most > 0.99:
        return
    low = most + 0.01 * (1 - most)
    made.members = np.concatenate([made.members, np.eye(made.case.M)[:1]])
    made.group_lower, made.group_upper = np.append(made.group_lower, low), np.append(made.group_upper, 1.0)
    made.options["groups"] = [*made.options["groups"], Group(made.sources[:1], low, 1.0)]
