"""The front door: a question about mixtures, written down once and answered in several ways.

>>> question = problem(fit, "243M", "100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)
>>> question.solve(), question.with_tokens("fi+20B").solve(), question.compare(["uniform", "natural"])

Under a compute budget C = 6 N D the problem at N and D = C / 6N is solved for a whole grid of N at once, which then
narrows around its best point. The interval of N is that of the best points of the fit's replicates, each at the optimal
mixture (at an optimum the objective does not feel small changes of it), and of a slope beside the law's, by which the
middle curve leans either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.fitting.own_fit import AnyFit, FitSpec, OwnFit, as_fit
from shapleymix.fitting.prediction import tokens_of
from shapleymix.fitting.settings import Size
from shapleymix.mixing.answers import Candidates, Mixture
from shapleymix.mixing.asked import Asked, is_called_as, takes_keywords
from shapleymix.mixing.frontier import POINTS, Frontier, frontier_of
from shapleymix.mixing.question import Question, solve_questions
from shapleymix.mixing.reporting import candidates_of, report
from shapleymix.mixing.solving import solve_all
from shapleymix.records import FloatArray
from shapleymix.statistics import interval_ends
from shapleymix.tables.mixtures import Rivals, rivals_of
from shapleymix.tables.words import parse_budget


@dataclass(frozen=True)
class Problem(Question):
    """A question, and the answers to it; see `problem`."""

    def solve(self) -> Mixture:
        """The optimal mixture, with its proof."""
        return report(*solve_questions((self,))[0])

    def compare(self, mixtures: Rivals) -> Candidates:
        """Several mixtures side by side, and what each gains over the first."""
        return candidates_of(self, mixtures)

    def frontier(self, between: str, points: int = POINTS) -> Frontier:
        """The trade-off between the mean losses of two sets of targets, such as `"en:rest"`."""
        return frontier_of(self, between, points)


@is_called_as(Asked)
@takes_keywords
def problem(fit: FitSpec, N: Size, D: Size, **keywords: Any) -> Problem:
    """A question about mixtures for N parameters and D tokens.

    A mixture may be text (`"en=0.5,de=50%"`), a mapping, ratios in the order of the sources, a `Mixture`, the file of
    a saved one, or a baseline's name: `"uniform"`, `"natural"`, `"temperature:T"`, `"unimax:E"`, `"text:DIR"`.

    Parameters
    ----------
    fit : FitSpec
        A `Fit`, the file of a saved one, or an object of your own with `sources`, `targets` and `predict`.
    N, D : Size
        Parameters and tokens of the run: numbers, or sizes such as `"243M"`.
    unit : str
        Unit of the losses, and so of the objective: `"nats"` a token, or `"bpb"`, bits a byte by the column
        `bytes_per_token` of `languages`.
    weights : WeightSpec, optional
        What each target's loss counts: `"unweighted"`, `"normalized"` (losses are divided by those of monolingual
        models), numbers by target (`"en=1,de=2"`; the others get 0), or a languages table. By default the weights of
        `languages` if it has any, else unweighted.
    monolingual : mapping or str, optional
        Measured losses of monolingual models in nats, for normalized weights; predicted where not given.
    objective : str
        `"mean"`, or `"worst"`: the largest weighted loss is minimised.
    caps : Ratios, optional
        Highest ratios, such as `"en=0.3,de=40%"`.
    floors : Ratios, optional
        Lowest ratios, likewise.
    fix : Ratios, optional
        Exact ratios, likewise.
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families and weights.
    available : Amounts, optional
        Unique tokens by name, such as `"en=5T,fi=20B"`; they override those of the table.
    max_epochs : EpochsSpec, optional
        How often a token may be seen, for all sources or by name. Without it there is no limit if the fit knows what
        repetition costs, and the limit is 4 if it does not.
    min_tokens : TokensSpec, optional
        Fewest tokens, for every source or by name.
    groups : GroupSpec or sequence of GroupSpec
        Bounds on summed ratios, such as `"en+de<=0.3"`, `"cjk: zh+ja>=10%"`, `"Germanic>=60%"` (a family) or
        `"en>=20%"` (all sources whose names begin with `en/`).
    keep_within : NamesSpec
        Families or parents, such as `"en"` of `en/web` and `en/books`, of which only the summed ratio is chosen: inside
        of each the ratios stay as the mixture `kept` has them.
    kept : MixtureSpec, optional
        The mixture whose ratios `keep_within` keeps; natural by default.
    near : MixtureSpec, optional
        A mixture to stay close to; needs `within`.
    within : float or str, optional
        The largest distance from `near`.
    distance : str
        How that is measured: `"l1"`, the sum of absolute differences, or `"kl"`, nats.
    after : MixtureSpec, optional
        For a run already begun, what it has read so far; needs `trained`. N, D, bounds and epochs are those of the
        whole run, and so is the answer, whose `rest` is what to read from now on. Mixtures to compare with are of the
        rest. Losses are taken to hang on what a run has read in all, not on its order.
    trained : Size, optional
        How many of the D tokens it has read.
    anchor : MixtureSpec, optional
        A mixture towards which the optimum is pulled; needs `kl`.
    kl : float
        Strength of the pull: the term kl * KL(p || anchor) is added to the objective, in its unit.
    constraints : sequence of Constraint
        Functions from the ratios by name, which are cvxpy expressions, to one cvxpy constraint or a list of them:
        `lambda p: p["en"] <= 2 * p["de"]`.
    compare_to : Rivals
        Further mixtures to compare with, by name or in a list: `["unimax:4", "plan=en=0.5,de=0.5"]`.
    what_if : str or sequence of str
        Changes of the available tokens, such as `"de+50B"` or `"de+50B,fr-10B"`: the problem is solved again with each.
    downstream : Downstream or path, optional
        Calibrated tasks: the mixture is chosen by their scores instead of losses.
    allow_unseen : bool
        Allow ratios for sources that no fitted run saw, and others than the one that all runs had.
    level : float
        Probability of the intervals.
    seed : int
        Seed of the search that is made where a law is not convex.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture; says which, by how much, and the smallest repair.
    SolveError
        If no mixture has a finite loss, the law overflows at the budget, or a constraint is not convex.
    UsageError
        If a name is unknown or an option out of range.
    """
    return Problem.of(Asked(fit, N, D, **keywords))


@is_called_as(Asked)
@takes_keywords
def optimize(fit: FitSpec, N: Size, D: Size, **keywords: Any) -> Mixture:
    """The optimal mixture for N parameters and D tokens, with its proof: `problem(fit, N, D, ...).solve()`.

    Parameters
    ----------
    fit, N, D : FitSpec and Size
        The fit and the budget.
    **keywords : see `problem`
        Weights, bounds and whatever else a problem takes.

    Raises
    ------
    InfeasibleError, SolveError, UsageError
        As `problem`.
    """
    return problem(fit, N, D, **keywords).solve()


@takes_keywords
def optimize_scales(
    fit: FitSpec, N: Sequence[Size] | Size, D: Sequence[Size] | Size, **keywords: Any
) -> tuple[Mixture, ...]:
    """`optimize` at every pair of N and D, N by N; where bounds are on single ratios alone, all in one batch.

    Parameters
    ----------
    fit : FitSpec
        The fit.
    N, D : Size or sequence of Size
        Model sizes and token counts, one or several of each.
    **keywords : see `problem`
        Weights, bounds and whatever else a problem takes.
    """
    sizes = [[given] if isinstance(given, (str, float, int)) else list(given) for given in (N, D)]
    known, questions = as_fit(fit), []
    for size, tokens in dict.fromkeys(itertools.product(*sizes)):
        try:
            questions.append(problem(known, size, tokens, **keywords))
        except InfeasibleError as error:
            message = f"at N = {size}, D = {tokens}: {error.message}"
            raise InfeasibleError(message, hint=error.hint, faults=error.faults) from error
    return tuple(report(*solved) for solved in solve_questions(questions))


@takes_keywords
def compare_mixtures(fit: FitSpec, mixtures: Rivals, N: Size, D: Size, **keywords: Any) -> Candidates:
    """Predicted losses of several mixtures side by side, and the gain of each over the first.

    The gains are paired: what the mixtures have in common cancels. Their intervals are for one trained run of each.

    Parameters
    ----------
    fit : FitSpec
        The fit, as for `problem`; no convexity is asked of its law.
    mixtures : Rivals
        At least one mixture: a mapping from names, or a list of mixtures and of the baselines `uniform`, `natural`,
        `temperature:T`, `unimax:E` and `text:DIR`.
    N, D : Size
        Numbers, or sizes such as `"243M"`.
    **keywords : see `problem`
        Weights, bounds and whatever else a problem takes.

    Raises
    ------
    UsageError
        If no mixture is given, one cannot be read, or an option is out of range.
    """
    named = rivals_of(mixtures)
    keywords["available"] = tokens_of(named.values(), keywords.get("available"), keywords.get("languages"))
    return problem(fit, N, D, **keywords).compare(named)


@takes_keywords
def frontier(fit: FitSpec, N: Size, D: Size, between: str, *, points: int = POINTS, **keywords: Any) -> Frontier:
    """The trade-off curve between the mean losses of two sets of targets.

    Parameters
    ----------
    fit, N, D : FitSpec and Size
        The fit and the budget, as for `problem`.
    between : str
        Two sets with a colon between, such as `"en:rest"` or `"en+de:zh+ja"`; families of the languages table stand for
        their targets, and `rest` for all targets that the other side does not name.
    points : int
        Largest number of points; there are fewer where the curve has a kink or ends in one point.
    **keywords : see `problem`
        Weights count within each side.

    Raises
    ------
    UsageError
        If a side names no target, both name one, or something is asked that a curve does not know: another objective, a
        KL penalty, or scores. Else as for `problem`.
    """
    return problem(fit, N, D, **keywords).frontier(between, points)


FLOPS_PER_PARAMETER_TOKEN = 6.0
DECADES, GRID, ROUNDS, ZOOM = 5.0, 41, 7, 2
SPLIT = 0.004
"""Spread of the slope of log loss in log N, at one N D, by which laws err there.

