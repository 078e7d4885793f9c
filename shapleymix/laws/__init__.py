"""The laws, and what an author of one needs.

Modules, in reading order:

  symbols         how a law declares the paper's symbols: role, axes, domain, fitted or given
  repeated        what tokens are worth that a run sees more than once
  products        products and powers in which zero wins over infinity
  terms           the convex pieces of a law in the mixture, which the optimisation works on
  answers         what a law answers, as losses: a wrong answer is an error by its name
  base            what every law has, most of it by default
  core            the terms in N and D that most laws share; `chinchilla` is these alone
  transfer        aggregate transfer Theta, shared by the families that follow
  shapley         Theta from Shapley values: as printed, tempered, concave
  growth          how own data's help grows with the budgets, and how far
  learned_base    Theta from the log alone, above a base and shrunk to it: from few runs to many
  family          Theta from the families of the languages
  slopes          log-linear slopes of the losses, from which searches begin
  effective_data  Theta inside of the term in D
  exponential     Data Mixing Laws
  additive        the additive law of Shukor et al.
  black_box       what every black box has: it learns by its own means, and has no symbols
  gbm             boosted trees
  nonnegative     ridge regression with coefficients of at least zero, many at once
  mariner         the form of MARINER
  hellinger       kernel ridge regression by Hellinger distance

A law is a frozen dataclass that derives from `Law`: its symbols, declared with `fitted` and `given`, and its equation,
`__call__`. Adding one is a file here and a line in `LAWS`; `tests/test_every_law.py` then holds it to every truth. What
else it may state: `starts` and `expansion` (a faster and surer fit), `terms` (a proof of its optimum), `defined`.
"""

from __future__ import annotations

from shapleymix.laws.additive import Additive
from shapleymix.laws.base import Inputs, Law, Observations
from shapleymix.laws.black_box import BlackBox
from shapleymix.laws.core import Chinchilla
from shapleymix.laws.effective_data import EffectiveData
from shapleymix.laws.exponential import Exponential
from shapleymix.laws.family import Family, FamilyMean
from shapleymix.laws.gbm import BoostedTrees
from shapleymix.laws.hellinger import HellingerRidge
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.laws.mariner import Mariner
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
        LearnedBase,
        Additive,
    )
}
"""Every parametric law by its name, simplest first."""

BLACK_BOXES: dict[str, type[BlackBox]] = {box.name: box for box in (Mariner, HellingerRidge, BoostedTrees)}
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
