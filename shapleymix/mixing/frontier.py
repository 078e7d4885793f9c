"""The trade-off between two sets of targets: how low the mean loss of one can be for each mean loss of the other.

>>> curve = problem(fit, "243M", "100B").frontier("en:rest")
>>> curve.entries[0].first, curve.entries[0].second

Both mean losses are convex: each mixture on the curve minimises `share` times the one plus `1 - share` times the other.
Rounds of problems choose the shares so that points lie at like distances along the curve, each with its proof.

Axes: M sources, K targets, R points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.display import Columns
from shapleymix.errors import SolveError, UsageError
from shapleymix.mixing.answers import Answer
from shapleymix.mixing.asked import MEAN, Weights
from shapleymix.mixing.bounds import Families, families_of, labels_between, members_of
from shapleymix.mixing.proof import Certificate, Proof
from shapleymix.mixing.question import Question, solve_questions
from shapleymix.mixing.reporting import common_fields
from shapleymix.records import BoolArray, FloatArray, Record

POINTS, MOST_POINTS = 9, 99
ROUNDS = 3
FIRST_ODDS = 10.0 ** np.linspace(-4, 4, 17)
"""Odds of the shares of the first round."""
END_ODDS = 1e7
SMALLEST = 1e-300
ALIKE = 1e-9
"""Mean losses that differ by less, relative, are the same: what a proof can tell."""
REST = "rest"
_HINT = "write it like en:rest or en+de:zh+ja"


@dataclass(frozen=True)
class FrontierPoint(Record):
    """One mixture on the curve.

    Attributes
    ----------
    share : float
        Weight of the first side's mean loss; that of the second is 1 - share.
    p : array (M,)
        Ratios.
    losses : array (K,)
        Predicted losses; NaN where above an untrained model's.
    first, second : float
        Mean losses of the two sides with their intervals for one run.
    certificate : Certificate
        Bound on what any other mixture could gain in the weighted sum of both sides.
    """

    kind = "frontier-point"

    share: float
    p: FloatArray
    losses: FloatArray
    first: float
    first_low: float
    first_high: float
    second: float
    second_low: float
    second_high: float
    certificate: Certificate


@dataclass(frozen=True)
class Frontier(Answer):
    """The curve from the optimum of the second side to that of the first.

    Attributes
    ----------
    between : str
        The two sides, as they were asked for.
    first_targets, second_targets : tuple of str
        Targets of the two sides.
    entries : tuple of FrontierPoint
        The points, by rising loss of the second side; no point is at least as good as another on both.
    """

    kind = "frontier"

    between: str
    first_targets: tuple[str, ...]
    second_targets: tuple[str, ...]
    entries: tuple[FrontierPoint, ...]

    def columns(self) -> Columns:
        """One row a point, with the unit of its losses."""
        names = ("share", "first", "first_low", "first_high", "second", "second_low", "second_high")
        numbers = {name: [getattr(entry, name) for entry in self.entries] for name in names}
        ratios = self.ratios_of(np.array([entry.p for entry in self.entries]))
        return {**numbers, "unit": [self.unit] * len(self.entries), **ratios}


def frontier_of(one: Question, between: str, points: int) -> Frontier:
    """The curve of a question."""
    if not isinstance(points, int) or not 2 <= points <= MOST_POINTS:
        raise UsageError(f"{points} points are no curve", hint=f"give a number from 2 to {MOST_POINTS}")
    _refuse_other_goals(one)
    surface, targets = one.surface, one.surface.targets
    names = sides_of(between, targets, families_of(one.asked.table, targets, one.fit.parents))
    sides = [replace(one, goal=replace(one.goal, w=_side_weights(side, targets, one.weights))) for side in names]
    shares, proofs, notices = _spread_points(sides, points)
    p, entries = np.stack([proof.p for proof in proofs]), []
    for share, losses, proof in zip(shares.tolist(), surface.mean(p), proofs, strict=True):
        first, second = ((end.objective(proof.p), *end.objective_interval(proof.p)) for end in sides)
        entries.append(FrontierPoint(share, proof.p, losses, *first, *second, proof.certificate))
    notices += [f"{len(entries)} of {points} points differ: the curve has a kink, or is one"] * (len(entries) < points)
    warnings = surface.warnings(p, tuple(map(str, range(1, len(entries) + 1))))
    fields = common_fields(one, warnings, (*one.notices, *notices))
    return Frontier(**fields, between=between, first_targets=names[0], second_targets=names[1], entries=tuple(entries))


def _refuse_other_goals(one: Question) -> None:
    """Raise a UsageError where what is minimised is no sum of the mean losses of two sides."""
    asked, searched = one.asked, one.surface.pieces is None
    for what, given in (
        ("objective 'worst'", asked.objective != MEAN), ("KL penalty", asked.kl > 0),
        ("compare_to", bool(asked.compare_to)), ("what_if", bool(asked.what_if)),
        ("downstream", asked.score is not None), ("law without convex pieces", searched),
    ):  # fmt: skip
        if given:
            hint = "fit another law" if searched else "leave it out; bounds of every kind are taken"
            raise UsageError(f"a frontier takes no {what}", hint=hint)


def sides_of(text: str, targets: tuple[str, ...], families: Families) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets of the two sides of `en:rest` or `en+de:zh+ja`.

    Raises
    ------
    UsageError
        If the text has no two sides, a name is no target, or one stands on both sides.
    """
    sides = text.split(":") if isinstance(text, str) else []
    if len(sides) != 2:
        raise UsageError(f"frontier: {text!r} has no two sides", hint=_HINT)
    named = [_targets_of(side.strip(), targets, families) for side in sides]
    first, second = (side or tuple(one for one in targets if one not in other) for side, other in (named, named[::-1]))
    if not first or not second or set(first) & set(second):
        raise UsageError(f"frontier: the sides of {text!r} are not two parts of the targets", hint=_HINT)
    return first, second


