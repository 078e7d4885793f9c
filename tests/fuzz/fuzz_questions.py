"""Random questions beside the optimum: what more data bring, the trade-off, rivals, distances, budgets.

Every answer is held to the printed equations and to HiGHS's bounds (`judge`), which brackets the true optimum between
a mixture that obeys the bounds and a proof that no other is better.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import judge
import numpy as np
import pytest
from asking import BETTER, BOUND, EPOCHS, D, N, Question, bracket, questions, refused_rightly, unpriced
from campaign import Campaign
from hypothesis import strategies as st
from problems import FakeFit, Problem

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.laws.terms import ExponentialTerms, PowerTerms
from shapleymix.mixing.candidates import compare_mixtures
from shapleymix.mixing.frontier import frontier
from shapleymix.mixing.optimization import optimize, optimize_scales
from shapleymix.records import FloatArray


def mean_loss(problem: Problem, p: FloatArray) -> float:
    """The objective without its penalty."""
    return judge.objective(problem, p) - judge.penalty(problem, p)


def with_tokens(problem: Problem, more: dict[str, float]) -> Problem:
    """The judge's problem with other available tokens."""
    upper = problem.upper.copy()
    for name, tokens in more.items():
        upper[problem.sources.index(name)] = (problem.options["available"][name] + tokens) * EPOCHS / D
    return replace(problem, upper=upper)


def what_if(asked: Question) -> tuple[str, dict[str, float]]:
    """The optimum with other tokens is one, its gain is what the equations say, and more data never harm."""
    problem, rng = asked.case.problem, asked.rng
    known = problem.options.get("available", {})
    if not known:
        return "nothing to ask: no tokens are known", {}
    names = rng.permutation(list(known))[: rng.integers(1, 3)].tolist()
    signs = np.full(len(names), 1 if rng.random() < 0.6 else -1)
    more = {
        name: float(sign * (known[name] * rng.uniform(0, 0.9) + (sign > 0) * 10 ** rng.uniform(6, 10)))
        for name, sign in zip(names, signs.tolist(), strict=True)
    }
    text = ",".join(f"{name}{'+' if value > 0 else '-'}{abs(value)!r}" for name, value in more.items())
    changed = with_tokens(problem, more)
    try:
        with unpriced():
            base = optimize(problem.fit, N, D, **problem.options)
            mix = optimize(problem.fit, N, D, **problem.options, what_if=text)
    except (InfeasibleError, SolveError) as refusal:
        return refused_rightly(changed if "what if" in str(refusal) else problem, refusal), {}
    (found,) = mix.what_if
    assert np.array_equal(base.p, mix.p), "the question changes the answer without it"
    bracket(changed, found.p)
    before, after = mean_loss(problem, base.p), mean_loss(problem, found.p)
    unit = max(abs(before), 1e-300)
    assert abs(found.objective - after) <= BOUND * unit, f"states {found.objective!r}, is {after!r}"
    assert abs(found.gain - (before - after)) <= BOUND * unit, f"states a gain of {found.gain!r}, is {before - after!r}"
    step = signs[0] * (judge.objective(problem, base.p) - judge.objective(changed, found.p)) / unit
    assert step >= -BETTER, f"{'more' if signs[0] > 0 else 'fewer'} tokens: better by {step:.1e} (relative)"
    return ("more tokens" if signs[0] > 0 else "fewer tokens"), {"loss by more data (relative)": max(0.0, -step)}


def trade_off(asked: Question) -> tuple[str, dict[str, float]]:
    """Each point is the optimum of its weighted sum, none is dominated, and the ends are the best of each side."""
    problem, rng = asked.case.problem, asked.rng
    weighed = np.flatnonzero(problem.w > 0)
    if len(weighed) < 2:
        return "nothing to ask: one target", {}
    first = rng.permutation(weighed)[: rng.integers(1, len(weighed))]
    between = "+".join(problem.targets[j] for j in sorted(first.tolist())) + ":rest"
    sides = [np.where(np.isin(np.arange(len(problem.w)), first) == inside, problem.w, 0.0) for inside in (True, False)]
    w = [side / side.sum() for side in sides]
    options = {name: value for name, value in problem.options.items() if name != "objective"}
    try:
        curve = frontier(problem.fit, N, D, between, points=int(rng.integers(2, 8)), **options)
    except (InfeasibleError, SolveError) as refusal:
        return refused_rightly(problem, refusal), {}
    values = np.array([[_loss(problem, entry.p, side) for side in w] for entry in curve.entries])
    unit = np.abs(values).max(axis=0)
    for entry, value in zip(curve.entries, values, strict=True):
        assert np.all(np.abs([entry.first, entry.second] - value) <= BOUND * unit), "states other losses than it has"
        bracket(replace(problem, w=entry.share * w[0] + (1 - entry.share) * w[1]), entry.p)
    at_least = (values[None] <= values[:, None]).all(axis=-1) & ~np.eye(len(values), dtype=bool)
    assert not at_least.any(), f"a point is at least as good as another on both sides: {values.tolist()}"
    for side, end in ((0, -1), (1, 0)):
        alone = replace(problem, w=w[side])
        low = judge.lower_bound(alone, curve.entries[end].p)
        other = judge.clarabel(alone)
        if values[end, side] - low > BETTER * unit[side] and other is not None:
            assert values[end, side] - judge.objective(alone, other) <= BETTER * unit[side], "an end is not the best"
    return f"{len(curve.entries)} points", {}


