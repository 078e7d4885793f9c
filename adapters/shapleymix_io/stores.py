"""Stores of runs: Weights & Biases, MLflow, TensorBoard, and the folder of lm-eval."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.files import read_json
from shapleymix_io.forms import run_names, settings_beside
from shapleymix_io.table import Table, flatten, table_of, with_plain_errors

MLFLOW, WANDB, TENSORBOARD = "mlflow", "wandb", "tensorboard"
"""Forms of tables: which tool keeps the runs."""
OLDEST = {"mlflow": "2.10", "tensorboard": "2.15", "wandb": "0.17"}
"""The packages that read what they wrote, and the least version of each."""
Wanted = Callable[[str], bool]
"""Whether a column is asked for."""
Progress = Callable[[str, int, int], None]
"""What is called with (stage, done, total) while a server answers."""


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
    table = table_of(rows, origin, kind)
    usual = {"run": "run"} | ({"D": "tokens"} if "tokens" in table.columns else {})
    return replace(table, usual=usual, notices=notices)


def load_package(module: str, package: str) -> Any:
    """A module of a package that is no dependency of this one.

    Raises
    ------
    UsageError
        With the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"needs {package}: {error}", hint=f"pip install '{package}>={OLDEST[package]}'") from error


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
    api = load_package("wandb", "wandb").Api

    def ask() -> list[History]:  # `scan_history` leaves out no step, where `history` gives a sample
        return [_history(run.name, run.id, run.config, run.scan_history()) for run in api().runs(path)]

    return table_of_histories(with_plain_errors("Weights & Biases", address, ask), address, WANDB, _WANDB_STEP)


def _history(name: str, ident: str, config: Mapping[str, object], rows: Iterable[Mapping[str, object]]) -> History:
    """A run of Weights & Biases: rows of one step are one, and only numbers are kept of them."""
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    for place, row in enumerate(rows):
        numbers = {key: one for key, one in flatten(row).items() if type(one) in (int, float) and key != _WANDB_STEP}
        steps[float(str(row.get(_WANDB_STEP, place)))] |= numbers
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    return History(name, ident, flatten(given, "config."), dict(steps))


def read_wandb_folder(folder: Path) -> Table:
    """Every number of the runs that a folder `wandb` keeps, by the package's own reader, without its service.

    Raises
    ------
    DataError
        If the folder holds summaries alone.
    """
    origin, files = os.fspath(folder), sorted(folder.rglob("*.wandb"))
    if not files:
        hint = "send them with `wandb sync`, then import wandb:ENTITY/PROJECT"
        raise DataError("holds summaries, not what the runs logged", location=Location(origin), hint=hint)
    found = with_plain_errors("Weights & Biases", origin, lambda: [_wandb_run(file) for file in files])
    return table_of_histories(found, origin, WANDB, _WANDB_STEP)


def _wandb_run(file: Path) -> History:
    """The run in one file; of one that is still written, what is whole."""
    records = load_package("wandb.proto.wandb_internal_pb2", "wandb")
    name, ident, config, rows = "", file.stem, dict[str, object](), []
    for data in _wandb_records(file.read_bytes()):
        record = records.Record.FromString(data)
        settings = record.run.config.update if record.HasField("run") else record.config.update
        config |= {_wandb_key(one): json.loads(one.value_json) for one in settings}
        if record.HasField("run"):
            name, ident = record.run.display_name, record.run.run_id
        if record.HasField("history"):
            row = {_wandb_key(one): json.loads(one.value_json) for one in record.history.item}
            rows.append({_WANDB_STEP: record.history.step.num, **row})
    return _history(name or ident, ident, config, rows)


def _wandb_key(item: Any) -> str:
    return str(item.key) or ".".join(item.nested_key)


