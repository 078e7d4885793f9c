"""Checkpoints that are whole or not there: weights, optimiser, data position and tracker of one step.

Tensors go through torch.distributed.checkpoint (any number of ranks may read what another number wrote), all
else into run.json beside them; no object is pickled by us. A folder gets its name by a rename after every
rank has written, so whatever `kill -9` leaves is either whole or hidden.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix.files import read_json
from shapleymix_irds.distributed import World
from shapleymix_irds.train.disk import disk_errors
from shapleymix_irds.train.optimisers import Optimiser
from shapleymix_irds.wrappers import put_back, tidy

LOCK = ".lock"  # held by the process that trains in a folder
STEP_FOLDER = re.compile(r"step-(\d{9,})")
META = {"step": int, "settings": dict, "corpus": str, "counts": list, "rows": list, "tracker": dict | None}
INDEX = ".metadata"  # torch's, of the tensors
BROKEN = "delete the folder {}: the run continues from the checkpoint before it"
SLACK = 16 << 20  # bytes for logs and tables


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, out: Path, world: World, keep: int) -> None:
        self.folder = out / "checkpoints"
        self.world = world
        self.keep = keep

    def steps(self) -> list[int]:
        """Steps of the whole checkpoints, oldest first."""
        names = [path.name for path in self.folder.glob("step-*") if path.is_dir()]
        return sorted(int(found[1]) for name in names if (found := STEP_FOLDER.fullmatch(name)))

    def save(self, step: int, model: nn.Module, optimiser: Optimiser, meta: dict[str, Any]) -> None:
        """Write the checkpoint of `step`, then drop the oldest.

        Raises
        ------
        UsageError
            If the disk does not take it; earlier checkpoints are untouched.
        """
        partial, goal = self.folder / f".step-{step:09d}", self.folder / f"step-{step:09d}"
        with disk_errors(goal):
            if self.world.main and not goal.exists():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                _write_synced(partial / "run.json", json.dumps(meta))
            self.world.wait()
            if goal.exists():
                return
            _save_tensors(partial, tensors_of(model, optimiser), self.world)
            self.world.wait()
            if self.world.main:
                os.replace(partial, goal)
                self._drop_old()
        self.world.wait()

    def meta(self, step: int) -> dict[str, Any]:
        """What was saved beside the tensors of `step`.

        Raises
        ------
        StoreError
            If it is not whole.
        """
        path = self.folder / f"step-{step:09d}" / "run.json"
        try:
            document = read_json(path)
        except StoreError as error:
            raise StoreError(error.message, location=error.location, hint=BROKEN.format(path.parent)) from error
        known = document if isinstance(document, dict) else {}
        if wrong := [name for name, kind in META.items() if not isinstance(known.get(name, ...), kind)]:
            message = f"is not the record of a run: {wrong[0]!r} is missing or wrong"
            raise StoreError(message, location=Location(file=str(path)), hint=BROKEN.format(path.parent))
        return known

    def load(self, step: int, model: nn.Module, optimiser: Optimiser) -> None:
        """Fill the model and the optimiser from the checkpoint of `step`.

        Raises
        ------
        StoreError
            If the files are broken or of another model.
        """
        place = self.folder / f"step-{step:09d}"
        if not (place / INDEX).is_file():
            hint = BROKEN.format(place)
            raise StoreError("there is no such file", location=Location(file=str(place / INDEX)), hint=hint)
        state = tensors_of(model, optimiser)
        try:
            with _quiet():
                load(state, checkpoint_id=str(place), no_dist=self.world.size == 1)
        except (Exception, CheckpointException) as error:  # torch raises many kinds; its own is no Exception
            message = f"cannot be loaded: {_last_line(error)}"
            raise StoreError(message, location=Location(file=str(place)), hint=BROKEN.format(place)) from error

    def clear(self) -> None:
        """Remove all checkpoints, and what is left of one that was not finished."""
        for path in (*self.folder.glob("step-*"), *self.folder.glob(".step-*")):
            with disk_errors(path):
                shutil.rmtree(path)

    def _drop_old(self) -> None:
        for step in self.steps()[: -self.keep]:
            shutil.rmtree(self.folder / f"step-{step:09d}", ignore_errors=True)


def tensors_of(model: nn.Module, optimiser: Optimiser) -> dict[str, dict[str, Tensor]]:
    """Weights and the optimiser's state by parameter name, not copied: what is loaded into them is theirs."""
    put_back(model)  # losses may just have been measured
    weights = {tidy(name): weight.detach() for name, weight in model.named_parameters()}
    return {"model": weights, **optimiser.state(model)}


def tensor_bytes(model: nn.Module, optimiser: Optimiser) -> int:
    """What the tensors of a checkpoint take, those of all ranks together."""
    tensors = [each for group in tensors_of(model, optimiser).values() for each in group.values()]
    return sum(each.numel() * each.element_size() for each in tensors)


def check_folder(out: Path, needed: int) -> None:
    """Make the folder and try it: writable, and with room for `needed` bytes of checkpoints.

    Raises
    ------
    UsageError
        If it is not.
    """
    if file := next((path for path in (out, *out.parents) if path.exists() and not path.is_dir()), None):
        parent = "" if file == out else f" of {out}"
        message = f"is a file, expected a folder{parent}"
        raise UsageError(message, location=Location(file=str(file)), hint="give --out a folder")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out, prefix=".try-")
        os.close(handle)
        os.unlink(name)
        free = shutil.disk_usage(out).free
    if free < needed + SLACK:
        message = f"has {free / 1e9:.3g} GB free; checkpoints and logs need {(needed + SLACK) / 1e9:.3g} GB"
        raise UsageError(message, location=Location(file=str(out)), hint="choose another --out, or --keep 1")


@contextlib.contextmanager
def locked(out: Path, world: World) -> Iterator[None]:
    """Within, no other process is; the lock ends with the process, however it dies. Where the file system knows no
    locks there is none.

    Raises
    ------
    UsageError
        On all ranks, if another process holds the folder.
    """
    with contextlib.ExitStack() as stack:
        taken = False
        if world.main:
            with disk_errors(out / LOCK):
                stream = stack.enter_context((out / LOCK).open("a"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken = True
            except OSError:
                pass
        if world.table(torch.tensor([float(taken)])).any():
            hint = "wait for it to end, or choose another --out"
            raise UsageError("another process trains in this folder", location=Location(file=str(out)), hint=hint)
        yield


def _save_tensors(folder: Path, state: dict[str, Any], world: World) -> None:
    try:
        with _quiet():
            save(state, checkpoint_id=str(folder), no_dist=world.size == 1)
    except CheckpointException as error:  # what a rank met, wrapped
        raise OSError(0, _last_line(error)) from error


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notes on its own future to whoever saves without ranks, and the tracebacks that it logs before
    it raises what they are of."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
