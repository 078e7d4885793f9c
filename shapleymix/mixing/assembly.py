"""From a solved problem to the `Mixture` that is reported: the only place that builds one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shapleymix.display import short
from shapleymix.files import Json
from shapleymix.fitting.measures import ERROR, LOSS
from shapleymix.laws.terms import Terms
from shapleymix.mixing.cautious import NAME as CAUTIOUS
from shapleymix.mixing.certificate import FEASIBLE, Answer, violation
from shapleymix.mixing.closed_forms import EXACT
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.doubts import NO_GAIN, interval
from shapleymix.mixing.engine.branching import NAME as BRANCHING
from shapleymix.mixing.engine.envelopes import unproved
from shapleymix.mixing.fit_like import FitLike, drawn_sources, effect_of, little_told, misfit_of
from shapleymix.mixing.gains import Beliefs, Rival
from shapleymix.mixing.judgement import judged
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.pieces import supplied
from shapleymix.mixing.plateaus import plateau
from shapleymix.mixing.prices import prices_of, round_tokens, worths_of_tokens
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.repeating import cost_of, costs, unpriced
from shapleymix.mixing.weights import Weights
from shapleymix.mixing.what_if import Change, answered
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.baselines import epochs_of

CONVERGED, BRANCHED = 1e-6, 1e-4
"""A certificate is loose where its relative gap is larger: of a solver, and of a search by branch and bound."""
NO_SUPPLY = "no available tokens are given (languages table): no natural or smoothed mixture to compare with"

NO_REPLICATES = "the fit has no bootstrap replicates: ratios, the objective and gains have no intervals"
SCATTER_ALONE = "no bootstrap replicates: ratios have no intervals; the others hold how held-out runs scatter, no more"
SEARCHED = "the certificate is of a search by branch and bound, and intervals of ratios of local optima"
MANY = "so that many mixtures are as good, and ratios have no intervals"
TOLD_IN_THE_RESULT = (NO_SUPPLY, NO_REPLICATES, SCATTER_ALONE)
"""Notices of what is not there, which are no reason to distrust what is: no warnings."""


@dataclass(frozen=True)
class Summary:
    """All that is known of one solved budget: `best` is the exact answer, `answer` that of the method asked for,
    `replicates` the law's bootstrap (or None), `optima` (B, M) the optimum under each, and `choices` (B, M) what would
    have been chosen under each. Where `cautious` names a baseline, `answer` and `choices` are cautious mixtures."""

    fit: FitLike
    N: float
    D: float
    demands: Demands
    problem: Problem
    weights: Weights
    answer: Answer
    best: Answer
    replicates: Terms | None
    optima: FloatArray | None
    notices: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    choices: FloatArray | None = None
    cautious: str = ""

    @property
    def level(self) -> float:
        """Probability of the intervals."""
        return self.demands.level

    @cached_property
    def beliefs(self) -> Beliefs:
        """What is believed of the losses of mixtures at this budget."""
        bounds = self.problem.constraints
        drawn = little_told(self.fit, bounds.sources)
        regime = supplied(self.fit, self.N, bounds) if self.answer.proved else None  # else losses are predictions
        effect = effect_of(self.fit, self.N, self.D)
        misfit = misfit_of(self.fit, self.N, self.D)
        return Beliefs(self.problem, self.replicates, misfit, self.choices, self.level, drawn, regime, effect)

    @property
    def method(self) -> str:
        """How the mixture was found."""
        return CAUTIOUS if self.cautious else self.demands.method


def assemble(summary: Summary, baselines: dict[str, FloatArray]) -> Mixture:
    """The reported mixture."""
    problem, answer, bounds = summary.problem, summary.answer, summary.problem.constraints
    exact = summary.method == EXACT
    seen = judged(summary.fit, answer.p, baselines, summary.N, bounds, summary.demands)
    predicted = seen.optimum
    flat = plateau(problem, answer.p)
    spread = interval(summary.optima if exact and not flat.any() else None, summary.level, len(answer.p))
    reasons = [seen.reason(row, problem.w) for row in range(1 + len(baselines))]
    low, high = (np.nan, np.nan) if reasons[0] else summary.beliefs.objective(answer.p)
    found = Mixture(
        sources=tuple(summary.fit.sources),
        targets=tuple(summary.fit.targets),
        N=summary.N,
        D=summary.D,
        p=answer.p,
        p_low=spread[0],
        p_high=spread[1],
        losses=np.asarray(predicted.losses, dtype=float)[0],
        losses_low=np.asarray(predicted.low, dtype=float)[0],
        losses_high=np.asarray(predicted.high, dtype=float)[0],
        weights=problem.w,
        weights_origin=summary.weights.origin,
        objective_kind=problem.objective,
        objective=np.nan if reasons[0] else summary.beliefs.value(answer.p),
        objective_low=low,
        objective_high=high,
        certificate=answer.certificate,
        caps=bounds.upper,
        floors=bounds.lower,
        binding=prices_of(problem, answer) if exact and answer.proved else (),
        available=bounds.available,
        epochs=epochs_of(answer.p, bounds.available, bounds.D),
        max_epochs=bounds.epochs,
        min_tokens=bounds.min_tokens,
        baselines=tuple(
            _rival(summary, name, p, reasons[0] or reason)
            for (name, p), reason in zip(baselines.items(), reasons[1:], strict=True)
        ),
        method=summary.method if answer.proved else answer.engine,
        engine=answer.engine,
        excess=answer.certificate.objective - summary.best.certificate.objective if answer.proved else np.nan,
        distance=float(np.abs(answer.p - summary.best.p).sum()) if answer.proved else np.nan,
        level=summary.level,
        replicates=0 if summary.optima is None else len(summary.optima),
        notices=(*_notices(summary, baselines, seen.warnings, reasons[0]), *_of_plateau(problem, flat)),
        provenance=_provenance(summary),
        penalty=problem.penalty(answer.p),
        kl=problem.kl,
        anchor=problem.anchor,
        cautious=summary.cautious,
        measure=ERROR if getattr(summary.fit, "measure", LOSS) == ERROR else LOSS,
        repetition=costs(problem.terms, answer.p),
        repetition_cost=cost_of(problem, answer.p),
        token_worths=_worths(problem, answer) if exact and answer.proved else np.full(len(answer.p), np.nan),
        what_if=answered(
            summary.fit, summary.N, summary.demands, summary.changes, problem, answer, summary.replicates, reasons[0]
        ),
    )
    return replace(found, notices=(found.verdict, *found.notices)) if found.verdict else found


def _worths(problem: Problem, answer: Answer) -> FloatArray:
    """Nats (M,) that as many more unique tokens as a price's unit would save, by caps that give way and by less
    repetition; NaN where the tokens are not known."""
    bounds = problem.constraints
    capped = np.array([why == "tokens" for why in bounds.cap_origin])
    priced = capped & np.isfinite(bounds.epochs)
    by_caps = np.where(priced, answer.worth, 0.0) * np.where(priced, bounds.epochs, 0.0)
    known = ~np.isnan(bounds.available)
    worth = np.where(known, by_caps + worths_of_tokens(problem, answer), np.nan)
    return worth * (round_tokens(bounds.D) / bounds.D)


def _rival(summary: Summary, name: str, p: FloatArray, reason: str) -> Rival:
    problem, beliefs = summary.problem, summary.beliefs
    low, high = (np.nan, np.nan) if reason else beliefs.objective(p)
    found = NO_GAIN if reason else beliefs.gain(summary.answer.p, p)
    return Rival(
        name=name,
        p=p,
        objective=np.nan if reason else beliefs.value(p),
        objective_low=low,
        objective_high=high,
        promised=found.promised,
        gain=found.value,
        gain_low=found.low,
        gain_high=found.high,
        probability=found.probability,
        within_bounds=violation(p, problem.constraints) <= FEASIBLE,
        penalty=problem.penalty(p),
        reason=reason,
    )


def _notices(
    summary: Summary, baselines: dict[str, FloatArray], warnings: tuple[str, ...], undefined: str
) -> tuple[str, ...]:
    problem, answer, bounds = summary.problem, summary.answer, summary.problem.constraints
    found = [*summary.notices, *warnings]
    for who, p in (("the mixture", answer.p), *((f"the rival {name}", p) for name, p in baselines.items())):
        found += unpriced(summary.fit, p, bounds, who)
    if undefined:
        found.append(f"the law is of no use at this mixture: its prediction is {undefined}")
    if not answer.proved:
        found.append("the law is not convex in the mixture: the best of a random search, without a certificate")
    bent = unproved(problem)
    if bent.any():
        names = short([name for name, one in zip(summary.fit.targets, bent.tolist(), strict=True) if one])
        found.append(f"scores of {names} are not convex in the mixture: {SEARCHED}")
    if summary.method != EXACT and violation(answer.p, problem.constraints) > FEASIBLE:
        found.append(f"method {summary.method!r} breaks the bounds: it knows nothing of them")
    if summary.method == "first-order-printed":
        found.append("the printed first-order correction has the wrong sign; it is here for reproduction only")
    enough = CONVERGED if answer.engine != BRANCHING else BRANCHED
    if summary.method == EXACT and answer.proved and not answer.certificate.relative_gap <= enough:
        found.append(f"the certificate is loose: relative gap {answer.certificate.relative_gap:.1e}")
    if np.isnan(problem.constraints.available).all():
        found.append(NO_SUPPLY)
    if summary.replicates is None:
        found.append(NO_REPLICATES if summary.beliefs.blank else SCATTER_ALONE)
    drawn = drawn_sources(summary.fit, bounds)
    if drawn and summary.replicates is not None:
        told = f"the effect of {short(drawn)} is drawn in the replicates, for the runs tell little of it"
        luck = "of the other sources alone" if summary.choices is not None else "of none, so that gains are as promised"
        found.append(f"{told}: the luck of the choice is that {luck}")
    return tuple(dict.fromkeys(found))


def _of_plateau(problem: Problem, flat: BoolArray) -> list[str]:
    """What is said where a tenth of all tokens more of some sources (M,) changes no loss."""
    if not flat.any():
        return []
    names = [name for name, one in zip(problem.constraints.sources, flat.tolist(), strict=True) if one]
    return [f"the optimum lies on a plateau: a tenth of all tokens more of {short(names)} changes no loss, {MANY}"]


def _provenance(summary: Summary) -> dict[str, Json]:
    from importlib.metadata import version

    own = getattr(summary.fit, "provenance", None)
    return {
        "shapleymix": version("shapleymix"),
        "fit": dict(own) if own else None,
        "seed": summary.demands.seed,
        "kl": summary.problem.kl,
        "anchor": None if summary.problem.anchor is None else summary.problem.anchor.tolist(),
        "groups": list(summary.problem.constraints.group_names),
        "further_constraints": len(summary.problem.further),
    }
