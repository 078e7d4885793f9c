"""Random mixture problems: every answer obeys its bounds, is as good as another solver's, and proves what it says."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from dataclasses import fields
from unittest.mock import patch

import judge
import numpy as np
from campaign import Campaign
from problems import BUDGET, Case, cases

from shapleymix.errors import InfeasibleError, SolveError
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.optimization import optimize

BOUND, BETTER, UNPROVEN = 1e-9, 1e-6, 1e-6
UNJUDGED = "right by its own proof alone"
CAMPAIGN = Campaign("random optimisations")
KNOWN = {*inspect.signature(optimize).parameters, *(field.name for field in fields(Demands))}


PRICED = 20
"""One answer in so many comes with its prices, whose range is found by solving tens of problems more."""


def _unpriced(*_: object) -> tuple[()]:
    return ()


def unit_of(problem, p) -> float:
    return max(abs(judge.objective(problem, p)), 1e-300)


def trial(case: Case) -> tuple[str, dict[str, float]]:
    """The outcome of one problem, and how far the answer is from its bounds and from the others' answers."""
    problem = case.problem
    try:
        with nullcontext() if case.seed % PRICED == 0 else patch("shapleymix.mixing.assembly.prices_of", _unpriced):
            mix = optimize(problem.fit, *BUDGET, **problem.options)
    except (InfeasibleError, SolveError) as error:
        refusal = error
    else:
        return checked(case, np.asarray(mix.p, dtype=float), mix)
    if isinstance(refusal, InfeasibleError):
        broken = judge.least_violation(problem)
        assert broken > BOUND or case.near == "kl", f"refused ({refusal}), but the bounds can be met to {broken:.1e}"
        return "refused: InfeasibleError", {}
    assert judge.unreachable(problem), f"refused without a reason: {refusal}"
    return "refused: SolveError (a target that nothing reaches)", {}


def checked(case: Case, p, mix) -> tuple[str, dict[str, float]]:
    problem, stated = case.problem, mix.certificate
    measured = {"violation of a bound": judge.violation(problem, p), "stated relative gap": stated.relative_gap}
    assert measured["violation of a bound"] <= BOUND, (
        f"breaks a bound by {judge.violation(problem, p):.2e} (states a gap of {stated.gap:.1e}; "
        f"least possible {judge.least_violation(problem):.1e})"
    )
    value, unit = judge.objective(problem, p), unit_of(problem, p)
    assert np.isfinite(value), f"the objective of the answer is {value}"
    assert abs(stated.objective - value) <= 1e-9 * unit, f"states the objective {stated.objective!r}, is {value!r}"
    assert stated.lower_bound <= value + 1e-9 * unit, "its lower bound is above its own objective"
    assert stated.gap >= 0, f"negative gap {stated.gap:.2e}"
    other = judge.clarabel(problem)
    inside = other is not None and judge.violation(problem, other) <= BOUND
    if inside:
        rival = judge.objective(problem, other)
        measured["excess over Clarabel (relative)"] = (value - rival) / unit
        excess = (stated.lower_bound - rival) / unit
        assert excess <= 1e-9, f"its lower bound is above Clarabel's feasible objective by {excess:.2e} (relative)"
        assert value - rival <= BETTER * unit, (
            f"Clarabel is better by {(value - rival) / unit:.2e} (relative); states a gap of {stated.relative_gap:.2e}"
        )
    proven = (value - judge.lower_bound(problem, p)) / unit
    # A bound above a feasible mixture's objective is none: HiGHS drops what is 1e-9 of other coefficients.
    proves = abs(proven) <= BETTER
    if proves:
        measured["gap by HiGHS, where it proves (relative)"] = proven
    assert stated.relative_gap <= UNPROVEN, f"honest, but loose: relative gap {stated.relative_gap:.2e}"
    ways = [name for name, holds in (("HiGHS's bound", proves), ("Clarabel", inside)) if holds]
    return f"right by {' and '.join(ways)}" if ways else UNJUDGED, measured


def usable(case: Case) -> bool:
    return all(name in KNOWN for name in case.problem.options)


def test_every_answer_obeys_its_bounds_and_is_the_best() -> None:
    CAMPAIGN.run(COUNT, cases().filter(usable), trial)
    assert CAMPAIGN.outcomes[UNJUDGED] <= 0.02 * CAMPAIGN.trials


COUNT = 2200