def _loss(problem: Problem, p: FloatArray, w: FloatArray) -> float:
    """Weighted mean of the losses that count."""
    return float(judge.losses(problem, p)[w > 0] @ w[w > 0])


@dataclass(frozen=True)
class ManyFit(FakeFit):
    """A fit with replicates that are the law with other floors, and losses that depend on the budget."""

    batch: int = 7
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))

    def at(self, size: float, tokens: float) -> PowerTerms | ExponentialTerms:
        """The law at a budget: less of everything that a mixture changes where there are more tokens."""
        share = (size / N) ** -0.1 * (tokens / D) ** -0.2
        if isinstance(self.law, ExponentialTerms):
            return replace(self.law, k=self.law.k * share)
        return replace(self.law, a=self.law.a * share)

    def terms(self, N: float, D: float) -> PowerTerms | ExponentialTerms:
        """At every budget another."""
        return self.at(N, D)


def budgets(asked: Question) -> tuple[str, dict[str, float]]:
    """Every cell of a grid is the optimum of its own budget, and the one that is found when it is asked for alone."""
    problem, rng = asked.case.problem, asked.rng
    fit = ManyFit(problem.sources, problem.targets, problem.terms)
    sizes, tokens = N * 10 ** rng.uniform(-1, 1, 2), D * 10 ** rng.uniform(-0.5, 0, 2)
    options = problem.options
    try:
        with unpriced():
            grid = optimize_scales(fit, sizes.tolist(), tokens.tolist(), **options)
    except (InfeasibleError, SolveError) as refusal:
        return _refused_somewhere([_at(fit, problem, float(sizes[0]), each) for each in tokens.tolist()], refusal), {}
    assert [(mix.N, mix.D) for mix in grid] == [(a, b) for a in sizes.tolist() for b in tokens.tolist()]
    apart = 0.0
    for mix in grid:
        here = _at(fit, problem, mix.N, mix.D)
        bracket(here, mix.p)
        with unpriced():
            alone = optimize(fit, mix.N, mix.D, **options)
        unit = max(abs(judge.objective(here, mix.p)), 1e-300)
        apart = max(apart, abs(judge.objective(here, mix.p) - judge.objective(here, alone.p)) / unit)
    assert apart <= BETTER, f"a cell of the grid and its budget alone differ by {apart:.1e} (relative)"
    return "a grid of four", {"grid against alone (relative)": apart}


def _at(fit: ManyFit, problem: Problem, size: float, tokens: float) -> Problem:
    """The judge's problem at another budget: caps from tokens widen as D falls."""
    upper = problem.upper.copy()
    for name, known in problem.options.get("available", {}).items():
        upper[problem.sources.index(name)] = known * EPOCHS / tokens
    return replace(problem, terms=fit.at(size, tokens), upper=upper)


def _refused_somewhere(problems: list[Problem], refusal: Exception) -> str:
    """The outcome of a refusal that has its reason in one of several problems."""
    for problem in problems[:-1]:
        with suppress(AssertionError):
            return refused_rightly(problem, refusal)
    return refused_rightly(problems[-1], refusal)


def nearness(asked: Question) -> tuple[str, dict[str, float]]:
    """The optimum of a ball is one; a wider ball is never worse, one that holds everything is as good as none."""
    problem = asked.case.problem
    assert problem.center is not None
    wider = replace(problem, radius=problem.radius * float(asked.rng.uniform(1, 3)))
    all_of_it = replace(problem, radius=2.0, case=replace(problem.case, near="l1"))
    free = {name: value for name, value in problem.options.items() if name not in ("near", "within", "distance")}
    try:
        with unpriced():
            found = [
                optimize(problem.fit, N, D, **options).p
                for options in (
                    problem.options,
                    problem.options | {"within": min(wider.radius, 2.0) if problem.case.near == "l1" else wider.radius},
                    problem.options | {"within": 2.0, "distance": "l1"},
                    free,
                )
            ]
    except (InfeasibleError, SolveError) as refusal:
        return refused_rightly(problem, refusal), {}
    values = [bracket(*pair)[1] for pair in zip((problem, wider, all_of_it), found, strict=False)]
    unit = max(abs(values[0]), 1e-300)
    assert values[1] <= values[0] + BETTER * unit, f"a wider ball is worse by {(values[1] - values[0]) / unit:.1e}"
    assert values[2] <= values[1] + BETTER * unit, "a ball around everything is worse than a smaller one"
    assert abs(judge.objective(problem, found[3]) - values[2]) <= BETTER * unit, "a ball around everything binds"
    return f"within {problem.case.near}", {}


