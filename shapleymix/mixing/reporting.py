"""From a solved question to what is reported: the mixture, its rivals, and what other bounds or tokens would bring.

>>> mix = optimize(fit, N, D, available={"en": "5T", "de": "80B"}, what_if=["de+50B", "en-1T,de+10B"])
>>> mix.what_if[0].gain, mix.binding[0].saves

A slope holds for a first, small part alone; so a price says it, and beside it what a change of a round size saves. Only
what follows from tokens moves with them, caps and the worth of repeated ones.

Axes: M sources, K targets, B replicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.fitting.coverage import BUDGETS
from shapleymix.fitting.evidence import beyond_line
from shapleymix.fitting.prediction import MOST_WARNINGS
from shapleymix.fitting.surface import Gain, gain_between, widen
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.answers import AHEAD, Candidate, Candidates, Mixture, Price, Rival, WhatIf, is_sure, list_names
from shapleymix.mixing.bounds import families_of
from shapleymix.mixing.goal import Goal, Searched
from shapleymix.mixing.polytope import FEASIBLE, GIVEN, JUMP, LEAST_NONZERO, READ, REGIME, TOKENS
from shapleymix.mixing.proof import AT_BOUND, Proof, ProofError
from shapleymix.mixing.question import Question, solve_questions
from shapleymix.mixing.solving import refine, solve_replicates
from shapleymix.records import FloatArray
from shapleymix.statistics import interval_ends
from shapleymix.tables.languages import column_of
from shapleymix.tables.mixtures import ONCE, Rivals, baselines_beside, epochs_of, rivals_of, shares_of_bytes
from shapleymix.tables.sheets import as_list

LEAST = 1e-9
"""A slope below this, relative to the objective, is rounding."""
PRICED = 6
"""How many of the dearest bounds are relaxed to see what that saves."""
STEP = 0.01
"""By how much, in ratio."""
NO_LOSS = "where runs tell nothing of such a mixture, or the law gives more than an untrained model's"
LOOSE = 1e-6
"""A proof whose relative gap is larger is a warning."""
SAME = 1e-7
"""Relative: by how much the reported objective may differ from the minimised one, by rounding."""
NEAR = "near"
"""How the name of a mixture begins that a search found."""


def what_ifs_of(one: Question, proof: Proof) -> tuple[WhatIf, ...]:
    """The optimum under each change of tokens that is asked for, beside the answer without it.

    Raises
    ------
    InfeasibleError
        If less data leave no mixture; names the change.
    UsageError
        If a text is no change.
    """
    texts, found = [str(text).strip() for text in as_list(one.asked.what_if)], []
    for text in dict.fromkeys(filter(None, texts)):
        try:
            [(other, new)] = solve_questions([one.with_tokens(text)])
        except InfeasibleError as error:
            raise InfeasibleError(f"what if {text}: {error.message}", hint=error.hint) from error
        found.append(WhatIf(**_comparison(other, text, new.p, _gain_of_optimum(other, new, one, proof))))
    return tuple(found)


def _gain_of_optimum(other: Question, new: Proof, one: Question, proof: Proof) -> Gain:
    """What the optimum of another question saves of what both minimise, the pull too, in the mean of many runs.

    It is the law's, but where losses jump: by what the law misses of mixtures more freedom could seem to cost.
    """
    ends = (other.surface, new.p), (one.surface, proof.p)
    pull = one.goal.penalty(proof.p) - other.goal.penalty(new.p)
    more, before = (np.nan_to_num(asked.surface.available, nan=np.inf) for asked in (other, one))
    freedom = int((more >= before).all()) or -int((more <= before).all())
    if one.asked.keep_within and (more != before).any():  # natural ratios within families change with the tokens
        freedom = 0
    by_law = one.fit.jumps is None
    return gain_between(*ends, one.goal.of, one.level, runs=False, by_law=by_law, pull=pull, freedom=freedom)


def prices_of(one: Question, proof: Proof) -> tuple[Price, ...]:
    """The bounds that hold an optimum back, those of the steepest slope first, and what relaxing each saves."""
    found = sorted(_binding(one, proof), key=lambda bound: -np.nan_to_num(bound[0].per_ratio, nan=np.inf))
    relaxed, changes = zip(*[_relax(one, *bound) for bound in found[:PRICED]], strict=True) if found else ((), ())
    prices = [price for price, *_ in found]
    for place, (change, (other, new)) in enumerate(zip(changes, solve_questions(relaxed), strict=True)):
        gain = _gain_of_optimum(other, new, one, proof)
        saved = _with_ends("saves", gain.value, gain.low, gain.high) | {"probability": gain.probability}
        slope = np.nan_to_num(prices[place].per_ratio, nan=gain.value / change)
        prices[place] = replace(prices[place], change=change, per_ratio=float(slope), **saved)
    return tuple(prices)


def _binding(one: Question, proof: Proof) -> Iterator[tuple[Price, str, int]]:
    """The bounds with a slope, each with its field of a `Polytope` and its place there; of a ball it is not known."""
    bounds, least = one.within, LEAST * max(abs(proof.certificate.objective), 1e-300)
    caps = np.where(bounds.movable & (bounds.upper < 1), -proof.ratios, 0.0)
    chosen = bounds.movable & (bounds.lower > LEAST_NONZERO) & ~np.isin(bounds.floor_origin, (READ, JUMP))
    floors = np.where(chosen, proof.ratios, 0.0)
    given = (GIVEN,) * len(bounds.rows)
    for side, field, slopes, names, origins in (
        ("cap", "upper", caps, bounds.sources, bounds.cap_origin),
        ("floor", "lower", floors, bounds.sources, bounds.floor_origin),
        ("cap", "row_high", np.where(bounds.rigid, 0.0, -proof.rows), bounds.row_names, given),
        ("floor", "row_low", np.where(bounds.rigid, 0.0, proof.rows), bounds.row_names, given),
    ):
        for i in np.flatnonzero(slopes > least).tolist():
            bound, unit = float(getattr(bounds, field)[i]), "tokens" if origins[i] == TOKENS else "ratio"
            yield Price(names[i], side, bound, origins[i], float(slopes[i]), 0.0, unit), field, i
    for name, slope in proof.curved.items():
        if slope > least:
            yield Price(name, "cap", 0.0, GIVEN, slope, 0.0, "ratio"), "curved", 0
    if (ball := bounds.ball) is not None and ball.distance(proof.p) >= ball.radius - AT_BOUND:
        unit = "ratio" if ball.kind == "l1" else "nats"
        yield Price("distance", "cap", ball.radius, GIVEN, np.nan, 0.0, unit), "ball", 0


def _relax(one: Question, price: Price, field: str, place: int) -> tuple[Question, float]:
    """The question with more room at one bound, and by how much: tokens by a power of ten, 1B at 100B."""
    bounds, D = one.bounds, one.surface.D
    tokens = float(10.0 ** max(np.round(np.log10(D * STEP)), 0.0))
    if price.side == "cap" and price.unit == "tokens":
        more = np.where(np.arange(len(bounds.upper)) == place, tokens, 0.0)
        return one.with_available(one.surface.available + more), tokens
    if field == "curved":
        return replace(one, goal=replace(one.goal, curved=one.goal.curved.relax(price.source, STEP))), STEP
    if bounds.ball is not None and field == "ball":
        return one.with_bounds(replace(bounds, ball=replace(bounds.ball, radius=bounds.ball.radius + STEP))), STEP
    ends = {"upper": 1.0, "lower": LEAST_NONZERO, "row_high": np.inf, "row_low": -np.inf}
    step = min(tokens / D if price.unit == "tokens" else STEP, abs(ends[field] - price.bound))
    asked, within = (getattr(known, field).copy() for known in (bounds, one.within))
    for values in (asked, within):
        values[place] += step if price.side == "cap" else -step
    change = step * D if price.unit == "tokens" else step
    if asked[place] == within[place]:
        return one.with_bounds(replace(bounds, **{field: asked})), change
    # a floor of the fit's regimes, which nobody asked for
    return replace(one, goal=replace(one.goal, within=replace(one.within, **{field: within}))), change


def report(one: Question, proof: Proof) -> Mixture:
    """The mixture with its intervals, its rivals, and what its bounds cost.

    Raises
    ------
    SolveError
        If there is no prediction for a weighted target at the best mixture.
    ProofError
        If what is reported is not what was minimised.
    """
    surface, goal, p, within = one.surface, one.goal, proof.p, one.within
    _assert_minimised(one, proof)
    left = np.maximum(p - within.supply.read / surface.D, 0.0)
    draws, ends = one.draws, interval_ends(one.level)
    optima = p[None][:0] if draws is None else solve_replicates(goal, draws, _tilts(one, p, draws))
    spread = np.quantile(optima, ends, axis=0, method="nearest") if len(optima) else np.full((2, len(p)), np.nan)
    rivals = _rivals(one, p)
    return Mixture(
        **common_fields(one, [*_warn(one, proof, rivals)], (*one.notices, *_note(draws, len(optima)))),
        **_with_ends("p", p, *widen(spread, p)),
        **_with_ends("losses", surface.mean(p[None])[0], *surface.interval(p[None], one.level)[:, 0]),
        **_with_ends("objective", one.objective(p), *one.objective_interval(p)),
        weights=goal.w,
        certificate=proof.certificate,
        caps=within.upper,
        floors=within.lower,
        binding=prices_of(one, proof) if proof.certificate.relative_gap <= LOOSE else (),
        epochs=epochs_of(p, surface.available, surface.D),
        p_bytes=shares_of_bytes(left, column_of(one.asked.table, "bytes_per_token", within.sources)),
        baselines=rivals,
        replicates=len(optima),
        penalty=goal.penalty(p),
        kl=goal.kl,
        anchor=goal.anchor,
        what_if=what_ifs_of(one, proof),
        beyond=beyond_runs(one),
        indifferent=_indifferent(one),
    )


def _tilts(one: Question, p: FloatArray, draws: Pieces) -> FloatArray | float:
    """By how much the objective leans otherwise than each replicate's law (B, M) at the optimum p (M,), if known."""
    surface, goal = one.surface, one.goal
    if (found := surface.known.tilts(p, draws.batch[0])) is None:
        return 0.0
    places = slice(None) if surface.places is None else surface.places
    weighed = goal.active(p) * goal.pieces.plain_losses(p)
    if goal.pieces.curves is not None:
        weighed = weighed * goal.pieces.curves.slopes(goal.pieces.plain_losses(p))[0]
    return np.einsum("k,bkm->bm", np.nan_to_num(weighed), found[:, places])


