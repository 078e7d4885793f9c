"""The one mixture that a command was given: a text, or the document that another command wrote.

A document of several mixtures says which there are; `-N`, `-D` and `--point` choose among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix.files import STANDARD_INPUT, is_table_name, parse_json, read_once
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.files import Origin
    from shapleymix.mixing.frontier import Frontier
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.tables.simplex import MixtureSpec

SHOWN = 8
"""Budgets that a hint names."""


@dataclass(frozen=True)
class Choice:
    """Which of several: at N parameters, on D tokens, or the point of a curve."""

    N: float | None = None
    D: float | None = None
    point: int | None = None


@dataclass(frozen=True)
class Chosen:
    """A mixture, and the D of its run where its document says it and it is not the mixture's own."""

    mixture: MixtureSpec
    D: float | None = None


def chosen(out: Output, given: str, choice: Choice) -> Chosen:
    """The mixture that is meant by a text, or by the name of a document.

    Raises
    ------
    StoreError
        If the file cannot be read, or holds no mixture.
    UsageError
        If it holds several and nothing says which.
    """
    if is_table_name(given):
        hint = "give the document: optimize ... -o mixture.json"
        raise UsageError("is a table, expected a mixture", location=Location(file=given), hint=hint)
    if not (given == "-" or given.strip().lower().endswith(".json") or Path(given).is_file()):
        _refuse(choice, "a mixture that is typed", point=True, N=True)
        return Chosen(given)
    try:
        data, origin = read_once(given)
    except OSError as error:
        place = Location(file=given)
        raise StoreError(f"cannot be read: {error.strerror or error}", location=place) from error
    out.used(origin.file, origin.sha256)
    return _of_document(data, origin, choice)


def _of_document(data: bytes, origin: Origin, choice: Choice) -> Chosen:
    """The mixture in what a command wrote, or in ratios by name."""
    from shapleymix.mixing.frontier import Frontier
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.mixing.mixtures import Mixture

    document = parse_json(data, origin.file)
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == MixtureGrid.kind:
        _refuse(choice, "a grid", point=True)
        return Chosen(_entry(MixtureGrid.from_bytes(data, origin), choice, origin.file))
    if kind == Frontier.kind:
        _refuse(choice, "a frontier", N=True)
        return _point(Frontier.from_bytes(data, origin), choice, origin.file)
    _refuse(choice, "one mixture", point=True, N=True)
    if isinstance(document, dict) and document and "kind" not in document:
        return Chosen(document)
    return Chosen(Mixture.from_bytes(data, origin))


def _refuse(choice: Choice, what: str, *, point: bool = False, N: bool = False) -> None:
    """Options that choose nothing here."""
    if point and choice.point is not None:
        raise UsageError(f"--point chooses nothing in {what}", hint="it is of a frontier: leave it out")
    if N and choice.N is not None:
        raise UsageError(f"-N chooses nothing in {what}", hint="it is of a grid: leave it out")


def _entry(grid: MixtureGrid, choice: Choice, file: str) -> MixtureSpec:
    """The mixture at the one budget that is meant."""
    meant = [one for one in grid.entries if _at(one.N, choice.N) and _at(one.D, choice.D)]
    if len(meant) == 1:
        return meant[0]
    known = _budgets([(one.N, one.D) for one in meant or grid.entries])
    what = f"holds {len(meant)} mixtures, expected one" if meant else "holds no mixture at that budget"
    raise UsageError(what, location=Location(file=_named(file)), hint=f"choose by -N and -D: {known}")


def _at(own: float, wanted: float | None) -> bool:
    return wanted is None or abs(own - wanted) <= 1e-9 * own


def _budgets(pairs: Sequence[tuple[float, float]]) -> str:
    more = f", and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return ", ".join(f"-N {N:.12g} -D {D:.12g}" for N, D in pairs[:SHOWN]) + more


def _point(curve: Frontier, choice: Choice, file: str) -> Chosen:
    """A point of the curve by its number, from 1."""
    count = len(curve.entries)
    if choice.point is None or choice.point > count:
        what = f"holds {count} mixtures, expected one" if choice.point is None else f"has no point {choice.point}"
        hint = f"choose one by --point 1 (best for the second side) to {count} (best for the first of {curve.between})"
        raise UsageError(what, location=Location(file=_named(file)), hint=hint)
    p = curve.entries[choice.point - 1].p.tolist()
    return Chosen(dict(zip(curve.sources, p, strict=True)), curve.D if choice.D is None else choice.D)


def _named(file: str) -> str:
    return "-" if file == STANDARD_INPUT else file
