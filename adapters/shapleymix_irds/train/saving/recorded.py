"""What a checkpoint says of its run, held against what a run can have: a record of somebody else's is only refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shapleymix.errors import Location, ShapleyMixError, StoreError
from shapleymix.records import FloatArray
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.settings import fields, types


def fault_of(
    meta: Mapping[str, Any], config: TrainConfig, languages: tuple[str, ...], ratios: FloatArray
) -> str | None:
    """What cannot be of this run in the record of a checkpoint, or None."""
    step = meta["step"]
    if not _count(step) or step > config.steps:
        return f"step is {step}, expected 0 to {config.steps}"
    if not _counts(meta["counts"], step * config.batch, ratios):
        return f"counts are not those of {step * config.batch:,} sequences in this mixture"
    if not _rows(meta["rows"], step * config.step_tokens, len(languages)):
        return f"rows are not test losses of {len(languages)} languages up to this step"
    measured = languages if config.irds else ()
    efficiency = meta["efficiency"]
    if set(efficiency) != set(measured) or not all(each is None or _number(each) for each in efficiency.values()):
        return "efficiency is not a number for each language"
    trained = meta["trained_with"]
    if set(trained) != {"ranks", "torch"} or not (_count(trained["ranks"]) and isinstance(trained["torch"], str)):
        return "trained_with is not a number of ranks and a version of torch"
    if (meta["tracker"] is None) == config.irds:
        return "tracker is missing" if config.irds else "tracker is not missing"
    return None


def _count(value: object) -> bool:
    return type(value) is int and value >= 0


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _counts(counts: list[Any], dealt: int, ratios: FloatArray) -> bool:
    """Whether these are sequences of each language that the sampler can have dealt."""
    if len(counts) != len(ratios) or not all(map(_count, counts)) or sum(counts) != dealt:
        return False
    return all(abs(count - due) <= len(counts) for count, due in zip(counts, (ratios * dealt).tolist(), strict=True))


def _rows(rows: list[Any], D: int, languages: int) -> bool:
    """Whether these are rows of a run log, each of more tokens than the one before."""
    if not all(isinstance(row, dict) and set(row) == {"D", "loss"} and _count(row["D"]) for row in rows):
        return False
    sizes = [row["D"] for row in rows]
    if sizes != sorted(set(sizes)) or any(size > D for size in sizes):
        return False
    losses = [row["loss"] for row in rows]
    return all(isinstance(loss, list) and len(loss) == languages and all(map(_number, loss)) for loss in losses)


def config_of(settings: Mapping[str, Any], file: str) -> TrainConfig:
    """The configuration of the run that a record names.

    Raises
    ------
    StoreError
        If it is none.
    """
    defaults = {field.name: field.default for field in fields() if field.metadata["result"]}
    wrong = sorted(defaults.keys() ^ settings.keys())
    wrong += [name for name in defaults.keys() & settings.keys() if not _fits(settings[name], name, defaults[name])]
    if wrong:
        raise StoreError(f"is not the record of a run: setting {wrong[0]!r}", location=Location(file=file))
    try:
        return TrainConfig(**settings)
    except ShapleyMixError as error:
        raise StoreError(f"is not the record of a run: {error.message}", location=Location(file=file)) from error


def _fits(value: object, name: str, default: object) -> bool:
    kind = types()[name]
    return (value is None and default is None) or type(value) is kind or (kind is float and type(value) is int)
