"""The laws, simplest first: one small file each. Adding one is a file and a line in `LAWS`.

What they share, in reading order; the laws themselves are those of `LAWS`:

  parameters  how a law declares its symbols: axes, domain, and whether they are fitted or given
  terms       the convex pieces of a law in the mixture, at one budget: value, gradient, curvature
  base        what all laws share: packing, bounds, replicates, JSON
  core        the part that most laws share: E + A / N^alpha + B / D^beta
  aggregate   aggregate transfer Theta_j = sum_i phi_ij p_i^a_j and its derivatives
  slopes      the log-linear slopes of the losses in the mixture: where fitted transfer starts from
"""

from __future__ import annotations

from shapleymix.laws.additive import Additive
from shapleymix.laws.base import Inputs, Law
from shapleymix.laws.chinchilla import Chinchilla
from shapleymix.laws.effective_data import EffectiveData
from shapleymix.laws.exponential import Exponential
from shapleymix.laws.family import Family, FamilyMean
from shapleymix.laws.gbm import BlackBox, BoostedTrees
from shapleymix.laws.learned import Learned
from shapleymix.laws.learned_concave import LearnedConcave
from shapleymix.laws.learned_own import LearnedOwn
from shapleymix.laws.shapley import Shapley
from shapleymix.laws.shapley_concave import ShapleyConcave
from shapleymix.laws.shapley_tempered import ShapleyTempered

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

BLACK_BOXES: dict[str, type[BlackBox]] = {BoostedTrees.name: BoostedTrees}

__all__ = ["BLACK_BOXES", "LAWS", "BlackBox", "Inputs", "Law"]
