"""What other tools leave: Weights & Biases, MLflow, TensorBoard, logs of Hugging Face's trainer and of Megatron."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.files import read_once
from shapleymix_io.table import Table, flat, table_of, with_plain_errors

STATE, MEGATRON, TENSORBOARD = "trainer_state", "megatron", "tensorboard"
MLFLOW, WANDB, OLMIX = "mlflow", "wandb", "olmix"
"""Kinds of tables: which tool wrote it."""
USUAL: dict[str, dict[str, str]] = {
    STATE: {"D": "num_input_tokens_seen", "loss": "eval_{lang}_loss"},
    MEGATRON: {"D": "tokens", "loss": "validation-{lang}: lm loss"},
    TENSORBOARD: {"D": "tokens"},
    MLFLOW: {},
    WANDB: {"D": "tokens"},
    OLMIX: {"p": "ratios:{lang}", "loss": "metrics:{lang}"},
}
"""What a tool calls its columns, beside `run`, where its form fixes that."""
ONE_LOSS = {STATE: "eval_loss", MEGATRON: "validation: lm loss"}
"""The column of the loss where there is one validation set, not one a language."""
OLDEST = {"mlflow": "2.10", "tensorboard": "2.15", "wandb": "0.17"}
"""The packages that read what they wrote, and the least version of each."""


@dataclass(frozen=True)
class History:
    """What one run logged.

    Attributes
    ----------
    name, id : str
        What the run is called, and its id in the tool.
    given : dict
        What holds for the whole run, such as its settings.
    steps : dict
        Numbers by their names, at each step.
    """

    name: str
    id: str
    given: Mapping[str, object] = field(default_factory=dict)
    steps: Mapping[float, Mapping[str, object]] = field(default_factory=dict)


def table_of_histories(histories: Sequence[History], origin: str, kind: str, step: str = "step") -> Table:
    """A row for each run and step; runs go by their names, or by their ids where several have one name.

    Raises
    ------
    DataError
        If no run logged a number.
    """
    if not any(one.steps for one in histories):
        raise DataError("holds no run that logged a number", location=Location(origin))
    often = Counter(one.name for one in histories)
    rows = [
        {"run": one.id if often[one.name] > 1 else one.name, "id": one.id, step: place, **one.given, **numbers}
        for one in histories
        for place, numbers in sorted(one.steps.items())
    ]
    same = [name for name, count in often.items() if count > 1]
    notices = (f"several runs are called {', '.join(same[:5])}: they go by their ids",) if same else ()
    return replace(table_of(rows, origin, kind), notices=notices)


def installed(module: str, package: str) -> Any:
    """A module of a package that is no dependency of this one.

    Raises
    ------
    UsageError
        With the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install '{package}>={OLDEST[package]}'"
        raise UsageError(f"reading this needs the package {package}: {error}", hint=hint) from error


WANDB_ADDRESS, _WANDB_STEP = "wandb:", "_step"


def read_wandb(address: str) -> Table:
    """Every number of every run of a project at every step, with the run's config.

    Raises
    ------
    DataError
        If the service does not hand them out.
    """
    path = address.removeprefix(WANDB_ADDRESS).strip("/")
    if "/" not in path:
        raise UsageError(f"{address!r} names no project", hint="write it like wandb:ENTITY/PROJECT")
    api = installed("wandb", "wandb").Api
    found = with_plain_errors("Weights & Biases", address, lambda: [_wandb_history(run) for run in api().runs(path)])
    return table_of_histories(found, address, WANDB, _WANDB_STEP)


def _wandb_history(run: Any) -> History:
    """What a run logged; `scan_history` leaves out no step, where `history` gives a sample."""
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    for place, row in enumerate(run.scan_history()):
        numbers = {name: one for name, one in flat(row).items() if type(one) in (int, float) and name != _WANDB_STEP}
        steps[float(str(row.get(_WANDB_STEP, place)))] |= numbers
    given = flat({name: value for name, value in run.config.items() if not name.startswith("_")}, "config.")
    return History(run.name, run.id, given, dict(steps))