def beyond_runs(one: Question) -> dict[str, float]:
    """By what factors N, D, N D and D / N lie outside of those of a fit's runs, 1 inside; empty without a fit."""
    if (coverage := one.fit.coverage) is None:
        return {}
    N, D = np.array([one.surface.N]), np.array([one.surface.D])
    factors = [*coverage.beyond_budgets(N, D), beyond_line(coverage.line, N, D)]
    return {name: float(each.max()) for name, each in zip((*BUDGETS, "line"), factors, strict=True)}


def _assert_minimised(one: Question, proof: Proof) -> None:
    """What was minimised must be what is reported, as the surface has it, which made none of it."""
    lacking = np.isnan(one.surface.mean(proof.p[None])[0]) & (one.goal.w > 0)
    if lacking.any():
        names = list_names([one.surface.targets[j] for j in np.flatnonzero(lacking).tolist()])
        hint = f"lift the caps of the data of {names} or give it floors; else weight 0, or ask nearer to the runs"
        raise SolveError(f"at the best mixture the fit has no loss for {names}, {NO_LOSS}", hint=hint)
    own, minimised = float(one.goal.of(one.surface.of_law(proof.p[None]))[0]), float(one.goal.value(proof.p))
    if abs(own - minimised) > SAME * max(abs(minimised), 1e-300):
        raise ProofError(f"the minimised objective is {minimised:.9g}, the law's own {own:.9g}")


