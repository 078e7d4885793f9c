"""The mixture whose gain over a baseline has the best lower bound, of those between the baseline and the optimum.

The lower bound is no concave function of the mixture, so this is a search along two ways, each of feasible mixtures
where the baseline is: the optima of the loss plus `kl` times KL(p || baseline), from a large kl to none, each the best
at its distance from the baseline; and the straight line. What is found has its proof as a mixture of low loss, which
says what caution costs; that no other has a higher bound is not proved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import SolveError, UsageError
from shapleymix.mixing.certificate import FEASIBLE, Answer, certified, violation
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.problem import divergence
from shapleymix.records import FloatArray

NAME = "cautious"
STRENGTHS = np.geomspace(1e3, 1e-3, 13)
"""Weights of the divergence, in units of what the optimum gains for each nat of divergence."""
STEPS = np.linspace(0.05, 0.95, 10)
"""Shares of the way along the straight line."""
ROUNDS, FINER = 2, 5
"""How often, and into how many parts, the neighbourhood of the best is divided again."""

Way = Callable[[float], FloatArray]


@dataclass(frozen=True)
class Cautious:
    """The answer, and what would have been chosen so under each replicate (B, M), for its optimism."""

    answer: Answer
    choices: FloatArray | None


def cautious(beliefs: Beliefs, best: Answer, baseline: FloatArray) -> Cautious:
    """The mixture of the best lower bound of its gain over a baseline (M,); the baseline itself if none is above 0.

    Parameters
    ----------
    beliefs : Beliefs
        What is believed of losses, with the optima under each replicate as choices.
    best : Answer
        The optimum.

    Raises
    ------
    UsageError
        If gains have no intervals.
    SolveError
        If the law has no finite loss at the baseline.
    """
    problem = beliefs.problem
    if beliefs.blank:
        hint = "fit with bootstrap replicates, or with folds for held-out losses"
        raise UsageError("a cautious mixture needs intervals of gains, which this fit has not", hint=hint)
    if not np.isfinite(problem.value(baseline)):
        hint = "take a baseline with some of every source, such as 'uniform'"
        raise SolveError("the law has no finite loss at the baseline of the cautious mixture", hint=hint)
    known = not problem.further  # of what only cvxpy understands it is not known whether the baseline obeys it
    feasible = known and violation(baseline, problem.constraints) <= FEASIBLE
    found = [best.p, *([baseline] if feasible else [])]
    found += _along(_penalised(beliefs, best.p, baseline), STRENGTHS, beliefs, best.p, baseline)
    start = baseline if feasible else max(found, key=lambda p: -float(np.abs(p - baseline).sum()))
    found += _along(lambda share: start + share * (best.p - start), STEPS, beliefs, best.p, baseline)
    p = max(found, key=lambda one: lower_bound(beliefs, one, best.p, baseline))
    return Cautious(certified(problem, p, NAME), _choices(beliefs, p, best.p, baseline))


def lower_bound(beliefs: Beliefs, p: FloatArray, best: FloatArray, baseline: FloatArray) -> float:
    """The low end of the gain's interval, less the optimism of what is chosen so far from the baseline."""
    low = replace(beliefs, choices=_choices(beliefs, p, best, baseline)).gain(p, baseline).low
    return low if np.isfinite(low) else -np.inf


def _choices(beliefs: Beliefs, p: FloatArray, best: FloatArray, baseline: FloatArray) -> FloatArray | None:
    """(B, M) under each replicate the same share of the way from the baseline to its optimum."""
    if beliefs.choices is None:
        return None
    whole = float(np.abs(best - baseline).sum())
    share = min(float(np.abs(p - baseline).sum()) / whole, 1.0) if whole > 0 else 1.0
    return baseline + share * (beliefs.choices - baseline)


def _penalised(beliefs: Beliefs, best: FloatArray, baseline: FloatArray) -> Way:
    """The optimum under each strength of the pull to the baseline; an error where the bounds leave none near it."""
    problem = beliefs.problem
    gain = float(problem.value(baseline)) - float(problem.value(best))
    unit = abs(gain) / max(divergence(best, baseline), 1e-300)

    def at(strength: float) -> FloatArray:
        if not 0 < unit * strength < np.inf:
            raise SolveError("the optimum lies where the baseline has nothing, or nowhere else")
        return solve(replace(problem, kl=unit * strength, anchor=baseline)).p

    return at


def _along(way: Way, places: FloatArray, beliefs: Beliefs, best: FloatArray, baseline: FloatArray) -> list[FloatArray]:
    """Mixtures at places along a way, closer together about the one of the best lower bound."""
    try:
        known = {place: way(place) for place in places.tolist()}
    except SolveError:  # the way does not exist: the other does
        return []
    bound = {place: lower_bound(beliefs, p, best, baseline) for place, p in known.items()}
    for _ in range(ROUNDS):
        order = sorted(known)
        top = order.index(max(order, key=bound.__getitem__))
        low, high = order[max(top - 1, 0)], order[min(top + 1, len(order) - 1)]
        for place in np.geomspace(low, high, FINER + 2)[1:-1].tolist():
            known[place] = way(place)
            bound[place] = lower_bound(beliefs, known[place], best, baseline)
    return list(known.values())
