"""Where the runs are: files, folders, databases or servers as one table, and tables with a row a run beside it."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from shapleymix.errors import DataError, Location
from shapleymix_io import olmix, stores
from shapleymix_io.column_map import ColumnMap, is_named
from shapleymix_io.forms import Source, read_table, with_paths
from shapleymix_io.stores import Progress, Wanted
from shapleymix_io.table import Table, join_tables, stack

_HOLDS = "a folder may hold runs of TensorBoard, MLflow, W&B, Lightning or Hugging Face, logs, or a swarm of olmix"
_LOGS = ("trainer_state.json", "metrics.csv", "*.jsonl", "*.csv", "*.parquet", "*.json", "*.log", "*.txt", "*.out")
"""What a folder of runs may hold, the surest first: the first that is there is read."""


def open_sources(sources: Sequence[Source], wanted: Wanted | None = None, progress: Progress | None = None) -> Table:
    """Tables that are read in one way, as one.

    Parameters
    ----------
    sources : sequence of Source
        Files, globs, folders, addresses or frames.
    wanted : callable, optional
        Which columns to ask a server for.
    progress : callable, optional
        What is called while a server answers.

    Raises
    ------
    DataError
        If there is nothing to be read, it is no table, or tables are of different forms.
    """
    if not sources:
        raise DataError("there is nothing to be read")
    names = [name for one in sources if not isinstance(one, pl.DataFrame) for name in _expand(os.fsdecode(one))]
    configs = {name: olmix.read_config(Path(name)) for name in names if name.endswith(olmix.YAML)}
    beside = {name: one for name, one in configs.items() if not olmix.is_question(one[0])}
    tables = [read_table(one) for one in sources if isinstance(one, pl.DataFrame)]
    for name in [name for name in names if name not in beside]:
        tables += _open_source(name, [*beside.values()], wanted, progress)
    if beside and {one.kind for one in tables} != {olmix.OLMIX}:
        raise DataError("names no swarm, as that of olmix fit does", location=Location(next(iter(beside))))
    return stack(with_paths(tables))


def _expand(name: str) -> list[str]:
    """The files that a glob names, or what is named."""
    return [name] if os.path.exists(name) else [*sorted(glob.glob(name, recursive=True))] or [name]


def _open_source(
    name: str, beside: Sequence[olmix.Config], wanted: Wanted | None, progress: Progress | None
) -> list[Table]:
    if name.startswith(stores.WANDB_ADDRESS):
        return [stores.read_wandb(name)]
    if name.startswith(stores.MLFLOW_ADDRESSES):
        return [stores.read_mlflow(name, None, wanted, progress)]
    base, _, experiment = name.partition("#")
    path = Path(base if os.path.exists(base) and not os.path.exists(name) else name)
    if address := stores.store_of(path):
        return [stores.read_mlflow(f"{address}#{experiment}", os.fspath(path), wanted, progress)]
    if path.suffix in olmix.YAML:
        return [olmix.read_named(path, beside)]
    return _folder(path, beside) if path.is_dir() else [read_table(name)]


def _folder(folder: Path, beside: Sequence[olmix.Config]) -> list[Table]:
    """The table of a store that is a folder, or those of the logs of runs that it holds."""
    if stores.event_folders(folder):
        return [stores.read_tensorboard(folder)]
    if (folder / "ratios.csv").is_file() and (folder / "metrics.csv").is_file():
        return [olmix.read_folder(folder, beside)]
    if any(any(folder.rglob(name)) for name in ("*.wandb", "wandb-summary.json")):
        return [stores.read_wandb_folder(folder)]
    for pattern in _LOGS:
        if files := sorted(folder.rglob(pattern)):
            return [read_table(file) for file in files]
    raise DataError("is a folder that holds no runs", location=Location(os.fspath(folder)), hint=_HOLDS)


def gather(
    sources: Sequence[Source], how: ColumnMap, join: Sequence[Source] = (), progress: Progress | None = None
) -> tuple[Table, ColumnMap]:
    """The table of the sources, and the map with what it leaves open as the form of the table fixes it.

    Tables beside it are joined by the ids of runs; `design.csv:their_id=our_id` says which columns hold them. A server
    is asked for what the map names alone, where it names the losses.
    """
    wanted = (lambda column: is_named(column, how.columns.values())) if "loss" in how.columns else None
    table, run = open_sources(sources, wanted, progress), how.columns.get("run")
    for one in join:
        name, pair = one, None
        if not (isinstance(one, pl.DataFrame) or os.path.exists(one)) and ":" in os.fsdecode(one):
            name, _, ids = os.fsdecode(one).rpartition(":")
            there, _, here = map(str.strip, ids.partition("="))
            pair = there, here or there
        table = join_tables(table, read_table(name), None if run is None else str(run), pair)
    usual = {key: name for key, name in table.usual.items() if key != "D" or name in table.columns or table.swarm}
    if "D" in table.columns or "D1" in how.columns:
        usual.pop("D", None)
    unit = how.unit or (table.swarm.unit if table.swarm else "")
    return table, replace(how, unit=unit, columns={**usual, **how.columns})
