"""From the runs so far, bounds and a number of runs to the mixtures to train next.

>>> plan = design(35, sources=["en", "de", "fr"])                # before any run
>>> more = design(20, "runs.csv", caps={"en": 0.5}, batches=2)   # after some
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from shapleymix.errors import SolveError, UsageError, caution
from shapleymix.fitting.evidence import Logs
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import AUTO, FitKeywords
from shapleymix.keywords import checked, spelt_out
from shapleymix.laws import Law
from shapleymix.mixing.bounds import Amounts, EpochsSpec, GroupSpec, LanguagesSpec, Ratios, TokensSpec
from shapleymix.mixing.demands import Demands, Size
from shapleymix.mixing.repeating import epochs_allowed
from shapleymix.mixing.weights import WeightSpec
from shapleymix.planning.candidates import MixturesSpec, asked, distinct, drawn, mixtures_of, trained
from shapleymix.planning.designs import OPTIMUM, PURPOSES, REGION, Design
from shapleymix.planning.exchange import MOST_GROUPS, Chosen, Progress, choose
from shapleymix.planning.knowledge import REPLICATES, Knowledge, knowledge_of
from shapleymix.planning.optimum import Optimum, optimum_of
from shapleymix.planning.questions import Questions
from shapleymix.planning.region import Region
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_choice, parse_whole
from shapleymix.tables.simplex import MixtureSpec
from shapleymix.tables.sizes import parse_size

NO_OPTIMUM = "no fit says where the optimum lies: the runs are chosen for the whole region"
ASKED_FOR = "as asked"
ANY_BUDGET = 1.0
"""Tokens at which bounds are reckoned that are none on tokens."""


class PlanKeywords(TypedDict, total=False):
    """The keywords of `optimize` that a plan takes as well: bounds, weights, the seed."""

    caps: Ratios | None
    floors: Ratios | None
    fix: Ratios | None
    languages: LanguagesSpec | None
    available: Amounts | None
    max_epochs: EpochsSpec | None
    min_tokens: TokensSpec | None
    groups: Sequence[GroupSpec] | GroupSpec
    near: MixtureSpec | None
    within: float | str | None
    distance: str
    weights: WeightSpec | None
    seed: int


@spelt_out(Demands, PlanKeywords.__annotations__)
def design(
    n: int,
    log: Logs | None = None,
    *,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    fit: Fit | None = None,
    law: str | type[Law] = AUTO,
    min_own_tokens: Size | None = None,
    N: Size | None = None,
    D: Size | None = None,
    run_N: Size | None = None,
    run_D: Size | None = None,
    purpose: str = OPTIMUM,
    candidates: MixturesSpec | None = None,
    region: MixturesSpec | None = None,
    batches: int = 1,
    progress: Progress | None = None,
    **keywords: Unpack[PlanKeywords],
) -> Design:
    """The n mixtures to train next, the most useful first.

    Each shrinks the predicted variance of what is asked most, given the runs so far and those before it. Losses are
    looked at through the fit alone, so after each batch the rest may be planned anew. Deterministic.

    Parameters
    ----------
    n : int
        How many mixtures.
    log : Logs, optional
        The runs so far; rows without any loss are runs that are planned already. None = before any run.
    sources, targets : sequence of str, optional
        Labels, where no log, fit or languages table says them; targets are the sources where nothing else is said.
    fit : Fit, optional
        The fit of the log; None = made here, under `law`.
    law : str or type[Law]
        The law that is fitted to the log, as for `fit`.
    min_own_tokens : Size, optional
        Losses of languages with fewer tokens of their own are left out of that fit; None = as `fit` does: where runs
        without the language prove another regime, they are fitted apart (0 for one law in any case).
    N, D : Size, optional
        The budget for which the optimum is wanted, and at which bounds by tokens hold; None = that of the runs.
    run_N, run_D : Size, optional
        The budget of the planned runs, which is written beside them; None = that of most runs so far.
    purpose : str
        `"optimum"`: know better what mixtures gain that may be best; without a fit, as `"region"`: know the losses of
        all mixtures better.
    candidates : MixturesSpec, optional
        The mixtures to choose from, such as a table of points; None = some hundred drawn within the bounds.
    region : MixturesSpec, optional
        The mixtures over which errors are averaged; None = the candidates that are given, or draws within the bounds.
    batches : int
        Into how many batches the runs are numbered.
    progress : Progress, optional
        Is called with the stage, how much of it is done, and how much there is.
    **keywords : PlanKeywords
        Bounds, weights and seed, as for `optimize`.

    Raises
    ------
    UsageError
        If there are no labels, fewer candidates than runs, or something is asked that a plan does not know.
    InfeasibleError
        If the bounds leave no mixture.
    """
    checked("design", keywords, PlanKeywords.__annotations__)
    count, parts = parse_whole(n, "n", 1), parse_whole(batches, "batches", 1)
    parse_choice(purpose, PURPOSES, "purpose")
    if parts > count:
        raise UsageError(f"{parts} batches of {count} runs", hint="give no more batches than runs")
    demands = Demands(**keywords, allow_unseen=True)
    least = None if min_own_tokens is None else parse_size(min_own_tokens, "min_own_tokens")
    fit = None if fit is None else Fit.taken(fit)
    if least is not None and fit is not None:
        hint = "leave out min_own_tokens here, and give it where the law is fitted"
        raise UsageError("min_own_tokens does nothing to a fit that is given", hint=hint)
    settings: FitKeywords = {"bootstrap": REPLICATES, "min_own_tokens": least}
    held = knowledge_of(log, fit, law, demands.table, sources, targets, demands.seed, settings)
    usual = held.usual_budget()
    goal, runs = _budget((N, D), usual), _budget((run_N, run_D), usual)
    best, notices = _optimum(held, goal, demands, purpose)
    pool, points = _mixtures(held, demands, goal[1], candidates, region)
    if candidates is None:
        pool = _telling(held, pool, runs[1])
    if purpose == OPTIMUM and best is not None and candidates is None:
        pool = distinct(best.candidates(pool))
    told = Questions.over(points, len(held.targets))
    questions = [told] if best is None else [best.questions(points), told]
    if purpose != OPTIMUM:
        questions.reverse()
    open_places = np.flatnonzero(~trained(pool, held.mixtures))
    if len(open_places) < count:
        hint = "ask for fewer runs, give more candidates, or loosen the bounds"
        raise UsageError(f"{count} runs of {len(open_places)} candidates that were not trained yet", hint=hint)
    around = pool.mean(axis=0) if best is None else best.p
    chosen = choose(held.belief(*goal, around), pool[open_places], questions, count, progress=progress)
    order = open_places[chosen.order]
    errors = _errors(chosen, questions, told)
    found = Design(
        sources=held.sources,
        targets=held.targets,
        purpose=purpose if best is not None else REGION,
        N=runs[0],
        D=runs[1],
        because=_because(held, (run_N, run_D)),
        runs=_names(held, count),
        p=pool[order],
        batch=np.arange(count, dtype=np.int64) * parts // count + 1,
        candidate=order,
        region_error=np.append(errors[0][0] if len(held.mixtures) else np.nan, errors[0][1:]),
        optimum_error=errors[1],
        optimum=np.full(len(held.sources), np.nan) if best is None else best.p,
        trained=len(held.mixtures),
        candidates=len(open_places),
        notices=(*held.notices, *notices, *_approximated(len(held.targets))),
        provenance={"fit": {} if held.fit is None else dict(held.fit.provenance), "seed": demands.seed},
    )
    caution(found.notices)
    return found


def _budget(given: tuple[Size | None, Size | None], usual: tuple[float, float]) -> tuple[float, float]:
    """N and D as they are given, else as they usually are."""
    N, D = (
        known if size is None else parse_size(size, name)
        for size, known, name in zip(given, usual, ("N", "D"), strict=True)
    )
    return N, D


def _because(held: Knowledge, given: tuple[Size | None, Size | None]) -> str:
    """Why the planned runs have their N and D."""
    asked = [name for size, name in zip(given, ("N", "D"), strict=True) if size is not None]
    if len(asked) == len(given):
        return ASKED_FOR
    return f"{asked[0]} {ASKED_FOR}, the other {held.usual_because}" if asked else held.usual_because


def _mixtures(
    held: Knowledge, demands: Demands, D: float, candidates: MixturesSpec | None, region: MixturesSpec | None
) -> tuple[FloatArray, FloatArray]:
    """The mixtures (C, M) to choose from, and those (Q, M) over which errors are averaged."""
    supply = demands.supply(held.sources)
    if np.isnan(D) and (np.isfinite(supply).any() or demands.min_tokens is not None):
        hint = "give the D of that run, or leave out what bounds by tokens: languages, available, fewest tokens"
        raise UsageError("bounds by tokens need the tokens of the run that is planned for", hint=hint)
    tokens = ANY_BUDGET if np.isnan(D) else D
    area = Region.of(demands.bounds(held.sources, tokens, epochs=epochs_allowed(held.fit)))
    listed = None if candidates is None else mixtures_of(candidates, held.sources, supply, tokens)
    if region is not None:
        points = mixtures_of(region, held.sources, supply, tokens)
    else:
        points = asked(area, demands.seed) if listed is None else listed
    return drawn(area, demands.seed) if listed is None else listed, points


def _telling(held: Knowledge, pool: FloatArray, D: float) -> FloatArray:
    """The candidates (C, M) of which the fit takes every loss that it takes of any; the others tell it less."""
    tells = held.tells(pool, D)
    return pool[(tells | ~tells.any(axis=0)).all(axis=1)]


def _optimum(
    held: Knowledge, goal: tuple[float, float], demands: Demands, purpose: str
) -> tuple[Optimum | None, tuple[str, ...]]:
    """Where the fit says that the optimum is, or why nothing says so."""
    if held.fit is None:
        return None, (NO_OPTIMUM,) if purpose == OPTIMUM else ()
    try:
        return optimum_of(held.fit, *goal, demands), ()
    except SolveError as error:
        return None, (f"{NO_OPTIMUM} ({error.message})",) if purpose == OPTIMUM else ()


def _errors(chosen: Chosen, questions: Sequence[Questions], told: Questions) -> tuple[FloatArray, FloatArray]:
    """Expected errors (n + 1,) over the region and of gains near the optimum, before the first run and after each."""
    found, first = {False: np.full(len(chosen.variance), np.nan)}, 0
    for one in questions:
        found[one is told] = np.sqrt(chosen.mean(one, first))
        first += len(one.points)
    return found[True], found[False]


def _names(held: Knowledge, count: int) -> tuple[str, ...]:
    """Ids for the runs that none so far has."""
    taken = set() if held.log is None else set(held.log.runs)
    width = len(str(count))
    for turn in range(1, len(taken) + 2):
        head = "plan" if turn == 1 else f"plan{turn}"
        names = tuple(f"{head}-{number:0{width}d}" for number in range(1, count + 1))
        if not taken.intersection(names):
            return names
    raise AssertionError("one of more prefixes than runs is free")


def _approximated(targets: int) -> tuple[str, ...]:
    """What is not exact with many targets."""
    if targets <= MOST_GROUPS:
        return ()
    return (f"{targets} targets were taken as {MOST_GROUPS} groups, each with the mean covariance of its members",)
