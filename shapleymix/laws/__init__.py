"""The laws, simplest first: one small file each. Adding one is a file and a line in `LAWS`."""

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