MLFLOW_ADDRESSES = ("sqlite:", "http://", "https://", "mlflow:", "postgresql", "mysql", "databricks", "file:")
_MOST = 50_000
"""Runs that a store hands out at once: the most that it is asked for."""
SQLITE = b"SQLite format 3\0"


def store_of(path: Path) -> str | None:
    """The address of a store that is a database or a folder; None of others, and a pipe is not touched."""
    place = os.path.abspath(path)
    if path.is_dir():
        return f"file:{place}" if any(path.glob("*/meta.yaml")) else None
    if not path.is_file():
        return None
    with open(path, "rb") as stream:
        return f"sqlite:///{place}" if stream.read(len(SQLITE)) == SQLITE else None


def read_mlflow(address: str, origin: str | None = None) -> Table:
    """Every metric of every run of an experiment at every step, with the run's parameters and tags.

    Raises
    ------
    DataError
        If the store cannot be read, or it holds several experiments and none is named.
    """
    uri, _, name = address.removeprefix("mlflow:").partition("#")
    place = origin or address.partition("#")[0]
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = installed("mlflow.tracking", "mlflow")
    found = with_plain_errors(
        "MLflow", place, lambda: _mlflow_runs(tracking.MlflowClient(tracking_uri=uri), name, place)
    )
    return table_of_histories(found, place, MLFLOW)


def _mlflow_runs(client: Any, name: str, origin: str) -> list[History]:
    """The runs of the experiment of a name, or of the only one that has any."""
    found: dict[str, Any] = {}
    for experiment in client.search_experiments(max_results=_MOST):
        if not name or name in (experiment.name, experiment.experiment_id):
            runs = client.search_runs([experiment.experiment_id], max_results=_MOST)
            if runs or name:
                found[experiment.name] = runs
    if not found:
        raise DataError(f"holds no experiment {name!r}" if name else "holds no run", location=Location(origin))
    if len(found) > 1:
        hint = f"say which: {origin}#{next(iter(found))}"
        raise DataError(f"holds {len(found)} experiments: {', '.join(found)}", location=Location(origin), hint=hint)
    return [_mlflow_history(client, run) for runs in found.values() for run in runs]