def _indifferent(one: Question) -> bool:
    """Whether the law tells no mixture from another: a convex one that is the same at all corners and in the middle."""
    M = len(one.surface.sources)
    found = one.goal.value(np.vstack([np.eye(M), np.full((1, M), 1 / M)]))
    return M > 1 and bool(np.isfinite(found).all() and np.ptp(found) <= SAME * np.abs(found).max())


def _warn(one: Question, proof: Proof, rivals: Sequence[Rival]) -> Iterator[str]:
    """Warnings, those first that change most of what a reader would do."""
    within, p, anchor = one.within, proof.p, one.goal.anchor
    if ahead := [rival for rival in rivals if rival.within_bounds and -rival.lead > AHEAD * abs(rival.objective)]:
        best = min(ahead, key=lambda rival: rival.lead)
        gain = f"{best.name!r} is predicted to be better by {-best.lead:.3g} {one.unit}"
        yield f"The mixture {gain}, since runs near there were better than the law says: this one is the law's best."
    if np.isnan(proof.certificate.relative_gap):
        yield "What is asked is not convex in the mixture: this is the best of a search, without a proof."
    elif not proof.certificate.relative_gap <= LOOSE:
        yield f"The proof is loose: a mixture may be better by {proof.certificate.relative_gap:.1e} of the objective."
    least = (np.array(within.floor_origin) == REGIME) & (p <= within.lower + AT_BOUND)
    if least.any():
        names = list_names([f"{within.sources[i]} {p[i]:.3g}" for i in np.flatnonzero(least).tolist()])
        yield f"Kept at the least ratio that the runs tell of: {names}. They do not show if less is enough."
    if raised := np.flatnonzero(np.array(within.floor_origin) == JUMP).tolist():
        names = list_names([f"{within.sources[i]} {within.lower[i]:.3g}" for i in raised])
        yield f"Kept above a jump: with less than {names} a loss is far higher than the law says."
    if anchor is not None and (anchor == 0).any():
        shut = list_names(np.array(within.sources)[anchor == 0].tolist())
        yield f"The anchor has none of {shut}: a pull towards it shuts them out."
    epochs = epochs_of(p, one.surface.available, one.surface.D)
    often = [f"{within.sources[i]} {epochs[i]:.3g} times" for i in np.flatnonzero(epochs > ONCE).tolist()]
    if often and one.fit.repetition is None:
        yield f"The law counts repeated tokens as fresh ones, but the mixture sees {list_names(often)}."
    yield from one.surface.warnings(p[None])


