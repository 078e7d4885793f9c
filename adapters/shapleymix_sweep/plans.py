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
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

import shapleymix as sm
from shapleymix.errors import DataError, Fault, Location, ShapleyMixError, UsageError, did_you_mean
from shapleymix.files import atomic_write, read_once
from shapleymix.laws.core import HARM_PRIOR
from shapleymix.tables.runs import RECIPE
from shapleymix.tables.words import Amounts, amounts, parse_budget, parse_positive, parse_size
from shapleymix_sweep.mixtures import Mixtures

ENDING, SUFFIX = ".jsonl", "-sweep"
OUT, LOG, FAILED, CLAIM = "out", "log.txt", "failed", "claim"
"""What the folder of a run holds."""

DEFAULT = (
    "shapleymix-irds train --corpus {corpus} --languages {sources} --mixture {mixture} --model {model} --tokens {D} "
    "--seed {seed} --no-irds --eval-untrained --out {out}"
)
"""The command of a run where none is given: the training script of this project."""
TOY, ARTIFICIAL = "toy", "toy_"
"""The corpus of artificial languages, and how their names begin."""
Pools = Recipe = Mapping[str, float]
POOLS = " --unique-tokens {unique}"
RATE = " --lr {learning_rate}"
"""What it has besides where pools, and a learning rate, are given."""
SMALL, SMALL_RATE = "small", 1e-5
"""The word for a very small learning rate, and the largest that summaries of arXiv 2512.24503 call so."""
BEST_HARM = 0.015
"""The share of the core that repeats cost at the best mixtures that were trained (.012 to .018)."""
EARLY = ("corpus", "mixture", "sources", "N", "D", "seed", "model", "name", "unique", *RECIPE)
"""Placeholders that are filled in when the plan is made; so is `{p_en}`, the ratio of en."""
LATE = ("out", "id", "run")
"""Placeholders that are filled in when the run starts: its folder, its id, and its name in the run log."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")

Size = float | str


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
        return tuple(_filled(word, late, again=False) for word in self.command)

    def document(self, index: int) -> dict[str, object]:
        """The object of `runs.jsonl`."""
        budget = {"N": _whole(self.N), "D": _whole(self.D)}
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
            hint = "write the plan, and read it from its file: its runs lie in a folder beside that file"
            raise UsageError("the plan is no file", location=Location(self.file or None), hint=hint)
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
    hint = "a plan is not edited by hand: write it again with `shapleymix plan`"
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
        raise DataError("is no run as it was planned", hint=hint) from error
    return run


def grid(
    mixtures: Mixtures,
    N: Mapping[str, Size] | Sequence[Size] | Size,
    D: Sequence[Size] | Size,
    *,
    seeds: Sequence[int] = (0,),
    corpus: str | None = None,
    command: str = DEFAULT,
    available: Amounts | None = None,
    scale_down: float | str = 1.0,
    cut_pools: float | str = 1.0,
    learning_rate: Sequence[Size] | Size | None = None,
    batch_tokens: Sequence[Size] | Size | None = None,
) -> Plan:
    """A plan of every mixture at every size, token count and seed; mixtures change fastest, sizes slowest.

    Parameters
    ----------
    mixtures : Mixtures
        What to train on.
    N : size, sequence of sizes, or sizes by name
        Parameters without embeddings; `{model}` of the command is the name of a size: `{"tiny": 23712}`.
    D : size or sequence of sizes
        Tokens.
    seeds : sequence of int
        Seeds of the runs.
    corpus : str, optional
        What the runs are trained on: a folder with a file or a folder for each source, or `"toy"`, whose artificial
        languages have names that begin with `toy_`. The usual command needs it.
    command : str
        How a run is started, with placeholders: `{corpus}`, `{mixture}` (en=0.5,de=0.5), `{p_en}` (the ratio of en),
        `{sources}` (en,de), `{N}`, `{model}`, `{D}`, `{seed}`, `{name}` (of the mixture), `{out}` (the folder that the
        run writes to), `{id}`, `{run}` (its name in the run log), `{unique}` (en=1000000, the pools),
        `{learning_rate}` and `{batch_tokens}`. No shell reads it.
    available : Amounts, optional
        Unique tokens at hand for the target run, by name; runs draw on pools of as many.
    scale_down : float or str
        The factor, such as 1/16, by which N, D and every pool are those of the target: the best ratios depend on D and
        N by unique token alone, so that the runs' best mixture is the target's.
    cut_pools : float or str
        The factor by which the pools alone are cut.
    learning_rate, batch_tokens : number or sequence of numbers, optional
        The recipe: largest learning rate, and tokens of a step, of all runs, or one for each size. `"small"` is a rate
        of 1e-5, at which ranks of data recipes are said to hold from 125M to 1B parameters (arXiv 2512.24503).

    Raises
    ------
    UsageError
        If a placeholder is unknown, `{out}` or one of the recipe's is missing, nothing says what the runs are trained
        on, or two different runs have the same command.
    """
    by_name = N.items() if isinstance(N, Mapping) else [("", size) for size in _listed(N)]
    factor, cut = _factor(scale_down), _factor(cut_pools)
    sizes = [(name, parse_budget(size, "N") * factor) for name, size in by_name]
    tokens = [parse_budget(size, "D") * factor for size in _listed(D)]
    pools = amounts(np.full(len(mixtures.sources), np.nan), available, mixtures.sources, parse_size, "tokens")
    unique = {name: factor * cut * pool for name, pool in zip(mixtures.sources, pools, strict=True) if pool > 0}
    if min(factor, cut) < 1 and not unique:
        raise UsageError("there are no pools to cut", hint="say how many unique tokens there are (available)")
    if not (sizes and tokens and seeds and len(mixtures)):
        raise UsageError("there is nothing to train", hint="give at least one mixture, N, D and seed")
    recipes = _recipes(len(sizes), SMALL_RATE if learning_rate == SMALL else learning_rate, batch_tokens)
    _require_corpus(corpus, mixtures.sources, usual=command == DEFAULT)
    if command == DEFAULT:
        command += (POOLS if unique else "") + (RATE if learning_rate is not None else "")
    given = {*recipes[0], *(["unique"] if unique else []), *(["corpus"] if corpus else [])}
    words = _template(command, mixtures.sources, given, named=factor == 1 and all(name for name, _ in sizes))
    each = product(zip(sizes, recipes, strict=True), tokens, seeds, range(len(mixtures)))
    runs = [_run(words, mixtures, unique, corpus or "", *one) for one in each]
    kept: dict[tuple[str, ...], PlannedRun] = {}
    for run in runs:
        if (other := kept.setdefault(run.command, run)).id != run.id:
            message = f"the command is the same for two runs, {_described(other)} and {_described(run)}"
            raise UsageError(message, hint="put what differs into the command: {mixture}, {N}, {model}, {D} or {seed}")
    again = len(runs) - len(kept)
    said = [f"{again} of {len(runs)} runs are the same as others, and are planned once"] if again else []
    said += _epochs_lacking(runs, unique)
    if any(recipe.get("learning_rate", 1.0) <= SMALL_RATE for recipe in recipes):
        said += [f"losses at a learning rate of {SMALL_RATE:g} rank mixtures, and tell nothing of other N, D or rates"]
    if cut < 1:
        said.append("pools are cut alone: the best ratios of these runs lie too low, and only a law corrects it")
    return Plan(mixtures.sources, tuple(kept.values()), (*mixtures.notices, *said))


def _require_corpus(corpus: str | None, sources: Sequence[str], *, usual: bool) -> None:
    """Refuse runs of which nothing says what they are trained on, and artificial languages under names of real ones."""
    if usual and not corpus:
        hint = f"give the corpus: a folder with a file or a folder for each source, or {TOY} for artificial languages"
        raise UsageError("nothing says what the runs are trained on", hint=hint)
    if corpus == TOY and (real := [name for name in sources if not name.startswith(ARTIFICIAL)]):
        hint = f"call artificial languages {ARTIFICIAL}{real[0]}, or give the folder of the real ones"
        raise UsageError(f"the corpus {TOY} has artificial languages alone, and no {real[0]!r}", hint=hint)


def _recipes(
    sizes: int, learning_rate: Sequence[Size] | Size | None, batch_tokens: Sequence[Size] | Size | None
) -> list[dict[str, float]]:
    """The recipe of the runs of each size."""
    given = {"learning_rate": (learning_rate, parse_positive), "batch_tokens": (batch_tokens, parse_budget)}
    found: list[dict[str, float]] = [{} for _ in range(sizes)]
    for name, (values, read) in given.items():
        each = [] if values is None else [read(one, name) for one in _listed(values)]
        if len(each) not in (0, 1, sizes):
            raise UsageError(f"{len(each)} values of {name} for {sizes} sizes", hint="give one, or one for each size")
        for place, recipe in enumerate(found if each else ()):
            recipe[name] = each[place % len(each)]
    return found


def _factor(given: float | str) -> float:
    """A number from 0 to 1, also as a fraction: 1/16."""
    try:
        found = float(Fraction(str(given)))
    except (ValueError, ZeroDivisionError):
        found = 0.0
    if not 0 < found <= 1:
        raise UsageError(f"{given!r} is no factor to scale down by", hint="write it like 1/16 or 0.0625")
    return found


def _epochs_lacking(runs: Sequence[PlannedRun], unique: Pools) -> Iterator[str]:
    """Which sources no run repeats beyond their expected best epochs, without which harm is not measured."""
    for name, pool in unique.items():
        largest = max(runs, key=lambda run: run.D * run.N)
        epochs = max(run.mixture[name] * run.D / pool for run in runs)
        room = BEST_HARM * pool**2 / (np.exp(HARM_PRIOR.center) * largest.N * largest.D)
        best = pool / largest.D + room ** (1 / 3)
        expected = best * largest.D / pool
        if best < 1 and epochs < expected:
            seen = f"no run sees {name} more than {epochs:.2g} times, and about {expected:.2g} is expected to be best"
            yield f"{seen}: add a mixture with more than {best:.2g} of it"


def _listed(given: Sequence[Size] | Size) -> Sequence[Size]:
    return given.split(",") if isinstance(given, str) else [given] if isinstance(given, (int, float)) else list(given)


def _described(run: PlannedRun) -> str:
    return f"{run.name} (N {run.N:g}, D {run.D:g}, seed {run.seed})"


def _run(
    words: Sequence[str], mixtures: Mixtures, unique: Pools, corpus: str, sized: tuple[tuple[str, float], Recipe],
    D: float, seed: int, place: int,
) -> PlannedRun:  # fmt: skip
    ((model, N), recipe), p = sized, mixtures.p[place] / mixtures.p[place].sum()
    mixture = dict(zip(mixtures.sources, p.tolist(), strict=True))
    values = {f"p_{name}": repr(ratio) for name, ratio in mixture.items()}
    values |= {"mixture": ",".join(f"{name}={ratio!r}" for name, ratio in mixture.items() if ratio)}
    values |= {"sources": ",".join(mixtures.sources), "name": mixtures.names[place], "model": model, "corpus": corpus}
    values |= {"unique": ",".join(f"{name}={_whole(round(pool))}" for name, pool in unique.items())}
    values |= {"N": repr(_whole(N)), "D": repr(_whole(D)), "seed": str(seed)}
    values |= {name: repr(_whole(value)) for name, value in recipe.items()}
    command = tuple(_filled(word, values) for word in words)
    return PlannedRun(mixtures.names[place], mixture, N, D, seed, command, unique, recipe)


def _template(command: str, sources: Sequence[str], given: Set[str], *, named: bool) -> list[str]:
    """The words of a command, split as a shell would, with its placeholders checked."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command cannot be split into words: {error}", hint="close its quotes") from error
    known = (*LATE, *EARLY, *(f"p_{name}" for name in sources))
    used = {found[1] for word in words for found in _PLACEHOLDER.finditer(word)} - {None}
    for name in sorted(used - set(known)):
        hint = f"{did_you_mean(name, known)}; write {{{{ and }}}} for braces that are meant"
        raise UsageError(f"{{{name}}} of the command is no placeholder", hint=hint)
    if "out" not in used:
        raise UsageError("the command lacks {out}, the folder that the run writes to", hint=f"for instance {DEFAULT}")
    for name in ("corpus", "unique", *RECIPE):
        if (name in used) != (name in given):
            message = f"the command lacks {{{name}}}" if name in given else f"nothing says {{{name}}} of the command"
            raise UsageError(message, hint=f"give {name.replace('unique', 'available')} and {{{name}}}, or neither")
    if "model" in used and not named:
        hint = "name the sizes (tiny=23712,mini=97600); where they are scaled down, give a command with {N}"
        raise UsageError("{model} of the command is the name of a size, and these sizes have none", hint=hint)
    return words


