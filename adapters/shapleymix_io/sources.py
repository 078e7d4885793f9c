"""Any source as a table: a file, a folder, a database or a server; and tables with a row a run, joined to it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from shapleymix.display import short
from shapleymix.errors import DataError, Location, did_you_mean
from shapleymix.files import Origin, read_once
from shapleymix.tables.sheets import PARQUET, parquet_of, text_of
from shapleymix.tables.words import format_size, parse_size
from shapleymix_io import readers
from shapleymix_io.proposing import scores_said, unit_said
from shapleymix_io.table import FILE, HIDDEN, LINE, Swarm, Table, flat, loaded, parse_csv, parse_json, table_of

Source = str | os.PathLike[str] | pl.DataFrame
Config = tuple[dict[str, Any], Origin]
"""What a configuration of olmix says, and its file."""
IDS = ("run", "run_id")
"""Names under which a joined table may hold the ids of runs."""
_ID = f"{HIDDEN}id"
_HOLDS = "a folder may hold TensorBoard events, MLflow's runs, or the ratios.csv and metrics.csv of olmix"
_YAML, _JSON = (".yaml", ".yml"), r"(meta|metadata|\d{8}_\d{6}-\w+)\.json"
"""How olmix's configurations end, and what a published swarm has in place of one, and `olmix launch` leaves."""
_TOKENS_PER_PARAMETER, _ROUNDED = 20.0, 1.1
"""olmix trains a proxy on so many tokens for each parameter, times `chinchilla_multiple`; and by what factor sizes of
one swarm may differ, since names of models round them."""
_NO_NUMBERS = ("name", "index", "column 1", "Unnamed: 0")
"""Columns of olmix's tables that are no numbers of a run; the last two are an index of pandas, whose name is empty."""


def opened(sources: Sequence[Source]) -> Table:
    """Tables that are read in one way, as one.

    Raises
    ------
    DataError
        If there is nothing to be read, it is no table, or tables are of different kinds.
    """
    if not sources:
        raise DataError("there is nothing to be read")
    names = ["" if isinstance(one, pl.DataFrame) else os.fsdecode(one) for one in sources]
    configs = {name: _config(Path(name)) for name in names if Path(name).suffix in _YAML}
    beside = {name: one for name, one in configs.items() if "ratios" not in _part(one[0], "swarm")}
    others = [one for one, name in zip(sources, names, strict=True) if name not in beside]
    tables = readers.told_apart([_opened(one, [*beside.values()]) for one in others])
    if beside and {one.kind for one in tables} != {readers.OLMIX}:
        hint = "give the configuration of olmix fit, or the folder that holds ratios.csv and metrics.csv"
        raise DataError("names no ratios and metrics of a swarm", location=Location(next(iter(beside))), hint=hint)
    first = tables[0]
    for other in tables[1:]:
        if other.kind != first.kind:
            hint = "import each kind by itself, and give the run logs to one fit"
            message = f"is {other.kind or 'a table'}, and {first.origin} is {first.kind or 'a table'}"
            raise DataError(message, location=Location(other.origin), hint=hint)
    frames = [one.frame.with_columns(pl.lit(one.origin).alias(FILE)) for one in tables]
    frame = pl.concat(frames, how="diagonal_relaxed") if tables[1:] else first.frame
    notices = tuple(dict.fromkeys(notice for one in tables for notice in one.notices))
    origin = first.origin if len(tables) == 1 else f"{first.origin} and {len(tables) - 1} more"
    files = tuple(file for one in tables for file in one.files)
    return replace(first, frame=frame, origin=origin, notices=notices, files=files)


