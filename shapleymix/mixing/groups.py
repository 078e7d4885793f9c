"""Bounds on the summed ratio of some sources, as they are written: `en+de<=0.3`, `cjk: zh+ja>=10%`, `Germanic>=0.6`.

`0.2<=en+de<=0.5` bounds it from both sides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shapleymix.errors import Fault, UsageError, did_you_mean
from shapleymix.tables.languages import Languages
from shapleymix.tables.words import parse_ratio, repeated

_BOUND = re.compile(
    r"(?:(?P<name>[^:<>=]+):)?(?:(?P<low>[^:<>=]+)<=)?(?P<members>[^:<>=]+)(?P<sign><=|>=|=)(?P<bound>[^:<>=]+)"
)
_HINT = "write it like 'en+de<=0.6', '0.2<=en+de<=0.5' or 'cjk: zh+ja>=10%'"

Families = Mapping[str, tuple[str, ...]]


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
            raise UsageError(f"{members!r} are no sources of a group", hint=_HINT)
        for side in ("lower", "upper"):
            object.__setattr__(self, side, parse_ratio(getattr(self, side), f"the group {self.label!r}"))
        if self.lower > self.upper:
            raise UsageError(f"the group {self.label!r} has a floor {self.lower:g} above its cap {self.upper:g}")
        if repeated(members):
            raise UsageError(f"the group {self.label!r} names {repeated(members)[0]!r} twice")

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
            Labels of sources and families, which may hold a `+` themselves.

        Raises
        ------
        UsageError
            If it is no bound.
        """
        found = _BOUND.fullmatch(text) if isinstance(text, str) else None
        members = labels_between(found["members"], known) if found else ()
        if found is None or not all(members) or (found["low"] and found["sign"] != "<="):
            raise UsageError(f"group: {text!r} is no bound", hint=_HINT)
        what, sign = f"the group {text!r}", found["sign"]
        bound = parse_ratio(found["bound"].strip(), what)
        low = parse_ratio(found["low"].strip(), what) if found["low"] else 0.0
        name = found["name"].strip() if found["name"] else None
        return cls(members, low if sign == "<=" else bound, 1.0 if sign == ">=" else bound, name)


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
    items = [given] if isinstance(given, (Group, str)) else list(given)
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
    what, faults, members = f"the group {group.label!r}", [], []
    for name in group.sources:
        if name in sources and families.get(name, (name,)) != (name,):
            hint = "rename the family in the table"
            faults.append(Fault(f"{what}: {name!r} is a source and a family", value=name, hint=hint))
        elif name not in sources and name not in families:
            hint = did_you_mean(name, (*sources, *families))
            faults.append(Fault(f"{what}: {name!r} is not one of the sources", value=name, hint=hint))
        else:
            members += [name] if name in sources else families[name]
    if faults:
        raise UsageError.of(faults, what)
    return replace(group, sources=tuple(dict.fromkeys(members)), name=group.label)


def labels_between(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Labels with `+` between them, the longest known ones first, since a label may hold a `+` itself."""
    pieces, parts, start = text.split("+"), [], 0
    while start < len(pieces):
        ends = (end for end in range(len(pieces), start, -1) if "+".join(pieces[start:end]).strip() in known)
        end = next(ends, start + 1)
        parts.append("+".join(pieces[start:end]).strip())
        start = end
    return tuple(parts)
