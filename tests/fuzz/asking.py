"""What questions beside the optimum share: problems and seeds, a bracket of the true optimum, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import judge
import numpy as np
from hypothesis import strategies as st
from problems import BUDGET, Case, Problem

from shapleymix.errors import InfeasibleError
from shapleymix.records import FloatArray

N, D = BUDGET
BOUND, BETTER = 1e-9, 1e-6
EPOCHS = 4
MARKET = "shapleymix.mixing.assembly.prices_of"


@dataclass(frozen=True)
class Question:
    """A problem, and a seed for what is asked of it; its repr is the reproducer."""

    case: Case
    seed: int

    @property
    def rng(self) -> np.random.Generator:
        """The same draws every time."""
        return np.random.default_rng(self.seed)


def questions(**fixed: Any) -> st.SearchStrategy[Question]:
    """Problems of a size at which each is solved many times over, with some fields as asked."""
    groups = st.lists(st.sampled_from(["cap", "floor", "equal", "band"]), max_size=2).map(tuple)
    drawn: dict[str, Any] = {
        "seed": st.integers(0, 2**31 - 1),
        "M": st.integers(2, 8),
        "K": st.integers(1, 8),
        "law": st.sampled_from(["linear", "concave", "exponential"]),
        "scale": st.sampled_from(["plain", "plain", "large", "tiny"]),
        "objective": st.sampled_from(["mean", "mean", "worst"]),
        "weights": st.sampled_from(["none", "random", "zeros"]),
        "caps": st.sampled_from(["none", "loose", "tight", "tokens"]),
        "floors": st.booleans(),
        "fixed": st.sampled_from([0, 0, 1]),
        "groups": groups,
        "slack": st.sampled_from([1e-3, 0.1]),
        "anchor": st.sampled_from(["none", "none", "uniform", "random"]),
        "near": st.sampled_from(["none", "none", "l1", "kl"]),
    }
    drawn |= {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(Question, st.builds(Case, **drawn), st.integers(0, 2**31 - 1))


@contextmanager
def unpriced() -> Iterator[None]:
    """Without prices, each of which is a few optimisations more."""
    with patch(MARKET, lambda *_: ()):
        yield


def bracket(problem: Problem, p: FloatArray) -> tuple[float, float]:
    """Between which the optimum lies, given a mixture that claims to be it: it obeys the bounds, and no other wins."""
    broken = judge.violation(problem, p)
    assert broken <= BOUND, f"breaks a bound by {broken:.2e}"
    value = judge.objective(problem, p)
    assert np.isfinite(value), f"the objective is {value}"
    low = judge.lower_bound(problem, p)
    unit = max(abs(value), 1e-300)
    if not value - low <= BETTER * unit:
        other = judge.clarabel(problem)
        if other is not None and judge.violation(problem, other) <= BOUND:
            excess = (value - judge.objective(problem, other)) / unit
            assert excess <= BETTER, f"Clarabel is better by {excess:.2e} (relative)"
            low = value - BETTER * unit
    return low, value


def refused_rightly(problem: Problem, refusal: Exception) -> str:
    """The outcome of a refusal that has its reason."""
    if isinstance(refusal, InfeasibleError):
        broken = judge.least_violation(problem)
        assert broken > BOUND or problem.case.near == "kl", f"refused ({refusal}), but {broken:.1e} suffices"
        return "refused: no mixture is left"
    assert judge.unreachable(problem), f"refused without a reason: {refusal}"
    return "refused: a target that nothing reaches"
