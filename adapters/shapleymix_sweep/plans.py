"""Plans: the runs to train, each known by a hash of what it is, the file that holds them, and what they have left.

A run's id is a hash of its mixture, N, D, seed and command, so that it is the same in every plan. A plan `runs.jsonl`
has the folder `runs-sweep/` beside it, with a folder for each run, named by its id:

  out/     what the run's program writes, with its run log, `runs.csv` or `runs.jsonl`
  log.txt  what it prints
  failed   why it failed the last time
  claim    a file that is locked by whoever trains the run

A run's program writes a run log, `runs.csv` or `runs.jsonl`, into its folder: `run, N, D, loss_<target>...`, a row for
each checkpoint, in which `p_<source>` may be left out, since the plan knows the mixture. A run is finished when that
log reaches the planned D.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

import shapleymix as sm
from shapleymix.errors import DataError, Fault, Location, ShapleyMixError, UsageError
from shapleymix.files import atomic_write, read_once
from shapleymix.tables.words import RECIPE

ENDING, SUFFIX = ".jsonl", "-sweep"
OUT, LOG, FAILED, CLAIM = "out", "log.txt", "failed", "claim"
"""What the folder of a run holds."""

Pools = Recipe = Mapping[str, float]
LATE = ("out", "id", "run")
"""Placeholders that are filled in when the run starts: its folder, its id, and its name in the run log."""

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True)
class PlannedRun:
    """A run to train.

    Attributes
    ----------
    name : str
        Name of the mixture, for people: `en+de`, `random-07`.
    mixture : dict of str to float
        Ratio of every source of the plan.
    N, D : float
        Parameters without embeddings, and tokens.
    seed : int
        Seed of the run.
    command : tuple of str
        The words that start it; `{out}`, `{id}` and `{run}` are filled in then.
    unique : dict of str to float
        Unique tokens that the run may draw of each source; none where there is no limit.
    recipe : dict of str to float
        `learning_rate` and `batch_tokens`, where the plan says them.
    """

    name: str
    mixture: Mapping[str, float]
    N: float
    D: float
    seed: int
    command: tuple[str, ...]
    unique: Pools = field(default_factory=dict)
    recipe: Mapping[str, float] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, object]:
        """All that decides what the run gives."""
        budget = {"N": self.N, "D": self.D, "seed": self.seed}
        pools = {"unique": dict(self.unique)} if self.unique else {}
        return {"mixture": dict(self.mixture), **budget, **self.recipe, **pools, "command": list(self.command)}

    @cached_property
    def id(self) -> str:
        """A hash of the content, 16 hexadecimal digits."""
        text = json.dumps(self.content, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What a run log calls the run: `random-07-6e12526dea980b1f`."""
        return f"{self.name}-{self.id}"

    def words(self, place: Path) -> tuple[str, ...]:
        """The words of its command as they are started in the folder of the run."""
        late = {"out": str(place / OUT), "id": self.id, "run": self.label}
        return tuple(fill_in(word, late, again=False) for word in self.command)

    def document(self, index: int) -> dict[str, object]:
        """The object of `runs.jsonl`."""
        budget = {"N": whole(self.N), "D": whole(self.D)}
        return {"index": index, "id": self.id, "name": self.name, **self.content, **budget}


