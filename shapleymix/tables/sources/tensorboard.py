"""Folders of TensorBoard events: each folder with event files is a run, called by its path."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
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
    runs = []
    places = event_folders(folder)
    names = dict(zip(places, _names(folder, places), strict=True))
    for place in places:
        name = names[place]
        runs.append(History(name, name, steps=_scalars(place)))
    return sheet_of_histories([run for run in runs if run.steps], os.fspath(folder), "tensorboard")


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
