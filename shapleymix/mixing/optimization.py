"""From a fit and a budget to the mixture: optimum, proof, interval, and what it gains over every rival.

>>> mix = optimize(fit, N="243M", D="100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)
>>> mix.mixture, mix.relative_gap, mix.shadow_prices
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from shapleymix.errors import InfeasibleError, UsageError, caution, described
from shapleymix.keywords import checked
from shapleymix.laws.terms import Terms
from shapleymix.mixing.assembly import TOLD_IN_THE_RESULT, Summary, assemble
from shapleymix.mixing.cautious import cautious
from shapleymix.mixing.certificate import Answer, certified, uncertified
from shapleymix.mixing.choices import chosen
from shapleymix.mixing.closed_forms import EXACT, closed_form
from shapleymix.mixing.demands import DemandKeywords, Demands, Size, notices_of, takes_demands
from shapleymix.mixing.engine.envelopes import unproved
from shapleymix.mixing.engine.search import NAME, Surface, is_convex, search
from shapleymix.mixing.engine.solving import solve_all, solve_replicates, usable_replicates
from shapleymix.mixing.fit_like import FitLike, FitSpec, fit_of
from shapleymix.mixing.grids import notices_over
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.pieces import pieces_of
from shapleymix.mixing.problem import MEAN, Problem
from shapleymix.mixing.repeating import repeated_replicates
from shapleymix.mixing.weights import Weights
from shapleymix.mixing.what_if import changes_of
from shapleymix.records import FloatArray
from shapleymix.tables.baselines import named_baselines
from shapleymix.tables.sizes import format_size, parse_size


@takes_demands
def optimize(fit: FitSpec, N: Size, D: Size, **keywords: Unpack[DemandKeywords]) -> Mixture:
    """The optimal mixture for N parameters and D tokens.

    A mixture may be text (`"en=0.5,de=50%"`), a mapping, ratios in the order of the sources, a `Mixture`, the file of
    a saved one, or a baseline's name: `"uniform"`, `"natural"`, `"temperature:T"`, `"unimax:E"`.

    Parameters
    ----------
    fit : FitSpec
        A `Fit`, the file of a saved one, or anything with `sources`, `targets`, `terms`, `replicate_terms` and
        `predict`.
    N, D : Size
        Numbers, or sizes such as `"243M"`.
    weights : WeightSpec, optional
        `"unweighted"`, `"normalized"`, numbers by target (`"en=1,de=2"`; the others get 0), or a languages table. None
        = the weights of `languages` if it has any, else unweighted.
    monolingual : mapping or str, optional
        Measured losses of monolingual models, for normalized weights; predicted where not given.
    objective : str
        `"mean"`, or `"worst"` (the largest weighted loss is minimised).
    caps, floors, fix : Ratios, optional
        Highest, lowest and exact ratios, such as `"en=0.3,de=40%"` or a mapping.
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families and weights.
    available, max_epochs : Amounts or EpochsSpec, optional
        Unique tokens by name, and how often each may be seen. Where nothing is said, as often as it pays: repeated
        tokens are worth less by the rate that the fit knows (4 times for a fit that knows none).
    min_tokens, groups : TokensSpec and GroupSpec (or a sequence of it), optional
        Fewest tokens, for every source or by name; bounds on summed ratios, such as `"en+de<=0.3"`, `"Germanic>=60%"`.
    near, within, distance : MixtureSpec, float or str
        The mixture is at most `within` from `near`, in `"l1"` distance or `"kl"` nats.
    anchor, kl : MixtureSpec or float, optional
        Adds the term kl * KL(p || anchor) to the objective, with kl in nats of loss.
    constraints : sequence of Constraint
        Functions from the cvxpy variable p (M,) to cvxpy constraints.
    method : str
        `"exact"`, or for comparison a closed form: `"interior"`, `"closed-form"`, `"first-order"`,
        `"first-order-printed"` or `"clipped"`.
    compare_to, smoothing : Rivals and float, optional
        Further mixtures to compare with, by name or in a list: `["unimax:4", "plan=en=0.5,de=0.5"]`; and the exponent
        alpha of the smoothed baseline, p ~ available^alpha.
    allow_unseen, strict : bool
        Allow ratios for sources that no fitted run saw; refuse an optimum outside of what was fitted.
    level, seed, allow_nonconvex : float, int and bool
        Probability of the intervals; whether to search laws without convexity, from starts drawn with the seed.
    what_if : str or sequence of str
        Changes of the available tokens, each of which is answered beside: `"de+50B"`, `["de+50B,fr-10B"]`.
    cautious : MixtureSpec or bool, optional
        Look for the mixture of the best lower bound of its gain over this baseline instead; True = `natural` where the
        tokens are known, else `uniform`.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture; says which, by how much, and the smallest repair.
    SolveError
        If the law has no convex form, or no mixture has a finite loss.
    UsageError
        If a name is unknown or an option out of range.
    """
    checked("optimize", keywords, DemandKeywords.__annotations__)
    demands = Demands(**keywords)
    (found,) = at_scales(fit_of(fit), [N], [D], demands)
    further = (f"with {other.name}: {told}" for other in found.what_if for told in other.notices)
    caution((*(notice for notice in found.notices if notice not in TOLD_IN_THE_RESULT), *further))
    return found


@takes_demands
def optimize_scales(
    fit: FitSpec, N: Sequence[Size] | Size, D: Sequence[Size] | Size, **keywords: Unpack[DemandKeywords]
) -> tuple[Mixture, ...]:
    """`optimize` at every pair of N and D, N by N; where the engine suffices, all in one batch.

    Parameters
    ----------
    fit : FitSpec
        The fit, as for `optimize`.
    N, D : Size or sequence of Size
        Model sizes and token counts, one or several of each.
    **keywords : DemandKeywords
        As for `optimize`.
    """
    checked("optimize_scales", keywords, DemandKeywords.__annotations__)
    demands = Demands(**keywords)
    found = at_scales(fit_of(fit), N, D, demands)
    caution(notice for notice in notices_over(found) if notice not in TOLD_IN_THE_RESULT)
    return found


def at_scales(
    fit: FitLike, Ns: Sequence[Size] | Size, Ds: Sequence[Size] | Size, known: Demands
) -> tuple[Mixture, ...]:
    """The mixture at every pair of N and D."""
    budgets = list(dict.fromkeys(itertools.product(_sizes(Ns, "N"), _sizes(Ds, "D"))))
    if known.allow_nonconvex and not is_convex(fit, *budgets[0]):
        return tuple(_searched(fit, N, D, known) for N, D in budgets)
    changes = changes_of(known.what_if, fit.sources, known.supply(fit.sources))
    pairs = [_problem(fit, N, D, known, alone=len(budgets) == 1) for N, D in budgets]
    problems = tuple(problem for problem, _ in pairs)
    exact = solve_all(problems)
    answers = exact if known.method == EXACT else tuple(_printed(known.method, problem) for problem in problems)
    supplies = [problem.constraints.available for problem in problems]
    replicates = [
        usable_replicates(repeated_replicates(fit, pieces_of(fit, N, D, known)[1], available, D))
        for (N, D), available in zip(budgets, supplies, strict=True)
    ]
    optima = _replicate_optima(problems, [terms for terms, _ in replicates])
    choices = [
        chosen(fit, problem, best, terms, spread)
        for problem, best, (terms, _), spread in zip(problems, exact, replicates, optima, strict=True)
    ]
    told = [
        (*notes, *notices_of(known, problem.constraints, w))
        for (problem, w), (_, notes) in zip(pairs, replicates, strict=True)
    ]
    return tuple(
        _reported(Summary(fit, N, D, known, problem, weights, answer, best, terms, spread, notices, changes, choice))
        for (N, D), (problem, weights), answer, best, (terms, _), spread, choice, notices in zip(
            budgets, pairs, answers, exact, replicates, optima, choices, told, strict=True
        )
    )


def _problem(fit: FitLike, N: float, D: float, known: Demands, alone: bool) -> tuple[Problem, Weights]:
    """The problem at one budget; of several, one that leaves no mixture is named."""
    try:
        return known.problem(fit, pieces_of(fit, N, D, known)[0], D)
    except InfeasibleError as error:
        if alone:
            raise
        place = f"at N = {format_size(N)}, D = {format_size(D)}"
        raise InfeasibleError(f"{place}: {error.message}", hint=error.hint, faults=error.faults) from error


def _searched(fit: FitLike, N: float, D: float, demands: Demands) -> Mixture:
    """The best mixture found under a law without convexity, reported as any other, without a proof."""
    if demands.method != EXACT:
        raise UsageError(f"method {demands.method!r} needs a law that is convex in the mixture")
    if demands.wary:
        raise UsageError("a cautious mixture needs a law that is convex in the mixture")
    if demands.what_if:
        raise UsageError("what_if needs a law that is convex in the mixture")
    problem, weights = demands.problem(fit, Surface.of(fit, N, D), D)
    answer = uncertified(problem, search(problem, demands.seed), NAME)
    notices = notices_of(demands, problem.constraints, weights)
    summary = Summary(fit, N, D, demands, problem, weights, answer, answer, None, None, notices)
    return _reported(summary)


def _reported(summary: Summary) -> Mixture:
    """The mixture with its rivals; the cautious one where that is asked for."""
    demands, D, available = summary.demands, summary.D, summary.problem.constraints.available
    sources = tuple(summary.fit.sources)
    rivals = named_baselines(sources, available, demands.smoothing, demands.compare_to, D)
    if not demands.wary:
        return assemble(summary, rivals)
    if unproved(summary.problem).any():
        hint = "leave out cautious: gains over every rival are shown with their intervals"
        raise UsageError("a cautious mixture needs scores that are convex in the mixture", hint=hint)
    name, baseline = demands.cautious_of(sources, available, D)
    name = next((known for known, p in rivals.items() if np.allclose(p, baseline, rtol=0, atol=1e-12)), name)
    found = cautious(summary.beliefs, summary.best, baseline)
    wary = replace(summary, answer=found.answer, choices=found.choices, cautious=name)
    return assemble(wary, rivals | {name: baseline})


def _printed(method: str, problem: Problem) -> Answer:
    """A closed form's mixture with its certificate, which tells how far from optimal it may be."""
    if (
        problem.objective != MEAN
        or problem.further
        or problem.constraints.grouped
        or problem.constraints.near
        or problem.kl
    ):
        raise UsageError(f"method {method!r} knows only the mean objective under caps", hint="use method 'exact'")
    return certified(problem, closed_form(method, problem.terms, problem.w, problem.constraints), method)


def _replicate_optima(problems: tuple[Problem, ...], replicates: list[Terms | None]) -> list[FloatArray | None]:
    present = [terms for terms in replicates if terms is not None]
    if len(present) < len(problems) or len({terms.batch for terms in present}) > 1:
        return [
            None if terms is None else solve_replicates((problem,), (terms,))[0]
            for problem, terms in zip(problems, replicates, strict=True)
        ]
    return list(solve_replicates(problems, tuple(present)))


def _sizes(given: Sequence[Size] | Size, name: str) -> list[float]:
    listed: list[Size] = [given] if isinstance(given, (str, float, int)) else _members(given, name)
    numbers = [parse_size(value, name) for value in listed]
    if not numbers or min(numbers) <= 0:
        raise UsageError(f"{name} must be positive", hint="sizes are written 243M, 100B or 1.5e9")
    return numbers


def _members(given: Sequence[Size], name: str) -> list[Size]:
    if not isinstance(given, Iterable):
        raise UsageError(f"{name}: {described(given)} is no size", hint="sizes are written 243M, 100B or 1.5e9")
    return list(given)
