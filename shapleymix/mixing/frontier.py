"""The trade-off between two sets of targets: how low the mean loss of one can be for each mean loss of the other.

>>> curve = frontier(fit, "243M", "100B", "en:rest", points=9)
>>> curve.entries[0].first, curve.entries[0].second, curve.entries[0].mixture

Both mean losses are convex: each mixture on the curve minimises `share` times the one plus `1 - share` times the other.
Rounds of problems choose the shares so that points are spread along the curve, each with its proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from shapleymix.errors import SolveError, UsageError, caution
from shapleymix.keywords import checked
from shapleymix.laws.terms import Terms
from shapleymix.mixing.certificate import Answer
from shapleymix.mixing.closed_forms import EXACT
from shapleymix.mixing.curves import Frontier, FrontierPoint
from shapleymix.mixing.demands import DemandKeywords, Demands, Size, notices_of, takes_demands
from shapleymix.mixing.engine.solving import solve_all, usable_replicates
from shapleymix.mixing.fit_like import FitLike, FitSpec, effect_of, fit_of, misfit_of
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.groups import families_of
from shapleymix.mixing.judgement import judged
from shapleymix.mixing.pieces import pieces_of, supplied
from shapleymix.mixing.problem import MEAN, Problem
from shapleymix.mixing.repeating import repeated_replicates, unpriced
from shapleymix.mixing.sides import sides_of
from shapleymix.mixing.weights import Weights
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.sizes import parse_size

POINTS, MOST_POINTS = 9, 99
ROUNDS = 3
FIRST_ODDS = 10.0 ** np.linspace(-4, 4, 17)
"""Odds of the shares of the first round."""
END_ODDS = 1e7
ALIKE = 1e-9
"""Mean losses that differ by less, relative, are the same: what a proof can tell."""


@takes_demands
def frontier(
    fit: FitSpec, N: Size, D: Size, between: str, *, points: int = POINTS, **keywords: Unpack[DemandKeywords]
) -> Frontier:
    """The trade-off curve between the mean losses of two sets of targets.

    Parameters
    ----------
    fit, N, D : FitSpec and sizes
        The fit and the budget, as for `optimize`.
    between : str
        Two sets with a colon between, such as `"en:rest"` or `"en+de:zh+ja"`; families of the languages table stand for
        their targets, and `rest` for all targets that the other side does not name.
    points : int
        Largest number of points; there are fewer where the curve has a kink or ends in one point.
    **keywords : DemandKeywords
        As for `optimize`; weights count within each side.

    Raises
    ------
    UsageError
        If a side names no target, both name one, or something is asked that a curve does not know: another objective,
        method or a KL penalty. Else as for `optimize`.
    """
    checked("frontier", keywords, DemandKeywords.__annotations__)
    demands = Demands(**keywords)
    fit, size, tokens = fit_of(fit, for_losses="a trade-off curve"), parse_size(N), parse_size(D)
    _require_plain(demands)
    if not isinstance(points, int) or not 2 <= points <= MOST_POINTS:
        raise UsageError(f"{points} points are no curve", hint=f"give a number from 2 to {MOST_POINTS}")
    terms, again = pieces_of(fit, size, tokens, demands)
    problem, weights = demands.problem(fit, terms, tokens)
    families = families_of(demands.table, fit.targets)
    names = sides_of(between, fit.targets, families)
    w = np.stack([_side_weights(side, fit.targets, weights) for side in names])
    replicates, notes = usable_replicates(repeated_replicates(fit, again, problem.constraints.available, tokens))
    shares, answers, lost = _spread(problem, w, points, _untrained(fit))
    entries, told = _entries(fit, size, demands, problem, w, shares, answers, replicates)
    few = () if len(entries) == points else (f"the curve has {len(entries)} points that differ, not {points}",)
    found = Frontier(
        sources=tuple(fit.sources),
        targets=tuple(fit.targets),
        N=size,
        D=tokens,
        between=between,
        first_targets=names[0],
        second_targets=names[1],
        first_weights=w[0],
        second_weights=w[1],
        weights_origin=weights.origin,
        entries=entries,
        level=demands.level,
        replicates=0 if replicates is None else int(np.prod(replicates.batch)),
        available=problem.constraints.available,
        max_epochs=problem.constraints.epochs,
        min_tokens=problem.constraints.min_tokens,
        notices=tuple(dict.fromkeys((*notes, *notices_of(demands, problem.constraints, weights), *told, *few, *lost))),
        provenance={
            "fit": dict(getattr(fit, "provenance", None) or {}),
            "groups": list(problem.constraints.group_names),
        },
    )
    caution(found.notices)
    return found


def _require_plain(demands: Demands) -> None:
    """Refuse by name what a weighted sum of two mean losses has no place for."""
    refused = (
        ("objective 'worst'", demands.objective != MEAN),
        (f"method {demands.method!r}", demands.method != EXACT),
        ("KL penalty", demands.kl > 0),
        ("compare_to", demands.compare_to is not None and len(demands.compare_to) > 0),
        ("what_if", bool(demands.what_if)),
        ("cautious", demands.wary),
        ("allow_nonconvex", demands.allow_nonconvex),
    )
    for what, asked in refused:
        if asked:
            raise UsageError(f"a frontier takes no {what}", hint="leave it out; bounds of every kind are taken")


def _side_weights(side: tuple[str, ...], targets: tuple[str, ...], weights: Weights) -> FloatArray:
    """Weights (K,) of one side's mean loss, which sum to 1."""
    inside = np.where(np.isin(targets, side), weights.raw, 0.0)
    if not inside.any():
        raise UsageError(f"frontier: the targets {', '.join(side)} all have weight 0", hint="change the weights")
    return inside / inside.sum()


