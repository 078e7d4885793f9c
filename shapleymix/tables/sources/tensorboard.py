"""Folders of TensorBoard events: each folder with event files is a run, called by its path.

`SummaryWriter.add_scalars("eval/loss", {"en": ..., "de": ...})` makes a folder for each of its lines below that of the
run, `eval_loss_en`, which holds `eval/loss` alone: these are no runs, but metrics of it, `eval/loss/en`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from shapleymix.tables.sheets import Sheet
from shapleymix.tables.sources.histories import History, installed, sheet_of_histories

_EVENTS = "events.out.tfevents."
_VERSION = re.compile(r"version_\d+")


def event_folders(folder: Path) -> list[Path]:
    """The folders that hold event files, in order."""
    return sorted(Path(place) for place, _, files in os.walk(folder) if any(_EVENTS in name for name in files))


def read_tensorboard(folder: Path) -> Sheet:
    """Every scalar of every run below a folder, none left out; of one that was logged twice at a step, the last."""
    scalars = {place: _scalars(place) for place in event_folders(folder)}
    lines = {place: line for place in scalars if (line := _line_of(place, scalars)) is not None}
    for place, (tag, line) in lines.items():
        for step, numbers in scalars[place].items():
            scalars[place.parent].setdefault(step, {})[line] = numbers[tag]
    runs = []
    places = [place for place in scalars if place not in lines]
    for place, name in zip(places, _names(folder, places), strict=True):
        runs.append(History(name, name, steps=scalars[place]))
    return sheet_of_histories([run for run in runs if run.steps], os.fspath(folder), "tensorboard")


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