def _wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a file in blocks of 32 KiB: parts are a whole (1), the first (2), a middle or the last (4)."""
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        _, size, part = struct.unpack_from("<IHB", data, place)
        if left < 7 or (size, part) == (0, 0):
            place += left
            continue
        record = (b"" if part < 3 else record) + data[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4) and place <= len(data):
            yield record


MLFLOW_ADDRESSES = ("sqlite:", "http://", "https://", "mlflow:", "postgresql", "mysql", "databricks", "file:")
_MOST, _AT_ONCE = 50_000, 8
"""Runs that a store hands out at once, the most that it is asked for; and requests that a server gets at once."""
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


def read_mlflow(
    address: str, origin: str | None = None, wanted: Wanted | None = None, progress: Progress | None = None
) -> Table:
    """The metrics that are wanted of every run of an experiment, at every step, with its parameters and tags.

    Parameters
    ----------
    address : str
        The store, and after a `#` the experiment.
    origin : str, optional
        What messages call the store.
    wanted : callable, optional
        Which columns to ask for, by name; a server answers one request a run and metric.
    progress : callable, optional
        What is called while the server answers.

    Raises
    ------
    DataError
        If the store cannot be read, or it holds several experiments and none is named.
    """
    uri, _, name = address.removeprefix("mlflow:").partition("#")
    place = origin or address.partition("#")[0]
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    client = load_package("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri)
    return with_plain_errors("MLflow", place, lambda: _mlflow_table(client, name, place, wanted, progress))


def _mlflow_table(client: Any, name: str, origin: str, wanted: Wanted | None, progress: Progress | None) -> Table:
    """Several requests at once; of a metric that was logged twice at a step, the last."""
    runs = _mlflow_runs(client, name, origin)
    every = [(run.info.run_id, key) for run in runs for key in run.data.metrics]
    asked = [(run, key) for run, key in every if not wanted or wanted(f"metrics.{key}")]
    steps: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda one: client.get_metric_history(*one), asked)
        for done, ((run, key), answer) in enumerate(zip(asked, answers, strict=True), start=1):
            for metric in sorted(answer, key=lambda one: one.timestamp):
                steps[run][metric.step][f"metrics.{key}"] = metric.value
            if progress:
                progress("metrics of MLflow", done, len(asked))
    histories = []
    for run in runs:
        given = {f"params.{key}": value for key, value in run.data.params.items()}
        given |= {f"tags.{key}": value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
        histories.append(History(run.info.run_name, run.info.run_id, given, steps[run.info.run_id]))
    return table_of_histories(histories, origin, MLFLOW)


def _mlflow_runs(client: Any, name: str, origin: str) -> list[Any]:
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
        raise DataError(
            f"holds several experiments, say #NAME behind it: {', '.join(found)}", location=Location(origin)
        )
    return [run for runs in found.values() for run in runs]


_EVENTS = "events.out.tfevents."


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
    named = zip(places, run_names([os.fspath(place / _EVENTS) for place in places]), strict=True)
    runs = [
        History(name, name, settings_beside(place / _EVENTS)[0], scalars[place])
        for place, name in named
        if scalars[place]
    ]
    return table_of_histories(runs, os.fspath(folder), TENSORBOARD)


def _line_of(place: Path, scalars: Mapping[Path, Mapping[float, Mapping[str, object]]]) -> tuple[str, str] | None:
    """The metric that a folder of `add_scalars` holds, and its name in the run above; None of other folders."""
    tags = {tag for numbers in scalars[place].values() for tag in numbers}
    if place.parent not in scalars or len(tags) != 1:
        return None
    tag = tags.pop()
    start = f"{tag.replace('/', '_')}_"
    return (tag, f"{tag}/{place.name.removeprefix(start)}") if place.name.startswith(start) else None


def _scalars(folder: Path) -> dict[float, dict[str, object]]:
    """The scalars of a run by step: those of TensorFlow 2 are tensors with the mark of a scalar."""
    events = load_package("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
    tensors = load_package("tensorboard.util.tensor_util", "tensorboard")
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
        content, origin = read_json(path)
        files.append(origin)
        for task, numbers in content["results"].items():
            values = [one for name, one in numbers.items() if name.partition(",")[0] == metric]
            if values and not content.get("group_subtasks", {}).get(task):
                run = Path(content["model_name"]).name
                found[run, task] = (values[0], content["n-shot"].get(task))
    if not found:
        raise DataError(f"holds no results_*.json of lm-eval with the metric {metric!r}", location=place)
    for task in dict.fromkeys(task for _, task in found):
        shots = {str(examples) for (_, other), (_, examples) in found.items() if other == task}
        if len(shots) > 1:
            raise DataError(
                f"{task} has --num_fewshot {' and '.join(sorted(shots))}: evaluate all alike", location=place
            )
    rows = [{"run": run, "task": task, "score": score} for (run, task), (score, _) in found.items()]
    return replace(table_of(rows, os.fspath(folder)), files=tuple(files))
