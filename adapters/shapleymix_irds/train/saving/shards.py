"""One rank's part of a checkpoint: a safetensors file of the blocks that it holds, read back by any number of ranks.

Each rank writes the blocks that it alone holds, and its share of those of which ranks hold copies. The file's header
says where in the whole tensor each block lies, so that nothing but JSON and plain numbers is ever read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from shapleymix.errors import Location, StoreError
from shapleymix_irds.distributed import World, local

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
PLACES = "places"  # the name under which a header tells where blocks lie
Sizes = tuple[int, ...]


class Block(NamedTuple):
    """A block of a tensor: the tensor's sizes, where the block begins, its sizes, and its kind of numbers."""

    whole: Sizes
    start: Sizes
    sizes: Sizes
    code: str

    def overlap(self, other: Block) -> tuple[slice, ...] | None:
        """The part of this block that lies in the other, as slices of this one; None if there is none."""
        sides = []
        for start, size, begin, length in zip(self.start, self.sizes, other.start, other.sizes, strict=True):
            first, last = max(start, begin), min(start + size, begin + length)
            if first >= last:
                return None
            sides.append(slice(first - start, last - start))
        return tuple(sides)


def block_of(tensor: Tensor) -> Block:
    """Which block of a tensor this rank holds."""
    if isinstance(tensor, DTensor):
        found = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        sizes, start = map(tuple, found)
    else:
        sizes, start = tuple(tensor.shape), (0,) * tensor.ndim
    return Block(tuple(tensor.shape), start, sizes, CODES[tensor.dtype])


def own_blocks(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """The tensors whose block it is this rank's turn to write, by name.

    Ranks that hold copies take turns: the largest tensors first, each to the one that has least to write.
    """
    loads: dict[int, list[int]] = {}
    found = {}
    for name in sorted(tensors, key=lambda name: -tensors[name].nbytes):
        place, copies = _copy_of(tensors[name], world)
        load = loads.setdefault(copies, [0] * copies)
        turn = load.index(min(load))
        load[turn] += tensors[name].nbytes
        if turn == place and math.prod(block_of(tensors[name]).sizes):
            found[name] = tensors[name]
    return found


def _copy_of(tensor: Tensor, world: World) -> tuple[int, int]:
    """Which of how many copies of a block this rank holds."""
    if not isinstance(tensor, DTensor):
        return world.rank, world.size
    place, copies = 0, 1
    at = tensor.device_mesh.get_coordinate() or []
    for axis, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            size = tensor.device_mesh.size(axis)
            place, copies = place * size + at[axis], copies * size
    return place, copies


class Staging:
    """Memory of this machine that a checkpoint is copied to before it is written, so that training can go on."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of what this rank holds of the tensors; they stay as they are until the next call."""
        on_gpu = False
        for name, tensor in tensors.items():
            values = local(tensor.detach())
            on_gpu |= values.is_cuda
            buffer = self._buffers.get(name)
            if buffer is None or buffer.shape != values.shape or buffer.dtype != values.dtype:
                buffer = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
                self._buffers[name] = buffer
            buffer.copy_(values, non_blocking=values.is_cuda)
        if on_gpu:
            torch.cuda.current_stream().synchronize()
        return {name: self._buffers[name] for name in tensors}


def write_blocks(path: Path, tensors: Mapping[str, Tensor], blocks: Mapping[str, Block]) -> str:
    """Write blocks of tensors through to the disk as a safetensors file; its checksum.

    The format is written here and not by its package, so that the checksum is that of the numbers in memory, and the
    file is on the disk when this returns.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {PLACES: json.dumps({name: blocks[name][:2] for name in names})}}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": blocks[name].code, "shape": tensors[name].shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    checksum = hashlib.sha256()
    with path.open("wb") as stream:
        for data in (len(text).to_bytes(8, "little"), text, *(_bytes_of(tensors[name]) for name in names)):
            stream.write(data)
            checksum.update(data)
        stream.flush()
        os.fsync(stream.fileno())
    return checksum.hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_places(path: Path) -> dict[str, Block]:
    """The blocks that a file holds, by the names of their tensors.

    Raises
    ------
    StoreError
        If it is no file of `write_blocks`.
    """
    with _opened(path) as file:
        places = json.loads(file.metadata()[PLACES])
        found = {}
        for name in sorted(file.keys()):
            part = file.get_slice(name)
            whole, start = map(tuple, places[name])
            sizes = tuple(part.get_shape())
            if not len(whole) == len(start) == len(sizes):
                raise ValueError(f"{name} has {len(sizes)} axes, expected {len(whole)}")
            found[name] = Block(whole, start, sizes, part.get_dtype())
        return found


class Reader:
    """Reads what this rank holds of tensors out of the files of any number of ranks.

    Parameters
    ----------
    folder : Path
        Where the files are.
    places : mapping of str to dict of str to Block
        What each file holds, by its name.
    """

    def __init__(self, folder: Path, places: Mapping[str, Mapping[str, Block]]) -> None:
        self.folder = folder
        self.sources: dict[str, dict[str, Block]] = {}
        for file, blocks in places.items():
            for name, block in blocks.items():
                self.sources.setdefault(name, {})[file] = block

    def check(self, name: str, tensor: Tensor) -> None:
        """See that the files have all that this rank holds of a tensor.

        Raises
        ------
        StoreError
            If they have not, or have a tensor of other sizes or another kind of numbers.
        """
        wanted, found = block_of(tensor), self.sources.get(name, {})
        if any((block.whole, block.code) != (wanted.whole, wanted.code) for block in found.values()):
            raise self._fault(f"{name!r} is of another model")
        parts = [block.overlap(wanted) for block in found.values()]
        covered = sum(math.prod(side.stop - side.start for side in part) for part in parts if part is not None)
        if covered != math.prod(wanted.sizes):
            raise self._fault(f"lacks numbers of {name!r}")

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill what this rank holds of each tensor.

        Raises
        ------
        StoreError
            If a file cannot be read.
        """
        for file in sorted({file for name in tensors for file in self.sources[name]}):
            with _opened(self.folder / file) as stream:
                for name in tensors:
                    if block := self.sources[name].get(file):
                        _copy_overlap(stream, name, block, tensors[name])

    def _fault(self, message: str) -> StoreError:
        return StoreError(message, location=Location(file=str(self.folder)))


def _copy_overlap(stream: Any, name: str, block: Block, tensor: Tensor) -> None:
    wanted = block_of(tensor)
    source, goal = block.overlap(wanted), wanted.overlap(block)
    if source is not None and goal is not None:
        values = stream.get_slice(name)[source] if source else stream.get_tensor(name)
        local(tensor.detach())[goal].copy_(values)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    place = Location(file=str(path))
    try:
        with safe_open(path, "pt") as file:
            yield file
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}", location=place) from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"is no part of a checkpoint: {error}", location=place) from error
