"""Any source as a sheet: a table, what a trainer left, a folder, a database or a server."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from shapleymix.errors import DataError, Location
from shapleymix.tables.addresses import WANDB
from shapleymix.tables.cells import Layout
from shapleymix.tables.importing.table_joins import joined
from shapleymix.tables.importing.usual_maps import OLMIX
from shapleymix.tables.sheets import Sheet, Table, read_sheet
from shapleymix.tables.sources import mlflow, tensorboard, wandb

_HOLDS = (
    "a folder may hold TensorBoard events, runs of W&B that were kept offline, MLflow's runs, or the ratios.csv and "
    "metrics.csv of olmix; name other files one by one"
)


_LEAST = 512
"""Bytes of the smallest page of a database."""


def read_source(table: Table, layout: Layout | None = None) -> Sheet:
    """A table as `read_sheet` reads it, or the runs that another tool keeps in a folder, a database or on a server.

    Raises
    ------
    DataError
        If there is nothing to be read, or it is no table.
    """
    if not isinstance(table, (str, os.PathLike)):
        return read_sheet(table, layout)
    name = os.fsdecode(table)
    if name.startswith(WANDB):
        return wandb.read_wandb(name)
    if mlflow.is_store(name):
        return mlflow.read_mlflow(name)
    path, _, experiment = name.partition("#")
    place = Path(path if os.path.exists(path) and not os.path.exists(name) else name)
    if os.path.isdir(place):  # also False of a name that no system takes
        return _folder(place, experiment, layout)
    if _is_database(place):
        return mlflow.read_mlflow(f"{mlflow.uri_of(place)}#{experiment}", os.fspath(place))
    return read_sheet(table, layout)


def _folder(folder: Path, experiment: str, layout: Layout | None) -> Sheet:
    if (folder / "ratios.csv").is_file() and (folder / "metrics.csv").is_file():
        metrics, ratios = (read_sheet(folder / f"{name}.csv", layout) for name in ("metrics", "ratios"))
        run = next((name for name in ("run", "run_id") if name in metrics.columns), None)
        return _pair(folder, joined(metrics, [ratios], run), metrics.digest + ratios.digest, run)
    if mlflow.is_store_folder(folder):
        return mlflow.read_mlflow(f"{mlflow.uri_of(folder)}#{experiment}", os.fspath(folder))
    if tensorboard.event_folders(folder):
        return tensorboard.read_tensorboard(folder)
    if wandb.offline_files(folder):
        return wandb.read_offline(folder)
    raise DataError(
        "cannot be read: it is a folder that holds no runs", location=Location(os.fspath(folder)), hint=_HOLDS
    )


def _pair(folder: Path, both: Sheet, digests: str, run: str | None) -> Sheet:
    """Two tables as one sheet that is called as their folder; its columns know where they stand."""
    names = {name: "run" if name == run else name for name in both.columns}
    return replace(
        both,
        origin=os.fspath(folder),
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        columns={new: both.columns[old] for old, new in names.items()},
        places={new: both.place(old) for old, new in names.items()},
        kind=OLMIX,
    )


def _is_database(path: Path) -> bool:
    """Whether a file is an SQLite database, as MLflow keeps; a pipe is not touched."""
    if not os.path.isfile(path) or path.stat().st_size < _LEAST:
        return False
    with open(path, "rb") as stream:
        return stream.read(len(mlflow.SQLITE)) == mlflow.SQLITE
