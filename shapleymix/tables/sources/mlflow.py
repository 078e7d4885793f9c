"""MLflow's stores: `sqlite:///mlflow.db`, a server, or the folder `mlruns`; `#name` chooses an experiment."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from shapleymix.errors import DataError, Location
from shapleymix.tables.addresses import MLFLOW
from shapleymix.tables.sheets import Sheet
from shapleymix.tables.sources.histories import History, installed, sheet_of_histories

T = TypeVar("T")

SQLITE = b"SQLite format 3\0"


class _Experiment(Protocol):
    experiment_id: str
    name: str


class _Metric(Protocol):
    step: int
    timestamp: int
    value: float


class _Info(Protocol):
    run_id: str
    run_name: str
    status: str


class _Data(Protocol):
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]


class _Run(Protocol):
    info: _Info
    data: _Data


class _Client(Protocol):
    """What is asked of MLflow's client."""

    def search_experiments(self, page_token: str | None = None) -> Sequence[_Experiment]: ...
    def search_runs(self, experiment_ids: list[str], page_token: str | None = None) -> Sequence[_Run]: ...
    def get_metric_history(self, run_id: str, key: str) -> Sequence[_Metric]: ...


def is_store(text: str) -> bool:
    """Whether a text names a store, not a file."""
    return text.startswith(MLFLOW)


def is_store_folder(folder: Path) -> bool:
    """Whether a folder holds experiments as files."""
    return any(folder.glob("*/meta.yaml"))


def uri_of(path: Path) -> str:
    """The address of a store that is a file or a folder."""
    place = os.path.abspath(path)
    return f"file:{place}" if path.is_dir() else f"sqlite:///{place}"


def read_mlflow(address: str, origin: str | None = None) -> Sheet:
    """Every metric of every run of an experiment at every step, with the run's parameters and tags.

    Raises
    ------
    DataError
        If the store cannot be read, or it holds several experiments and none is named.
    """
    uri, _, name = address.removeprefix("mlflow:").partition("#")
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    client = installed("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri)
    try:
        experiment, runs = _runs(client, name, origin or address)
        histories = [_history(client, run) for run in runs]
    except DataError:
        raise
    except Exception as error:  # the package raises what its database or its server raised
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"MLflow cannot read it: {text[:200]}", location=Location(origin or address)) from error
    return sheet_of_histories(histories, f"{origin or address.partition('#')[0]}#{experiment}", "mlflow")


def _runs(client: _Client, name: str, origin: str) -> tuple[str, list[_Run]]:
    """The runs of the experiment of a name, or of the only one that has any."""
    found: dict[str, list[_Run]] = {}
    for experiment in _pages(client.search_experiments):
        if not name or name in (experiment.name, experiment.experiment_id):
            runs = _pages(partial(client.search_runs, [experiment.experiment_id]))
            if runs or name:
                found[experiment.name] = runs
    if len(found) == 1:
        return next(iter(found.items()))
    if not found:
        raise DataError(f"holds no experiment {name!r}" if name else "holds no run", location=Location(origin))
    hint = f"say which: {origin}#{next(iter(found))}"
    raise DataError(f"holds {len(found)} experiments: {', '.join(found)}", location=Location(origin), hint=hint)


def _pages(search: Callable[..., Sequence[T]]) -> list[T]:
    """All that a search finds, page by page."""
    found: list[T] = []
    token: str | None = None
    while True:
        page = search(page_token=token)
        found.extend(page)
        token = getattr(page, "token", None)
        if not token:
            return found


def _history(client: _Client, run: _Run) -> History:
    """What a run logged; of a metric that was logged twice at a step, the last."""
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    for key in run.data.metrics:
        for metric in sorted(client.get_metric_history(run.info.run_id, key), key=lambda one: one.timestamp):
            steps[metric.step][f"metrics.{key}"] = metric.value
    given = {f"params.{key}": value for key, value in run.data.params.items()}
    given |= {f"tags.{key}": value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
    state = "" if run.info.status == "FINISHED" else run.info.status.lower()
    return History(run.info.run_name, run.info.run_id, given, dict(steps), state)
