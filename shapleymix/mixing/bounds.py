"""What a mixture must obey: bounds as they are asked for, and as they stand at one token budget.

Adding a bound: a field of `Bounds` (a keyword of `optimize`, and a flag), and what it makes of `Constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.mixing.groups import Group, families_of, groups_of
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.amounts import parse_choice, parse_number, parse_positive, parse_ratio, ratio_number
from shapleymix.tables.baselines import mixture_of
from shapleymix.tables.by_source import Amount, Amounts, Ratios, amounts, column_of, parse_tokens, tokens_at_hand
from shapleymix.tables.languages import Languages, LanguagesSpec, languages_of
from shapleymix.tables.simplex import MixtureSpec

__all__ = ["Bounds", "Constraints", "Group", "Near"]

DEFAULT_EPOCHS = 4.0
"""Repetitions up to which data count almost as new (Muennighoff et al. 2023, "Scaling data-constrained LMs")."""

L1, KL = "l1", "kl"
LEAST_KL = 1e-9
FIXED, TOKENS, GIVEN, UNSEEN = "fixed", "tokens", "given", "unseen"
"""Where a bound comes from."""
Side = tuple[FloatArray, tuple[str, ...]]
"""Bounds (M,) of one side, and where each comes from."""

EpochsSpec = Amount | Mapping[str, Amount] | Sequence[str]
TokensSpec = Amount | Mapping[str, Amount] | Sequence[str]
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
    floor_origin : tuple of str (M,)
        Where each lower bound comes from: "given", "fixed", "tokens", or "" for none; empty where nobody needs to know.
    min_tokens : array (M,), optional
        Fewest tokens that were asked for, 0 for none; None where nobody needs to know.
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
    floor_origin: tuple[str, ...] = ()
    min_tokens: FloatArray | None = None

    @property
    def grouped(self) -> bool:
        """Whether there are bounds on groups."""
        return len(self.group_names) > 0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds as they are asked for; the tighter of two holds.

    Attributes
    ----------
    caps, floors, fix : Ratios, optional
        Highest, lowest and exact ratios: by name (a mapping or `"en=0.3,de=40%"`), in the order of the sources, or one
        for all (caps and floors).
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families, and weights (see `Demands`).
    available : Amounts, optional
        Unique tokens by name; they override those of the table, and cap a source at `available * max_epochs / D`.
    max_epochs : EpochsSpec, optional
        How often a token may be seen, for all or by name; it overrides the table's column. Where neither says there is
        no limit if the fit knows what repetition costs, and it is 4 else.
    min_tokens : TokensSpec, optional
        Fewest tokens, for every source or by name.
    groups : GroupSpec or sequence of GroupSpec
        Bounds on summed ratios: `"en+de<=0.3"`, `"cjk: zh+ja>=10%"`, `"Germanic>=0.6"` (a family), or `Group`s.
    near, within, distance : MixtureSpec, float or str
        The mixture is at most `within` from `near`, in `"l1"` distance or `"kl"` nats.
    """

    caps: Ratios | None = None
    floors: Ratios | None = None
    fix: Ratios | None = None
    languages: LanguagesSpec | None = None
    available: Amounts | None = None
    max_epochs: EpochsSpec | None = None
    min_tokens: TokensSpec | None = None
    groups: Sequence[GroupSpec] | GroupSpec = ()
    near: MixtureSpec | None = None
    within: float | str | None = None
    distance: str = L1

    def __post_init__(self) -> None:
        object.__setattr__(self, "languages", languages_of(self.languages))
        if (self.near is None) != (self.within is None):
            raise UsageError("near and within go together", hint="for instance near='uniform', within=0.2")
        parse_choice(self.distance, (L1, KL), "distance")

    @property
    def table(self) -> Languages | None:
        """The languages table, read."""
        assert self.languages is None or isinstance(self.languages, Languages)
        return self.languages

    def at(
        self, sources: Sequence[str], D: float, unseen: Sequence[str] = (), epochs: float = DEFAULT_EPOCHS
    ) -> Constraints:
        """The bounds at D tokens.

        Parameters
        ----------
        sources : sequence of str (M,)
            Labels.
        D : float
            Tokens to train on.
        unseen : sequence of str
            Sources to be held at ratio 0.
        epochs : float
            How often a token may be seen where neither keyword nor table says; infinite for no limit.

        Raises
        ------
        UsageError
            If a name is unknown or a bound is no ratio.
        """
        names = tuple(sources)
        tokens, repeats = self.supply(names), self._repeats(names, epochs)
        (lower, floored), (upper, origin) = self._sides(names, _most_tokens(tokens, repeats) / D, D)
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
            floor_origin=floored,
            min_tokens=np.nan_to_num(self._least(names)),
        )

    def supply(self, sources: Sequence[str]) -> FloatArray:
        """Unique tokens at hand (M,), NaN where not known."""
        return tokens_at_hand(sources, self.table, self.available)

    def _repeats(self, names: tuple[str, ...], usual: float) -> FloatArray:
        """How often the tokens of each source may be seen (M,)."""
        own = column_of(self.table, "max_epochs", names)
        own = amounts(own, self.max_epochs, names, parse_positive, "epochs")
        return np.where(np.isnan(own), usual, own)

    def _least(self, names: tuple[str, ...]) -> FloatArray:
        """Fewest tokens of each source (M,), NaN where none are asked for."""
        return amounts(np.full(len(names), np.nan), self.min_tokens, names, parse_tokens, "minimal tokens")

    def _sides(self, names: tuple[str, ...], supplied: FloatArray, D: float) -> tuple[Side, Side]:
        """Lower and upper bounds (M,), and where they come from."""
        none = np.full(len(names), np.nan)
        given = amounts(none, self.caps, names, parse_ratio, "cap")
        fixed = none if self.fix is None else amounts(none, _by_name(self.fix), names, parse_ratio, "fixed ratio")
        least = self._least(names) / D
        floors = amounts(none, self.floors, names, parse_ratio, "floor")
        above = np.stack([fixed, given, supplied, np.ones(len(names))])
        below = np.nan_to_num([fixed, floors, least])
        upper, lower = np.nanmin(above, axis=0), np.maximum(below.max(axis=0), 0.0)
        tightest = np.where(upper < 1, np.nanargmin(above, axis=0), 3)
        highest = np.where(lower > 0, below.argmax(axis=0), 3)
        return (lower, _origins(highest)), (upper, _origins(tightest))

    def _near(self, names: tuple[str, ...], tokens: FloatArray, D: float) -> Near | None:
        if self.near is None or self.within is None:
            return None
        radius = _kl_radius(self.within) if self.distance == KL else _l1_radius(self.within)
        return Near(mixture_of(self.near, names, tokens, D), radius, self.distance)


