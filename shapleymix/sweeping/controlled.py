"""Mixtures that somebody has thought of: one source, some of them, all (controlled), and those in use (empirical)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.mixing.groups import families_of
from shapleymix.records import FloatArray
from shapleymix.sweeping.listed import Listed, listed_once
from shapleymix.tables.baselines import mixture_of
from shapleymix.tables.by_source import tokens_at_hand
from shapleymix.tables.languages import Languages
from shapleymix.tables.names import align
from shapleymix.tables.spelling import composed, near

MONOLINGUAL, UNIFORM, FAMILIES = "monolingual", "uniform", "families"
ALL = (MONOLINGUAL, UNIFORM, FAMILIES)
JOIN = "+"


def controlled(asked: Sequence[str], sources: Sequence[str], languages: Languages | None = None) -> Listed:
    """Mixtures that are even over some sources.

    Parameters
    ----------
    asked : sequence of str
        `monolingual` (each source alone), `uniform` (all), `families` (each family of the languages table), or a group
        with or without a name: `romance=fr+es`, `en+de`.
    sources : sequence of str (M,)
        Labels.
    languages : Languages, optional
        Says the families.

    Raises
    ------
    UsageError
        If a source is unknown, or families are asked for and none is known.
    """
    groups = [group for one in asked for group in _groups(one.strip(), tuple(sources), languages)]
    return listed_once(sources, [(name, even_over(members, sources)) for name, members in groups])


def even_over(members: Sequence[str], sources: Sequence[str]) -> FloatArray:
    """The mixture (M,) of equal ratios of some sources."""
    held = np.isin(np.array(sources), np.array(members))
    return held / held.sum()


def _groups(asked: str, sources: tuple[str, ...], languages: Languages | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, members) of what one word asks for; the name of a source is that source, whatever else it may mean."""
    if asked in sources:
        yield asked, (asked,)
    elif asked == MONOLINGUAL:
        yield from ((name, (name,)) for name in sources)
    elif asked == UNIFORM:
        yield UNIFORM, sources
    elif asked == FAMILIES:
        found = families_of(languages, sources)
        if not found:
            raise UsageError("no family is known", hint="give a languages table that names families")
        yield from found.items()
    else:
        name, equals, members = asked.partition("=")
        yield name.strip() if equals else asked, _members(members if equals else asked, sources)


def _members(text: str, sources: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(composed(part.strip()) for part in text.split(JOIN))
    for name in found:
        if name not in sources:
            hint = near(name, (*sources, *ALL))
            raise UsageError(f"{name!r} is not one of the sources", hint=hint)
    return found


def empirical(
    asked: Sequence[str | Listed], sources: Sequence[str], languages: Languages | None = None, D: float | None = None
) -> Listed:
    """Mixtures as they are in use: those of tables, and `natural`, `temperature:T`, `unimax:E` by a languages table.

    Parameters
    ----------
    asked : sequence of str or Listed
        Names or ratios as `predict` takes them, or tables of mixtures.
    sources : sequence of str (M,)
        Labels.
    languages : Languages, optional
        Says the tokens at hand.
    D : float, optional
        Tokens of the runs, which `unimax` needs.

    Raises
    ------
    UsageError
        If a mixture cannot be told.
    """
    tokens = tokens_at_hand(sources, languages, None)
    named: list[tuple[str, FloatArray]] = []
    for one in asked:
        if isinstance(one, Listed):
            place = align(one.sources, to=sources, what="sources", exact=True, origin="the table of mixtures")
            named += zip(one.names, one.p[:, place], strict=True)
        elif D is None and one.strip().startswith("unimax"):
            raise UsageError(f"{one!r} needs the tokens of the run", hint="give D")
        else:
            named.append((one, mixture_of(one, sources, tokens, D or np.nan)))
    return listed_once(sources, named)