def _opened(source: Source, beside: Sequence[Config]) -> Table:
    if isinstance(source, pl.DataFrame):
        return read_table(source)
    name = os.fsdecode(source)
    if name.startswith(readers.WANDB_ADDRESS):
        return readers.read_wandb(name)
    if name.startswith(readers.MLFLOW_ADDRESSES):
        return readers.read_mlflow(name)
    base, _, experiment = name.partition("#")
    path = Path(base if os.path.exists(base) and not os.path.exists(name) else name)
    if address := readers.store_of(path):
        return readers.read_mlflow(f"{address}#{experiment}", os.fspath(path))
    if path.suffix in _YAML:
        config, origin = _config(path)
        named = [str(_part(config, "swarm").get(name, f"{name}.csv")) for name in ("ratios", "metrics")]
        # as the configuration names them: from the working folder, as for olmix, or beside the configuration
        ratios, metrics = (Path(one) if Path(one).is_file() else path.parent / Path(one).name for one in named)
        return _swarm(config, [(config, origin), *beside], ratios, metrics)
    return _folder(path, beside) if path.is_dir() else read_table(name)


def _folder(folder: Path, beside: Sequence[Config]) -> Table:
    if readers.event_folders(folder):
        return readers.read_tensorboard(folder)
    ratios, metrics, place = folder / "ratios.csv", folder / "metrics.csv", Location(os.fspath(folder))
    if not (ratios.is_file() and metrics.is_file()):
        raise DataError("is a folder that holds no runs", location=place, hint=_HOLDS)
    paths = [one for one in sorted(folder.iterdir()) if one.suffix in _YAML or re.fullmatch(_JSON, one.name)]
    known = [_config(path) for path in paths]
    fits = [one for one in known if "ratios" in _part(one[0], "swarm")]
    found = fits or [one for one in known if "priors" in one[0]]
    if len(found) > 1:
        message = f"holds {len(found)} configurations: {', '.join(Path(origin.file).name for _, origin in found)}"
        raise DataError(message, location=place, hint=f"name the one that is meant: {found[0][1].file}")
    return _swarm(found[0][0] if found else {}, [*beside, *known], ratios, metrics)


def _config(path: Path) -> Config:
    """What a file of olmix says; a `meta.json` is its priors alone, and what a launch leaves holds its settings."""
    data, origin = read_once(path)
    try:
        found = yaml.safe_load(data) if path.suffix in _YAML else json.loads(data)
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"is not valid YAML or JSON: {error}", location=Location(origin.file)) from error
    found = found if isinstance(found, dict) else {}
    return ({"priors": found} if "token_counts" in found else found | _part(found, "config")), origin


def _swarm(config: Mapping[str, Any], configs: Sequence[Config], ratios: Path, metrics: Path) -> Table:
    """The runs of olmix's two tables, joined by their ids (olmix itself takes rows in order), and what it is asked.

    Metrics are those of the tasks that the configuration names, and means over families of these where it fits such.
    Sizes and tokens of the runs are what any of the configurations says.
    """
    tasks, dropped = _part(config, "eval").get("tasks") or {}, _part(config, "filtering").get("drop_metrics") or []
    families = {name: list(one.values() if isinstance(one, dict) else one) for name, one in tasks.items()}
    p, measured = _olmix(ratios), _olmix(metrics)
    named = [one for names in families.values() for one in names] or measured.columns[1:]
    kept = [one for one in named if one in measured.columns and one not in dropped]
    whole = families and _part(config, "regression").get("aggregate_task_families")
    apart = {name: [one for one in names if one in kept] for name, names in families.items()}
    parts = apart if whole else {one: [one] for one in kept}
    numbers = measured.frame.with_columns(measured.numbers(one).alias(one) for one in kept)
    measured.raise_faults()
    means = [pl.mean_horizontal(of, ignore_nulls=False).alias(f"metrics:{name}") for name, of in parts.items() if of]
    p = replace(p, frame=p.frame.rename({one: f"ratios:{_leaf(one)}" for one in p.columns[1:]}))
    table = joined(replace(measured, frame=numbers.select("run", *means, LINE)), p, "run")
    files, notices = (*table.files, *(origin for _, origin in configs)), table.notices
    if lost := [one for one in named if one not in (*kept, *dropped)]:
        notices = (*notices, f"tasks of the configuration are left out, without a column in {metrics}: {short(lost)}")
    # olmix's own evaluations, offline and in the loop, are bits a byte
    if "eval" in config and (scores := scores_said(kept)):
        message, hint = f"holds scores, not losses: {short(scores)}", "name them in filtering.drop_metrics"
        raise DataError(message, location=Location(measured.origin), hint=hint)
    unit = unit_said(kept, "bpb" if "eval" in config else "")
    swarm = replace(
        _swarm_of(config, {} if whole else apart, [name for name, of in parts.items() if of]),
        **_sizes(configs),
        unit=unit,
    )
    return replace(table, kind=readers.OLMIX, files=files, notices=notices, swarm=swarm)


