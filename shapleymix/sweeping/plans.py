"""Planned runs, each known by a hash of what it is, and the file `runs.jsonl` that holds them: one object a run.

A run is what is trained, not where it stands: its id is the same in every plan, whatever its index or name, and an
object whose mixture, N, D, seed or command was edited no longer has the id that it says. Its name, which people call it
by, decides nothing. Every object says of how many it is one, so that a file that was copied by half is known as one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from shapleymix.display import Shown, short
from shapleymix.errors import DataError, Fault, Location, ShapleyMixError, UsageError
from shapleymix.files import Json, atomic_write, parse_json, read_once
from shapleymix.sweeping.templates import Words, check_planned
from shapleymix.tables.names import check_label
from shapleymix.tables.simplex import EXACT

ENDING = ".jsonl"
DIGITS = 16
"""Hexadecimal digits of an id: two of a million runs share one by chance once in 40 million plans."""
KEYS = ("index", "of", "id", "name", "mixture", "N", "D", "seed", "command")
AGAIN = "a plan is not edited by hand: write it again with `shapleymix plan`"


@dataclass(frozen=True)
class PlannedRun:
    """A run to train.

    Attributes
    ----------
    name : str
        What people call its mixture: `en+de`, `random-07`.
    mixture : dict of str to float
        The ratio of every source of the plan.
    N, D : float
        Parameters without embeddings, and tokens.
    seed : int
        Seed of the run.
    command : tuple of str
        The words to run; `{out}` and `{id}` are filled in when it is started.
    """

    name: str
    mixture: Mapping[str, float]
    N: float
    D: float
    seed: int
    command: Words

    @property
    def id(self) -> str:
        """A hash of all that decides what the run gives."""
        told = {"mixture": dict(self.mixture), "N": self.N, "D": self.D, "seed": self.seed}
        text = json.dumps({**told, "command": list(self.command)}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]

    @property
    def label(self) -> str:
        """What a run log calls it, `random-07-6e12526dea980b1f`: for people, and unlike any other."""
        return f"{self.name}-{self.id}"

    def to_document(self, index: int, of: int) -> dict[str, Json]:
        """The object of `runs.jsonl`, one of so many."""
        told = {"index": index, "of": of, "id": self.id, "name": self.name, "mixture": dict(self.mixture)}
        return {**told, "N": _short(self.N), "D": _short(self.D), "seed": self.seed, "command": list(self.command)}


@dataclass(frozen=True)
class Plan(Shown):
    """Runs to train, in their order.

    Attributes
    ----------
    sources : tuple of str
        M labels, the same in every run.
    runs : tuple of PlannedRun
        The runs; their places are their indices.
    notices : tuple of str
        What was left out or assumed.
    file, digest : str
        Name and SHA-256 of the file, of a plan that was read.
    """

    sources: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    notices: tuple[str, ...] = ()
    file: str = ""
    digest: str = ""

    def __len__(self) -> int:
        return len(self.runs)

    def summary(self) -> str:
        """How many runs of what."""
        sizes, tokens = ({getattr(run, name) for run in self.runs} for name in ("N", "D"))
        return f"Plan of {len(self)} runs, {len(sizes)} N x {len(tokens)} D, of {short(self.sources)}"

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write `runs.jsonl`, atomically; the same plan gives the same bytes."""
        if not os.fspath(path).lower().endswith(ENDING):
            raise UsageError("is no name of a plan", hint=f"end it in {ENDING}", location=Location(os.fspath(path)))
        lines = (
            json.dumps(run.to_document(place, len(self)), ensure_ascii=False) for place, run in enumerate(self.runs)
        )
        atomic_write(path, "".join(f"{line}\n" for line in lines), force=force)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read what `Plan.write` wrote, each run held to its id.

    Raises
    ------
    DataError
        With every fault: a line that is no planned run, that was edited, or that comes twice; or if runs are missing.
    """
    name = os.fspath(path)
    try:
        data, origin = read_once(path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", location=Location(name)) from error
    lines = [(number, line) for number, line in enumerate(data.splitlines(), start=1) if line.strip()]
    if not lines:
        raise DataError("holds no runs", location=Location(name), hint="write it with `shapleymix plan`")
    faults: list[Fault] = []
    runs: list[PlannedRun] = []
    for place, (number, line) in enumerate(lines):
        try:
            runs.append(_run_of(line, place, len(lines)))
        except ShapleyMixError as error:
            faults.append(Fault(error.message, Location(name, number), hint=error.hint or AGAIN))
    faults += [] if faults else _of_all(runs, name, [number for number, _ in lines])
    if faults:
        raise DataError.of(faults, origin.file)
    return Plan(tuple(runs[0].mixture), tuple(runs), file=origin.file, digest=origin.sha256)


def plan_of(sources: Sequence[str], runs: Sequence[PlannedRun], notices: Sequence[str] = ()) -> Plan:
    """A plan of runs, each once: of two that are the same the first is kept, which is said.

    Raises
    ------
    UsageError
        If there is no run.
    """
    if not runs:
        raise UsageError("there is nothing to train", hint="give at least one mixture, N, D and seed")
    kept: dict[str, PlannedRun] = {}
    for run in runs:
        kept.setdefault(run.id, run)
    twice = len(runs) - len(kept)
    said = [f"{twice} of {len(runs)} runs are the same as others, and are planned once"] if twice else []
    return Plan(tuple(sources), tuple(kept.values()), (*notices, *said))


def _run_of(line: bytes, place: int, of: int) -> PlannedRun:
    """The run in a line of the file: the place is the index that it must have, in a plan of so many."""
    document = parse_json(line, "<line>")
    if not isinstance(document, dict) or set(document) != set(KEYS):
        raise DataError(f"is no planned run: expected an object with {', '.join(KEYS)}")
    mixture, command = document["mixture"], document["command"]
    if not _is_mixture(mixture):
        raise DataError("mixture is not a ratio of each source, with a sum of 1")
    if not (isinstance(command, list) and command and all(isinstance(word, str) for word in command)):
        raise DataError("command is not a list of words")
    if not (_is_number(document["N"]) and _is_number(document["D"]) and document["N"] > 0 and document["D"] > 0):
        raise DataError("N and D are not both numbers above 0")
    if type(document["seed"]) is not int or not isinstance(document["name"], str):
        raise DataError("seed is not a whole number, or name is not text")
    check_planned(tuple(command))
    ratios = {name: float(ratio) for name, ratio in mixture.items()}
    run = PlannedRun(
        document["name"], ratios, float(document["N"]), float(document["D"]), document["seed"], tuple(command)
    )
    if document["id"] != run.id:
        raise DataError(f"was edited: it says id {document['id']!r:.40}, its content has {run.id!r}", hint=AGAIN)
    if document["index"] != place:
        raise DataError(f"has index {document['index']!r:.20}, expected {place}: lines were moved or left out")
    if document["of"] != of:
        raise DataError(f"is one of {document['of']!r:.20} runs, the file holds {of}: lines were cut or added")
    return run


def _is_mixture(value: object) -> TypeGuard[dict[str, float]]:
    if not isinstance(value, dict) or not value:
        return False
    good = all(check_label(name) is None and _is_number(ratio) and ratio >= 0 for name, ratio in value.items())
    return good and abs(math.fsum(value.values()) - 1) <= EXACT


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _of_all(runs: Sequence[PlannedRun], name: str, numbers: Sequence[int]) -> Iterator[Fault]:
    """What only all runs together show: other sources, and a run that comes twice."""
    first: dict[str, int] = {}
    for number, run in zip(numbers, runs, strict=True):
        if tuple(run.mixture) != tuple(runs[0].mixture):
            yield Fault("has other sources than the first run", Location(name, number, "mixture"), hint=AGAIN)
        if (earlier := first.setdefault(run.id, number)) != number:
            yield Fault(f"is the run of line {earlier} again", Location(name, number, "id"), run.id, AGAIN)


def _short(value: float) -> float:
    """A whole number without `.0`, as people write it."""
    return int(value) if value.is_integer() else value
