"""The one mixture that a command was given: a text, or one of those that another command wrote.

What holds several says which there are: `-N` and `-D` choose in a grid, `--point` on a frontier, `--run` in a plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shapleymix.errors import DataError, LayoutError, Location, StoreError, UsageError, did_you_mean
from shapleymix.files import is_table_name, parse_json, read_once
from shapleymix.tables.spelling import composed
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.files import Origin
    from shapleymix.mixing.curves import Frontier
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.records import FloatArray
    from shapleymix.tables.simplex import MixtureSpec

SHOWN = 8
"""Budgets, or runs, that a hint names."""


@dataclass(frozen=True)
class Choice:
    """Which of several: at N parameters, on D tokens, the point of a curve, or the run of a plan."""

    N: float | None = None
    D: float | None = None
    point: int | None = None
    run: str | None = None


@dataclass(frozen=True)
class Chosen:
    """A mixture, and the D of its run where its document says it and it is not the mixture's own."""

    mixture: MixtureSpec
    D: float | None = None


def chosen(out: Output, given: str, choice: Choice) -> Chosen:
    """The mixture that is meant by a text, or by the name of a document or a table of mixtures.

    Raises
    ------
    StoreError
        If the file cannot be read, or holds no mixture.
    UsageError
        If it holds several and nothing says which.
    """
    if is_table_name(given):
        return _of_table(out, str(given), choice)
    if not (given == "-" or given.strip().lower().endswith(".json") or Path(given).is_file()):
        _refuse_idle(choice, "a mixture that is typed")
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
    from shapleymix.exporting.export import Export
    from shapleymix.mixing.curves import Frontier
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix.planning.designs import Design
    from shapleymix.sweeping.listed import Listed

    document = parse_json(data, origin.file)
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == MixtureGrid.kind:
        return _entry(MixtureGrid.from_bytes(data, origin), choice, origin.file)
    if kind == Frontier.kind:
        return _point(Frontier.from_bytes(data, origin), choice, origin.file)
    if kind == Design.kind:
        plan = Design.from_bytes(data, origin)
        return _run(plan.sources, plan.runs, plan.p, plan.D, choice, origin.file)
    if kind == Listed.kind:
        plan = Listed.from_bytes(data, origin)
        return _run(plan.sources, plan.names, plan.p, plan.D, choice, origin.file)
    _refuse_idle(choice, "one mixture")
    if not isinstance(document, dict) or "kind" not in document:
        return Chosen(_by_name(document, origin.file))
    return Chosen((Export if kind == Export.kind else Mixture).from_bytes(data, origin))


def _by_name(document: object, file: str) -> MixtureSpec:
    """Ratios by name, checked where the file can still be named."""
    from shapleymix.tables.simplex import parse_mixture

    place = Location(file=file)
    if not isinstance(document, dict) or not document:
        hint = "give what optimize -o wrote, or ratios by name"
        raise StoreError("holds no mixture", location=place, hint=hint)
    try:
        parse_mixture(document, tuple(map(composed, document)))
    except UsageError as error:
        raise StoreError(error.message, location=place, hint=error.hint, faults=error.faults) from error
    return document


def _of_table(out: Output, path: str, choice: Choice) -> Chosen:
    """A row of a table of mixtures, such as a run log."""
    from shapleymix.tables.examining import examined
    from shapleymix_cli.inputs import read_mixture_table
    from shapleymix_cli.reading import import_command

    try:
        listed = read_mixture_table(out, path)
    except LayoutError as error:
        command = import_command([path], examined(path).keywords)
        hint = f"import it first, and export what that writes: {command}"
        raise LayoutError(error.message, location=error.location, hint=hint) from error
    except DataError as error:
        if error.faults or "p_<source>" not in error.message:
            raise
        hint = "a table of mixtures has ratios p_<source>; of optimize give the document: optimize -o mixture.json"
        raise DataError(error.message, location=error.location, hint=hint) from error
    return _run(listed.sources, listed.names, listed.p, listed.D, choice, path)


def _refuse_idle(choice: Choice, what: str, takes: Sequence[str] = ()) -> None:
    """Refuse options that choose nothing here; D is that of the run as well, and so is always taken."""
    homes = {"N": ("-N", "a grid"), "point": ("--point", "a frontier"), "run": ("--run", "a plan or a run log")}
    for name, (flag, home) in homes.items():
        if name not in takes and getattr(choice, name) is not None:
            raise UsageError(f"{flag} chooses nothing in {what}", hint=f"it is of {home}: leave it out")


def _entry(grid: MixtureGrid, choice: Choice, file: str) -> Chosen:
    """The mixture at the one budget that is meant."""
    _refuse_idle(choice, "a grid", ["N"])
    meant = [one for one in grid.entries if _at(one.N, choice.N) and _at(one.D, choice.D)]
    if len(meant) == 1:
        return Chosen(meant[0])
    known = [f"-N {one.N:.12g} -D {one.D:.12g}" for one in meant or grid.entries]
    what = f"holds {len(meant)} mixtures, expected one" if meant else "holds no mixture at that budget"
    raise UsageError(what, location=Location(file=file), hint=f"choose by -N and -D: {_some(known)}")


def _at(own: float, wanted: float | None) -> bool:
    return wanted is None or abs(own - wanted) <= 1e-9 * own


def _some(known: Sequence[str]) -> str:
    """The first of many, and how many more there are."""
    return ", ".join(known[:SHOWN]) + (f", and {len(known) - SHOWN} more" if len(known) > SHOWN else "")


def _point(curve: Frontier, choice: Choice, file: str) -> Chosen:
    """A point of the curve by its number, from 1."""
    _refuse_idle(choice, "a frontier", ["point"])
    count = len(curve.entries)
    if choice.point is None or choice.point > count:
        what = f"holds {count} mixtures, expected one" if choice.point is None else f"has no point {choice.point}"
        hint = f"choose one by --point 1 (best for the second side) to {count} (best for the first of {curve.between})"
        raise UsageError(what, location=Location(file=file), hint=hint)
    return Chosen(curve.point(choice.point), choice.D)


def _run(sources: Sequence[str], names: Sequence[str], p: FloatArray, D: float, choice: Choice, file: str) -> Chosen:
    """A run by its name; the only one needs none."""
    _refuse_idle(choice, "a plan", ["run"])
    name = names[0] if choice.run is None and len(names) == 1 else choice.run
    if name is None:
        hint = f"choose one by --run: {_some(names)}"
        raise UsageError(f"holds {len(names)} mixtures, expected one", location=Location(file=file), hint=hint)
    if name not in names:
        raise UsageError(f"has no run {name!r:.60}", location=Location(file=file), hint=did_you_mean(name, names))
    ratios = dict(zip(sources, p[list(names).index(name)].tolist(), strict=True))
    return Chosen(ratios, choice.D if choice.D is not None else None if math.isnan(D) else D)
