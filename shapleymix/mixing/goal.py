"""What an engine minimises: what each target counts, pieces of a law, bounds, and a pull towards a mixture.

Axes: M sources, K targets; any leading axes of mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shapleymix.fitting.surface import Surface
from shapleymix.laws.pieces import Pieces, product
from shapleymix.mixing.constraints import CurvedConstraints
from shapleymix.mixing.polytope import Polytope, divergence, divergence_gradient
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Searched:
    """Losses without convex pieces: values, infinite where there is none, and no derivatives.

    They are the law's, or `corrected` by what it misses of mixtures near the runs.
    """

    surface: Surface
    corrected: bool = False

    def losses(self, p: FloatArray) -> FloatArray:
        """Losses (..., K) of mixtures (..., M)."""
        ask = self.surface.mean if self.corrected else self.surface.of_law
        found = ask(p.reshape(-1, p.shape[-1]))
        return np.where(np.isfinite(found), found, np.inf).reshape(*p.shape[:-1], -1)


@dataclass(frozen=True)
class Goal:
    """min of sum_j w_j loss_j(p), or of max_j w_j loss_j(p), plus kl KL(p || anchor), within bounds.

    Attributes
    ----------
    law : Pieces or Searched
        The law at the budget; engines that need slopes take its `pieces`.
    w : array (K,)
        Weights of the targets.
    within : Polytope
        The bounds.
    worst : bool
        Whether the largest weighted loss is minimised.
    kl, anchor : float and array (M,), optional
        Weight of the penalty, in the unit of the objective, and its mixture.
    curved : CurvedConstraints
        Constraints of the user's own that are no rows of the bounds.
    tilt : array (M,) or (B, M)
        Slopes of a linear term: by how much a replicate's losses lean otherwise than its law, or each replicate's.
    """

    law: Pieces | Searched
    w: FloatArray
    within: Polytope
    worst: bool = False
    kl: float = 0.0
    anchor: FloatArray | None = None
    curved: CurvedConstraints = field(default_factory=CurvedConstraints)
    tilt: FloatArray | float = 0.0

    @property
    def pieces(self) -> Pieces:
        """The convex pieces of the law."""
        assert isinstance(self.law, Pieces)
        return self.law

    @property
    def is_convex(self) -> bool:
        """Whether it is within its bounds: losses in pieces are, error rates of tasks where losses are low enough.

        A loss is highest at a corner, and the corners of the floors' simplex hold all mixtures between them.
        """
        if not isinstance(self.law, Pieces) or self.law.curves is None:
            return isinstance(self.law, Pieces)
        lower = self.within.lower
        ends = lower + (1 - lower.sum()) * np.eye(len(lower))[self.within.movable]
        reach = (self.law.plain_losses(ends) - self.law.floor).max(axis=0)
        return bool(self.law.curves.convex_up_to(reach, self.law.floor, self.law.kappa)[self.w > 0].all())

    def of(self, losses: FloatArray) -> FloatArray:
        """The mean or worst of losses (..., K); a target of weight 0 never counts, even without a prediction."""
        weighted = self.w > 0
        products = self.w[weighted] * losses[..., weighted]
        return products.max(axis=-1) if self.worst else products.sum(axis=-1)

    def value(self, p: FloatArray) -> FloatArray:
        """The mean or worst loss at mixtures p (..., M), without the penalty."""
        return self.of(self.law.losses(p))

    def penalty(self, p: FloatArray) -> float:
        """kl KL(p || anchor) of one mixture, infinite outside of the anchor's support, and the linear term."""
        pull = 0.0 if self.anchor is None else self.kl * divergence(p, self.anchor)
        return pull + float(np.sum(self.tilt * p))

    def total(self, p: FloatArray) -> float:
        """What is minimised, at one mixture: loss and penalty."""
        return float(self.value(p)) + self.penalty(p)

    def violation(self, p: FloatArray) -> float:
        """By how much a mixture (M,) is outside of the bounds and of the user's own constraints; 0 within."""
        return max(self.within.violation(p), self.curved.violation(p))

    def active(self, p: FloatArray) -> FloatArray:
        """Weights (K,) at a mixture: all for the mean, for the worst case that of the largest weighted loss alone."""
        if not self.worst:
            return self.w
        top = product(self.w, self.law.losses(p)).argmax()
        return np.where(np.arange(len(self.w)) == top, self.w, 0.0)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient (M,) of the weighted sum of losses and of the penalty; -inf where a slope at ratio zero is."""
        pull = 0.0 if self.anchor is None else self.kl * divergence_gradient(p, self.anchor)
        return self.pieces.gradient(p, w) + self.tilt + pull
