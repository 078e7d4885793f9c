"""Bounds as people write them, and the `Polytope` that they make.

Adding a bound: a field of `Bounds`, and what `polytope_of` makes of it.

A group bounds the summed ratio of some sources: `en+de<=0.3`, `cjk: zh+ja>=10%`, `Germanic>=0.6`, and from both sides
`0.2<=en+de<=0.5`. Sources with a slash in their name have parents: `en` stands for `en/web` and `en/books` together.
Axes: M sources, G rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from shapleymix.display import short
from shapleymix.errors import InfeasibleError, UsageError, did_you_mean
from shapleymix.files import read_json
from shapleymix.fitting.evidence import traceless
from shapleymix.fitting.settings import Size
from shapleymix.laws.pieces import product
from shapleymix.mixing.polytope import FIXED, GIVEN, KEPT, READ, TOKENS, UNSEEN, Ball, Polytope, Supply
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables import words
from shapleymix.tables.languages import (
    Languages,
    LanguagesSpec,
    Parents,
    column_of,
    languages_of,
    paths_of,
    tokens_at_hand,
)
from shapleymix.tables.mixtures import MixtureSpec, is_file_name, mixture_of
from shapleymix.tables.sheets import as_list
from shapleymix.tables.words import Amounts, Ratios, amounts, format_size

_BOUND = re.compile(
    r"(?:(?P<name>[^:<>=]+):)?(?:(?P<low>[^:<>=]+)<=)?(?P<members>[^:<>=]+)(?P<sign><=|>=|=)(?P<bound>[^:<>=]+)"
)
_HINT = "write it like 'en+de<=0.6', '0.2<=en+de<=0.5' or 'cjk: zh+ja>=10%'"
_HINT_OF_CHANGE = "write it like de+50B, or en-1T,de+10B for several at once"

Families = Mapping[str, tuple[str, ...]]
DEFAULT_EPOCHS = 4.0
"""Repetitions up to which data count almost as new (Muennighoff et al. 2023, "Scaling data-constrained LMs")."""
LEAST_KL = 1e-9


@dataclass(frozen=True)
class Group:
    """Bounds on the summed ratio of some sources.

    Attributes
    ----------
    sources : tuple of str
        Labels of sources, or of families if a languages table lists their members.
    lower, upper : float
        Bounds of the summed ratio.
    name : str, optional
        Name in messages and results; None stands for the sources' names, joined.
    """

    sources: tuple[str, ...]
    lower: float = 0.0
    upper: float = 1.0
    name: str | None = None

    def __post_init__(self) -> None:
        members = (self.sources,) if isinstance(self.sources, str) else tuple(self.sources)
        object.__setattr__(self, "sources", members)
        if not members or not all(isinstance(member, str) and member for member in members):
            raise UsageError(f"{members!r} are no sources of a group", hint="write a group like en+de<=0.6")
        for side in ("lower", "upper"):
            object.__setattr__(self, side, words.parse_ratio(getattr(self, side), f"the group {self.label!r}"))
        if self.lower > self.upper:
            raise UsageError(f"the group {self.label!r} has a floor {self.lower:g} above its cap {self.upper:g}")

    @property
    def label(self) -> str:
        """Its name, or its sources."""
        return self.name or "+".join(self.sources)

    @classmethod
    def read(cls, text: str, known: Sequence[str]) -> Group:
        """A group from `en+de<=0.6`, `cjk: zh+ja>=0.1`, `en+de=50%` or `0.2<=en+de<=0.5`.

        Parameters
        ----------
        text : str
            The bound.
        known : sequence of str
            Labels of sources and families, which may hold a `+` themselves.

        Raises
        ------
        UsageError
            If it is no bound.
        """
        found = _BOUND.fullmatch(text) if isinstance(text, str) else None
        members = labels_between(found["members"], known) if found else ()
        if found is None or not members or (found["low"] and found["sign"] != "<="):
            raise UsageError(f"group: {text!r} is no bound", hint=_HINT)
        sign, name = found["sign"], found["name"]
        low, bound = (words.parse_ratio(found[side] or "0", f"the group {text!r}") for side in ("low", "bound"))
        return cls(members, low if sign == "<=" else bound, 1.0 if sign == ">=" else bound, name and name.strip())


EpochsSpec = Amounts | float
TokensSpec = EpochsSpec
GroupSpec = Group | str
NamesSpec = Sequence[str] | str


def groups_of(given: Sequence[GroupSpec] | GroupSpec, sources: Sequence[str], families: Families) -> tuple[Group, ...]:
    """Groups with the labels of sources only.

    Parameters
    ----------
    given : Group, str, or a sequence of them
        Groups, as they are or as text.
    sources : sequence of str (M,)
        Labels.
    families : mapping
        Sources of each family.

    Raises
    ------
    UsageError
        If a text is no bound, or a name is neither a source nor a family, or is both.
    """
    found = []
    for item in as_list(given):
        group = item if isinstance(item, Group) else Group.read(item, (*sources, *families))
        members = members_of(group.sources, sources, families, f"the group {group.label!r}")
        found.append(replace(group, sources=members, name=group.label))
    return tuple(found)


def families_of(languages: Languages | None, sources: Sequence[str], parents: Parents) -> dict[str, tuple[str, ...]]:
    """The sources of each family that a languages table names, and of each parent that paths and names have."""
    family = {} if languages is None else dict(zip(languages.names, languages.family, strict=True))
    found: dict[str, tuple[str, ...]] = {}
    for name, path in zip(sources, paths_of(sources, parents), strict=True):
        above = [text[: slash.start()] for text in (path, name) for slash in re.finditer("/", text)]
        for one in dict.fromkeys((family.get(name), *above)):
            if one is not None:  # a parent that is a source itself is one of its family
                found[one] = (*found.get(one, (one,) if one in sources and one != name else ()), name)
    return found


def members_of(names: Sequence[str], known: Sequence[str], families: Families, what: str) -> tuple[str, ...]:
    """The labels that names stand for, of which some are families.

    Raises
    ------
    UsageError
        If a name is neither a known one nor a family, or is both.
    """
    words.require_names(dict.fromkeys(names), (*known, *families), what)
    for name in names:
        if name in known and families.get(name, (name,)) != (name,):
            raise UsageError(f"{what}: {name!r} is a source and a family", hint="rename one of the two")
    return tuple(dict.fromkeys(member for name in names for member in families.get(name, (name,))))


def labels_between(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Labels with `+` between them, the longest known ones first, since a label may hold a `+` itself."""
    labels = re.findall(rf"\s*{_any_of(known)}(?=\s*(?:\+|$))|[^+]+", text)
    return tuple(filter(None, map(str.strip, labels)))


