"""The laws, and what an author of one needs.

Modules, in reading order:

  task_curves   what a loss is turned into before a curve is drawn through the scores of tasks
  pieces        the convex pieces of a law in the mixture: value, gradient and curvature
  base          how a law declares the paper's symbols, and what every law has, most of it by default
  core          the terms in N and D that most laws share; `chinchilla` and `kaplan` are these alone
  mixture_laws  laws of the paper and others: Shapley values, families, effective data, exponential, additive
  learned_base  Theta from the log alone, above a base and shrunk to it: from few runs to many
  rivals        black boxes: MARINER's form, boosted trees

A law is a frozen dataclass that derives from `Law`: its symbols, declared with `fitted` and `given`, and its equation,
`pieces`. Adding one is a file here and a line in `LAWS`; `tests/test_every_law.py` then holds it to every truth. What
else it may state: `starts` and `expansion` (a faster and surer fit). A law without convex pieces states `__call__`.
"""

from __future__ import annotations

from shapleymix.laws import mixture_laws as published
from shapleymix.laws.base import Inputs, Law, Observations, Parameter, fitted, given, over_runs
from shapleymix.laws.core import Chinchilla, Kaplan
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.laws.pieces import Pieces
from shapleymix.laws.rivals import BlackBox, BoostedTrees, Mariner

LAWS: dict[str, type[Law]] = {
    law.name: law
    for law in (
        Chinchilla,
        Kaplan,
        published.Family,
        published.Shapley,
        published.ShapleyTempered,
        published.ShapleyConcave,
        published.EffectiveData,
        published.Exponential,
        LearnedBase,
        published.Additive,
    )
}
"""Every parametric law by its name, simplest first."""

BLACK_BOXES: dict[str, type[BlackBox]] = {box.name: box for box in (Mariner, BoostedTrees)}
"""Every law that learns by its own means."""

__all__ = [
    "BLACK_BOXES",
    "LAWS",
    "BlackBox",
    "Inputs",
    "Law",
    "Observations",
    "Parameter",
    "Pieces",
    "fitted",
    "given",
    "over_runs",
]