The least multiple of .001 by which intervals hold 90% of the best N of eight public isoFLOP suites, those of parabolas
through their runs of one compute, within the fitted computes and up to 3.3 times beyond: 95 and 96%, for 55 and 54
without (`bench_coverage.py`).
"""


@takes_keywords
def optimize_compute(fit: FitSpec, flops: Size, **keywords: Any) -> Mixture:
    """N, D and the mixture together, under flops = 6 N D.

    Parameters
    ----------
    fit : FitSpec
        The fit.
    flops : float or str
        FLOPs of the whole training, such as `"1e22"`.
    **keywords : see `problem`
        Weights, bounds and whatever else a problem takes.

    Raises
    ------
    SolveError
        If the runs do not tell how the loss falls with N or with D, or the law is not convex in the mixture. The others
        as for `problem`.
    """
    known, product = as_fit(fit), parse_budget(flops, "flops") / FLOPS_PER_PARAMETER_TOKEN
    if keywords.get("after") is not None:
        raise UsageError("a run already begun has its N", hint="give N and D in place of flops")
    _require_scaling(known)
    one = _best_size(known, product, keywords)
    found = one.solve()
    low, high = _interval(known, product, keywords, one, found.p)
    sizes = {"N_low": low, "N_high": high, "D_low": product / high, "D_high": product / low}
    return replace(found, **sizes)


def _require_scaling(fit: AnyFit) -> None:
    """Refuse a fit whose runs do not tell how the loss falls with N or D: what is assumed would choose the split."""
    if isinstance(fit, OwnFit):
        return
    if fit.coverage.rise_together:
        message = "N and D rise together in the runs, which do not say which to raise: no compute-optimal split"
        raise SolveError(message, hint=fit.warnings[0])
    budgets = ("N", fit.N_range, fit.law.of_budget("N")), ("D", fit.D_range, fit.law.of_budget("D"))
    for name, span, symbols in budgets:
        reasons = [f"{symbol} was assumed" for symbol in symbols if symbol in fit.held]
        reasons += [] if span[1] > span[0] else [f"all have one {name}"]
        reasons += [] if symbols else [f"the law has no term in {name}"]
        if reasons:
            message = f"the runs do not show how the loss falls with {name} ({reasons[0]}): no compute-optimal split"
            raise SolveError(message, hint=f"fit on runs with three or more {name}, or give N and D in place of flops")


def _problems(fit: Any, grid: FloatArray, product: float, keywords: dict[str, Any]) -> list[Problem]:
    """The problems at each log N of a grid, and the D that makes the product N D, that bounds leave a mixture for.

    Raises
    ------
    SolveError
        If an optimum would have no proof.
    """
    found, refused = [], []
    for N in np.exp(grid).tolist():
        try:
            found.append(problem(fit, N, product / N, **keywords))
        except InfeasibleError as error:
            refused.append(error)
    if not found:  # the D that comes nearest to holding them says best what contradicts what
        raise min(refused, key=lambda error: sum(float(fault.value or np.inf) for fault in error.faults))
    if not all(one.goal.is_convex for one in found):
        message = "the objective may not be convex in the mixture, and optima without a proof cannot be compared"
        raise SolveError(message, hint="ask for several N and D of that budget, and take the best")
    return found


def _best_size(fit: Any, product: float, keywords: dict[str, Any]) -> Problem:
    """The problem at the N of the lowest optimal objective.

    Raises
    ------
    SolveError
        If the law trades N against D nowhere near.
    """
    middle, half = 0.5 * np.log(product), DECADES * np.log(10.0)
    edges = low, high = (max(middle - half, 0.0), min(middle + half, 2 * middle))
    best, found = middle, None
    for _ in range(ROUNDS):
        problems = _problems(fit, np.linspace(low, high, GRID), product, keywords)
        optima = [proof.certificate.objective for proof in solve_all([one.goal for one in problems])]
        found = problems[np.argmin(optima)]
        best = float(np.log(found.surface.N))
        cell = ZOOM * (high - low) / (GRID - 1)
        low, high = max(edges[0], best - cell), min(edges[1], best + cell)
    if found is None or min(best - edges[0], edges[1] - best) < 1e-6:
        message = f"the best N is beyond {np.exp(best):.3g}: the fitted law does not trade N against D here"
        raise SolveError(message, hint="fit on runs with several N and several D, or give N and D in place of flops")
    return found


def _interval(fit: Any, product: float, keywords: dict[str, Any], best: Problem, p: FloatArray) -> tuple[float, float]:
    """Interval of the best N over the fit's replicates, each at the mixture p (M,); NaN without."""
    if best.draws is None:
        return np.nan, np.nan
    middle, half = np.log(best.surface.N), 0.5 * DECADES * np.log(10.0)
    grid = np.linspace(middle - half, middle + half, 2 * GRID - 1)
    known = [(one, one.draws) for one in _problems(fit, grid, product, keywords) if one.draws is not None]
    values = np.stack([one.goal.of(draws.losses(p)) for one, draws in known])
    places = np.log([one.surface.N for one, _ in known])
    ends, least = np.quantile(_lowest(places, values), interval_ends(best.level)), np.log(best.surface.N)
    tilt = float(norm.ppf(interval_ends(best.level)[1])) * SPLIT
    leaning = np.median(values, axis=1)[:, None] * np.exp(np.outer(places - least, [tilt, 0.0, -tilt]))
    down, here, up = _lowest(places, leaning)
    spread = np.hypot(np.maximum([least - ends[0], ends[1] - least], 0.0), [here - down, up - here])
    low, high = np.exp([least - spread[0], least + spread[1]]).tolist()
    return low, high


def _lowest(places: FloatArray, values: FloatArray) -> FloatArray:
    """Where each curve (P, B) over places (P,) is lowest, (B,): the least value, or the bottom of a parabola there."""
    rows, least = np.arange(values.shape[1]), np.argmin(np.where(np.isfinite(values), values, np.inf), axis=0)
    if len(places) < 3:
        return places[least]
    middle = np.clip(least, 1, len(places) - 2)
    before, here, after = (values[middle + step, rows] for step in (-1, 0, 1))
    bend = before - 2 * here + after
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(bend > 0, 0.5 * (before - after) / bend, 0.0)
    inner = (middle == least) & np.isfinite(share)
    return np.where(inner, places[middle] + share * (places[1] - places[0]), places[least])
