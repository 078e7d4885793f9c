"""Plateaus: where all data are repeated thousands of times, and where nothing depends on the mixture."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from test_gains import Unsure

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.optimization import optimize
from shapleymix.mixing.plateaus import plateau
from shapleymix.mixing.problem import Problem

BUDGET = ("1B", "100B")


@dataclass(frozen=True)
class Rate:
    """Repetition of which the fit knows the published rate."""

    rate: float = 1 / 15.4
    rates: None = None


@dataclass(frozen=True)
class Repeating(Unsure):
    """The unsure fit, which knows what repeated tokens are worth."""

    repetition: Rate = Rate()

    def predict(self, p, N, D, level=0.9, **known):
        return super().predict(p, N, D, level)


def test_a_plateau_is_said_and_its_ratios_have_no_intervals():
    """Fault: where replicates end on the same plateau, the ratios were known to the last digit."""
    far = optimize(Repeating(), *BUDGET, available=dict.fromkeys(Unsure().sources, 1e6))
    assert np.isnan([far.p_low, far.p_high]).all()
    told = [notice for notice in far.notices if "plateau" in notice]
    assert len(told) == 1
    assert "en, de, fi, code" in told[0]
    near = optimize(Repeating(), *BUDGET, available=dict.fromkeys(Unsure().sources, 1e10))
    assert np.isfinite(near.p_low).all()
    assert not any("plateau" in notice for notice in near.notices)


def test_one_source_without_effect_is_named_alone():
    fit = Unsure()
    terms = fit.terms(1e9, 1e11)
    useless = replace(terms, phi=np.ones_like(terms.phi))
    found = Problem(useless, np.full(3, 1 / 3), Demands(caps="de=0.25").bounds(fit.sources, 1e11))
    np.testing.assert_array_equal(plateau(found, np.full(4, 0.25)), [True, False, True, True])
    assert not plateau(replace(found, terms=terms), np.full(4, 0.25)).any()
    np.testing.assert_array_equal(plateau(found, np.array([1.0, 0, 0, 0])), [False, True, True, True])


def test_a_law_without_a_finite_loss_has_no_plateau():
    fit = Unsure()
    terms = PowerTerms(np.full(3, np.inf), np.ones(3), np.full(3, 0.1), np.ones((4, 3)))
    found = Problem(terms, np.full(3, 1 / 3), Demands().bounds(fit.sources, 1e11))
    assert not plateau(found, np.full(4, 0.25)).any()


@pytest.mark.parametrize("blank", [True, False])
def test_without_replicates_it_is_said_which_intervals_are_there(blank: bool):
    fit = Unsure(B=0, misfit=None) if blank else Unsure(B=0)
    mix = optimize(fit, *BUDGET)
    assert np.isnan(mix.objective_low) == blank
    told = [notice for notice in mix.notices if "no bootstrap replicates" in notice]
    assert len(told) == 1
    assert ("hold how held-out runs scatter" in told[0]) != blank
