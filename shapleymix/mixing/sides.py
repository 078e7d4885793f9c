"""The two sides of a trade-off, as they are written: `en:rest`, `en+de:zh+ja`, `Germanic:rest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapleymix.errors import Fault, UsageError
from shapleymix.mixing.groups import labels_between
from shapleymix.tables.spelling import composed, near

REST = "rest"
_HINT = "write it like en:rest or en+de:zh+ja"


def sides_of(
    text: str, targets: tuple[str, ...], families: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets of the two sides of `en:rest` or `en+de:zh+ja`.

    Raises
    ------
    UsageError
        If the text has no two sides, a name is no target, or one stands on both sides.
    """
    known = (*targets, *families, REST)
    parts = composed(text).split(":") if isinstance(text, str) else []
    splits = [(":".join(parts[:end]), ":".join(parts[end:])) for end in range(1, len(parts))]
    read = [tuple(labels_between(side, known) for side in sides) for sides in splits]
    if not read:
        raise UsageError(f"frontier: {text!r} has no two sides", hint=_HINT)
    # A label may hold a colon itself: the split of which every name is known.
    first, second = next((sides for sides in read if {*sides[0], *sides[1]} <= set(known)), read[0])
    named = [_targets_of(side, targets, families) for side in (first, second)]
    if None not in named and set(named[0] or ()) & set(named[1] or ()):
        both = next(name for name in named[0] or () if name in (named[1] or ()))
        raise UsageError(f"frontier: {both!r} stands on both sides", hint=_HINT)
    if named == [None, None]:
        raise UsageError(f"frontier: {text!r} names no target", hint=_HINT)
    whole = [_or_rest(side, other, targets) for side, other in (named, reversed(named))]
    if not whole[0] or not whole[1]:
        raise UsageError(f"frontier: {text!r} leaves no target for the rest", hint=_HINT)
    return whole[0], whole[1]


def _or_rest(side: tuple[str, ...] | None, other: tuple[str, ...] | None, targets: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in targets if name not in (other or ())) if side is None else side


def _targets_of(
    labels: Sequence[str], targets: tuple[str, ...], families: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """The targets that the labels of one side mean; None = the rest."""
    if tuple(labels) == (REST,) and REST not in targets:
        return None
    faults = [
        Fault(f"frontier: {name!r} is no target", value=name, hint=near(name, (*targets, *families)))
        for name in labels
        if name not in targets and name not in families
    ]
    if faults:
        raise UsageError.of(faults, "the sides of the frontier")
    members = [one for name in labels for one in ((name,) if name in targets else families[name])]
    return tuple(dict.fromkeys(members))