def _untrained(fit: FitLike) -> FloatArray:
    """Losses (K,) that no trained model exceeds; NaN where they are not known."""
    known = getattr(getattr(fit, "coverage", None), "untrained", None)
    return np.full(len(fit.targets), np.nan) if known is None else np.asarray(known, dtype=np.float64)


def _spread(
    problem: Problem, w: FloatArray, points: int, untrained: FloatArray
) -> tuple[FloatArray, list[Answer], list[str]]:
    """Shares and optima of points that are spread along the curve, no one worse than another on both sides.

    Of the curve the part counts on which the law has a prediction; what else there is is said.
    """
    shares = np.array([0.0, *(FIRST_ODDS / (1 + FIRST_ODDS)), 1.0])
    answers = _solved(problem, w, shares)
    for _ in range(ROUNDS):
        part = np.flatnonzero(_trusted(problem.terms, w, answers, untrained))
        wanted = _between(shares[part], _along(problem.terms, w, [answers[place] for place in part]), points)
        shares, answers = np.append(shares, wanted), [*answers, *_solved(problem, w, wanted)]
        order = np.argsort(shares, kind="stable")
        shares, answers = shares[order], [answers[place] for place in order]
    losses, trusted = _sides(problem.terms, w, answers), _trusted(problem.terms, w, answers, untrained)
    whole = np.isfinite(losses).all(axis=1) & ~_dominated(losses)
    kept = np.flatnonzero(whole & trusted)
    if not len(kept):
        raise SolveError("no mixture within the bounds has a finite loss on both sides", hint="add small floors")
    kept = kept[np.argsort(losses[kept, 1], kind="stable")]
    chosen = kept[_nearest(_along(problem.terms, w, [answers[place] for place in kept]), points)]
    lost = "the curve ends where the law gives more than an untrained model's loss"
    return shares[chosen], [answers[place] for place in chosen], [lost] if (whole & ~trusted).any() else []


def _trusted(terms: Terms, w: FloatArray, answers: Sequence[Answer], untrained: FloatArray) -> BoolArray:
    """Which optima (R,) the law has a prediction for, on both sides; all of them where it has none for two."""
    losses = terms.losses(np.stack([answer.p for answer in answers]))
    known = np.all((losses <= untrained) | ~(w > 0).any(axis=0), axis=1)
    return known if known.sum() > 1 else np.ones(len(answers), dtype=bool)


def _solved(problem: Problem, w: FloatArray, shares: FloatArray) -> list[Answer]:
    """The optimum of each weighted sum of the two sides, all in one batch."""
    return list(solve_all(tuple(replace(problem, w=share * w[0] + (1 - share) * w[1]) for share in shares.tolist())))


