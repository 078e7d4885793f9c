"""Random bounds at the optimum: what one step outwards saves, held to the price that is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from asking import D, N, Question, bracket, questions, refused_rightly, unpriced
from campaign import Campaign
from hypothesis import strategies as st
from problems import Problem

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.mixing.bounds import Group
from shapleymix.mixing.optimization import optimize


def relaxed(problem: Problem, source: str, side: str, step: float) -> tuple[Problem, dict[str, Any]]:
    """The judge's problem with one bound further out, and the words for `optimize`: everything given as ratios."""
    lower, upper = problem.lower.copy(), problem.upper.copy()
    group_lower, group_upper = problem.group_lower.copy(), problem.group_upper.copy()
    labels = [group.name for group in problem.options["groups"]]
    index = (problem.sources if side in ("cap", "floor") else labels).index(source)
    if side in ("cap", "cap of the group"):
        (upper if side == "cap" else group_upper)[index] += step
    else:
        (lower if side == "floor" else group_lower)[index] -= step
    moved = replace(problem, lower=lower, upper=upper, group_lower=group_lower, group_upper=group_upper)
    groups = [
        replace(group, lower=max(0.0, float(low)), upper=min(1.0, float(high)))
        for group, low, high in zip(problem.options["groups"], group_lower, group_upper, strict=True)
    ]
    options = {name: value for name, value in problem.options.items() if name not in ("available", "caps", "floors")}
    free = [name for name in problem.sources if name not in problem.options.get("fix", {})]
    at = {name: i for i, name in enumerate(problem.sources)}
    options["caps"] = {name: min(1.0, float(upper[at[name]])) for name in free}
    options["floors"] = {name: max(0.0, float(lower[at[name]])) for name in free}
    return moved, options | {"groups": groups}


def with_kinks(problem: Problem, rng: np.random.Generator) -> Problem:
    """Where slopes differ by side: caps at the centre of an L1 ball, and groups that bind what a cap binds already."""
    options, upper, at = problem.options, problem.upper.copy(), problem.sources
    free = [place for place, name in enumerate(at) if name not in options.get("fix", {})]
    if problem.case.near == "l1" and problem.center is not None and rng.random() < 0.7:
        for place in free:
            if problem.lower[place] < problem.center[place] and rng.random() < 0.5:
                upper[place] = problem.center[place]
    if problem.case.seed % 3 == 0 and free:
        place = free[int(rng.integers(len(free)))]
        group = Group((at[place],), 0.0, float(min(upper[place], 1.0)))
        options["groups"] = [*options["groups"], group]
        problem.members = np.concatenate([problem.members, np.eye(len(at))[[place]]])
        problem.group_lower = np.append(problem.group_lower, 0.0)
        problem.group_upper = np.append(problem.group_upper, group.upper)
    options["caps"] = {at[place]: min(float(upper[place]), 1.0) for place in free}
    return replace(problem, upper=upper)


def prices(asked: Question) -> tuple[str, dict[str, float]]:
    """A price bounds what any step outwards saves, and a small step saves nearly that: its one-sided slope."""
    problem = with_kinks(asked.case.problem, asked.rng)
    groups = [replace(group, name=f"group {place}") for place, group in enumerate(problem.options["groups"])]
    problem.options["groups"] = groups
    try:
        mix = optimize(problem.fit, N, D, **problem.options)
    except (InfeasibleError, SolveError) as refusal:
        return refused_rightly(problem, refusal), {}
    if not mix.binding:
        return "no bound binds", {}
    low, high = bracket(problem, mix.p)
    price = mix.binding[int(asked.rng.integers(len(mix.binding)))]
    told = f"{price.side} of {price.source}: price {price.per_ratio:.6g}"
    nearest, decided = 0.0, False
    for step in (1e-2, 1e-3, 1e-4, 1e-5):
        if step > (1 - price.bound if "cap" in price.side else price.bound):
            continue
        moved, options = relaxed(problem, price.source, price.side, step)
        with unpriced():
            other = optimize(problem.fit, N, D, **options)
        best, claimed = bracket(moved, other.p)
        least, most = (low - claimed) / step, (high - best) / step
        assert least <= price.per_ratio * (1 + 1e-6) + 1e-9, f"{told}, but a step of {step} saves {least:.6g} a unit"
        decided |= most - least <= 0.1 * price.per_ratio
        nearest = max(nearest, most / price.per_ratio)
    if not decided and nearest < 0.8:
        return "a price that steps of 1e-5 do not tell", {}
    assert nearest >= 0.8, f"{told}, but no step saves more than {nearest:.3f} of it"
    return f"priced: {price.side}", {"price over the best step's saving": 1 / nearest}


PRICED = Campaign("prices")


def test_every_price_bounds_what_a_step_saves() -> None:
    PRICED.run(40, questions(caps=st.sampled_from(["loose", "tight"])), prices)
