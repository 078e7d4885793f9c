"""Checkpoints that are whole or not there: weights, optimiser, data position and tracker of one step.

Each rank copies what it holds and goes on; a thread of its own writes the copy as a safetensors file (see `shards`),
rank 0's also run.json. Once every rank has written, rank 0 adds the checksums and gives the folder its name by a
rename, so that whatever `kill -9` leaves is either whole or hidden. Nothing that is read back can run code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from shapleymix.errors import Location, StoreError
from shapleymix.files import read_json
from shapleymix_irds.distributed import World
from shapleymix_irds.train.agreement import on_every, on_main
from shapleymix_irds.train.disk import disk_errors
from shapleymix_irds.train.optimisers import Optimiser
from shapleymix_irds.train.saving.checksums import check_file, read_sums, write_sums, write_synced
from shapleymix_irds.train.saving.shards import Block, Reader, Staging, block_of, own_blocks, read_places, write_blocks
from shapleymix_irds.train.saving.tensors import fill, tensors_of

STEP_FOLDER = re.compile(r"step-\d{9,}")
PARTIAL = re.compile(rf"\.{STEP_FOLDER.pattern}")
RECORD = "run.json"
PART = re.compile(r"rank-\d{5,}\.safetensors")
META = {
    "step": int,
    "settings": dict,
    "corpus": str,
    "counts": list,
    "rows": list,
    "efficiency": dict,
    "trained_with": dict,
    "tracker": dict | None,
}


class Flight(NamedTuple):
    """A checkpoint that is being written: its step, and the checksums of this rank's files once they are."""

    step: int
    sums: Future[dict[str, str]]


