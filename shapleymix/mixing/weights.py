"""What the objective weighs: each target's loss alike, relative to its monolingual loss, or by given weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shapleymix.downstream.scoring import MEAN, ScoredFit
from shapleymix.errors import DataError, Fault, UsageError, described, did_you_mean
from shapleymix.files import is_table_name
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_number, parse_pairs
from shapleymix.tables.languages import Languages, read_languages
from shapleymix.tables.spelling import near

UNWEIGHTED, NORMALIZED = "unweighted", "normalized"

WeightSpec = str | os.PathLike[str] | Mapping[str, float | str] | Sequence[float] | FloatArray | Languages
"""Whatever may be given for weights: a word, numbers by target or in their order, a languages table or its file."""


class Losses(Protocol):
    """What predicts the losses (..., K) of mixtures (..., M) at one budget, as `Terms` do."""

    def losses(self, p: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class Weights:
    """`raw` (K,) multiplies the losses; `origin` says what it is, `notices` what a user should know of it. The mean
    objective divides by `total`."""

    raw: FloatArray
    total: float
    origin: str
    notices: tuple[str, ...] = ()

    @property
    def mean(self) -> FloatArray:
        """(K,) weights of the mean objective, in which the raw weights are averaged over."""
        return self.raw / self.total


def weights_of(
    given: WeightSpec,
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    terms: Losses | None,
    monolingual: Mapping[str, float | str] | str | None = None,
) -> Weights:
    """The weights of the targets.

    Parameters
    ----------
    given : WeightSpec
        `unweighted` (the mean of the losses), `normalized` (the mean of losses divided by their monolingual losses;
        ShapleyLaw paper, "Mixture Optimization"), numbers by target, or a languages table with weights. Targets without
        a number get 0, which the notices say.
    terms : Losses, optional
        The law at the budget, which predicts monolingual losses; None if it cannot.
    monolingual : mapping or str, optional
        Measured losses of monolingual models for `normalized`; where absent, the law predicts them.

    Raises
    ------
    UsageError, DataError
        If a weight is for no target, negative, or all are zero.
    """
    K = len(targets)
    measured = {} if monolingual is None else _by_target(monolingual, targets, "monolingual loss")
    if isinstance(given, Languages):
        return _from_table(given, targets)
    if isinstance(given, os.PathLike) or is_table_name(given):
        return _from_table(read_languages(os.fspath(given)), targets)
    if isinstance(given, str) and given == UNWEIGHTED:
        return Weights(np.ones(K), float(K), "unweighted: the mean of the losses")
    if isinstance(given, str) and given == NORMALIZED:
        return _normalized(targets, sources, terms, measured)
    if isinstance(given, str) and "=" not in given:
        hint = did_you_mean(given, (UNWEIGHTED, NORMALIZED))
        raise UsageError(f"unknown weights {given!r}", hint=hint)
    if isinstance(given, (str, Mapping)):
        return _from_mapping(_by_target(given, targets, "weight"), targets, "given")
    return _from_mapping(_in_order(given, targets), targets, "given")


def task_weights(fit: ScoredFit, given: WeightSpec | None, objective: str = MEAN) -> WeightSpec:
    """Weights of tasks as those of every task and language: `cloze=1` in equal shares for its languages.

    Raises
    ------
    UsageError
        If a name is no task, or the weights are those of losses.
    """
    if isinstance(given, str) and given == NORMALIZED:
        raise UsageError(f"{NORMALIZED} weights are of losses, not of scores", hint="give weights of tasks, as cloze=1")
    if given is None or (
        objective == MEAN and (isinstance(given, Mapping) or (isinstance(given, str) and "=" in given))
    ):
        return fit.weights(given, objective)
    return given


def _by_target(given: Mapping[str, float | str] | str, targets: tuple[str, ...], what: str) -> dict[str, float]:
    if not isinstance(given, (str, Mapping)):
        raise UsageError(f"{described(given)} is no {what} by target", hint="write it like en=2.1,de=1.9")
    found = parse_pairs(given, parse_number, what)
    faults = [
        Fault(f"a {what} is given for {name!r}, which is no target", value=name, hint=near(name, targets))
        for name in found
        if name not in targets
    ]
    if faults:
        raise UsageError.of(faults, f"the {what}s")
    return found


def _in_order(given: Sequence[float] | FloatArray, targets: tuple[str, ...]) -> dict[str, float]:
    """Numbers in the order of the targets, by name."""
    hint = f"give them by name, or {len(targets)} in the order of the targets"
    if isinstance(given, Set):
        raise UsageError(f"weights: {described(given)} has no order", hint=hint)
    try:
        values = list(given)
    except TypeError as error:
        raise UsageError(f"{described(given)} is no set of weights", hint=hint) from error
    if len(values) != len(targets):
        raise UsageError(f"{len(values)} weights for {len(targets)} targets", hint=hint)
    pairs = zip(targets, values, strict=True)
    return {name: parse_number(value, f"weight of {name!r}") for name, value in pairs}


def _normalized(
    targets: tuple[str, ...], sources: tuple[str, ...], terms: Losses | None, measured: Mapping[str, float]
) -> Weights:
    """Inverse monolingual losses: measured where given, else predicted at the mixture of that language alone."""
    index = {name: i for i, name in enumerate(sources)}
    if terms is None and any(target not in measured for target in targets):
        hint = "give the measured monolingual loss of every target"
        raise UsageError("this law predicts no monolingual losses to normalize the weights by", hint=hint)
    predicted = np.zeros((0, 0)) if terms is None else terms.losses(np.eye(len(sources)))
    losses, missing = np.full(len(targets), np.nan), []
    for j, target in enumerate(targets):
        if target in measured:
            losses[j] = float(measured[target])
        elif target in index:
            losses[j] = predicted[index[target], j]
        else:
            missing.append(Fault(f"target {target!r} is no source, so it has no monolingual loss", value=target))
    if missing:
        hint = "give its measured monolingual loss, or use other weights"
        raise UsageError.of([Fault(fault.message, hint=hint) for fault in missing], "the normalized weights")
    if not (np.isfinite(losses) & (losses > 0)).all():
        raise UsageError("a monolingual loss is not a positive number; weights cannot be normalized by it")
    known = [target for target in targets if target in measured]
    origin = "measured" if len(known) == len(targets) else "predicted"
    if known and origin == "predicted":
        origin = f"measured for {', '.join(known)}, else predicted"
    return Weights(1 / losses, float(len(targets)), f"normalized: inverse monolingual loss, {origin}")


def _from_table(languages: Languages, targets: tuple[str, ...]) -> Weights:
    if languages.weight is None:
        hint = "add the column, or use unweighted or normalized weights"
        raise DataError(f"{languages.origin} has no column 'weight'", hint=hint)
    pairs = zip(languages.names, languages.weight.tolist(), strict=True)
    table = {name: value for name, value in pairs if name in targets and np.isfinite(value)}
    return _from_mapping(table, targets, f"table {languages.origin}")


def _from_mapping(given: Mapping[str, float], targets: tuple[str, ...], origin: str) -> Weights:
    raw = np.array([float(given.get(name, 0.0)) for name in targets])
    if not (np.isfinite(raw) & (raw >= 0) & ((raw == 0) | (np.abs(np.log(np.where(raw > 0, raw, 1))) < 200))).all():
        raise UsageError("weights must be finite and not negative, and neither beyond 1e80 nor below 1e-80")
    if not raw.any():
        raise UsageError("the weights must not all be zero")
    absent = [name for name in targets if name not in given]
    notices = (f"no weight for {', '.join(absent)}: counted as 0",) if absent else ()
    return Weights(raw, float(raw.sum()), origin, notices)