def _filled(word: str, values: Mapping[str, str], *, again: bool = True) -> str:
    """A word with its placeholders filled in; if it will be filled in `again`, late ones and meant braces stay."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0] if again else found[0][0]
        if not again:
            return values[name]
        return found[0] if name in LATE else values[name].replace("{", "{{").replace("}", "}}")

    return _PLACEHOLDER.sub(part, word)


def _whole(value: float) -> float:
    """A whole number without `.0`, as people write it."""
    return int(value) if float(value).is_integer() else value


RESULTS = ("runs.csv", "runs.jsonl")
"""The names of the run log that a run's program writes into `{out}`."""

SHORT = 0.05
"""A run that ends more than this part before or after the planned D is not finished; batches round by less."""
ROUNDED = 5e-3
"""Largest difference between a planned ratio and the one in the run's log."""


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
        hint = "the program of a run writes its losses there: run, N, D, loss_<target>..."
        raise DataError(f"left no {' or '.join(RESULTS)}", location=Location(str(place / OUT)), hint=hint)
    log = sm.read_runs(path, losses="optional")
    location = Location(str(path))
    last = int(np.argmax(log.D))
    if abs(log.D[last] / run.D - 1) > SHORT:
        raise DataError(f"ended at D = {log.D[last]:g}, the plan says {run.D:g}", location=location)
    if not log.measured[last].any():
        raise DataError("has no loss at its end", location=location)
    for name in (*log.sources, *run.mixture) if log.sources else ():
        found = log.p[log.trained, log.sources.index(name)] if name in log.sources else np.zeros(1)
        planned = run.mixture.get(name, 0.0)
        if np.abs(found - planned).max() > ROUNDED:
            raise DataError(f"trained on {found[-1]:.4g} of {name}, the plan says {planned:.4g}", location=location)
    return log


def is_finished(run: PlannedRun, place: Path) -> bool:
    """Whether the run log of a run is there, and reaches what was planned."""
    try:
        return len(result_of(run, place)) > 0
    except ShapleyMixError:
        return False


def open_runs(plan: Plan) -> list[int]:
    """The indices of the runs that are not finished."""
    return [index for index, run in enumerate(plan.runs) if not is_finished(run, plan.place(index))]


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
        hint = "train them with `shapleymix launch`; where the plan was written anew, its ids may have changed"
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
        told = {RECIPE.get(name, name): getattr(log, name) for name in (*RECIPE, "tokenizer")}
        yield {
            "run": run.label if trained else f"{run.label}-untrained",
            "N": float(log.N[row]),
            "D": float(log.D[row]),
            **{f"p_{name}": p.get(name, 0.0) if trained else 0.0 for name in sources},
            **{f"loss_{name}": loss for name, loss in losses.items() if loss == loss},
            **{f"tokens_unique_{name}": count for name, count in unique.items()},
            "seed": str(run.seed),
            **{RECIPE[name]: value for name, value in run.recipe.items()},
            **{name: values[row] for name, values in told.items() if values is not None and values[row] == values[row]},
        }
