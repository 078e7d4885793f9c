"""The laws, and what an author of one needs.

A law is a frozen dataclass that derives from `Law`: its symbols, declared with `fitted` and `given`, and its equation,
`__call__`. Adding one is a file here and a line in `LAWS`; `tests/test_every_law.py` then holds it to every truth. What
else it may state: `starts` and `expansion` (a faster and surer fit), `terms` (a proof of its optimum), `defined`.

What they share, in reading order; the laws themselves are those of `LAWS`:

  terms     the convex pieces of a law in the mixture, at one budget: value, gradient, curvature
  symbols   how a law declares its symbols: axes, domain, role
  base      what every law has, most of it by default
  core      the part that most laws share: E + A / N^alpha + B / D^beta
  transfer  aggregate transfer Theta, which several families share
"""

from __future__ import annotations

from shapleymix.laws.additive import Additive
from shapleymix.laws.base import Inputs, Law, Observations
from shapleymix.laws.core import Chinchilla
from shapleymix.laws.effective_data import EffectiveData
from shapleymix.laws.exponential import Exponential
from shapleymix.laws.family import Family, FamilyMean
from shapleymix.laws.gbm import BlackBox, BoostedTrees
from shapleymix.laws.learned import Learned, LearnedConcave, LearnedOwn
from shapleymix.laws.shapley import Shapley, ShapleyConcave, ShapleyTempered
from shapleymix.laws.symbols import Parameter, fitted, given, over_runs
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms

LAWS: dict[str, type[Law]] = {
    law.name: law
    for law in (
        Chinchilla,
        FamilyMean,
        Family,
        Shapley,
        ShapleyTempered,
        ShapleyConcave,
        EffectiveData,
        Exponential,
        Learned,
        LearnedConcave,
        LearnedOwn,
        Additive,
    )
}
"""Every parametric law by its name, simplest first."""

BLACK_BOXES: dict[str, type[BlackBox]] = {BoostedTrees.name: BoostedTrees}
"""Every law that learns by its own means."""

__all__ = [
    "BLACK_BOXES",
    "LAWS",
    "BlackBox",
    "ExponentialTerms",
    "Inputs",
    "Law",
    "Observations",
    "Parameter",
    "PowerTerms",
    "Terms",
    "fitted",
    "given",
    "over_runs",
]
