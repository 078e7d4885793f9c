"""What an engine minimises: what each target counts, pieces of a law, bounds, and a pull towards a mixture.

Axes: M sources, K targets; any leading axes of mixtures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shapleymix.errors import DataError, Fault, UsageError, did_you_mean
from shapleymix.files import is_table_name
from shapleymix.fitting.surface import Surface, as_surface
from shapleymix.laws.pieces import Pieces, product
from shapleymix.mixing.constraints import CurvedConstraints
from shapleymix.mixing.polytope import Polytope, divergence, divergence_gradient
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages, column_of, own_data, paths_of, read_languages
from shapleymix.tables.words import amounts, parse_number, parse_positive

UNWEIGHTED, NORMALIZED = "unweighted", "normalized"
MEAN, WORST = "mean", "worst"

WeightSpec = str | os.PathLike[str] | Mapping[str, float | str] | Sequence[float] | FloatArray | Languages
"""Whatever may be given for weights: a word, numbers by target or in their order, a languages table or its file."""


@dataclass(frozen=True)
class Weights:
    """What each target counts.

    Attributes
    ----------
    raw : array (K,)
        Multiplies the losses; of the mean objective it is divided by its sum.
    origin : str
        Where the weights are from.
    notices : tuple of str
        What a user should know of them.
    unit : str
        Unit of a loss times its weight, where they change that; the mean is then that of the K products.
    """

    raw: FloatArray
    origin: str
    notices: tuple[str, ...] = ()
    unit: str = ""

    def of(self, objective: str, plain: str) -> tuple[FloatArray, str]:
        """Weights (K,) of the mean or the worst objective, and the unit of that, where losses have a `plain` one.

        Of the worst loss the largest weight is 1; where weights differ, a weighted loss is no loss of any target.
        """
        if self.unit:
            return self.raw / (len(self.raw) if objective == MEAN else 1), self.unit
        if objective == MEAN:
            return self.raw / self.raw.sum(), plain
        counted = self.raw[self.raw > 0]
        return self.raw / self.raw.max(), plain if np.ptp(counted) == 0 else f"weighted {plain}"


def weights_of(fit: Any, surface: Surface, asked: Mapping[str, Any]) -> Weights:
    """The weights of the targets that the keywords of a problem ask for.

    `unweighted` (the mean of the losses), `normalized` (the mean of losses divided by those of monolingual models;
    ShapleyLaw paper, "Mixture Optimization"), numbers by target, or a languages table with weights. Targets without a
    number get 0, which the notices say. Tasks are weighed by the scores' own rule.

    Raises
    ------
    UsageError, DataError
        If a weight is for no target, negative, or all are zero.
    """
    given, table, score, targets = asked["weights"], asked["languages"], asked["downstream"], surface.targets
    nothing, origin = np.full(len(targets), np.nan), UNWEIGHTED if given is None else "given"
    if isinstance(given, os.PathLike) or is_table_name(given):
        given = read_languages(os.fspath(given))
    if given is None and score is None:
        given = UNWEIGHTED if table is None or table.weight is None else table
    if isinstance(given, Languages):
        if given.weight is None:
            hint = "add the column, or use unweighted or normalized weights"
            raise DataError(f"{given.origin} has no column 'weight'", hint=hint)
        return _of_numbers(column_of(given, "weight", targets), targets, f"table {given.origin}")
    if isinstance(given, str) and given == UNWEIGHTED:
        return Weights(np.ones(len(targets)), "unweighted: the mean of the losses")
    if isinstance(given, str) and given == NORMALIZED:
        if score is not None:
            raise UsageError("normalized weights are of losses, not of scores", hint="give weights of tasks")
        return _normalized(fit, surface, amounts(nothing, asked["monolingual"], targets, parse_positive, "monolingual"))
    if isinstance(given, str) and "=" not in given:
        raise UsageError(f"unknown weights {given!r}", hint=did_you_mean(given, (UNWEIGHTED, NORMALIZED)))
    if score is not None and (given is None or isinstance(given, (str, Mapping))):
        given = score.weights(given, asked["objective"])
    return _of_numbers(amounts(nothing, given, targets, parse_number, "weights"), targets, origin)


def _normalized(fit: Any, surface: Surface, measured: FloatArray) -> Weights:
    """Inverse monolingual losses: measured (K,), nats, where given, else predicted at an even mixture of own data."""
    targets = surface.targets
    own = own_data(paths_of(surface.sources, getattr(fit, "parents", {}), targets), targets)
    alone = np.where(own.any(axis=0), own, 1.0) / np.maximum(own.sum(axis=0), 1)
    predicted = np.diag(as_surface(fit, surface.N, surface.D).mean(alone.T))
    predicted = np.where(own.any(axis=0), predicted, np.nan)
    losses, known = np.where(np.isnan(measured), predicted, measured), ~np.isnan(measured)
    faults = [
        Fault(f"target {target!r} has no monolingual loss", hint="give its measured one, or use other weights")
        for target, loss in zip(targets, losses.tolist(), strict=True)
        if not loss > 0
    ]
    if faults:
        raise UsageError.of(faults, "the normalized weights")
    origin = "measured" if known.all() else "measured where given, else predicted" if known.any() else "predicted"
    told = f"normalized: inverse monolingual loss, {origin}"
    return Weights(1 / (losses * surface.unit.per_nat), told, unit="times the monolingual loss")


def _of_numbers(numbers: FloatArray, targets: tuple[str, ...], origin: str) -> Weights:
    """Weights of numbers (K,), NaN where a target has none."""
    raw = np.nan_to_num(numbers)
    if (raw < 0).any() or not raw.any():
        raise UsageError("weights must not be negative, nor all zero")
    absent = [name for name, number in zip(targets, numbers, strict=True) if np.isnan(number)]
    notices = (f"no weight for {', '.join(absent)}: counted as 0",) if absent else ()
    return Weights(raw, origin, notices)


class Losses(Protocol):
    """What predicts the losses (..., K) of mixtures (..., M): `Pieces`, or a law without convex ones."""

    def losses(self, p: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class Goal:
    """min of sum_j w_j loss_j(p), or of max_j w_j loss_j(p), plus kl KL(p || anchor), within bounds.

    Attributes
    ----------
    law : Losses
        The law at the budget; engines that need slopes take its `pieces`.
    w : array (K,)
        Weights of the targets.
    within : Polytope
        The bounds.
    worst : bool
        Whether the largest weighted loss is minimised.
    kl, anchor : float and array (M,), optional
        Weight of the penalty, in the unit of the objective, and its mixture.
    curved : CurvedConstraints, optional
        Constraints of the user's own that are no rows of the bounds.
    tilt : array (M,), optional
        Slopes of a linear term: by how much a replicate's losses lean otherwise than its law.
    """

    law: Losses
    w: FloatArray
    within: Polytope
    worst: bool = False
    kl: float = 0.0
    anchor: FloatArray | None = None
    curved: CurvedConstraints | None = None
    tilt: FloatArray | None = None

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
        counted = self.w > 0
        weighed = self.w[counted] * losses[..., counted]
        return weighed.max(axis=-1) if self.worst else weighed.sum(axis=-1)

    def value(self, p: FloatArray) -> FloatArray:
        """The mean or worst loss at mixtures p (..., M), without the penalty."""
        return self.of(self.law.losses(p))

    def penalty(self, p: FloatArray) -> float:
        """kl KL(p || anchor) of one mixture, infinite outside of the anchor's support, and the linear term."""
        leaning = 0.0 if self.tilt is None else float(self.tilt @ p)
        return leaning + (self.kl * divergence(p, self.anchor) if self.kl > 0 and self.anchor is not None else 0.0)

    def total(self, p: FloatArray) -> float:
        """What is minimised, at one mixture: loss and penalty."""
        return float(self.value(p)) + self.penalty(p)

    def violation(self, p: FloatArray) -> float:
        """By how much a mixture (M,) is outside of the bounds and of the user's own constraints; 0 within."""
        return max(self.within.violation(p), 0.0 if self.curved is None else self.curved.violation(p))

    def active(self, p: FloatArray) -> FloatArray:
        """Weights (K,) at a mixture: all for the mean, for the worst case that of the largest weighted loss alone."""
        if not self.worst:
            return self.w
        top = product(self.w, self.law.losses(p)).argmax()
        return np.where(np.arange(len(self.w)) == top, self.w, 0.0)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient (M,) of the weighted sum of losses and of the penalty; -inf where a slope at ratio zero is."""
        return self.pieces.gradient(p, w) + self.penalty_gradient(p)

    def penalty_gradient(self, p: FloatArray) -> FloatArray:
        """Gradient (M,) of the penalty."""
        leaning = np.zeros_like(p) if self.tilt is None else self.tilt
        pull = 0.0 if self.kl == 0 or self.anchor is None else self.kl * divergence_gradient(p, self.anchor)
        return leaning + pull