def _note(draws: Pieces | None, solved: int) -> Iterator[str]:
    """What intervals of ratios lack."""
    if draws is None:
        yield "ratios have no intervals: the fit has no bootstrap replicates of a convex law"
    elif solved < draws.batch[0]:
        yield f"{draws.batch[0] - solved} of {draws.batch[0]} replicates, not solved, are left out of ratios"


def _rivals(one: Question, p: FloatArray) -> tuple[Rival, ...]:
    """The optimum against baselines and the mixtures that were asked for; and these against each other.

    With them are the fitted run that is predicted best within the bounds, and, where one of all these is predicted to
    be better than the optimum p (M,), which is the law's, what a search from there finds.
    """
    surface, asked, allowed, found = one.surface, one.asked, one.free or one.goal, []
    ratios = one.by_source
    named = baselines_beside(surface.sources, surface.available, asked.compare_to, surface.D, ratios)
    if surface.score is None and np.ptp(one.weights.raw) > 0 and ratios is not None:
        named = {"ratios by weight": ratios / ratios.sum(), **named}  # what most would do first
    mixtures = {name: one.whole(rest) for name, rest in named.items()}
    if (left := one.fit.residual) is not None:
        runs = [] if one.within.supply.read.any() else zip(left.runs, left.p, strict=True)
        trained = {f"run {name}": q for name, q in runs}
        goal = replace(allowed, law=Searched(surface, corrected=True))
        mixtures |= {name: trained[name] for name in filter(None, [_best_of(goal, trained)[0]])}
        best, total = _best_of(goal, mixtures)
        if total * (1 + AHEAD) < goal.total(p):
            near = refine(goal, mixtures[best])
            if _best_of(goal, {"": near})[1] < total:  # runs are kinks of what is missed: one may itself be best
                mixtures[f"{NEAR} {best}"] = near
    gains = [one.gain_between(p, q) for q in mixtures.values()]
    each = [_comparison(one, *pair, gain) for pair, gain in zip(mixtures.items(), gains, strict=True)]
    totals = [[known["objective"] - known[end] for known in each] for end in ("gain", "gain_low", "gain_high")]
    times = one.tokens_for(np.array([*mixtures.values()]), np.array(totals)).T.tolist()
    for known, gain, needed in zip(each, gains, times, strict=True):
        known |= _with_ends("gains", *gain.each) | _with_ends("times", *needed)
        within = allowed.violation(known["p"]) <= FEASIBLE
        reason = f"the fit has no loss there, {NO_LOSS}" if np.isnan(known["objective"]) else ""
        lead = gain.value + one.goal.penalty(known["p"]) - one.goal.penalty(p)
        found.append(Rival(**known, within_bounds=within, lead=lead, reason=reason))
    return tuple(replace(rival, better=_better(one, rival, found)) for rival in found)


