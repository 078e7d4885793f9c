"""From a solved question to the `Mixture` that is reported: the only place that builds one.

Axes: M sources, K targets, B replicates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from shapleymix.errors import OutsideError
from shapleymix.files import Json
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.mixture import Mixture, Rival, is_sure, listed
from shapleymix.mixing.polytope import FEASIBLE, REGIME
from shapleymix.mixing.prices import answered, prices_of, repetition_of
from shapleymix.mixing.proof import AT_BOUND, Proof, ProofError
from shapleymix.mixing.question import Question
from shapleymix.mixing.solving import solve_replicates
from shapleymix.records import FloatArray, Record
from shapleymix.tables.baselines import epochs_of, named_baselines

LOOSE = 1e-6
"""A proof whose relative gap is larger is a warning."""
SAME = 1e-7
"""Relative: by how much the reported objective may differ from the minimised one, by rounding."""
MOST_WARNINGS = 3
ONCE, TINY = 1 + 1e-6, 1e-300


def reported(one: Question, proof: Proof, engine: str) -> Mixture:
    """The mixture with its intervals, its rivals, and what its bounds cost.

    Raises
    ------
    OutsideError
        If it lies outside of what was fitted, and `strict` is asked for.
    ProofError
        If what is reported is not what was minimised.
    """
    surface, goal, p, within, supply = one.surface, one.goal, proof.p, one.within, one.supply
    _assert_minimised(one, proof)
    _require_inside(one, p)
    losses, ends = surface.mean(p[None])[0], surface.interval(p[None], one.level)[:, 0]
    ends = np.where(np.isnan(losses), np.nan, ends)
    low, high = one.objective_interval(p)
    draws = one.draws if isinstance(goal.law, Pieces) else None
    optima = None if draws is None else solve_replicates(goal, draws, p)
    spread = np.full((2, len(p)), np.nan) if optima is None else _quantiles(optima, one.level)
    warnings, notices = _told(one, proof, spread)
    return Mixture(
        sources=within.sources,
        targets=tuple(surface.targets),
        N=surface.N,
        D=surface.D,
        p=p,
        p_low=np.minimum(spread[0], p),
        p_high=np.maximum(spread[1], p),
        losses=losses,
        losses_low=ends[0],
        losses_high=ends[1],
        weights=goal.w,
        weights_origin=one.weights.origin,
        objective_kind=one.asked["objective"],
        objective_unit=one.unit,
        objective=one.objective(p),
        objective_low=low,
        objective_high=high,
        certificate=proof.certificate,
        caps=within.upper,
        floors=within.lower,
        binding=prices_of(one, proof) if proof.gap <= LOOSE else (),
        available=supply.available,
        epochs=epochs_of(p, supply.available, surface.D),
        max_epochs=supply.epochs,
        min_tokens=supply.least,
        baselines=_rivals(one, p),
        engine=engine,
        level=one.level,
        replicates=0 if optima is None else len(optima),
        warnings=warnings,
        notices=notices,
        asked=plain_keywords(one.asked),
        provenance=provenance_of(one.fit),
        penalty=goal.penalty(p),
        kl=goal.kl,
        anchor=goal.anchor,
        what_if=answered(one, proof),
        measure=surface.measure,
        **repetition_of(one, p),
    )


def _assert_minimised(one: Question, proof: Proof) -> None:
    """What was minimised must be what is reported, as the surface has it, which made none of it."""
    shown, minimised = one.objective(proof.p), float(one.goal.value(proof.p))
    if np.isfinite(shown) and abs(shown - minimised) > SAME * max(abs(minimised), 1e-300):
        raise ProofError(f"the minimised objective is {minimised:.9g}, the reported one {shown:.9g}")


def _require_inside(one: Question, p: FloatArray) -> None:
    outside = one.surface.outside(p[None])[0] & (one.goal.w > 0)
    if one.asked["strict"] and outside.any():
        names = listed([one.surface.targets[j] for j in np.flatnonzero(outside).tolist()])
        told = "; ".join(one.surface.warnings(p[None])[:2])
        hint = "train proxy runs there, set bounds, or leave out strict"
        raise OutsideError(f"the optimum lies outside of what was fitted for {names}: {told}", hint=hint)


def _quantiles(values: FloatArray, level: float) -> FloatArray:
    """(2, M) quantiles of optima (B, M), by nearest ranks."""
    return np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0, method="nearest")


def _told(one: Question, proof: Proof, spread: FloatArray) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """At most three warnings, those first that change most of what a reader would do; and notices with the rest."""
    within, p, found = one.within, proof.p, []
    if np.isnan(proof.gap):
        found.append("The law is not convex in the mixture: this is the best of a search, without a proof.")
    elif not proof.gap <= LOOSE:
        found.append(f"The proof is loose: a mixture may be better by {proof.gap:.1e} of the objective.")
    lacking = np.isnan(one.surface.mean(p[None])[0]) & (one.goal.w > 0)
    if lacking.any():
        names = listed([one.surface.targets[j] for j in np.flatnonzero(lacking).tolist()])
        found.append(f"There is no prediction: the law gives more than an untrained model's loss for {names}.")
    held = (np.array(within.floor_origin) == REGIME) & (p <= within.lower + AT_BOUND)
    if held.any():
        names = listed([f"{within.sources[i]} {p[i]:.3g}" for i in np.flatnonzero(held).tolist()])
        found.append(f"Kept at the smallest ratio of any run: {names}. The runs do not show whether less is enough.")
    epochs = epochs_of(p, one.supply.available, one.supply.D)
    low, high = spread * epochs / np.maximum(p, TINY)
    often = [
        f"{within.sources[i]} {epochs[i]:.3g} times" + (f" ({low[i]:.3g} .. {high[i]:.3g})" if low[i] > 0 else "")
        for i in np.flatnonzero(epochs > ONCE).tolist()
    ]
    if often and not one.knows_repetition:
        found.append(f"The law counts repeated tokens as fresh ones, but the mixture sees {listed(often)}.")
    found += list(one.surface.warnings(p[None]))
    notices = [*found[MOST_WARNINGS:], *one.notices]
    if often and one.knows_repetition:
        notices.append(
            f"The optimum sees {listed(often)}; in brackets the {one.level:.0%} interval of the best epochs."
        )
    if np.isnan(one.supply.available).all():
        notices.append("without a languages table (available tokens) there is no natural mixture to compare with")
    if one.surface.draws is None:
        notices.append("ratios have no intervals: the fit has no bootstrap replicates of a convex law")
    return tuple(found[:MOST_WARNINGS]), tuple(dict.fromkeys(notices))


def _rivals(one: Question, p: FloatArray) -> tuple[Rival, ...]:
    """The optimum against baselines and the mixtures that were asked for; and these against each other."""
    surface, asked, found = one.surface, one.asked, []
    named = named_baselines(surface.sources, surface.available, asked["smoothing"], asked["compare_to"], surface.D)
    for name, q in named.items():
        gain, objective = one.gain(p, q), one.objective(q)
        reason = "the law gives more than an untrained model's loss" if np.isnan(objective) else ""
        within = one.within.violation(q) <= FEASIBLE
        spread, gained = one.objective_interval(q), (gain.value, gain.low, gain.high, gain.probability)
        found.append(Rival(name, q, objective, *spread, *gained, within, one.goal.penalty(q), reason=reason))
    return tuple(replace(rival, better=_better(one, rival, found)) for rival in found)


def _better(one: Question, rival: Rival, others: Sequence[Rival]) -> tuple[str, ...]:
    """The other rivals that surely gain over one, where the optimum does not."""
    if rival.sure is not False:
        return ()
    gains = {other.name: one.gain(other.p, rival.p) for other in others if other is not rival and other.within_bounds}
    return tuple(name for name, gain in gains.items() if is_sure(gain.low, gain.probability))


def plain_keywords(asked: Mapping[str, Any]) -> dict[str, Json]:
    """The keywords that were given, as JSON holds them; functions by their names."""
    kept = {
        name: value for name, value in asked.items() if not (value is None or (isinstance(value, tuple) and not value))
    }
    return json.loads(json.dumps(kept, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "mixture"):
        return dict(value.mixture)
    if isinstance(value, Record):
        return value.to_document()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else getattr(value, "__name__", type(value).__name__)


def provenance_of(fit: Any) -> dict[str, Json]:
    """This version, and what the fit was made from."""
    own = getattr(fit, "provenance", None)
    return {"shapleymix": version("shapleymix"), "fit": dict(own) if own else None}