def _any_of(names: Sequence[str]) -> str:
    """The regular expression of one of some names, the longest first."""
    return f"(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})"


def tokens_of(text: str, sources: tuple[str, ...], available: FloatArray) -> FloatArray:
    """The change (M,) of the unique tokens at hand (M,) that `de+50B,en-1T` stands for; names may hold signs, too."""
    change = np.zeros(len(sources))
    for part in map(str.strip, text.split(",")):
        if not (found := re.fullmatch(rf"({_any_of(sources)})\s*([+-])(.*)", part)):
            hint = did_you_mean(re.split("[+-]", part)[0].strip(), sources) or _HINT_OF_CHANGE
            raise UsageError(f"what if: {part!r} is no change of a source's tokens", hint=hint)
        name, sign, size = found.groups()
        place, tokens, what = sources.index(name), words.parse_size(size, f"what if {part}"), f"what if {text}"
        if change[place]:
            raise UsageError(f"{what}: {name!r} is given twice")
        if not np.isfinite(available[place]):
            hint = f"give them as available {name}=..., or a languages table"
            raise UsageError(f"{what}: the tokens of {name!r} are not known", hint=hint)
        if sign == "-" and tokens > available[place]:
            raise UsageError(f"{what}: {name!r} has {format_size(available[place])} tokens, fewer than are taken away")
        change[place] = tokens if sign == "+" else -tokens
    return change


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The keywords of `problem` that say what a mixture must obey, each explained there; a table's file is read.

    Raises
    ------
    DataError, UsageError
        If one does nothing without another, or the table cannot be read.
    """

    caps: Ratios | None = None
    floors: Ratios | None = None
    fix: Ratios | None = None
    languages: LanguagesSpec | None = None
    available: Amounts | None = None
    max_epochs: EpochsSpec | None = None
    min_tokens: TokensSpec | None = None
    groups: Sequence[GroupSpec] | GroupSpec = ()
    keep_within: NamesSpec = ()
    kept: MixtureSpec | None = None
    near: MixtureSpec | None = None
    within: float | str | None = None
    distance: str = "l1"
    after: MixtureSpec | None = None
    trained: Size | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "languages", languages_of(self.languages))
        for one, other in (("near", "within"), ("after", "trained")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise UsageError(f"{one} and {other} go together", hint="give both of them, or none")
        if isinstance(self.fix, (int, float)) or (isinstance(self.fix, str) and "=" not in self.fix):
            raise UsageError(f"fixed ratio: {self.fix!r} has no name", hint="write it like en=0.3")
        if self.kept is not None and not self.keep_within:
            raise UsageError("kept does nothing without keep_within", hint="give keep_within, or leave out kept")
        if self.distance != "l1" and self.near is None:
            raise UsageError("distance does nothing without near", hint="give near, or leave out distance")

    @property
    def table(self) -> Languages | None:
        """The languages table."""
        return languages_of(self.languages)


def polytope_of(
    asked: Bounds,
    sources: Sequence[str],
    D: float,
    *,
    unseen: Sequence[str] = (),
    usual_epochs: float = DEFAULT_EPOCHS,
    parents: Parents = MappingProxyType({}),
) -> Polytope:
    """The bounds at D tokens, of two on one ratio the tighter one; whether they leave a mixture is not asked yet.

    Parameters
    ----------
    asked : Bounds
        The bounds as they are written.
    sources : sequence of str (M,)
        Labels.
    D : float
        Tokens of the whole run.
    unseen : sequence of str
        Sources to be held at ratio 0.
    usual_epochs : float
        How often a token may be seen where neither keyword nor table says; infinite for no limit.
    parents : Parents
        Whose part a source is, as the fit knows.

    Raises
    ------
    InfeasibleError, UsageError
        If a name is unknown or a bound is no ratio; if the run has no tokens left.
    """
    names = tuple(sources)
    families, supply = families_of(asked.table, names, parents), _supply_of(asked, names, D, usual_epochs)
    groups = groups_of(asked.groups, names, families)
    bounds = Polytope(
        sources=names,
        **_tightest(asked, names, D, supply, families.keys() - set(names)),
        rows=np.array([[float(name in one.sources) for name in names] for one in groups]).reshape(-1, len(names)),
        row_low=np.array([one.lower if one.lower > 0 else -np.inf for one in groups]),
        row_high=np.array([one.upper if one.upper < 1 else np.inf for one in groups]),
        row_names=tuple(one.label for one in groups),
        ball=None if asked.near is None else _ball(asked, mixture_of(asked.near, names, supply.available, D)),
        supply=supply,
    )
    bounds = bounds.hold_at_zero(np.isin(names, list(unseen)), UNSEEN)
    listed = [str(name) for name in as_list(asked.keep_within)]
    for parent in [name.strip() for text in listed for name in text.split(",") if name.strip()]:
        members = np.isin(names, members_of([parent], names, families, "keep_within"))
        if parent in names:
            hint = did_you_mean(parent, families) or "give the languages table that names parents or families"
            raise UsageError(f"keep_within: {parent!r} is one source, with nothing inside of it to keep", hint=hint)
        bounds = _keep_inside(bounds, parent, members, asked.kept)
    return bounds


def _tightest(asked: Bounds, names: tuple[str, ...], D: float, supply: Supply, sums: Set[str]) -> dict[str, Any]:
    """The fields `lower` and `upper` of a polytope, and which of the bounds on a ratio each of them is."""
    none, kinds = np.full(len(names), np.nan), ("fix", "caps", "floors")
    fixed, most, least = (amounts(none, getattr(asked, one), names, words.parse_ratio, one, sums) for one in kinds)
    wanted, read = (np.where(known > 0, known, np.nan) for known in (supply.least, supply.read))
    caps = {FIXED: fixed, GIVEN: most, TOKENS: product(supply.available, supply.epochs) / D, "": np.ones(len(names))}
    floors = {FIXED: fixed, GIVEN: least, TOKENS: wanted / D, READ: read / D, "": np.zeros(len(names))}
    above, below = np.stack([*caps.values()]), np.stack([*floors.values()])
    upper, lower = np.nanmin(above, axis=0), np.nanmax(below, axis=0)
    which = np.where(upper < 1, np.nanargmin(above, axis=0), len(caps) - 1)
    return {
        "lower": lower,
        "upper": upper,
        "floor_origin": tuple(np.array([*floors])[np.nanargmax(below, axis=0)].tolist()),
        "cap_origin": tuple(np.array([*caps])[which].tolist()),
    }


def _supply_of(asked: Bounds, names: tuple[str, ...], D: float, usual_epochs: float) -> Supply:
    """The tokens that there are, how often they may be seen, the fewest asked for, and those that are read.

    Raises
    ------
    InfeasibleError
        If the run has read all of its D tokens.
    """
    tokens, none = tokens_at_hand(names, asked.table, asked.available), np.full(len(names), np.nan)
    read = np.zeros(len(names))
    if asked.after is not None and asked.trained is not None:
        trained, p = words.parse_budget(asked.trained, "trained"), mixture_of(asked.after, names, tokens, D)
        read = _read_so_far(asked.after, trained, names, p)
    if read.sum() >= D:
        message = f"the run has read {format_size(read.sum())} of {format_size(D)} tokens: none are left to choose"
        raise InfeasibleError(message, hint="D counts the tokens of the whole run")
    stated = column_of(asked.table, "max_epochs", names)
    epochs, named = (
        amounts(one, asked.max_epochs, names, words.parse_positive, "max_epochs") for one in (stated, none)
    )
    if np.isnan(named).any() and (lost := np.flatnonzero(~np.isnan(named) & np.isnan(tokens)).tolist()):
        message = f"max_epochs: the unique tokens of {short([names[i] for i in lost])} are not known"
        raise UsageError(message, hint="give them as available, or in a languages table")
    least = amounts(none, asked.min_tokens, names, words.parse_size, "min_tokens")
    return Supply(float(D), tokens, np.where(np.isnan(epochs), usual_epochs, epochs), np.nan_to_num(least), read)


def _read_so_far(after: MixtureSpec, trained: float, names: tuple[str, ...], p: FloatArray) -> FloatArray:
    """Tokens (M,) of each source that a run has read; by an answer for the rest of a run, those before it count too.

    Raises
    ------
    InfeasibleError
        If the run had read more before that answer.
    """
    path = os.fspath(after) if isinstance(after, (str, os.PathLike)) else ""
    answer: Any = read_json(path)[0] if is_file_name(path) else after.to_document() if isinstance(after, Record) else {}
    if not (isinstance(answer, dict) and any(answer.get("read") or ())):
        return p * trained
    known = dict(zip(answer["sources"], answer["read"], strict=True))
    before = np.array([known.get(name, 0.0) for name in names])
    if trained < before.sum():
        had, now = format_size(before.sum()), format_size(trained)
        message = f"the answer goes on from {had} tokens, and the run has read {now}"
        raise InfeasibleError(message, hint="trained counts all tokens of the run so far")
    rest = np.maximum(p * answer["D"] - before, 0.0)
    return before + (trained - before.sum()) * rest / rest.sum()


def _keep_inside(bounds: Polytope, parent: str, members: BoolArray, kept: MixtureSpec | None) -> Polytope:
    """The bounds with the ratios of members (M,) to each other as a mixture has them; its traces are zeros.

    None is the natural mixture, which asks for tokens of the members alone.
    """
    kept, tokens = "natural" if kept is None else kept, bounds.supply.available
    tokens = np.where(members, tokens, 0.0) if isinstance(kept, str) and kept == "natural" else tokens
    whole = mixture_of(kept, bounds.sources, tokens, bounds.supply.D)
    inside = np.where(members, traceless(whole), 0.0)
    if not inside.any():
        raise UsageError(f"keep_within: the mixture whose ratios are to be kept has none of {parent}")
    bounds = bounds.hold_at_zero(members & (inside == 0), KEPT)
    for place in np.flatnonzero(inside)[1:].tolist():
        weights = np.where(np.arange(len(members)) == place, 1.0, 0.0) - members * inside[place] / inside.sum()
        bounds = bounds.with_row(f"{bounds.sources[place]} within {parent}", weights, 0.0, 0.0)
    return bounds


def _ball(asked: Bounds, center: FloatArray) -> Ball:
    nats, within = words.parse_choice(asked.distance, ("l1", "kl"), "distance") == "kl", asked.within
    assert within is not None
    radius = words.parse_number(within, "within") if nats else words.ratio_number(within, "within")
    if nats and radius < LEAST_KL:
        raise UsageError(f"within: {radius:g} nats is too small a KL distance", hint=f"give {LEAST_KL:g} or more")
    if not nats and not 0 <= radius <= 2:
        raise UsageError(f"within: {radius:g} is no L1 distance between mixtures", hint="it lies between 0 and 2")
    return Ball(center, radius, "kl" if nats else "l1")
