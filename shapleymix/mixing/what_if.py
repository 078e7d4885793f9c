"""What more unique data of some sources would bring, or less of them cost: the new optimum, and what it gains.

>>> mix = optimize(fit, N, D, available={"en": "5T", "de": "80B"}, what_if=["de+50B", "en-1T,de+10B"])
>>> mix.what_if[0].gain, mix.what_if[0].gain_low

A shadow price holds at the margin; this solves again. Only what follows from tokens moves, caps and the worth of
repeated ones: an anchor and the centre of a ball stay where they are, even where they were given by a name that rests
on tokens, such as `natural`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shapleymix.errors import Fault, InfeasibleError, UsageError
from shapleymix.fields import AMOUNT, FINITE, ROUNDING, SHARE, Range
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import UNSEEN
from shapleymix.mixing.certificate import Answer, Certificate
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.doubts import NO_GAIN, Gain
from shapleymix.mixing.engine.solving import solve_all
from shapleymix.mixing.feasibility import require_anchor
from shapleymix.mixing.fit_like import FitLike, misfit_of
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.judgement import judged
from shapleymix.mixing.pieces import supplied
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.repeating import epochs_allowed, repeated, repeated_replicates, unpriced
from shapleymix.records import FloatArray, Record
from shapleymix.tables.baselines import epochs_of
from shapleymix.tables.sizes import format_size, parse_size
from shapleymix.tables.spelling import composed, near

_HINT = "write it like de+50B, or en-1T,de+10B for several at once"


@dataclass(frozen=True)
class Change:
    """Unique tokens by source, more (above 0) or less, under the name by which they were asked for."""

    name: str
    tokens: dict[str, float]


@dataclass(frozen=True)
class WhatIf(Record):
    """The optimum with other unique tokens at hand.

    Attributes
    ----------
    name : str
        The change as it was asked for.
    tokens : dict of str to float
        Change of the available tokens of each source, above 0 for more.
    p : array (M,)
        Ratios of the new optimum.
    caps : array (M,)
        Upper bounds of the new optimum.
    epochs : array (M,)
        How often the new optimum sees each token.
    objective : float
        Mean or worst loss of the new optimum.
    penalty : float
        The term kl * KL(p || anchor), nats.
    gain : float
        Loss of the optimum without the change less `objective`, nats, with its interval: of the mean over many runs,
        without the noise of single ones.
    probability : float
        Probability that the new optimum is better.
    certificate : Certificate
        Bound on what any other mixture within the new bounds could gain over p.
    reason : str
        Why there is no number; empty where there is one.
    notices : tuple of str
        What a reader should know of the new optimum.
    """

    kind = "what-if"
    axes: ClassVar[Mapping[str, str]] = {"p": "M", "caps": "M", "epochs": "M"}
    ranges: ClassVar[Mapping[str, Range]] = {
        "p": SHARE, "caps": SHARE, "epochs": AMOUNT, "objective": FINITE, "gain": FINITE, "probability": SHARE,
        "penalty": AMOUNT,
    }  # fmt: skip

    name: str
    tokens: dict[str, float]
    p: FloatArray
    caps: FloatArray
    epochs: FloatArray
    objective: float
    penalty: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float
    certificate: Certificate
    reason: str
    notices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not abs(self.p.sum() - 1) <= ROUNDING:
            raise ValueError(f"what if {self.name}: p is no mixture: its ratios sum to {self.p.sum():g}")


def changes_of(given: Sequence[str] | str, sources: tuple[str, ...], available: FloatArray) -> tuple[Change, ...]:
    """The changes that are asked for: `de+50B`, `de+50B,fr-10B`, or several such texts, each a question of its own.

    Parameters
    ----------
    sources : tuple of str (M,)
        Labels, which may hold a + or - themselves.
    available : array (M,)
        Unique tokens, NaN where not known.

    Raises
    ------
    UsageError
        If a text is no change, names no source, one whose tokens are not known, or takes more than there are.
    """
    texts = [given] * bool(given) if isinstance(given, str) else list(given)
    return tuple(_change(text, sources, available) for text in dict.fromkeys(texts))


def _change(text: str, sources: tuple[str, ...], available: FloatArray) -> Change:
    if not isinstance(text, str):
        raise UsageError(f"what if: {text!r} is no change of tokens", hint=_HINT)
    found: dict[str, float] = {}
    for part in text.split(","):
        name, tokens = _part(composed(part.strip()), sources)
        if name in found:
            raise UsageError(f"what if {text}: {name!r} is given twice")
        found[name] = tokens
    _require_known(text, found, dict(zip(sources, available.tolist(), strict=True)))
    return Change(text.strip(), found)


def _part(text: str, sources: tuple[str, ...]) -> tuple[str, float]:
    """Name and signed tokens of `de+50B`; the longest name that is a source, since sizes hold signs, too (1e+9)."""
    splits = [(text[: sign.start()].strip(), sign[0], text[sign.end() :]) for sign in re.finditer(r"[+-]", text)]
    for name, sign, size in reversed(splits):
        if name in sources:
            try:
                tokens = parse_size(size)
            except UsageError as error:
                raise UsageError(f"what if {text}: {error.message}", hint=error.hint) from error
            return name, tokens if sign == "+" else -tokens
    if not splits or not splits[0][0]:
        raise UsageError(f"what if: {text!r} is no change of tokens", hint=_HINT)
    name = splits[0][0]
    raise UsageError(f"what if {text}: {name!r} is not one of the sources", hint=near(name, sources))


def _require_known(text: str, tokens: dict[str, float], known: dict[str, float]) -> None:
    faults = [
        Fault(f"what if {text}: the available tokens of {name!r} are not known", hint="give them, or a languages table")
        for name in tokens
        if not np.isfinite(known[name])
    ]
    faults += [
        Fault(
            f"what if {text}: {name!r} has {format_size(known[name])} tokens, too few to take {format_size(-more)} away"
        )
        for name, more in tokens.items()
        if known[name] + more < 0
    ]
    if faults:
        raise UsageError.of(faults, "the changes of tokens")


def answered(
    fit: FitLike,
    N: float,
    demands: Demands,
    changes: tuple[Change, ...],
    problem: Problem,
    base: Answer,
    replicates: Terms | None,
    lost: str,
) -> tuple[WhatIf, ...]:
    """The optimum under each change, beside the answer without it.

    Parameters
    ----------
    problem, base : Problem or Answer
        The problem without changes, and its optimum.
    replicates : Terms, optional
        The law's bootstrap replicates.
    lost : str
        Why the loss of that optimum is no number; empty where it is one.

    Raises
    ------
    InfeasibleError
        If less data leave no mixture; names the change. With `demands.strict`, also an OutsideError.
    """
    problems = [_changed(fit, demands, change, problem) for change in changes]
    moved = [_moved(problem, other) for other in problems]
    new = tuple(other for other, is_new in zip(problems, moved, strict=True) if is_new)
    solved = iter(solve_all(new) if new else ())
    answers = [next(solved) if is_new else base for is_new in moved]
    return tuple(
        _answered(fit, N, demands, change, (problem, base), (other, answer), replicates, lost)
        for change, other, answer in zip(changes, problems, answers, strict=True)
    )


def _moved(problem: Problem, other: Problem) -> bool:
    """Whether other tokens at hand change the optimum: by a cap, or by what repeated ones are worth."""
    if not np.array_equal(other.constraints.upper, problem.constraints.upper):
        return True
    before, after = problem.terms.with_supply().unique, other.terms.with_supply().unique
    return before is not None and after is not None and not np.array_equal(before, after)


def _changed(fit: FitLike, demands: Demands, change: Change, problem: Problem) -> Problem:
    """The problem with other tokens at hand, and all else as it was."""
    bounds = problem.constraints
    known = zip(bounds.sources, bounds.available.tolist(), strict=True)
    available = {name: value + change.tokens.get(name, 0.0) for name, value in known if np.isfinite(value)}
    center = None if bounds.near is None else bounds.near.center
    try:
        asked = replace(demands, available=available, near=center)
        found = asked.bounds(bounds.sources, bounds.D, _unseen(problem), epochs_allowed(fit))
        if problem.anchor is not None:
            require_anchor(found, problem.anchor)
    except InfeasibleError as error:
        faults = error.faults or (Fault(error.message, hint=error.hint),)
        named = [replace(fault, message=f"what if {change.name}: {fault.message}") for fault in faults]
        raise InfeasibleError.of(named, "the set of bounds") from error
    return replace(problem, constraints=found, terms=repeated(fit, problem.terms, found.available, found.D))


def _unseen(problem: Problem) -> tuple[str, ...]:
    bounds = problem.constraints
    return tuple(name for name, why in zip(bounds.sources, bounds.cap_origin, strict=True) if why == UNSEEN)


def _answered(
    fit: FitLike,
    N: float,
    demands: Demands,
    change: Change,
    before: tuple[Problem, Answer],
    after: tuple[Problem, Answer],
    replicates: Terms | None,
    lost: str,
) -> WhatIf:
    problem, answer = after
    bounds = problem.constraints
    seen = judged(fit, answer.p, {}, N, bounds, demands)
    reason = seen.reason(0, problem.w) or lost
    found = NO_GAIN if reason else _gained(fit, N, before, after, replicates, demands.level)
    return WhatIf(
        name=change.name,
        tokens=change.tokens,
        p=answer.p,
        caps=bounds.upper,
        epochs=epochs_of(answer.p, bounds.available, bounds.D),
        objective=np.nan if reason else float(problem.value(answer.p)),
        penalty=problem.penalty(answer.p),
        gain=found.value,
        gain_low=found.low,
        gain_high=found.high,
        probability=found.probability,
        certificate=answer.certificate,
        reason=reason,
        notices=(*seen.warnings, *unpriced(fit, answer.p, bounds)),
    )


def _gained(
    fit: FitLike,
    N: float,
    before: tuple[Problem, Answer],
    after: tuple[Problem, Answer],
    replicates: Terms | None,
    level: float,
) -> Gain:
    """What the new optimum saves, each with its own tokens at hand, both under the same replicate."""
    (old, base), (new, answer) = before, after
    again = repeated_replicates(fit, replicates, new.constraints.available, new.constraints.D)
    misfit = misfit_of(fit, N, new.constraints.D)
    now, then = (
        Beliefs(problem, law, misfit, None, level, regime=supplied(fit, N, problem.constraints))
        for problem, law in ((old, replicates), (new, again))
    )
    return then.gain_over(now, answer.p, base.p)