@dataclass(frozen=True)
class Plan:
    """Runs to train, in their order.

    Attributes
    ----------
    sources : tuple of str (M,)
        Labels, the same in every run.
    runs : tuple of PlannedRun
        The runs; their places are their indices.
    notices : tuple of str
        What was left out.
    file, digest : str
        Name and SHA-256 of the file, of a plan that was read.
    folder : Path, optional
        Where the runs lie: beside the file of the plan.
    """

    sources: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    notices: tuple[str, ...] = ()
    file: str = ""
    digest: str = ""
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.runs)

    def place(self, index: int) -> Path:
        """The folder of a run.

        Raises
        ------
        UsageError
            If the plan was not read from a file.
        """
        if self.folder is None:
            raise UsageError("the plan is no file: write it, and read it again", location=Location(self.file or None))
        return self.folder / self.runs[index].id

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write `runs.jsonl`; the same plan gives the same bytes.

        Raises
        ------
        UsageError
            If the name does not end in `.jsonl`, or the file exists and `force` is not set.
        """
        if not os.fspath(path).lower().endswith(ENDING):
            raise UsageError("is no name of a plan", hint=f"end it in {ENDING}", location=Location(os.fspath(path)))
        lines = (json.dumps(run.document(index), ensure_ascii=False) for index, run in enumerate(self.runs))
        atomic_write(path, "".join(f"{line}\n" for line in lines), force=force)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read what `Plan.write` wrote.

    Raises
    ------
    DataError
        With every line that is no planned run, that was edited, or that was moved.
    """
    name = os.fspath(path)
    data, origin = read_once(path)
    faults: list[Fault] = []
    runs: list[PlannedRun] = []
    for index, line in enumerate(data.splitlines()):
        try:
            runs.append(_run_of(line, index))
        except ShapleyMixError as error:
            faults.append(Fault(error.message, Location(name, index + 1), hint=error.hint))
    if faults:
        raise DataError.of(faults, name)
    if not runs:
        raise DataError("holds no runs", location=Location(name), hint="write it with `shapleymix plan`")
    real = Path(os.path.realpath(path))
    folder = real.with_name(real.name.removesuffix(ENDING) + SUFFIX) if real.is_file() else None
    return Plan(tuple(runs[0].mixture), tuple(runs), file=name, digest=origin.sha256, folder=folder)


def _run_of(line: bytes, index: int) -> PlannedRun:
    try:
        given = json.loads(line)
        mixture = {str(name): float(ratio) for name, ratio in given["mixture"].items()}
        budget = float(given["N"]), float(given["D"]), int(given["seed"])
        unique = {str(name): float(tokens) for name, tokens in given.get("unique", {}).items()}
        recipe = {name: float(given[name]) for name in RECIPE if name in given}
        run = PlannedRun(str(given["name"]), mixture, *budget, tuple(map(str, given["command"])), unique, recipe)
        if (given["id"], given["index"]) != (run.id, index):
            raise ValueError("edited or moved")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError("is no run as it was planned", hint="write it again with `shapleymix plan`") from error
    return run


def fill_in(word: str, values: Mapping[str, str], *, again: bool = True) -> str:
    """A word with its placeholders filled in; if it will be filled in `again`, late ones and meant braces stay."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0] if again else found[0][0]
        if not again:
            return values[name]
        return found[0] if name in LATE else values[name].replace("{", "{{").replace("}", "}}")

    return PLACEHOLDER.sub(part, word)


def whole(value: float) -> float:
    """A whole number without `.0`, as people write it."""
    return int(value) if float(value).is_integer() else value


RESULTS = ("runs.csv", "runs.jsonl")
"""The names of the run log that a run's program writes into `{out}`."""

SHORT = 0.05
"""A run that ends more than this part before or after the planned D is not finished; batches round by less."""
ROUNDED = 5e-3
"""Differences between a planned share and the one that a run read are not reported up to this."""
OTHER = 0.05
"""With a larger difference a run is not the planned one."""


@dataclass(frozen=True)
class State:
    """How far a plan is.

    Attributes
    ----------
    plan : Plan
        The runs.
    results : dict of int to RunLog
        The logs of the finished runs, by the index of the run.
    failures : dict of int to str
        Why others failed the last time that they were tried, by the index of the run.
    """

    plan: Plan
    results: dict[int, sm.RunLog]
    failures: dict[int, str]

    @property
    def warnings(self) -> list[str]:
        """How many finished runs read other shares than planned, and which of them most."""
        each = [(self.plan.runs[index], log) for index, log in self.results.items()]
        found = [(off, run.label, text) for run, log in each for off, text in [other_shares(run, log)] if off > ROUNDED]
        _, label, text = max(found, default=(0.0, "", ""))
        return [f"{len(found)} runs read other shares than planned, most of all {label}: {text}"] if found else []


def state_of(plan: Plan) -> State:
    """How far a plan is, by what its runs have left."""
    results: dict[int, sm.RunLog] = {}
    failures: dict[int, str] = {}
    for index, run in enumerate(plan.runs):
        place = plan.place(index)
        try:
            results[index] = result_of(run, place)
        except ShapleyMixError:
            if (place / FAILED).exists():
                failures[index] = (place / FAILED).read_text(encoding="utf-8")
    return State(plan, results, failures)


