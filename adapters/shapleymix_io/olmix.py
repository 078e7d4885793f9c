"""A swarm of olmix: its two tables, joined by their ids, and what its configurations say of it and ask."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from shapleymix.display import short
from shapleymix.errors import DataError, Location
from shapleymix.files import Origin
from shapleymix.tables.words import format_size, parse_size
from shapleymix_io.forms import Source, read_settings, read_table
from shapleymix_io.names import scores_said, unit_said
from shapleymix_io.table import IDS, LINE, Swarm, Table, join_tables

Config = tuple[dict[str, Any], Origin]
"""What a configuration of olmix says, and its file."""
OLMIX = "olmix"
YAML, _JSON = (".yaml", ".yml"), r"(meta|metadata|\d{8}_\d{6}-\w+)\.json"
"""How olmix's configurations end, and what a published swarm has in place of one, and `olmix launch` leaves."""
_TOKENS_PER_PARAMETER, _ROUNDED = 20.0, 1.1
"""olmix trains a proxy on so many tokens for each parameter, times `chinchilla_multiple`; and by what factor sizes of
one swarm may differ, since names of models round them."""
_NO_NUMBERS = ("name", "index", "column 1", "Unnamed: 0")
"""Columns of olmix's tables that are no numbers of a run; the last two are an index of pandas, whose name is empty."""


def read_config(path: Path) -> Config:
    """What a file of olmix says; a `meta.json` is its priors alone, and what a launch leaves holds its settings."""
    found, origin = read_settings(path)
    return ({"priors": found} if "token_counts" in found else found | _part(found, "config")), origin


def is_question(config: Mapping[str, Any]) -> bool:
    """Whether a configuration names the two tables of a swarm, as that of `olmix fit` does."""
    return "ratios" in _part(config, "swarm")


def read_named(path: Path, beside: Sequence[Config]) -> Table:
    """The swarm whose tables a configuration names, from the working folder, as for olmix, or beside itself."""
    config, origin = read_config(path)
    named = [str(_part(config, "swarm").get(name, f"{name}.csv")) for name in ("ratios", "metrics")]
    ratios, metrics = (Path(one) if Path(one).is_file() else path.parent / Path(one).name for one in named)
    return _swarm(config, [(config, origin), *beside], ratios, metrics)


def read_folder(folder: Path, beside: Sequence[Config]) -> Table:
    """The swarm of a folder that holds `ratios.csv` and `metrics.csv`.

    Raises
    ------
    DataError
        If several configurations are beside them, of which each would ask another question.
    """
    paths = [one for one in sorted(folder.iterdir()) if one.suffix in YAML or re.fullmatch(_JSON, one.name)]
    known = [read_config(path) for path in paths]
    found = [one for one in known if is_question(one[0])] or [one for one in known if "priors" in one[0]]
    if len(found) > 1:
        message = f"holds several configurations, name one: {', '.join(origin.file for _, origin in found)}"
        raise DataError(message, location=Location(os.fspath(folder)))
    return _swarm(found[0][0] if found else {}, [*beside, *known], folder / "ratios.csv", folder / "metrics.csv")


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
    p = replace(p, frame=p.frame.rename({one: _leaf(one) for one in p.columns[1:]}))
    table = join_tables(replace(measured, frame=numbers.select("run", *means, LINE)), p, "run")
    files, notices = (*table.files, *(origin for _, origin in configs)), table.notices
    if lost := [one for one in named if one not in (*kept, *dropped)]:
        notices = (*notices, f"tasks of the configuration are left out, without a column in {metrics}: {short(lost)}")
    # olmix's own evaluations, offline and in the loop, are bits a byte
    if "eval" in config and (scores := scores_said(kept)):
        message, hint = f"holds scores, not losses: {short(scores)}", "name them in filtering.drop_metrics"
        raise DataError(message, location=Location(measured.origin), hint=hint)
    unit = unit_said(kept, "bpb" if "eval" in config else "")
    asked = _swarm_of(config, {} if whole else apart, [name for name, of in parts.items() if of])
    swarm = replace(asked, **_sizes(configs), unit=unit)
    usual = {"run": "run", "p": f"{ratios.name.split('.')[0]}:{{lang}}", "loss": "metrics:{lang}"}
    usual |= {key: f"{size:.0f}" for key, size in (("N", swarm.N), ("D", swarm.D)) if size == size}
    return replace(table, kind=OLMIX, usual=usual, files=files, notices=notices, swarm=swarm)


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
        (least, first), (most, place) = min(known, default=(0.0, "")), max(known, default=(0.0, ""))
        if most > _ROUNDED * least:
            message = (
                f"says {key} = {format_size(most)} where {first} says {format_size(least)}: keep those of these runs"
            )
            raise DataError(message, location=Location(place))
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
    key = next((name for name in IDS if name in table.columns), IDS[0])
    table.need([key], "the ids of runs")
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