def mixture_by_name(name: str, available: FloatArray, tokens: float) -> FloatArray:
    """What a baseline's name means, by its definition: UniMax by the level to which all sources are filled."""
    kind, _, number = name.partition(":")
    if kind == "uniform":
        return np.full(len(available), 1 / len(available))
    if kind in ("natural", "temperature"):
        share = available ** (1 / float(number or 1))
        return share / share.sum()
    most, low, high = float(number) * available, 0.0, tokens
    for _ in range(200):
        level = (low + high) / 2
        low, high = (level, high) if np.minimum(most, level).sum() < tokens else (low, level)
    return np.minimum(most, high) / tokens


@dataclass(frozen=True)
class Several:
    """What `compare_mixtures` asks of a fit: a law over rows, its replicates, and a prediction."""

    fit: ManyFit

    @property
    def sources(self) -> tuple[str, ...]:
        """As the fit has them."""
        return self.fit.sources

    @property
    def targets(self) -> tuple[str, ...]:
        """As the fit has them."""
        return self.fit.targets

    def law(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """(R, K) losses."""
        return np.stack([self.fit.at(n, d).losses(row) for row, n, d in zip(p, N, D, strict=True)])

    def replicates(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """(B, R, K) losses: a replicate weighs every loss differently."""
        return self.fit.spread[:, None, :] * self.law(p, N, D)

    def predict(self, p: FloatArray, N: float, D: float, **_: Any) -> Any:
        """The law's own losses."""
        return self.fit.predict(p, N, D)


def rivals(asked: Question) -> tuple[str, dict[str, float]]:
    """Several mixtures side by side: losses, means, paired gains and shares as their definitions have them."""
    problem, rng = asked.case.problem, asked.rng
    spread = rng.uniform(0.9, 1.1, (7, asked.case.K))
    fit = ManyFit(problem.sources, problem.targets, problem.terms, spread=spread)
    available = D / len(problem.sources) * 10 ** rng.uniform(-1, 1, len(problem.sources))
    pool = ["uniform", "natural", "temperature:3.5", f"unimax:{max(4.0, 1.01 * D / float(available.sum()))!r}"]
    given: dict[str, Any] = {name: name for name in rng.permutation(pool)[: rng.integers(1, 5)].tolist()}
    drawn = rng.dirichlet(np.ones(len(problem.sources)))
    given["mine"] = dict(zip(problem.sources, drawn.tolist(), strict=True))
    p = {name: drawn if name == "mine" else mixture_by_name(name, available, D) for name in given}
    named = dict(zip(problem.sources, available.tolist(), strict=True))
    found = compare_mixtures(Several(fit), given, N, D, weights=problem.options["weights"], available=named, level=0.8)
    w = problem.w / problem.w.sum()
    values = {name: _loss(problem, row, w) for name, row in p.items()}
    first, apart = next(iter(given)), 0.0
    for entry in found.entries:
        unit = max(abs(values[entry.name]), abs(values[first]), 1e-300)
        assert np.allclose(entry.p, p[entry.name], rtol=0, atol=1e-9), f"{entry.name} is another mixture"
        apart = max(apart, abs(entry.objective - values[entry.name]) / unit)
        apart = max(apart, abs(entry.gain - (values[first] - values[entry.name])) / unit)
        paired = (spread * w) @ (judge.losses(problem, p[first]) - judge.losses(problem, p[entry.name]))
        low, high = np.sort(paired)[[round(0.1 * 6), round(0.9 * 6)]]
        apart = max(apart, abs(entry.gain_low - low) / unit, abs(entry.gain_high - high) / unit)
        if entry.name != first and np.abs(paired).min() > BOUND * unit:
            assert entry.probability == np.mean(paired > 0), f"P(better) of {entry.name}"
    assert apart <= BETTER, f"a number is off by {apart:.1e} (relative)"
    return f"{len(given)} mixtures", {"stated numbers (relative)": apart}


ALL_KINDS: dict[str, tuple[int, st.SearchStrategy[Question], Callable[[Question], tuple[str, dict[str, float]]]]] = {
    "what if there were more data": (40, questions(caps="tokens"), what_if),
    "trade-offs": (20, questions(anchor="none", objective="mean", K=st.integers(2, 8)), trade_off),
    "grids of budgets": (20, questions(near=st.sampled_from(["none", "none", "l1"])), budgets),
    "balls": (30, questions(near=st.sampled_from(["l1", "kl"])), nearness),
    "several mixtures": (50, questions(), rivals),
}


CAMPAIGNS = {kind: Campaign(kind) for kind in ALL_KINDS}


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_question_has_its_answer(kind: str) -> None:
    count, cases, trial = ALL_KINDS[kind]
    CAMPAIGNS[kind].run(count, cases, trial)