def _sides(terms: Terms, w: FloatArray, answers: Sequence[Answer]) -> FloatArray:
    """Mean losses (R, 2) of both sides."""
    p = np.stack([answer.p for answer in answers])
    return np.stack([terms.objective(p, side) for side in w], axis=-1)


def _along(terms: Terms, w: FloatArray, answers: Sequence[Answer]) -> FloatArray:
    """How far (R,) along the curve each point lies, from 0 to 1; both sides count by their own range."""
    losses = _sides(terms, w, answers)
    finite = np.isfinite(losses).all(axis=1)
    low, high = losses[finite].min(axis=0, initial=np.inf), losses[finite].max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        steps = np.abs(np.diff(np.clip(losses, low, high), axis=0)) / np.where(high > low, high - low, 1.0)
    way = np.concatenate([[0.0], np.cumsum(np.hypot(*np.nan_to_num(steps).T))])
    return way / max(way[-1], 1e-300)


def _between(shares: FloatArray, way: FloatArray, points: int) -> FloatArray:
    """Shares that promise points at equal distances: linear between the log odds of those known."""
    inner = np.clip(shares, 1 / END_ODDS, 1 - 1 / END_ODDS)
    wanted = np.interp(np.linspace(0, 1, points), way, np.log(inner) - np.log1p(-inner))
    return 1 / (1 + np.exp(-wanted))


def _dominated(losses: FloatArray) -> BoolArray:
    """Which points (R, 2) another is at least as good as on both sides, and better on one; of equal ones the first."""
    tell = ALIKE * np.abs(losses)
    with np.errstate(invalid="ignore"):
        at_least = (losses[None] <= losses[:, None] + tell[:, None]).all(axis=-1)
        better = (losses[None] < losses[:, None] - tell[:, None]).any(axis=-1)
    earlier = np.tri(len(losses), k=-1, dtype=bool)
    return np.any(at_least & (better | (at_least.T & earlier)), axis=1)


def _nearest(way: FloatArray, points: int) -> list[int]:
    """Places of the points nearest to equal distances, both ends among them, none twice."""
    wanted = np.linspace(0, 1, points)
    return sorted({0, len(way) - 1, *np.abs(way[:, None] - wanted).argmin(axis=0).tolist()})


def _entries(
    fit: FitLike,
    N: float,
    demands: Demands,
    problem: Problem,
    w: FloatArray,
    shares: FloatArray,
    answers: Sequence[Answer],
    replicates: Terms | None,
) -> tuple[tuple[FrontierPoint, ...], tuple[str, ...]]:
    """The points as they are reported, and what the fit says of them; `w` (2, K) are the sides' weights."""
    bounds, entries, told = problem.constraints, [], []
    regime, effect = supplied(fit, N, bounds), effect_of(fit, N, bounds.D)
    every = Beliefs(problem, replicates, misfit_of(fit, N, bounds.D), None, demands.level, regime=regime, effect=effect)
    believed = [replace(every, problem=replace(problem, w=side)) for side in w]
    for share, answer in zip(shares.tolist(), answers, strict=True):
        seen = judged(fit, answer.p, {}, N, bounds, demands)
        why = [seen.reason(0, side) for side in w]
        sides = [_reported(one, answer.p, bool(lost)) for one, lost in zip(believed, why, strict=True)]
        losses, reason = np.asarray(seen.optimum.losses, dtype=float)[0], "; ".join(dict.fromkeys(filter(None, why)))
        entries.append(FrontierPoint(share, answer.p, losses, *sides[0], *sides[1], answer.certificate, reason))
        told += [*seen.warnings, *unpriced(fit, answer.p, bounds, "a point")]
    return tuple(entries), tuple(dict.fromkeys(told))


def _reported(beliefs: Beliefs, p: FloatArray, absent: bool) -> tuple[float, float, float]:
    """One side's mean loss with its interval; NaN where the law has none."""
    if absent:
        return np.nan, np.nan, np.nan
    return beliefs.value(p), *beliefs.objective(p)
