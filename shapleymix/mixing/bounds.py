"""What a mixture must obey: bounds as they are asked for, and as they stand at one token budget.

Adding a bound: a field of `Bounds` (a keyword of `optimize`, and a flag), and what it makes of `Constraints`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapleymix.errors import Fault, UsageError, described, did_you_mean
from shapleymix.mixing.baselines import mixture_of
from shapleymix.mixing.groups import Group, families_of, groups_of
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_choice, parse_number, parse_pairs, parse_positive, parse_ratio, ratio_number
from shapleymix.tables.languages import Languages, read_languages
from shapleymix.tables.simplex import MixtureSpec
from shapleymix.tables.sizes import parse_size

__all__ = ["Bounds", "Constraints", "Group", "Near"]

DEFAULT_EPOCHS = 4.0
"""Repetitions up to which data count almost as new (Muennighoff et al. 2023, "Scaling data-constrained LMs")."""

L1, KL = "l1", "kl"
FIXED, TOKENS, GIVEN, UNSEEN = "fixed", "tokens", "given", "unseen"
"""Where an upper bound comes from."""

Amount = float | str
Pairs = Mapping[str, Amount] | Sequence[str] | str
Amounts = Pairs
"""Amounts by name: a mapping, `en=5T,fi=20B`, or several such texts."""
Ratios = Pairs | Sequence[float] | FloatArray | float
"""Ratios by name, in the sources' order, or one for all."""
EpochsSpec = Amount | Mapping[str, Amount] | Sequence[str]
TokensSpec = Amount | Mapping[str, Amount] | Sequence[str]
LanguagesSpec = Languages | str | os.PathLike[str]
GroupSpec = Group | str


@dataclass(frozen=True)
class Near:
    """No further than `radius` from the mixture `center` (M,): in L1 distance, or in KL(p || center), nats."""

    center: FloatArray
    radius: float
    kind: str = L1


