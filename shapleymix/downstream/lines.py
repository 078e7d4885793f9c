"""A line `s = a g(l) + b`, or a sigmoid, through the scores of one task: fitted, held out, with its covariance.

Rows of one mixture stand or fall together: they are held out together, the degrees of freedom count mixtures, and the
covariance is that of as many independent rows as there are mixtures (several checkpoints of a run are no more runs).

Legend: S scores, G mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit
from scipy.stats import t as student_t

from shapleymix.downstream.scores import FEWEST, Points
from shapleymix.downstream.transforms import TRANSFORMS, Transform
from shapleymix.fitting.least_squares import Loss, Objective, minimize
from shapleymix.records import BoolArray, FloatArray, IntArray

CLIPPED = 0.02
"""Where a search for a sigmoid begins, scores are at least so far, of the way, from chance and from one."""
STEEPEST = 60.0
"""Of a sigmoid, in log odds for a standard deviation of the losses: a step for all that scores can tell."""


@dataclass(frozen=True)
class Line:
    """A fitted line.

    Attributes
    ----------
    transform : Transform
        The g of the loss.
    a, b, chance : float
        As the transform takes them; chance is 0 for a straight line.
    covariance : array (2, 2)
        Of a and b.
    scatter, dof : float and int
        Standard deviation of scores about the line, and its degrees of freedom.
    R2, held_out : float
        Share of the variance explained in the sample, and root mean square error on mixtures left out one at a time.
    held_out_R2 : float
        One less the ratio of held-out squares to those about the mean; NaN where the lines that were held out from rest
        on two mixtures each, so that they pass through both.
    misses : array (S,)
        Held-out errors, score less prediction.
    """

    transform: Transform
    a: float
    b: float
    chance: float
    covariance: FloatArray
    scatter: float
    dof: int
    R2: float
    held_out: float
    held_out_R2: float
    misses: FloatArray


@dataclass(frozen=True)
class Correlation:
    """Pearson's r between losses and scores, and the probability of one so far from 0 where there is none."""

    r: float
    p: float


def lines_of(points: Points) -> dict[str, Line]:
    """The line of every transform that the scores allow; a sigmoid where the chance level is known."""
    kinds = [one for one in TRANSFORMS.values() if not (one.bent and np.isnan(points.chance))]
    return {one.name: _line(points, one) for one in kinds}


def best_of(lines: dict[str, Line]) -> Line:
    """The line of the lowest held-out error; of equal ones the first."""
    return min(lines.values(), key=lambda line: round(line.held_out, 12))


def alike(line: Line, best: Line) -> bool:
    """Whether held-out squares do not tell a line from the best: within one standard error of their difference."""
    worse = line.misses**2 - best.misses**2
    return bool(worse.mean() <= worse.std(ddof=1) / np.sqrt(len(worse)))


def correlation(points: Points) -> Correlation:
    """Pearson's r with its two-sided p-value by Student's t on G - 2 degrees of freedom."""
    r = float(np.clip(np.corrcoef(points.loss, points.score)[0, 1], -1.0, 1.0))
    dof = len(np.unique(points.groups)) - 2
    if r * r >= 1:
        return Correlation(r, 0.0)
    return Correlation(r, float(2 * student_t.sf(abs(r) * np.sqrt(dof / (1 - r * r)), dof)))


def _same(what: str) -> str:
    return f"the {what} is the same in all runs"


SAME_SCORE = _same("score")


def why_not(points: Points) -> str:
    """Why no line can be drawn through these scores; empty where one can."""
    mixtures = len(np.unique(points.groups))
    if mixtures < FEWEST:
        return f"{mixtures} of the {FEWEST} runs of different mixtures, with loss and score, that a line needs"
    if not (points.loss > 0).all():
        return "a loss is not above 0"
    for what, values in (("loss", points.loss), ("score", points.score)):
        if np.ptp(values) <= 1e-9 * np.abs(values).max():
            return _same(what)
    return ""