def _origins(places: IntArray) -> tuple[str, ...]:
    return tuple(np.array([FIXED, GIVEN, TOKENS, ""])[places].tolist())


def tightened(constraints: Constraints) -> Constraints:
    """Bounds that crossed by rounding only, made equal."""
    return replace(constraints, upper=np.maximum(constraints.upper, constraints.lower))


def _most_tokens(tokens: FloatArray, repeats: FloatArray) -> FloatArray:
    """Tokens that epochs allow (M,), NaN for no limit; a source without a token has none to repeat."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(repeats), np.where(tokens == 0, 0.0, np.nan), tokens * repeats)


def _by_name(given: Ratios) -> Ratios:
    """One exact ratio for all sources would be a mixture, not a bound."""
    if isinstance(given, (int, float)) or (isinstance(given, str) and "=" not in given):
        raise UsageError(f"fixed ratio: {given!r} has no name", hint="write it like en=0.3")
    return given


def _kl_radius(given: Amount) -> float:
    """A KL distance in nats that arithmetic can tell from none: a solver stands that far inside of its bounds."""
    value = parse_number(given, "within")
    if not value >= LEAST_KL:
        hint = f"give {LEAST_KL:g} nats or more, or the mixture's own ratios as fixed ones"
        raise UsageError(f"within: {value:g} nats is too small a KL distance", hint=hint)
    return value


def _l1_radius(given: Amount) -> float:
    """An L1 distance between 0 and 2, of which a percentage is a hundredth."""
    value = ratio_number(given, "within")
    if not 0 <= value <= 2:
        raise UsageError(f"within: {value:g} is no L1 distance between mixtures", hint="it lies between 0 and 2")
    return value
