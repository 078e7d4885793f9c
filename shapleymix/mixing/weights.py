"""What the objective weighs: each target's loss alike, relative to its monolingual loss, or by given weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shapleymix.errors import DataError, Fault, UsageError, did_you_mean
from shapleymix.laws.terms import Terms
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages

UNWEIGHTED, NORMALIZED = "unweighted", "normalized"


@dataclass(frozen=True)
class Weights:
    """`raw` (K,) multiplies the losses; `origin` says what it is. The mean objective divides by `total`."""

    raw: FloatArray
    total: float
    origin: str

    @property
    def mean(self) -> FloatArray:
        """(K,) weights of the mean objective, in which the raw weights are averaged over."""
        return self.raw / self.total


def weights_of(
    given: str | Mapping[str, float] | Languages,
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    terms: Terms,
    monolingual: Mapping[str, float] | None = None,
) -> Weights:
    """The weights of the targets.

    Parameters
    ----------
    given : `unweighted` (the mean of the losses), `normalized` (the mean of losses divided by their monolingual
        losses; ShapleyLaw paper, "Mixture Optimization"), a mapping, or a languages table with weights.
    monolingual : measured losses of monolingual models for `normalized`; where absent, the law predicts them.

    Raises
    ------
    UsageError, DataError
        If a target has no weight, a weight is negative, or all are zero.
    """
    K = len(targets)
    if isinstance(given, Languages):
        return _from_table(given, targets)
    if not isinstance(given, str):
        return _from_mapping(given, targets, "given")
    if given == UNWEIGHTED:
        return Weights(np.ones(K), float(K), "unweighted: the mean of the losses")
    if given == NORMALIZED:
        return _normalized(targets, sources, terms, monolingual or {})
    hint = did_you_mean(given, (UNWEIGHTED, NORMALIZED))
    raise UsageError(f"unknown weights {given!r}", hint=hint)


def _normalized(
    targets: tuple[str, ...], sources: tuple[str, ...], terms: Terms, measured: Mapping[str, float]
) -> Weights:
    """Inverse monolingual losses: measured where given, else predicted at the mixture of that language alone."""
    index = {name: i for i, name in enumerate(sources)}
    predicted = terms.losses(np.eye(len(sources)))
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
    faults = [
        Fault(f"a weight is given for {name!r}, which is no target", value=name, hint=did_you_mean(name, targets))
        for name in given
        if name not in targets
    ]
    faults += [
        Fault(f"target {name!r} has no weight", value=name, hint="weight 0 leaves it out")
        for name in targets
        if name not in given
    ]
    if faults:
        raise UsageError.of(faults, "the weights")
    raw = np.array([float(given[name]) for name in targets])
    if not (np.isfinite(raw) & (raw >= 0) & ((raw == 0) | (np.abs(np.log(np.where(raw > 0, raw, 1))) < 200))).all():
        raise UsageError("weights must be finite and not negative, and neither beyond 1e80 nor below 1e-80")
    if not raw.any():
        raise UsageError("the weights must not all be zero")
    return Weights(raw, float(raw.sum()), origin)