def _mlflow_history(client: Any, run: Any) -> History:
    """What a run logged; of a metric that was logged twice at a step, the last."""
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    for key in run.data.metrics:
        for metric in sorted(client.get_metric_history(run.info.run_id, key), key=lambda one: one.timestamp):
            steps[metric.step][f"metrics.{key}"] = metric.value
    given = {f"params.{key}": value for key, value in run.data.params.items()}
    given |= {f"tags.{key}": value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
    return History(run.info.run_name, run.info.run_id, given, dict(steps))


_EVENTS = "events.out.tfevents."
_VERSION = re.compile(r"version_\d+")


def event_folders(folder: Path) -> list[Path]:
    """The folders that hold event files, in order."""
    return sorted(Path(place) for place, _, files in os.walk(folder) if any(_EVENTS in name for name in files))


def read_tensorboard(folder: Path) -> Table:
    """Every scalar of every run below a folder, none left out; of one that was logged twice at a step, the last."""
    scalars = {place: _scalars(place) for place in event_folders(folder)}
    lines = {place: line for place in scalars if (line := _line_of(place, scalars)) is not None}
    for place, (tag, line) in lines.items():
        for step, numbers in scalars[place].items():
            scalars[place.parent].setdefault(step, {})[line] = numbers[tag]
    places = [place for place in scalars if place not in lines]
    named = zip(places, _names(folder, places), strict=True)
    runs = [History(name, name, steps=scalars[place]) for place, name in named if scalars[place]]
    return table_of_histories(runs, os.fspath(folder), TENSORBOARD)


def _line_of(place: Path, scalars: Mapping[Path, Mapping[float, Mapping[str, object]]]) -> tuple[str, str] | None:
    """The metric that a folder of `add_scalars` holds, and its name in the run above; None of other folders."""
    tags = {tag for numbers in scalars[place].values() for tag in numbers}
    if place.parent not in scalars or len(tags) != 1:
        return None
    tag = tags.pop()
    start = f"{tag.replace('/', '_')}_"
    return (tag, f"{tag}/{place.name.removeprefix(start)}") if place.name.startswith(start) else None


def _names(folder: Path, places: Sequence[Path]) -> list[str]:
    """Paths from the folder, without the `version_0` that Lightning puts below a run that has one version."""
    whole = [place.resolve() if place == folder else place.relative_to(folder) for place in places]
    above = [path.parent if _VERSION.fullmatch(path.name) and path.parent.name else path for path in whole]
    short = [path if above.count(path) == 1 else one for path, one in zip(above, whole, strict=True)]
    return [path.name if path.is_absolute() else path.as_posix() for path in short]


def _scalars(folder: Path) -> dict[float, dict[str, object]]:
    """The scalars of a run by step: those of TensorFlow 2 are tensors with the mark of a scalar."""
    events = installed("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
    tensors = installed("tensorboard.util.tensor_util", "tensorboard")
    run = events.EventAccumulator(os.fspath(folder), size_guidance={"scalars": 0, "tensors": 0})
    run.Reload()
    found: defaultdict[float, dict[str, object]] = defaultdict(dict)
    tags = run.Tags()
    for tag in tags["scalars"]:
        for event in run.Scalars(tag):
            found[event.step][tag] = event.value
    for tag in tags["tensors"]:
        if run.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            for event in run.Tensors(tag):
                found[event.step][tag] = tensors.make_ndarray(event.tensor_proto).item()
    return dict(found)


_NAMELESS = {"log", "logs", "logfile", "stdout", "stderr", "out", "output", "train", "training", "console", "main"}
_NUMBER = r"[0-9.]+(?:[eE][+-]?\d+)?"
_VALIDATION = re.compile(
    r"validation(?:-(?P<name>\S.*?))? loss at iteration +(?P<step>\d+)(?P<on>[^|]*)\|(?P<values>.*)"
)
_VALUE = re.compile(rf"(?P<key>[^|]*?) value: (?P<value>{_NUMBER}|nan|inf)")
_STEP = re.compile(r"\biteration +(?P<step>\d+)/ *\d+ \|.*?consumed samples: +(?P<samples>\d+)")
_ARGUMENT = re.compile(
    r"^ *(?:\[[^\]]*\]:?)?\W*(?:\d+: *)?(?P<name>seq_length|global_batch_size|rampup_batch_size) \.{2,} *(?P<value>\S+)"
)


def read_state(state: object, origin: str) -> Table:
    """A row for each step of a state's `log_history` that has losses (`eval_loss`, `eval_<name>_loss`).

    Raises
    ------
    DataError
        If no loss was measured.
    """
    steps: dict[object, dict[str, object]] = {}
    for entry in state.get("log_history", []) if isinstance(state, Mapping) else ():
        steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [row for row in steps.values() if any(re.fullmatch("eval(_.*)?_loss", name) for name in row)]
    if not rows:
        hint = "evaluate while training: eval_strategy and eval_steps, and eval_dataset with a dataset of each language"
        message = "is the state of a trainer that has measured no loss"
        raise DataError(message, location=Location(origin), hint=hint)
    return table_of([{"run": run_of(origin), **row} for row in rows], origin, STATE)


def run_of(origin: str, depth: int = 1) -> str:
    """The id of the run of a file: its name, or the folder above one that is called alike for all runs (`log.txt`).

    A folder of a checkpoint names no run. With a depth, as many folders above go into it.
    """
    path = Path(os.path.abspath(origin))
    stem = path.name.lower().partition(".")[0]
    names = [*path.parts[1:-1], path.stem]
    if stem == STATE or re.sub(r"[_-]?\d+$", "", stem) in _NAMELESS:
        names = [part for part in names[:-1] if not part.startswith("checkpoint-")]
    return "/".join(names[-depth:])


def told_apart(tables: Sequence[Table]) -> list[Table]:
    """Tables of files that hold a run each, whose ids are the shortest ends of their paths that differ."""
    files = {table.origin for table in tables if table.kind in (STATE, MEGATRON)}
    depth = next((d for d in range(1, 30) if len({run_of(file, d) for file in files}) == len(files)), 30)
    return [
        replace(one, frame=one.frame.with_columns(pl.lit(run_of(one.origin, depth)).alias("run")))
        if one.origin in files and depth > 1
        else one
        for one in tables
    ]


def is_megatron(text: str) -> bool:
    """Whether a text is what Megatron prints while it trains."""
    return " loss at iteration " in text and _VALIDATION.search(text) is not None


def read_megatron(text: str, origin: str) -> Table:
    """A row for each iteration at which losses were measured on validation data.

    Columns are called `validation-<name>: lm loss`; `tokens` are the consumed samples times the sequence length, where
    the log says both.
    """
    samples: dict[int, int] = {}
    known: dict[str, str] = {}
    rows: dict[int, dict[str, object]] = {}
    lines: dict[int, int] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _VALIDATION.search(content):
            _measure(found, rows)
            lines.setdefault(int(found["step"]), line)
        elif found := _STEP.search(content):
            samples[int(found["step"])] = int(found["samples"])
        elif found := _ARGUMENT.match(content):
            known.setdefault(found["name"], found["value"])
    for step, row in rows.items():
        seen = _samples(step, samples, known)
        row |= {"run": run_of(origin), "iteration": step, "consumed samples": seen}
        if "seq_length" in known and seen is not None:
            row["tokens"] = seen * int(known["seq_length"])
    steps = sorted(rows)
    return table_of([rows[step] for step in steps], origin, MEGATRON, [lines[step] for step in steps])


def _measure(found: re.Match[str], rows: dict[int, dict[str, object]]) -> None:
    """Losses of one line; those on the test set are none, and those after training do not replace those within."""
    if "test set" in found["on"]:
        return
    name = "validation" if found["name"] is None else f"validation-{found['name']}"
    row = rows.setdefault(int(found["step"]), {})
    for value in _VALUE.finditer(found["values"]):
        column = f"{name}: {value['key'].strip()}"
        if not (found["on"].strip() and column in row):
            row[column] = float(value["value"])


def _samples(step: int, samples: Mapping[int, int], known: Mapping[str, str]) -> int | None:
    """Samples that were consumed: as printed for the step, or by a batch size that does not grow."""
    batch = known.get("global_batch_size", "")
    fixed = known.get("rampup_batch_size", "None") == "None" and batch.isdigit()
    return samples.get(step, step * int(batch) if fixed else None)


def read_scores(folder: str | os.PathLike[str], metric: str = "acc") -> Table:
    """The scores of runs in the folder that lm-eval wrote (`--output_path`): `run`, `task`, `score`.

    A run is called as the last part of its model's path. Means over groups of tasks are left out, and of a task that
    was evaluated twice the later evaluation counts.

    Raises
    ------
    DataError
        If there are no results, no task has the metric, or one was evaluated with several numbers of examples.
    """
    found: dict[tuple[str, str], tuple[float, object]] = {}
    files, place = [], Location(os.fspath(folder))
    for path in sorted(Path(folder).rglob("results_*.json"), key=lambda path: path.name):
        data, origin = read_once(path)
        content = json.loads(data)
        files.append(origin)
        for task, numbers in content["results"].items():
            values = [one for name, one in numbers.items() if name.partition(",")[0] == metric]
            if values and not content.get("group_subtasks", {}).get(task):
                run = Path(content["model_name"]).name
                found[run, task] = (values[0], content["n-shot"].get(task))
    if not found:
        hint = "give the --output_path of lm-eval, and a metric that its tasks have"
        raise DataError(f"holds no results_*.json with the metric {metric!r}", location=place, hint=hint)
    shots: defaultdict[str, set[str]] = defaultdict(set)
    for (_, task), (_, examples) in found.items():
        shots[task].add(str(examples))
        if len(shots[task]) > 1:
            message = f"{task} was evaluated with {' and '.join(sorted(shots[task]))} examples"
            raise DataError(message, location=place, hint="evaluate all runs alike: lm_eval --num_fewshot")
    rows = [{"run": run, "task": task, "score": score} for (run, task), (score, _) in found.items()]
    return replace(table_of(rows, os.fspath(folder)), files=tuple(files))