def _line(points: Points, transform: Transform) -> Line:
    kept = _folds(points.groups)
    chance = points.chance if transform.bent else 0.0
    found = _bent(points, transform, kept) if transform.bent else _straight(points, transform, kept)
    a, b = found[0, 0], found[0, 1]
    misses = points.score - transform.score(points.loss, *_at_own_fold(found, kept), np.asarray(chance))
    residual = points.score - transform.score(points.loss, a, b, np.asarray(chance))
    squares = float(np.square(points.score - points.score.mean()).sum())
    rows, mixtures = len(points.score), len(kept) - 1
    scatter = float(np.sqrt(np.square(residual).sum() / max(rows - 2, 1)))
    return Line(
        transform=transform,
        a=float(a),
        b=float(b),
        chance=float(chance),
        covariance=scatter**2 * (rows / mixtures) * _unit_covariance(points, transform, found[0], chance),
        scatter=scatter,
        dof=mixtures - 2,
        R2=1 - float(np.square(residual).sum()) / squares,
        held_out=float(np.sqrt(np.square(misses).mean())),
        held_out_R2=1 - float(np.square(misses).sum()) / squares if mixtures > FEWEST else np.nan,
        misses=misses,
    )


def _folds(groups: IntArray) -> BoolArray:
    """Which scores (1 + G, S) a fit sees: all, then all but those of one mixture."""
    members = groups[None] == np.unique(groups)[:, None]
    return np.concatenate([np.ones((1, len(groups)), dtype=bool), ~members])


def _at_own_fold(found: FloatArray, kept: BoolArray) -> tuple[FloatArray, FloatArray]:
    """a and b (S,) of the fit that did not see the score."""
    fold = 1 + np.argmin(kept[1:], axis=0)
    return found[fold, 0], found[fold, 1]


def _straight(points: Points, transform: Transform, kept: BoolArray) -> FloatArray:
    """a and b (1 + G, 2) by least squares, of every fold at once; centred, so that no digits are lost."""
    weight = kept / kept.sum(axis=1, keepdims=True)
    g, s = transform.value(points.loss), points.score
    middle, mean = weight @ g, weight @ s
    off = g - middle[:, None]
    a = np.sum(weight * off * (s - mean[:, None]), axis=1) / np.maximum(np.sum(weight * off**2, axis=1), 1e-300)
    return np.stack([a, mean - a * middle], axis=1)


def _bent(points: Points, transform: Transform, kept: BoolArray) -> FloatArray:
    """The same of a sigmoid, from the line through the log odds."""
    scale, middle, chance = float(points.loss.std()), float(points.loss.mean()), points.chance
    unit = (points.loss - middle) / scale
    share = np.clip((points.score - chance) / (1 - chance), CLIPPED, 1 - CLIPPED)
    slope, level = np.polyfit(unit, logit(share), 1)

    def residuals(x: FloatArray, number: IntArray) -> tuple[FloatArray, FloatArray]:
        line = x[:, 1:] - x[:, :1] * unit
        score = chance + (1 - chance) / (1 + np.exp(-line))
        steep = (score - chance) * (1 - score) / (1 - chance)
        return score - points.score, np.stack([-steep * unit, steep], axis=-1)

    objective = Objective(residuals, kept.astype(float), Loss(np.inf), np.full(2, -STEEPEST), np.full(2, STEEPEST))
    start = np.broadcast_to(np.array([-slope, level]), (len(kept), 2))
    x = minimize(objective, start, tolerance=1e-14).x
    a = x[:, 0] / scale
    return np.stack([a, x[:, 1] + a * middle], axis=1)


def _unit_covariance(points: Points, transform: Transform, found: FloatArray, chance: float) -> FloatArray:
    """(J' J)^-1 (2, 2) of the score's derivatives J in a and b."""
    g = transform.value(points.loss)
    steep = np.ones_like(g)
    if transform.bent:
        share = (transform.score(points.loss, found[0], found[1], np.asarray(chance)) - chance) / (1 - chance)
        steep = (1 - chance) * share * (1 - share)
    jacobian = np.stack([steep * g, steep], axis=1)
    return np.asarray(np.linalg.pinv(jacobian.T @ jacobian, hermitian=True), dtype=np.float64)
