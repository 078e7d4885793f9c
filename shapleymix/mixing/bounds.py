"""What a mixture must obey: caps, floors and groups of languages; whether that can be, and the smallest repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, InfeasibleError, SolveError, UsageError, did_you_mean
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages
from shapleymix.tables.sizes import format_size, parse_size

DEFAULT_EPOCHS = 4.0
"""Repetitions up to which data count almost as new (Muennighoff et al. 2023, "Scaling data-constrained LMs")."""

Amounts = Mapping[str, float | str] | Languages
Ratios = Mapping[str, float] | Sequence[float] | FloatArray | float  # by name, in the sources' order, or for all


@dataclass(frozen=True)
class Group:
    """Bounds on the summed ratio of some sources."""

    sources: tuple[str, ...]
    lower: float = 0.0
    upper: float = 1.0
    name: str | None = None

    @property
    def label(self) -> str:
        """Its name, or its sources."""
        return self.name or "+".join(self.sources)


@dataclass(frozen=True)
class Near:
    """No further than `radius` from the mixture `center` (M,): in L1 distance, or in KL(p || center), nats."""

    center: FloatArray
    radius: float
    kind: str = "l1"


@dataclass(frozen=True)
class Constraints:
    """Bounds on ratios at one token budget D.

    Attributes
    ----------
    lower, upper : (M,) ratios; `cap_origin` (M,) says where each upper bound comes from ("" = none).
    available : (M,) unique tokens at hand, NaN where not known; epochs : (M,) how often they may be repeated.
    members : (G, M) of zeros and ones, with bounds `group_lower`, `group_upper` (G,).
    """

    sources: tuple[str, ...]
    D: float
    lower: FloatArray
    upper: FloatArray
    cap_origin: tuple[str, ...]
    available: FloatArray
    epochs: FloatArray
    members: FloatArray
    group_lower: FloatArray
    group_upper: FloatArray
    group_names: tuple[str, ...]
    near: Near | None = None

    @property
    def grouped(self) -> bool:
        """Whether there are bounds on groups."""
        return len(self.group_names) > 0

    @property
    def has_caps(self) -> bool:
        """Whether any source is bounded from above by less than the whole."""
        return bool(np.any(self.upper < 1))


def constraints_of(
    sources: Sequence[str],
    D: float,
    *,
    caps: Ratios | Languages | None = None,
    available: Amounts | None = None,
    epochs: float | Mapping[str, float] | None = None,
    floors: Ratios | None = None,
    min_tokens: float | str | Mapping[str, float | str] | None = None,
    groups: Sequence[Group] = (),
) -> Constraints:
    """Gather bounds from ratios, tokens and epochs; the tighter of two bounds holds.

    Parameters
    ----------
    caps : highest ratio of some sources, or a languages table (its available tokens and epochs).
    available : unique tokens of some sources; caps them at `available * epochs / D`.
    epochs : repetitions allowed, one number or per source; the table's own column goes first, and
        `DEFAULT_EPOCHS` is taken where nothing is given.
    floors, min_tokens : lowest ratios, and lowest token counts (one for every source, or per source).

    Raises
    ------
    UsageError
        If a name is unknown or a bound is no ratio.
    """
    names = tuple(sources)
    if isinstance(caps, Languages):
        caps, available = None, caps if available is None else available
    tokens, repeats = _supply(names, available, epochs)
    explicit = _ratios(caps, names, 1.0, "cap")
    supplied = np.where(np.isnan(tokens), 1.0, tokens * repeats / D)
    lower = np.maximum(_ratios(floors, names, 0.0, "floor"), _least(min_tokens, names) / D)
    members, low, high = _group_rows(tuple(groups), names)
    return Constraints(
        names,
        float(D),
        lower,
        np.minimum(np.minimum(explicit, supplied), 1.0),
        tuple(_origin(*pair) for pair in zip(explicit.tolist(), supplied.tolist(), strict=True)),
        tokens,
        repeats,
        members,
        low,
        high,
        tuple(group.label for group in groups),
    )


def tightened(constraints: Constraints) -> Constraints:
    """Bounds that crossed by rounding only, made equal."""
    return replace(constraints, upper=np.maximum(constraints.upper, constraints.lower))


def _supply(
    names: tuple[str, ...], available: Amounts | None, epochs: float | Mapping[str, float] | None
) -> tuple[FloatArray, FloatArray]:
    """Tokens at hand and repetitions allowed, (M,) each."""
    tokens, own = np.full(len(names), np.nan), np.full(len(names), np.nan)
    if isinstance(available, Languages):
        known = [name for name in names if name in available.names]
        rows = [available.names.index(name) for name in known]
        index = [names.index(name) for name in known]
        tokens[index], own[index] = available.available_tokens[rows], available.max_epochs[rows]
    elif available is not None:
        _require_names(available, names, "available tokens")
        tokens = np.array([parse_size(available[name]) if name in available else np.nan for name in names])
    default = DEFAULT_EPOCHS if epochs is None or isinstance(epochs, Mapping) else float(epochs)
    if isinstance(epochs, Mapping):
        _require_names(epochs, names, "epochs")
        own = np.array([epochs.get(name, value) for name, value in zip(names, own.tolist(), strict=True)])
    repeats = np.where(np.isnan(own), default, own)
    if not (repeats > 0).all():
        raise UsageError("epochs must be positive")
    return tokens, repeats


def _ratios(given: Ratios | None, names: tuple[str, ...], default: float, what: str) -> FloatArray:
    if given is None:
        return np.full(len(names), default)
    if not isinstance(given, Mapping):
        given = dict(zip(names, _of_each(given, len(names), what), strict=True))
    _require_names(given, names, f"{what}s")
    wrong = [name for name, value in given.items() if not 0 <= float(value) <= 1]
    if wrong:
        raise UsageError(f"the {what} {given[wrong[0]]:g} of {wrong[0]!r} is not a ratio between 0 and 1")
    return np.array([float(given.get(name, default)) for name in names])


def _of_each(given: Any, count: int, what: str) -> list[float]:
    """One number for every source, or numbers in the order of the sources."""
    values = np.asarray(given, dtype=float)
    if values.shape not in ((), (count,)):
        hint = f"give a mapping, one number, or {count} in the order of the sources"
        raise UsageError(f"the {what}s have shape {values.shape}", hint=hint)
    return np.broadcast_to(values, (count,)).tolist()


def _least(given: float | str | Mapping[str, float | str] | None, names: tuple[str, ...]) -> FloatArray:
    if given is None:
        return np.zeros(len(names))
    if isinstance(given, Mapping):
        _require_names(given, names, "minimal tokens")
        return np.array([parse_size(given.get(name, 0.0)) for name in names])
    return np.full(len(names), parse_size(given))


def _group_rows(groups: tuple[Group, ...], names: tuple[str, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    for group in groups:
        _require_names(dict.fromkeys(group.sources, 0.0), names, f"the group {group.label!r}")
    members = np.array([[float(name in group.sources) for name in names] for group in groups])
    low, high = np.array([g.lower for g in groups], dtype=float), np.array([g.upper for g in groups], dtype=float)
    return members.reshape(len(groups), len(names)), low, high


def _require_names(given: Mapping[str, object], names: tuple[str, ...], what: str) -> None:
    faults = [
        Fault(f"{what}: {name!r} is not one of the sources", value=name, hint=did_you_mean(name, names))
        for name in given
        if name not in names
    ]
    if faults:
        raise UsageError.of(faults, what)


def _origin(explicit: float, supplied: float) -> str:
    if min(explicit, supplied) >= 1:
        return ""
    return "given" if explicit <= supplied else "tokens"


NOTICEABLE = 1e-9
SLACK = 1e-12


def require_feasible(constraints: Constraints) -> None:
    """Say which bounds leave no mixture, by how much, and the smallest change that repairs it.

    Raises
    ------
    InfeasibleError
        With one fault for each bound, or group of bounds, that cannot hold.
    """
    faults = _crossed(constraints) or _sums(constraints)
    if not faults and constraints.grouped:
        faults = group_repair(constraints)
    if faults:
        raise InfeasibleError.of(faults, "the set of bounds")


def group_repair(constraints: Constraints) -> list[Fault]:
    """One fault for each bound of the smallest repair in the sum of absolute changes, by a linear program."""
    G, M = constraints.members.shape
    # Columns: p, then how far each floor, cap, group floor and group cap gives way.
    eye, none = np.eye(M), np.zeros
    A = np.block(
        [
            [-eye, -eye, none((M, M)), none((M, 2 * G))],
            [eye, none((M, M)), -eye, none((M, 2 * G))],
            [-constraints.members, none((G, 2 * M)), -np.eye(G), none((G, G))],
            [constraints.members, none((G, 2 * M)), none((G, G)), -np.eye(G)],
        ]
    )
    b = np.concatenate([-constraints.lower, constraints.upper, -constraints.group_lower, constraints.group_upper])
    cost = np.concatenate([np.zeros(M), np.ones(2 * M + 2 * G)])
    total = np.concatenate([np.ones(M), np.zeros(2 * M + 2 * G)])[None]
    found = linprog(cost, A_ub=A, b_ub=b, A_eq=total, b_eq=[1.0], bounds=(0, None), method="highs")
    if not found.success:
        raise SolveError(f"the feasibility of the bounds could not be decided: {found.message}")
    return _faults(constraints, found.x[M:])


def _faults(constraints: Constraints, change: FloatArray) -> list[Fault]:
    G, M = constraints.members.shape
    if change.sum() <= NOTICEABLE:
        return []
    kinds = [("floor", constraints.sources, constraints.lower, -1), ("cap", constraints.sources, constraints.upper, 1)]
    kinds += [
        ("floor of the group", constraints.group_names, constraints.group_lower, -1),
        ("cap of the group", constraints.group_names, constraints.group_upper, 1),
    ]
    parts = np.split(change, np.cumsum([M, M, G]))
    return [
        Fault(
            f"the {kind} {names[i]} = {bounds[i]:.4g} cannot hold with the others, by {part[i]:.4g}",
            value=f"{part[i]:.6g}",
            hint=f"change it to {bounds[i] + sign * part[i]:.4g}",
        )
        for (kind, names, bounds, sign), part in zip(kinds, parts, strict=True)
        for i in np.flatnonzero(part > NOTICEABLE)
    ]


def _crossed(constraints: Constraints) -> list[Fault]:
    faults = []
    for i in np.flatnonzero(constraints.lower > constraints.upper + SLACK):
        name, low, high = constraints.sources[i], constraints.lower[i], constraints.upper[i]
        hint = f"lower its floor by {low - high:.4g}, or raise its cap to {low:.4g}"
        if constraints.cap_origin[i] == "tokens":
            need = low * constraints.D / constraints.available[i]
            hint += f" ({need:.3g} epochs of its {format_size(constraints.available[i])} tokens)"
        text = f"the floor {low:.4g} of {name} is above its cap {high:.4g}, by {low - high:.4g}"
        faults.append(Fault(text, value=f"{low - high:.6g}", hint=hint))
    return faults


def _sums(constraints: Constraints) -> list[Fault]:
    floors, caps = float(constraints.lower.sum()), float(constraints.upper.sum())
    if floors > 1 + SLACK:
        listed = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(constraints.sources, constraints.lower, strict=True) if value
        )
        hint = f"lower them by {floors - 1:.4g} in all, for instance multiply each by {1 / floors:.4g}"
        return [Fault(f"the floors sum to {floors:.6g}, above 1 by {floors - 1:.4g}: {listed}", hint=hint)]
    if caps < 1 - SLACK:
        listed = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(constraints.sources, constraints.upper, strict=True)
        )
        text = f"the caps sum to {caps:.6g}, short of 1 by {1 - caps:.4g}: {listed}"
        return [Fault(text, value=f"{1 - caps:.6g}", hint=_more_supply(constraints, caps))]
    return []


def _more_supply(constraints: Constraints, caps: float) -> str:
    short = 1 - caps
    general = f"raise the caps by {short:.4g} in all ({format_size(short * constraints.D)} tokens)"
    limited = np.array([origin == "tokens" for origin in constraints.cap_origin])
    if not limited.any():
        return general
    supplied = float(constraints.upper[limited].sum())
    factor = 1 + short / supplied if supplied else np.inf
    epochs = constraints.epochs[limited]
    allowed = f"{epochs.min():.3g}" if epochs.min() == epochs.max() else f"{epochs.min():.3g} to {epochs.max():.3g}"
    parts = [general]
    if np.isfinite(factor):
        parts.append(f"allow {factor:.4g} times the epochs ({allowed} now)")
    if limited.all():
        parts.append(f"train on D = {format_size(caps * constraints.D)} tokens at most")
    return ", or ".join(parts)