def result_of(run: PlannedRun, place: Path) -> sm.RunLog:
    """The run log that a finished run has left in its folder.

    Raises
    ------
    DataError
        If there is none, or it ends early, has no loss at its end, or is of a different mixture.
    """
    path = next((path for name in RESULTS if (path := place / OUT / name).is_file()), None)
    if path is None:
        raise DataError(f"left no {' or '.join(RESULTS)}", location=Location(str(place / OUT)))
    log = sm.read_runs(path, losses="optional")
    location = Location(str(path))
    last = int(np.argmax(log.D))
    if abs(log.D[last] / run.D - 1) > SHORT:
        raise DataError(f"ended at D = {log.D[last]:g}, the plan says {run.D:g}", location=location)
    if not log.measured[last].any():
        raise DataError("has no loss at its end", location=location)
    off, text = other_shares(run, log)
    if off > OTHER:
        raise DataError(f"read {text}", location=location)
    return log


def other_shares(run: PlannedRun, log: sm.RunLog) -> tuple[float, str]:
    """The largest difference between planned shares and those that a run has read at its end, and of which source."""
    read = dict(zip(log.sources, log.p[int(np.argmax(log.D))].tolist(), strict=True)) or run.mixture
    both = {name: (read.get(name, 0.0), run.mixture.get(name, 0.0)) for name in {**run.mixture, **read}}
    name, (share, planned) = max(both.items(), key=lambda item: abs(item[1][0] - item[1][1]))
    return abs(share - planned), f"{share:.4g} of {name}, planned {planned:.4g}"


def lacking(run: PlannedRun, place: Path) -> str:
    """What a run lacks to be finished as planned; empty where it is finished."""
    try:
        result_of(run, place)
    except ShapleyMixError as error:
        return error.message
    return ""


def open_runs(plan: Plan) -> list[int]:
    """The indices of the runs that are not finished."""
    return [index for index, run in enumerate(plan.runs) if lacking(run, plan.place(index))]


def collect(states: Sequence[State]) -> sm.RunLog:
    """One run log of the finished runs of plans, in their order.

    A run that several plans have is there once. So is a row that several runs have with the same N, D, mixture, seed
    and losses: the untrained model is the same for all runs of a size and seed.

    Raises
    ------
    DataError
        If no run is finished.
    """
    sources = tuple(dict.fromkeys(name for state in states for name in state.plan.sources))
    found: dict[str, tuple[PlannedRun, sm.RunLog]] = {}
    for state in states:
        for index, log in state.results.items():
            found.setdefault(state.plan.runs[index].id, (state.plan.runs[index], log))
    if not found:
        planned = sum(len(state.plan) for state in states)
        hint = "train them with `shapleymix launch`; a plan that is written anew has other ids"
        raise DataError(f"none of {planned} runs is finished", location=Location(states[0].plan.file), hint=hint)
    rows: dict[frozenset[tuple[str, object]], dict[str, object]] = {}
    for run, log in found.values():
        for row in _rows(run, log, sources):
            rows.setdefault(frozenset(cell for cell in row.items() if cell[0] != "run"), row)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return sm.read_runs({name: [row.get(name) for row in rows.values()] for name in names}, losses="optional")


def _rows(run: PlannedRun, log: sm.RunLog, sources: Sequence[str]) -> Iterator[dict[str, object]]:
    """The rows of a run, under its name and with its seed; the plan's mixture where the log has none."""
    for row, trained in enumerate(log.trained.tolist()):
        p = dict(zip(log.sources, log.p[row].tolist(), strict=True)) or run.mixture
        losses = dict(zip(log.targets, log.loss[row].tolist(), strict=True))
        logged = {} if log.unique is None else dict(zip(log.sources, log.unique[row].tolist(), strict=True))
        unique = {**run.unique, **{name: count for name, count in logged.items() if count == count}}
        kept = {RECIPE.get(name, name): getattr(log, name) for name in (*RECIPE, "tokenizer")}
        yield {
            "run": run.label if trained else f"{run.label}-untrained",
            "N": float(log.N[row]),
            "D": float(log.D[row]),
            **{f"p_{name}": p.get(name, 0.0) if trained else 0.0 for name in sources},
            **{f"loss_{name}": loss for name, loss in losses.items() if loss == loss},
            **{f"tokens_unique_{name}": count for name, count in unique.items()},
            "seed": str(run.seed),
            **{RECIPE[name]: value for name, value in run.recipe.items()},
            **{name: values[row] for name, values in kept.items() if values is not None and values[row] == values[row]},
        }