def _sizes(configs: Sequence[Config]) -> dict[str, float]:
    """Parameters and tokens of the runs, where configurations say them: `max_tokens` itself, or a model by its name."""
    said: dict[str, list[tuple[float, str]]] = {"N": [], "D": []}
    for config, origin in configs:
        own = {**config, **_part(config, "training")}
        named = re.search(r"_(\d+[kmb])(?![a-z\d])", str(own.get("proxy_model_id")).lower())
        N = parse_size(named[1]) if named else math.nan
        D = _TOKENS_PER_PARAMETER * N * parse_size(own.get("chinchilla_multiple", 1.0), "chinchilla_multiple")
        said["N"].append((N, origin.file))
        exact = own.get("max_tokens")
        said["D"].insert(0 if exact else len(configs), (parse_size(exact, "max_tokens") if exact else D, origin.file))
    sizes: dict[str, float] = {}
    for key, found in said.items():
        known = [one for one in found if one[0] == one[0]]
        (least, _), (most, place) = min(known, default=(0.0, "")), max(known, default=(0.0, ""))
        if most > _ROUNDED * least:
            first = min(known)[1]
            message = f"says {key} = {format_size(most)} of the proxies, and {first} says {format_size(least)}"
            raise DataError(message, location=Location(place), hint="keep the configurations of these runs alone")
        sizes |= {key: known[0][0]} if known else {}
    return sizes