def _best_of(goal: Goal, mixtures: Mapping[str, FloatArray]) -> tuple[str, float]:
    """The best mixture within the bounds, and its total; no name and infinity if there is none."""
    totals = {name: goal.total(q) for name, q in mixtures.items() if goal.violation(q) <= FEASIBLE}
    best = min(totals, key=lambda name: totals[name], default="")
    return best, totals.get(best, np.inf)


def _better(one: Question, rival: Rival, others: Sequence[Rival]) -> tuple[str, ...]:
    """The other rivals that surely gain over one, where the optimum does not."""
    rest = [other for other in others if other is not rival and other.within_bounds and rival.sure is False]
    gains = [(other.name, one.gain_between(other.p, rival.p)) for other in rest]
    return tuple(name for name, gain in gains if is_sure(gain.low, gain.probability))


def candidates_of(one: Question, mixtures: Rivals) -> Candidates:
    """The mixtures, compared as the question asks."""
    named = {name: one.ratios(given) for name, given in rivals_of(mixtures).items()}
    if not named:
        raise UsageError("no mixture is given to compare", hint="give at least one, such as 'uniform'")
    surface, p = one.surface, np.stack(list(named.values()))
    losses, (low, high), entries = surface.mean(p), surface.interval(p, one.level), []
    for row, name in enumerate(named):
        known = _comparison(one, name, p[row], one.gain_between(p[row], p[0]))
        entries.append(Candidate(**known, losses=losses[row], low=low[row], high=high[row]))
    entries[0] = replace(entries[0], probability=np.nan)
    fields = common_fields(one, surface.warnings(p, tuple(named)), one.weights.notices)
    return Candidates(**fields, weights=one.goal.w, entries=tuple(entries))


def _comparison(one: Question, name: str, p: FloatArray, gain: Gain) -> dict[str, Any]:
    """The fields of a mixture that is compared with another."""
    found = {"name": name, "p": p, "probability": gain.probability}
    found |= _with_ends("objective", one.objective(p), *one.objective_interval(p))
    return found | _with_ends("gain", gain.value, gain.low, gain.high)


def _with_ends(name: str, value: object, low: object, high: object) -> dict[str, Any]:
    """The three fields of a record that hold a number and its interval."""
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def common_fields(one: Question, warnings: Sequence[str], notices: Sequence[str]) -> dict[str, Any]:
    """The fields of an `Answer`, of which as many things are warnings as a reader takes in; the rest are notices."""
    surface, supply = one.surface, one.within.supply
    caveats, made_from = one.fit.caveats, one.fit.provenance
    warnings = [*warnings[: MOST_WARNINGS - 1], *caveats[:1], *warnings[MOST_WARNINGS - 1 :], *caveats[1:]]
    return {
        "sources": tuple(surface.sources), "targets": tuple(surface.targets), "N": surface.N, "D": surface.D,
        "weights_origin": one.weights.origin, "objective_kind": one.asked.objective, "objective_unit": one.unit,
        "measure": surface.measure, "unit": surface.unit.name, "level": one.level, "available": supply.available,
        "max_epochs": supply.epochs, "min_tokens": supply.least, "read": supply.read,
        "families": families_of(one.asked.table, surface.sources, one.fit.parents),
        "warnings": tuple(warnings[:MOST_WARNINGS]),
        "notices": tuple(dict.fromkeys((*warnings[MOST_WARNINGS:], *notices))),
        "asked": one.asked.to_document(),
        "provenance": {"shapleymix": version("shapleymix"), "fit": dict(made_from) if made_from else None},
    }  # fmt: skip
