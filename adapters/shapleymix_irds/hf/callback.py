"""What a trainer tells the tracker: the state in a checkpoint, losses, results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

from transformers.trainer_callback import ExportableState, TrainerCallback

from shapleymix.errors import caution
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.record import Kind
from shapleymix_irds.tracker import IRDS

NAME = "IRDSCallback"  # under which a checkpoint's `trainer_state.json` has the tracker's state
FILES: dict[str, Kind] = {"sv_raw.csv": "raw", "sv.csv": "calibrated"}


class Tracked(Protocol):
    """A trainer with a tracker, as its callback knows it."""

    tracker: IRDS | None

    def start_tracking(self) -> None: ...
    def measure(self) -> None: ...
    @property
    def results(self) -> Path: ...
    def log(self, logs: dict[str, float]) -> None: ...


class IRDSCallback(TrainerCallback, ExportableState):
    """Keeps a tracker in step with its trainer; `callback_of` makes one.

    Its state goes into `trainer_state.json`, which a checkpoint gets together with the number of its step.
    """

    trainer: Tracked

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self.saved: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """The tracker's state, as JSON takes it."""
        tracker = self.trainer.tracker
        return {"args": {}, "attributes": {"saved": None if tracker is None else tracker.state_dict()}}

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Model and optimiser are wrapped and loaded."""
        self.trainer.start_tracking()

    def on_evaluate(self, *_: object, metrics: dict[str, float], **__: object) -> None:
        """Measure the loss drop so far; without validation sequences take it from evaluation sets by language."""
        tracker = self.trainer.tracker
        if tracker is None:
            return
        if tracker.validation is not None:
            self.trainer.measure()
            return
        keys = {name: f"eval_{name}_loss" for name in tracker.languages}
        self.found |= {name: metrics[key] for name, key in keys.items() if key in metrics}
        if len(self.found) == len(keys):
            tracker.record_losses(self.found)
            self.found = {}

    def on_train_end(self, *_: object, **__: object) -> None:
        """Measure the losses for the last time, and write the matrix."""
        tracker = self.trainer.tracker
        if tracker is None or tracker.steps == 0:
            return
        tracker.unfollow()
        if tracker.validation is not None:
            self.trainer.measure()
        for name, kind in FILES.items():
            write(tracker, self.trainer.results / name, kind)


def write(tracker: IRDS, path: Path, kind: Kind) -> None:
    """Write a matrix; where there is none, say why, since an error would cost the trained model."""
    if tracker.world.main:
        for old in (path, path.with_name(f"{path.name}.json")):
            old.unlink(missing_ok=True)
    try:
        tracker.save(path, kind, force=True)
    except TrackerError as error:
        if tracker.world.main:
            caution([f"{path.name} was not written: {error}"])


def efficiency(tracker: IRDS) -> dict[str, float]:
    """The efficiency ratios that are known, as a trainer logs them."""
    ratios = zip(tracker.languages, tracker.efficiency.tolist(), strict=True)
    return {f"irds_efficiency_{name}": ratio for name, ratio in ratios if math.isfinite(ratio)}


def progress(tracker: IRDS) -> dict[str, float]:
    """Evaluations so far and the share of time that they added, where it is known."""
    known = {"irds_evaluations": float(tracker.ledger.count), "irds_overhead": tracker.overhead}
    return {name: value for name, value in known.items() if math.isfinite(value)}


def callback_of(trainer: Tracked) -> IRDSCallback:
    """The callback of one trainer, whose class knows it: a trainer that restores callbacks makes new ones by class."""
    return type(NAME, (IRDSCallback,), {"trainer": trainer})()
