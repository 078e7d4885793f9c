"""Checkpoints that are whole or not there: weights, optimiser, position in the data and tracker of one step.

Rank 0 gathers all tensors and writes them as one safetensors file, run.json beside it and the checksums of both into a
hidden folder, which a rename makes the checkpoint: whatever `kill -9` leaves is whole or hidden. Any number of ranks
reads it. Nothing that is read back can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix_irds.train.distributed import World
from shapleymix_irds.train.model import sharded_like
from shapleymix_irds.world import put_back

STATE, RECORD, SUMS = "state.safetensors", "run.json", "SHA256SUMS"


def tensors_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`model/NAME` for each parameter, `optimiser/KEY/NAME` for what the optimiser keeps of it; none is copied."""
    put_back(model)  # losses may just have been measured
    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        found[f"model/{name}"] = weight.detach()
        found |= {f"optimiser/{key}/{name}": value for key, value in optimiser.state[weight].items()}
    return found


def steps_in(out: Path) -> list[int]:
    """Steps of the checkpoints of a run, oldest first."""
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-[0-9]*"))


def place_of(out: Path, step: int) -> Path:
    """The folder of a checkpoint."""
    return out / "checkpoints" / f"step-{step:09d}"


def save(out: Path, step: int, tensors: Mapping[str, Tensor], record: Any, world: World, keep: int) -> None:
    """Write the checkpoint of `step` and drop those that are too old; every rank must call.

    Raises
    ------
    UsageError
        On rank 0, if it cannot be written; earlier checkpoints are untouched.
    """
    whole = {}
    for name, tensor in tensors.items():
        values = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if world.main:
            whole[name] = values.cpu().contiguous()
    if world.main:
        goal = place_of(out, step)
        partial = goal.with_name(".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            save_file(whole, partial / STATE)
            (partial / RECORD).write_text(json.dumps(record), encoding="utf-8")
            (partial / SUMS).write_text(sums_of(partial), encoding="ascii")
            for path in (*partial.iterdir(), partial):
                _sync(path)
            shutil.rmtree(goal, ignore_errors=True)  # a broken one
            os.replace(partial, goal)
            _sync(goal.parent)
        except (OSError, SafetensorError) as error:
            raise UsageError(f"cannot be written: {error}", location=Location(file=str(goal))) from error
        for old in [each for each in steps_in(out) if each <= step][:-keep]:
            shutil.rmtree(place_of(out, old), ignore_errors=True)
    world.wait()


def newest(out: Path) -> dict[str, Any] | None:
    """The record of the last checkpoint, or None if there is none; to be called on rank 0.

    Raises
    ------
    StoreError
        If it is not as it was written.
    """
    if not (steps := steps_in(out)):
        return None
    folder = place_of(out, steps[-1])
    try:
        same = (folder / SUMS).read_text(encoding="ascii") == sums_of(folder)
    except (OSError, ValueError):
        same = False
    if not same:
        hint = f"remove {folder.name}, and the run goes on from the checkpoint before it"
        raise StoreError("is not as it was written", location=Location(file=str(folder)), hint=hint)
    return json.loads((folder / RECORD).read_text(encoding="utf-8"))


@torch.no_grad()
def load(out: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Fill the tensors, sharded or not, from the checkpoint of `step`; every rank must call.

    Raises
    ------
    StoreError
        If it is of another model.
    """
    path = place_of(out, step) / STATE
    with safe_open(path, "pt") as file:
        found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        if found != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
            raise StoreError("holds another model", location=Location(file=str(path)))
        for name, tensor in tensors.items():
            tensor.copy_(sharded_like(tensor, file.get_tensor(name)))


def sums_of(folder: Path) -> str:
    """The checksums of a checkpoint's files, as `sha256sum` has them."""
    lines = []
    for name in (RECORD, STATE):
        with (folder / name).open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {name}\n")
    return "".join(lines)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