def _part(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _leaf(name: str) -> str:
    """A leaf `dclm:art` of olmix as a part of a parent is called here: `dclm/art`."""
    return name.replace(":", "/")


def _olmix(path: Source) -> Table:
    """One of the two tables of olmix, with the ids first, as `run`, and without what is no number of a run."""
    table = read_table(path)
    key = _key(table)
    columns = [one for one in table.columns if one not in (key, *_NO_NUMBERS)]
    return replace(table, frame=table.frame.select(pl.col(key).alias("run"), *columns, LINE))


def _swarm_of(config: Mapping[str, Any], apart: Mapping[str, Sequence[str]], targets: Sequence[str]) -> Swarm:
    """The priors of a configuration, and its constraints, pull and weights as options of `optimize`.

    The weight of a family whose metrics stay `apart` goes to them evenly; olmix itself passes over it. Where some
    targets have weights, the others have 1, as in olmix.
    """
    priors, limits, picked = (_part(config, name) for name in ("priors", "constraints", "filtering"))
    tokens, prior = (_numbers(priors.get(name)) for name in ("token_counts", "relative_sizes"))
    limited = limits.get("enabled") and limits.get("target_tokens")
    options = {"--max-epochs": f"{limits.get('repetition_factor', 5):g}"} if limited else {}
    weights: dict[str, float] = {}
    for name, weight in _numbers(picked.get("obj_weights"), str).items():
        for one in (members := apart.get(name, [name])):
            weights[one] = weights.get(one, 0.0) + weight / len(members)
    weights = {one: weights.get(one, 1.0) for one in targets} if weights else {}
    for option, found in (("--weights", weights), ("--fix", _numbers(picked.get("fixed_weight")))):
        if found:
            options[option] = ",".join(f"{label}={value:.6g}" for label, value in found.items())
    kl = float(_part(config, "proposer").get("kl_reg") or 0)
    target = float(limits["target_tokens"]) if limited else math.nan
    return Swarm(tokens, prior, target, kl, options)


def _numbers(given: Mapping[str, Any] | None, called: Callable[[str], str] = _leaf) -> dict[str, float]:
    """Numbers by leaf, or as they are `called`; olmix also takes fractions such as `7/52.0`."""
    parts = {called(name): str(value).split("/") for name, value in (given or {}).items()}
    return {name: math.prod([float(top), *(1 / float(one) for one in below)]) for name, (top, *below) in parts.items()}


def read_table(source: Source) -> Table:
    """The table in a frame or a file: CSV, Parquet, JSON (packed or not), or what a trainer left.

    Raises
    ------
    DataError
        If the file cannot be read, or holds no table.
    """
    if isinstance(source, pl.DataFrame):
        return _framed(source, "<frame>")
    data, origin = read_once(source)
    table = _parsed(data, origin)
    if not table.frame.height:
        raise DataError("is a table without rows", location=Location(origin.file))
    return replace(table, files=(origin,))


def _parsed(data: bytes, origin: Origin) -> Table:
    if data[:4] == PARQUET:
        return _framed(parquet_of(data, origin), origin.file)
    text = text_of(data, origin)
    if '"log_history"' in text:
        return readers.read_state(loaded(text, origin.file), origin.file)
    if text.lstrip().startswith(("{", "[")):
        return parse_json(text, origin)
    return readers.read_megatron(text, origin.file) if readers.is_megatron(text) else parse_csv(text, origin)


def _framed(frame: pl.DataFrame, origin: str) -> Table:
    """A frame as a table; what is nested in a cell becomes columns such as `config.lr`."""
    if any(dtype.is_nested() for dtype in frame.dtypes):
        return table_of([flat(row) for row in frame.to_dicts()], origin)
    return Table(frame.with_columns(pl.lit(None, pl.Int64).alias(LINE)), origin)


def joined(main: Table, other: Table, run: str | None) -> Table:
    """The table with the columns of a table beside its own; one that both have is called `table:column`.

    Parameters
    ----------
    main : Table
        A row for each measurement; the ids of its runs may repeat.
    other : Table
        A row for each run.
    run : str, optional
        The column with the ids, where it is not called `run`.

    Raises
    ------
    DataError
        If a table has no ids, one of them twice, or lacks a run of the first table.
    """
    here, there = _key(main, run), _key(other, run)
    ids = other.texts(there)
    for name in ids.filter(ids.is_duplicated()).unique():
        other.fault(f"has run {name!r} twice", there)
    other.raise_faults()
    known, wanted = set(ids), main.texts(here)
    for row, name in enumerate(wanted):
        if name not in known:
            known.add(name)
            hint = did_you_mean(str(name), [one for one in ids if one])
            main.fault(f"run {name!r} is not in {other.origin}", here, row, hint)
    main.raise_faults()
    stem, line = Path(other.origin).name.split(".")[0], f"{LINE}{len(main.frame.columns)}"
    taken = set(main.columns)
    names = {name: f"{stem}:{name}" if name in taken else name for name in other.columns if name != there}
    beside = other.frame.select(ids.alias(_ID), *(pl.col(old).alias(new) for old, new in names.items()))
    beside = beside.with_columns(other.frame[LINE].alias(line))
    frame = main.frame.with_columns(wanted.alias(_ID)).join(beside, on=_ID, how="left", maintain_order="left")
    homes = {new: (other.origin, old, line) for old, new in names.items()}
    notices, files = (*main.notices, *other.notices), (*main.files, *other.files)
    if unused := sorted(map(str, set(ids) - set(wanted))):
        notices += (f"{len(unused)} runs of {other.origin} are left out, not in {main.origin}: {short(unused)}",)
    return replace(main, frame=frame.drop(_ID), notices=notices, files=files, homes={**main.homes, **homes})


def _key(table: Table, run: str | None = None) -> str:
    """The column with the ids of runs."""
    names = [run, *IDS] if run else list(IDS)
    found = [name for name in names if name in table.columns]
    if not found:
        table.unknown(names[0], "the ids of runs, by which tables are joined")
        table.raise_faults()
    return found[0]
