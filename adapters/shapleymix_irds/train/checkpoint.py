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


def save(
    out: Path, step: int, tensors: Mapping[str, Tensor], record: Mapping[str, Any], world: World, keep: int
) -> None:
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
            write_sums(partial)
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
    check_sums(folder)
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


def write_sums(folder: Path) -> None:
    """Write the checksums of a folder's files, as `sha256sum` has them, and all of it through to the disk."""
    files = sorted(folder.iterdir())
    lines = [f"{_digest(path)}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="ascii")
    for path in (*files, folder / SUMS, folder):
        _sync(path)


def check_sums(folder: Path) -> None:
    """See that the files of a folder are as they were written.

    Raises
    ------
    StoreError
        Naming the first that is not.
    """
    path = folder / SUMS
    try:
        sums = dict(line.split("  ", 1)[::-1] for line in path.read_text(encoding="ascii").splitlines())
        for path in (folder / STATE, folder / RECORD):
            if _digest(path) != sums[path.name]:
                raise ValueError("its checksum differs")
    except (OSError, ValueError, KeyError) as error:
        hint = f"remove {folder.name}, and the run goes on from the checkpoint before it"
        place = Location(file=str(path))
        raise StoreError(f"is not as it was written: {error}", location=place, hint=hint) from error


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
