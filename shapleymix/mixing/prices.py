"""What other bounds, or other tokens at hand, would bring: each answered by solving the problem that they make.

>>> mix = optimize(fit, N, D, available={"en": "5T", "de": "80B"}, what_if=["de+50B", "en-1T,de+10B"])
>>> mix.what_if[0].gain, mix.binding[0].saves

A slope holds for a first, small part alone; so a price says it, and beside it what a change of a round size saves. Only
what follows from tokens moves with them, caps and the worth of repeated ones.

Axes: M sources, K targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from shapleymix.errors import Fault, InfeasibleError, UsageError, described, did_you_mean
from shapleymix.fitting.coverage import TRACE
from shapleymix.fitting.surface import Gain, gain_between
from shapleymix.mixing.mixture import Price, WhatIf
from shapleymix.mixing.polytope import GIVEN, TOKENS
from shapleymix.mixing.proof import Proof
from shapleymix.mixing.question import Question
from shapleymix.mixing.solving import solve, solve_all
from shapleymix.records import FloatArray
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.words import format_size, parse_size

LEAST = 1e-9
"""A slope below this, relative to the objective, is rounding."""
PRICED = 6
"""How many of the dearest bounds are relaxed to see what that saves."""
STEP = 0.01
"""By how much, in ratio."""
_HINT = "write it like de+50B, or en-1T,de+10B for several at once"


def tokens_of(text: str, sources: tuple[str, ...], available: FloatArray) -> FloatArray:
    """The change (M,) of the unique tokens at hand (M,) that a text stands for."""
    change, faults = np.zeros(len(sources)), []
    for part in text.split(","):
        place, tokens = _part(part.strip(), sources)
        name = sources[place]
        if change[place]:
            raise UsageError(f"what if {text}: {name!r} is given twice")
        change[place] = tokens
        if not np.isfinite(available[place]):
            hint = "give them, or a languages table"
            faults.append(Fault(f"what if {text}: the available tokens of {name!r} are not known", hint=hint))
        elif available[place] + tokens < 0:
            held = format_size(available[place])
            faults.append(
                Fault(f"what if {text}: {name!r} has {held} tokens, too few to take {format_size(-tokens)} away")
            )
    if faults:
        raise UsageError.of(faults, "the changes of tokens")
    return change


def _part(text: str, sources: tuple[str, ...]) -> tuple[int, float]:
    """Place and signed tokens of `de+50B`; the longest name that is a source, since sizes hold signs, too (1e+9)."""
    splits = [(text[: sign.start()].strip(), sign[0], text[sign.end() :]) for sign in re.finditer(r"[+-]", text)]
    for name, sign, size in reversed(splits):
        if name in sources:
            tokens = parse_size(size, f"what if {text}")
            return sources.index(name), tokens if sign == "+" else -tokens
    if not splits or not splits[0][0]:
        raise UsageError(f"what if: {text!r} is no change of tokens", hint=_HINT)
    raise UsageError(
        f"what if {text}: {splits[0][0]!r} is not one of the sources", hint=did_you_mean(splits[0][0], sources)
    )


def answered(one: Question, proof: Proof) -> tuple[WhatIf, ...]:
    """The optimum under each change of tokens that is asked for, beside the answer without it.

    Raises
    ------
    InfeasibleError
        If less data leave no mixture; names the change.
    UsageError
        If a text is no change.
    """
    given = one.asked["what_if"]
    texts = [given] * bool(given) if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"what_if: {described(given)} is no change of tokens", hint=_HINT)
    return tuple(_answered(one, proof, text.strip()) for text in dict.fromkeys(texts))


def _answered(one: Question, proof: Proof, text: str) -> WhatIf:
    sources = one.within.sources
    more = tokens_of(text, sources, one.surface.available)
    try:
        other = one.with_available(one.surface.available + more)
    except InfeasibleError as error:
        raise InfeasibleError(f"what if {text}: {error.message}", hint=error.hint) from error
    new, _ = solve(other.goal, one.asked["seed"])
    gain = _gained(other, new.p, one, proof.p)
    return WhatIf(
        name=text,
        tokens={sources[i]: float(more[i]) for i in np.flatnonzero(more).tolist()},
        p=new.p,
        caps=other.within.upper,
        epochs=epochs_of(new.p, other.surface.available, other.surface.D),
        objective=other.objective(new.p),
        penalty=other.goal.penalty(new.p),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        probability=gain.probability,
        certificate=new.certificate,
        notices=other.surface.warnings(new.p[None]),
    )


def _gained(after: Question, p: FloatArray, before: Question, q: FloatArray) -> Gain:
    """What mixture p of one question saves against q of another, in the mean of many runs of each."""
    return gain_between(after.surface, p, before.surface, q, before.goal.of, before.level, runs=False)


def repetition_of(one: Question, p: FloatArray) -> dict[str, Any]:
    """What repeated tokens cost: the optimum less that with unlimited data, with all other bounds as they are."""
    surface = one.surface
    repeats = np.nan_to_num(epochs_of(p, surface.available, surface.D)) > 1 + 1e-9
    nothing = np.zeros(len(surface.targets))
    if not one.knows_repetition or not repeats.any():
        return {"repetition": nothing, "repetition_cost": 0.0}
    free = one.with_available(np.full(len(p), np.nan))
    best, _ = solve(free.goal, one.asked["seed"])
    gain = _gained(free, best.p, one, p)
    return {
        "repetition": surface.mean(p[None])[0] - free.surface.mean(best.p[None])[0],
        "repetition_cost": gain.value,
        "repetition_low": gain.low,
        "repetition_high": gain.high,
    }


def prices_of(one: Question, proof: Proof) -> tuple[Price, ...]:
    """The bounds that hold an optimum back, those of the steepest slope first, and what relaxing each saves."""
    found = sorted(_binding(one, proof), key=lambda bound: -bound[0].per_ratio)
    relaxed = [_relaxed(one, *bound) for bound in found[:PRICED]]
    solved = solve_all([other.goal for other, _ in relaxed], one.asked["seed"]) if relaxed else []
    prices = [price for price, *_ in found]
    for place, ((other, change), (new, _)) in enumerate(zip(relaxed, solved, strict=True)):
        gain = _gained(other, new.p, one, proof.p)
        saved = {"saves": gain.value, "saves_low": gain.low, "saves_high": gain.high, "probability": gain.probability}
        prices[place] = replace(prices[place], change=change, **saved)
    return tuple(prices)


def _binding(one: Question, proof: Proof) -> Iterator[tuple[Price, str, int]]:
    """The bounds with a slope, each with its field of a `Polytope` and its place there."""
    bounds, least = one.within, LEAST * max(abs(proof.certificate.objective), 1e-300)
    caps = np.where(bounds.movable & (bounds.upper < 1), proof.caps, 0.0)
    floors = np.where(bounds.movable & (bounds.lower > TRACE), proof.floors, 0.0)
    given = (GIVEN,) * len(bounds.rows)
    for side, field, slopes, names, origins in (
        ("cap", "upper", caps, bounds.sources, bounds.cap_origin),
        ("floor", "lower", floors, bounds.sources, bounds.floor_origin),
        ("cap", "row_high", -proof.rows, bounds.row_names, given),
        ("floor", "row_low", proof.rows, bounds.row_names, given),
    ):
        for i in np.flatnonzero(slopes > least).tolist():
            bound, unit = float(getattr(bounds, field)[i]), "tokens" if origins[i] == TOKENS else "ratio"
            nothing = (float("nan"),) * 4
            yield Price(names[i], side, bound, origins[i], float(slopes[i]), 0.0, unit, *nothing), field, i


def _relaxed(one: Question, price: Price, field: str, place: int) -> tuple[Question, float]:
    """The question with more room at one bound, and by how much: tokens by a power of ten, 1B at 100B."""
    bounds, D = one.within, one.surface.D
    tokens = float(10.0 ** max(np.round(np.log10(D * STEP)), 0.0))
    if price.side == "cap" and price.unit == "tokens":
        more = np.where(np.arange(len(bounds.upper)) == place, tokens, 0.0)
        return one.with_available(one.surface.available + more), tokens
    room = np.inf if field.startswith("row") else 1 - price.bound if price.side == "cap" else price.bound - TRACE
    step = min(tokens / D if price.unit == "tokens" else STEP, room)
    values = getattr(bounds, field).copy()
    values[place] += step if price.side == "cap" else -step
    goal = replace(one.goal, within=replace(bounds, **{field: values}))
    return replace(one, goal=goal), step * D if price.unit == "tokens" else step
