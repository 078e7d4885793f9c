"""The search for laws without convexity: under every kind of group it answers within the bounds, and near the optimum.

The truth is a convex law that hides its convexity: the engines solve it, the search must come as near.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.errors import SolveError
from shapleymix.laws.terms import PowerTerms, Terms
from shapleymix.mixing.certificate import FEASIBLE
from shapleymix.mixing.demands import Demands

NAMES = ("en", "de", "fr", "zh", "ja")
TERMS = PowerTerms(np.full(5, 1.5), np.linspace(1.0, 2.0, 5), np.full(5, 0.2), np.eye(5) + 0.1)


class Convex:
    """A fit of one law at every budget."""

    sources = targets = NAMES

    def terms(self, N: float, D: float) -> Terms:
        return TERMS

    def replicate_terms(self, N: float, D: float) -> None:
        return None

    def predict(self, p: np.ndarray, N: float, D: float, *, level: float = 0.9, strict: bool = False) -> object:
        losses = TERMS.losses(np.atleast_2d(p))
        return SimpleNamespace(losses=losses, low=losses, high=losses)


class Hidden(Convex):
    """The same without convex pieces."""

    def terms(self, N: float, D: float) -> Terms:
        raise SolveError("not convex in the mixture")


@pytest.mark.parametrize("caps", [None, "zh=0.25"])
@pytest.mark.parametrize(
    "groups",
    [
        (),
        ("en+de<=0.2",),
        ("en+de>=0.7",),
        ("en+de=0.3",),
        ("en+de=0.3", "zh+ja=0.5"),
        ("en+de=0.3", "de+fr=0.25", "zh+ja>=0.4"),
        ("0.2<=en+de<=0.21", "fr+zh=0.3"),
        ("en=0.1", "de+fr=0.5"),
    ],
)
def test_groups_of_every_kind_are_met_and_the_optimum_is_near(groups: tuple[str, ...], caps: str | None) -> None:
    asked = {"groups": groups, "caps": caps, "max_epochs": None}
    truth = sm.optimize(Convex(), 1e9, 1e10, **asked)
    with pytest.warns(sm.ShapleyMixWarning, match="not convex"):
        found = sm.optimize(Hidden(), 1e9, 1e10, allow_nonconvex=True, **asked)
    assert abs(found.p.sum() - 1) <= FEASIBLE
    assert (found.p <= found.caps + FEASIBLE).all()
    bounds = Demands(**asked).bounds(NAMES, 1e10)
    sums = bounds.members @ found.p
    assert (sums >= bounds.group_lower - FEASIBLE).all()
    assert (sums <= bounds.group_upper + FEASIBLE).all()
    assert truth.objective - 1e-9 <= found.objective <= truth.objective + 1e-6
    assert np.isnan(found.gap)