@dataclass(frozen=True)
class Constraints:
    """Bounds on ratios at one token budget D.

    Attributes
    ----------
    lower, upper : array (M,)
        Bounds of the ratios.
    cap_origin : tuple of str (M,)
        Where each upper bound comes from: "given", "fixed", "tokens", "unseen", or "" for none.
    available : array (M,)
        Unique tokens at hand, NaN where not known.
    epochs : array (M,)
        How often they may be repeated.
    members : array (G, M)
        Ones where a source is in a group, else zeros.
    near : Near, optional
        The ball around a mixture within which to stay.
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


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds as they are asked for; the tighter of two holds.

    Attributes
    ----------
    caps, floors, fixed : Ratios, optional
        Highest, lowest and exact ratios: by name (a mapping or `"en=0.3,de=40%"`), in the order of the sources, or one
        for all (caps and floors).
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families, and weights (see `Demands`).
    available : Amounts, optional
        Unique tokens by name; they override those of the table, and cap a source at `available * max_epochs / D`.
    max_epochs : EpochsSpec, optional
        How often a token may be seen, for all or by name; it overrides the table's column, and is 4 where neither says.
    min_tokens : TokensSpec, optional
        Fewest tokens, for every source or by name.
    groups : GroupSpec or sequence of GroupSpec
        Bounds on summed ratios: `"en+de<=0.3"`, `"cjk: zh+ja>=10%"`, `"Germanic>=0.6"` (a family), or `Group`s.
    near, within, distance : MixtureSpec, float or str
        The mixture is at most `within` from `near`, in `"l1"` distance or `"kl"` nats.
    """

    caps: Ratios | None = None
    floors: Ratios | None = None
    fixed: Ratios | None = None
    languages: LanguagesSpec | None = None
    available: Amounts | None = None
    max_epochs: EpochsSpec | None = None
    min_tokens: TokensSpec | None = None
    groups: Sequence[GroupSpec] | GroupSpec = ()
    near: MixtureSpec | None = None
    within: float | str | None = None
    distance: str = L1

    def __post_init__(self) -> None:
        if isinstance(self.languages, (str, os.PathLike)):
            object.__setattr__(self, "languages", read_languages(os.fspath(self.languages)))
        elif self.languages is not None and not isinstance(self.languages, Languages):
            raise UsageError(f"{described(self.languages)} is no languages table", hint="give its file")
        if (self.near is None) != (self.within is None):
            raise UsageError("near and within go together", hint="for instance near='uniform', within=0.2")
        parse_choice(self.distance, (L1, KL), "distance")

    @property
    def table(self) -> Languages | None:
        """The languages table, read."""
        assert self.languages is None or isinstance(self.languages, Languages)
        return self.languages

    def at(self, sources: Sequence[str], D: float, unseen: Sequence[str] = ()) -> Constraints:
        """The bounds at D tokens.

        Parameters
        ----------
        sources : sequence of str (M,)
            Labels.
        D : float
            Tokens to train on.
        unseen : sequence of str
            Sources to be held at ratio 0.

        Raises
        ------
        UsageError
            If a name is unknown or a bound is no ratio.
        """
        names = tuple(sources)
        tokens, repeats = self._supply(names)
        lower, upper, origin = self._sides(names, tokens * repeats / D, D)
        held = np.isin(names, list(unseen))
        groups = groups_of(self.groups, names, families_of(self.table, names))
        shape = (len(groups), len(names))
        return Constraints(
            sources=names,
            D=float(D),
            lower=lower,
            upper=np.where(held, 0.0, upper),
            cap_origin=tuple(UNSEEN if off else why for off, why in zip(held.tolist(), origin, strict=True)),
            available=tokens,
            epochs=repeats,
            members=np.array([[float(name in group.sources) for name in names] for group in groups]).reshape(shape),
            group_lower=np.array([group.lower for group in groups], dtype=float),
            group_upper=np.array([group.upper for group in groups], dtype=float),
            group_names=tuple(group.label for group in groups),
            near=self._near(names, tokens, D),
        )

    def supply(self, sources: Sequence[str]) -> FloatArray:
        """Unique tokens at hand (M,), NaN where not known."""
        return self._supply(tuple(sources))[0]

    def _supply(self, names: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
        """Tokens at hand and repetitions allowed, (M,) each."""
        tokens, own = np.full(len(names), np.nan), np.full(len(names), np.nan)
        if self.table is not None:
            known = [name for name in names if name in self.table.names]
            rows = [self.table.names.index(name) for name in known]
            index = [names.index(name) for name in known]
            tokens[index], own[index] = self.table.available_tokens[rows], self.table.max_epochs[rows]
        tokens = _over(tokens, self.available, names, _tokens, "available tokens")
        own = _over(own, self.max_epochs, names, parse_positive, "epochs")
        return tokens, np.where(np.isnan(own), DEFAULT_EPOCHS, own)

    def _sides(
        self, names: tuple[str, ...], supplied: FloatArray, D: float
    ) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
        """Lower and upper bounds (M,), and where the upper come from."""
        none = np.full(len(names), np.nan)
        given = _over(none, self.caps, names, parse_ratio, "cap")
        fixed = none if self.fixed is None else _over(none, _by_name(self.fixed), names, parse_ratio, "fixed ratio")
        least = _over(none, self.min_tokens, names, _tokens, "minimal tokens") / D
        lower = _over(none, self.floors, names, parse_ratio, "floor")
        sides = np.stack([fixed, given, supplied, np.ones(len(names))])
        tightest = np.nanargmin(sides, axis=0)
        upper = np.nanmin(sides, axis=0)
        origins = np.array([FIXED, GIVEN, TOKENS, ""])[np.where(upper < 1, tightest, 3)]
        return np.fmax(np.fmax(np.fmax(lower, fixed), least), 0.0), upper, tuple(origins.tolist())

    def _near(self, names: tuple[str, ...], tokens: FloatArray, D: float) -> Near | None:
        if self.near is None or self.within is None:
            return None
        radius = parse_number(self.within, "within") if self.distance == KL else _l1_radius(self.within)
        if radius < 0:
            raise UsageError(f"within: {radius:g} is negative")
        return Near(mixture_of(self.near, names, tokens, D), radius, self.distance)


def tightened(constraints: Constraints) -> Constraints:
    """Bounds that crossed by rounding only, made equal."""
    return replace(constraints, upper=np.maximum(constraints.upper, constraints.lower))


def require_names(given: Mapping[str, object], names: tuple[str, ...], what: str) -> None:
    """A UsageError for every name that is no source."""
    faults = [
        Fault(f"{what}: {name!r} is not one of the sources", value=name, hint=did_you_mean(name, names))
        for name in given
        if name not in names
    ]
    if faults:
        raise UsageError.of(faults, what)


def _over(
    base: FloatArray,
    given: Ratios | None,
    names: tuple[str, ...],
    read: Callable[[Amount, str], float],
    what: str,
) -> FloatArray:
    """`base` (M,) with what is given in place: by name, in the sources' order, or one for all."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return base
    if isinstance(given, (list, tuple)) and len(given) == 1 and isinstance(given[0], str):
        given = given[0]  # one text: of the names that it holds, or one amount for all
    pairs = _pairs(given)
    if pairs is None:
        return np.array(_in_order(given, len(names), read, what), dtype=float)
    found = parse_pairs(pairs, read, what)
    require_names(found, names, what)
    return np.array([found.get(name, value) for name, value in zip(names, base.tolist(), strict=True)])


def _pairs(given: Any) -> Pairs | None:
    """Amounts that are given by name; None where they are in the sources' order, or one for all."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str):
        return given if "=" in given else None
    if isinstance(given, (list, tuple)) and any(isinstance(part, str) and "=" in part for part in given):
        return given
    return None


def _in_order(given: Any, count: int, read: Callable[[Amount, str], float], what: str) -> list[float]:
    """One number for every source, or numbers in the order of the sources."""
    if isinstance(given, (str, int, float)):
        return [read(given, what)] * count
    try:
        values = list(given)
    except TypeError:
        values = []
    if len(values) != count:
        hint = f"give them by name (en=0.5,de=0.2), one for all, or {count} in the order of the sources"
        raise UsageError(f"{what}: {len(values)} values for {count} sources", hint=hint)
    return [read(value, what) for value in values]


def _by_name(given: Ratios) -> Ratios:
    """One exact ratio for all sources would be a mixture, not a bound."""
    if isinstance(given, (int, float)) or (isinstance(given, str) and "=" not in given):
        raise UsageError(f"fixed ratio: {given!r} has no name", hint="write it like en=0.3")
    return given


def _tokens(given: Amount, what: str) -> float:
    try:
        return parse_size(given)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what}: {given!r} is not a size") from error


def _l1_radius(given: Amount) -> float:
    """An L1 distance between 0 and 2, of which a percentage is a hundredth."""
    value = ratio_number(given, "within")
    if not 0 <= value <= 2:
        raise UsageError(f"within: {value:g} is no L1 distance between mixtures", hint="it lies between 0 and 2")
    return value