def _targets_of(side: str, targets: tuple[str, ...], families: Families) -> tuple[str, ...]:
    """The targets that one side means; none of them = the rest."""
    if side == REST and REST not in targets:
        return ()
    return members_of(labels_between(side, (*targets, *families)), targets, families, "frontier")


def _side_weights(side: tuple[str, ...], targets: tuple[str, ...], weights: Weights) -> FloatArray:
    """Weights (K,) of one side's mean loss, which sum to 1."""
    inside = np.where(np.isin(targets, side), weights.raw, 0.0)
    if not inside.any():
        raise UsageError(f"frontier: the targets {', '.join(side)} all have weight 0", hint="change the weights")
    return inside / inside.sum()


def _spread_points(ends: Sequence[Question], points: int) -> tuple[FloatArray, list[Proof], list[str]]:
    """Shares and optima of points that are spread along the curve between the optima of two questions, no one worse
    than another on both sides.

    Of the curve the part counts on which the law has a prediction; what else there is is said.
    """
    (one, other), known = ends, dict[float, Proof]()
    shares = wanted = np.array([0.0, *(FIRST_ODDS / (1 + FIRST_ODDS)), 1.0])
    sides, lost, raised = np.zeros((len(shares), 2)), [], False
    for _ in range(1 + ROUNDS):
        weights = [share * one.goal.w + (1 - share) * other.goal.w for share in wanted.tolist()]
        solved = solve_questions([replace(one, goal=replace(one.goal, w=w)) for w in weights])
        known |= {share: proof for share, (_, proof) in zip(wanted.tolist(), solved, strict=True)}
        raised |= any(each.free is not None for each, _ in solved)
        shares = np.array(sorted(known))
        losses = one.surface.mean(np.stack([known[share].p for share in shares.tolist()]))
        sides = np.stack([end.goal.of(losses) for end in ends], axis=-1)
        there = np.isfinite(sides).all(axis=1)
        if not there.any():
            hint = "add small floors, or weights"
            raise SolveError("within the bounds no mixture has a loss on both sides", hint=hint)
        lost = ["the curve ends where the law gives more than an untrained model's loss"] * (not there.all())
        shares, sides = shares[there], sides[there]
        wanted = _between(shares, _along(sides), points)
    kept = np.flatnonzero(~_are_dominated(sides))
    kept = kept[np.argsort(sides[kept, 1], kind="stable")]
    chosen = shares[kept[_nearest(_along(sides[kept]), points)]]
    above = ["floors keep some points above jumps of losses: their proofs are within these"] * raised
    return chosen, [known[share] for share in chosen.tolist()], [*lost, *above]


def _along(losses: FloatArray) -> FloatArray:
    """How far (R,) along the curve each point (R, 2) lies, from 0 to 1; both sides count by their own range."""
    steps = np.abs(np.diff(losses, axis=0)) / np.maximum(np.ptp(losses, axis=0), SMALLEST)
    way = np.concatenate([[0.0], np.cumsum(np.hypot(*steps.T))])
    return way / max(way[-1], SMALLEST)


def _between(shares: FloatArray, way: FloatArray, points: int) -> FloatArray:
    """Shares that promise points at equal distances: linear between the log odds of those known."""
    inner = np.clip(shares, 1 / END_ODDS, 1 - 1 / END_ODDS)
    wanted = np.interp(np.linspace(0, 1, points), way, np.log(inner) - np.log1p(-inner))
    return 1 / (1 + np.exp(-wanted))


def _are_dominated(losses: FloatArray) -> BoolArray:
    """Which points (R, 2) another is at least as good as on both sides, and better on one; of equal ones the first.

    Where one side leaves the other open, its own optimum may be any of many: that point is as good to rounding only.
    """
    tell = ALIKE * np.abs(losses)
    at_least = (losses[None] <= losses[:, None] + tell[:, None]).all(axis=-1)
    better = (losses[None] < losses[:, None] - tell[:, None]).any(axis=-1)
    earlier = np.tri(len(losses), k=-1, dtype=bool)
    return np.any(at_least & (better | (at_least.T & earlier)), axis=1)


def _nearest(way: FloatArray, points: int) -> list[int]:
    """Places of the points nearest to equal distances, both ends among them, none twice."""
    wanted = np.linspace(0, 1, points)
    return sorted({0, len(way) - 1, *np.abs(way[:, None] - wanted).argmin(axis=0).tolist()})