class Checkpoints:
    """The checkpoints of one run.

    Attributes
    ----------
    sound : list of int
        Steps of those that were written or loaded by this process, and of those before them; oldest first.
    """

    def __init__(self, out: Path, world: World, keep: int) -> None:
        self.folder = out / "checkpoints"
        self.world = world
        self.keep = keep
        self.sound: list[int] = []
        self._staging = Staging()
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._flight: Flight | None = None

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, oldest first."""
        return sorted(int(path.name.removeprefix("step-")) for path in self._named(STEP_FOLDER))

    def _named(self, name: re.Pattern[str]) -> list[Path]:
        """Folders that are called so."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return [path for path in paths if name.fullmatch(path.name) and path.is_dir()]

    def place(self, step: int) -> Path:
        """The folder of a checkpoint."""
        return self.folder / f"step-{step:09d}"

    # -- writing; every rank must call ------------------------------------------------------------------------

    def save(self, step: int, model: nn.Module, optimiser: Optimiser, meta: Callable[[], dict[str, Any]]) -> None:
        """Begin to write the checkpoint of `step`, with what `meta` gives; first the one before it is finished.

        Raises
        ------
        UsageError
            On every rank, if a disk does not take it; earlier checkpoints are untouched.
        """
        self.finish()
        if step in self.sound:
            return
        document: dict[str, Any] = {}
        on_every(self.world, lambda: self._begin(step, meta, document))
        tensors = own_blocks(tensors_of(model, optimiser), self.world)
        blocks = {name: block_of(tensor) for name, tensor in tensors.items()}
        copies = self._staging.copy(tensors)
        self._flight = Flight(step, self._writer.submit(self._write, self._partial(step), copies, blocks, document))

    def settle(self) -> None:
        """Finish the checkpoint that is being written if every rank has written; errors are those of `save`."""
        if self._flight is not None and not self.world.any(not self.written):
            self.finish()

    @property
    def written(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._flight is None or self._flight.sums.done()

    def finish(self) -> None:
        """Wait until the checkpoint that is being written is whole; then drop old ones. Errors are those of `save`."""
        if self._flight is None:
            return
        (step, written), self._flight = self._flight, None
        sums = {name: value for rank in on_every(self.world, written.result) for name, value in rank.items()}
        sound = sorted({*self.sound, step})[-self.keep :]
        on_main(self.world, lambda: self._commit(step, sums, sound))
        self.sound = sound

    def _partial(self, step: int) -> Path:
        return self.folder / f".step-{step:09d}"

    def _begin(self, step: int, meta: Callable[[], dict[str, Any]], document: dict[str, Any]) -> None:
        """Find out what goes beside the tensors, which may write files itself, and make the folder."""
        document |= meta()
        if not self.world.main:
            return
        with disk_errors(self.place(step)):
            shutil.rmtree(self._partial(step), ignore_errors=True)
            self._partial(step).mkdir(parents=True)

    def _write(
        self, partial: Path, copies: dict[str, Tensor], blocks: dict[str, Block], document: dict[str, Any]
    ) -> dict[str, str]:
        """Write the files of this rank, in a thread; their checksums by name."""
        name = f"rank-{self.world.rank:05d}.safetensors"
        with disk_errors(partial / name):
            sums = {name: write_blocks(partial / name, copies, blocks)}
        if self.world.main:
            with disk_errors(partial / RECORD):
                sums[RECORD] = write_synced(partial / RECORD, json.dumps(document))
        return sums

    def _commit(self, step: int, sums: dict[str, str], sound: list[int]) -> None:
        """Give the folder its name, in place of a broken one if need be; drop those up to it that are not kept."""
        goal, partial = self.place(step), self._partial(step)
        with disk_errors(goal):
            write_sums(partial, sums)
            shutil.rmtree(goal, ignore_errors=True)
            os.replace(partial, goal)
            _sync_folder(self.folder)
        for old in self.steps():
            if old < step and old not in sound:
                shutil.rmtree(self.place(old), ignore_errors=True)

    # -- reading; every rank must call ------------------------------------------------------------------------

    def found(self) -> list[int]:
        """The same as `steps` on every rank; what is left of checkpoints that were not finished is removed."""
        return on_main(self.world, self._tidied)

    def _tidied(self) -> list[int]:
        for partial in self._named(PARTIAL):
            shutil.rmtree(partial, ignore_errors=True)
        return self.steps()

    def meta(self, step: int) -> dict[str, Any]:
        """What was saved beside the tensors of `step`.

        Raises
        ------
        StoreError
            On every rank, if it is not as it was written.
        """
        return on_main(self.world, lambda: _record(self.place(step)))

    def load(self, step: int, model: nn.Module, optimiser: Optimiser) -> None:
        """Fill the model and the optimiser from the checkpoint of `step`, which counts as sound from then on.

        Raises
        ------
        StoreError
            On every rank, if a file is not as it was written, or of another model. What has been filled is of no use
            then.
        """
        folder, reader = self.place(step), self.reader(step)
        on_every(self.world, lambda: fill(model, optimiser, reader, folder))
        self.sound = [old for old in self.steps() if old <= step]

    def reader(self, step: int) -> Reader:
        """What reads the tensors of `step`, once its files are seen to be as they were written.

        Raises
        ------
        StoreError
            On every rank, if one is not.
        """
        folder = self.place(step)
        shares = on_every(self.world, lambda: _checked(folder, self.world))
        return Reader(folder, {file: blocks for share in shares for file, blocks in share.items()})

    def clear(self) -> None:
        """Remove all checkpoints, and what is left of one that was not finished."""
        for path in (*self._named(STEP_FOLDER), *self._named(PARTIAL)):
            with disk_errors(path):
                shutil.rmtree(path)


def _record(folder: Path) -> dict[str, Any]:
    """What run.json holds."""
    check_file(folder, RECORD, read_sums(folder))
    document = read_json(folder / RECORD)
    known = document if isinstance(document, dict) else {}
    if wrong := [name for name, kind in META.items() if not isinstance(known.get(name, ...), kind)]:
        message = f"is not the record of a run: {wrong[0]!r} is missing or wrong"
        raise StoreError(message, location=Location(file=str(folder / RECORD)))
    return known


def _checked(folder: Path, world: World) -> dict[str, dict[str, Block]]:
    """What this rank's share of the files holds, once they are seen to be as they were written."""
    sums = read_sums(folder)
    names = [name for name in sums if PART.fullmatch(name)]
    found = {}
    for name in names[world.rank :: world.size]:
        check_file(folder, name, sums)
        found[name] = read_places(folder / name)
    return found


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
