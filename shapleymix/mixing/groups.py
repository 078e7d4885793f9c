"""Bounds on the summed ratio of some sources, as they are written: `en+de<=0.3`, `cjk: zh+ja>=10%`, `Germanic>=0.6`.

`0.2<=en+de<=0.5` bounds it from both sides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType

from shapleymix.errors import Fault, UsageError
from shapleymix.tables.amounts import parse_ratio
from shapleymix.tables.languages import Languages
from shapleymix.tables.names import repeated
from shapleymix.tables.spelling import composed, near

_BOUND = re.compile(r"(?P<members>[^<>=]+)(?P<sign><=|>=|=)(?P<bound>[^<>=]+)")
_BETWEEN = re.compile(
    r"(?P<first>[^<>=:]*\d[^<>=:]*)(?P<sign><=|>=)(?P<members>[^<>=]+)(?P=sign)(?P<last>[^<>=:]*\d[^<>=:]*)"
)
_HINT = "write it like 'en+de<=0.6', '0.2<=en+de<=0.5' or 'cjk: zh+ja>=10%'"

Families = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Group:
    """Bounds on the summed ratio of some sources.

    Attributes
    ----------
    sources : tuple of str
        Labels of sources, or of families where a languages table tells their members.
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
        members = [self.sources] if isinstance(self.sources, str) else self.sources
        try:
            object.__setattr__(self, "sources", tuple(members))
        except TypeError as error:
            raise UsageError(f"{members!r} are no sources of a group", hint="give their names") from error
        if not all(isinstance(member, str) for member in self.sources):
            raise UsageError(f"{members!r} are no sources of a group", hint="give their names")
        if not isinstance(self.name, (str, NoneType)):
            raise UsageError(f"{self.name!r:.60} is no name of a group", hint="give text, or None")
        object.__setattr__(self, "lower", parse_ratio(self.lower, f"the group {self.label!r}"))
        object.__setattr__(self, "upper", parse_ratio(self.upper, f"the group {self.label!r}"))
        if not self.sources or not all(self.sources):
            raise UsageError("a group has no sources", hint=_HINT)
        if self.lower > self.upper:
            raise UsageError(f"the group {self.label!r} has a floor {self.lower:g} above its cap {self.upper:g}")
        if repeated(self.sources):
            raise UsageError(f"the group {self.label!r} names {repeated(self.sources)[0]!r} twice")

    @property
    def label(self) -> str:
        """Its name, or its sources."""
        return self.name or "+".join(self.sources)

    @classmethod
    def read(cls, text: str, known: Sequence[str] = ()) -> Group:
        """A group from `en+de<=0.6`, `cjk: zh+ja>=0.1`, `en+de=50%` or `0.2<=en+de<=0.5`.

        Parameters
        ----------
        text : str
            The bound.
        known : sequence of str
            Labels of sources and families, which may hold a `+` or a `:` themselves.

        Raises
        ------
        UsageError
            If it is no bound.
        """
        whole = composed(text.strip()) if isinstance(text, str) else ""
        found = _BETWEEN.fullmatch(whole) or _BOUND.fullmatch(whole)
        if found is None:
            raise UsageError(f"group: {text!r} is no bound", hint=_HINT)
        name, members = _members(found["members"].strip(), known)
        if not all(members):
            raise UsageError(f"group: {text!r} is no bound", hint=_HINT)
        return cls(members, *_limits(found), name)


def groups_of(
    given: Sequence[Group | str] | Group | str, sources: Sequence[str], families: Families
) -> tuple[Group, ...]:
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
    listed = [given] if isinstance(given, (Group, str)) else given
    try:
        items = list(listed)
    except TypeError as error:
        raise UsageError(f"{given!r} are no groups", hint=_HINT) from error
    known = (*sources, *families)
    read = [item if isinstance(item, Group) else Group.read(item, known) for item in items]
    return tuple(_resolved(group, tuple(sources), families) for group in read)


def families_of(languages: Languages | None, sources: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The sources of each family that a languages table names."""
    if languages is None:
        return {}
    family = dict(zip(languages.names, languages.family, strict=True))
    found: dict[str, tuple[str, ...]] = {}
    for name in sources:
        own = family.get(name)
        if own is not None:
            found[own] = (*found.get(own, ()), name)
    return found


def _resolved(group: Group, sources: tuple[str, ...], families: Families) -> Group:
    what = f"the group {group.label!r}"
    faults = [
        Fault(f"{what}: {name!r} is not one of the sources", value=name, hint=_unknown_hint(name, sources, families))
        for name in group.sources
        if name not in sources and name not in families
    ]
    faults += [
        Fault(f"{what}: {name!r} is a source and a family", value=name, hint="rename the family in the table")
        for name in group.sources
        if name in sources and families.get(name, (name,)) != (name,)
    ]
    if faults:
        raise UsageError.of(faults, what)
    members = [member for name in group.sources for member in ((name,) if name in sources else families[name])]
    return replace(group, sources=tuple(dict.fromkeys(members)), name=group.label)


def _unknown_hint(name: str, sources: tuple[str, ...], families: Families) -> str | None:
    parts = [part.strip() for part in name.split("+")]
    if len(parts) > 1 and {*parts} <= {*sources, *families}:
        return f"give its sources one by one: {tuple(parts)}, or the bound as text"
    hint = near(name, (*sources, *families))
    return hint if families else f"{hint}; families need a languages table" if name[:1].isupper() else hint


def _limits(found: re.Match[str]) -> tuple[float, float]:
    """The lower and the upper ratio of a bound, of one side or of both."""
    what, parts = f"the group {found[0]!r}", found.groupdict()
    if "first" in parts:
        ends = [parse_ratio(parts[end].strip(), what) for end in ("first", "last")]
        lower, upper = ends if parts["sign"] == "<=" else reversed(ends)
        return lower, upper
    bound = parse_ratio(parts["bound"].strip(), what)
    return (bound if parts["sign"] != "<=" else 0.0, bound if parts["sign"] != ">=" else 1.0)


def _members(text: str, known: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The name before a colon, if there is one, and the labels between the signs."""
    whole = labels_between(text, known)
    name, colon, rest = text.partition(":")
    if not colon or all(part in known for part in whole):
        return None, whole
    return name.strip() or None, labels_between(rest, known)


def labels_between(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Labels with `+` between them, the longest known ones first, since a label may hold a `+` itself."""
    pieces, parts, start = text.split("+"), [], 0
    while start < len(pieces):
        ends = (end for end in range(len(pieces), start, -1) if "+".join(pieces[start:end]).strip() in known)
        end = next(ends, start + 1)
        parts.append("+".join(pieces[start:end]).strip())
        start = end
    return tuple(parts)
