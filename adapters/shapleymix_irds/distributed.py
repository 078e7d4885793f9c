"""The ranks that train together, the parts of a tensor that each of them holds, and what a trainer does to a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class World:
    """The data-parallel ranks, and this one's device; one rank where torch.distributed is not initialised."""

    group: dist.ProcessGroup | None
    size: int
    rank: int
    device: torch.device

    @classmethod
    def of(cls, group: dist.ProcessGroup | None, device: torch.device) -> World:
        """The world of a process group (None: the default group, if there is one)."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls(None, 1, 0, device)
        return cls(group, dist.get_world_size(group), dist.get_rank(group), device)

    @property
    def main(self) -> bool:
        """Whether this rank writes files and prints."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, in place; every rank must call."""
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def any(self, flag: bool) -> bool:
        """Whether any rank says so; every rank must call."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def table(self, row: Tensor) -> Tensor:
        """Rows of all ranks, (size, n) on the CPU in float64; every rank must call."""
        row = row.to(self.device, torch.float64).contiguous()
        parts = [torch.empty_like(row) for _ in range(self.size)]
        dist.all_gather(parts, row, group=self.group)
        return torch.stack(parts).cpu()


@dataclass(frozen=True)
class Arrangement:
    """What a tracker is told of a trainer with a parallelism of its own (Megatron, torchtitan).

    Attributes
    ----------
    tokens_first : bool
        Whether activations are (S, B, ...); ids of tokens are (B, S) all the same.
    scattered : bool
        Whether a rank holds the averaged gradient in a part of its parameters only (a distributed optimiser), so that
        gradients of different ranks cannot be compared.
    divisor : float, optional
        What the sum of gradients over ranks is divided by; None: the number of ranks.
    parts : World, optional
        The ranks that hold parts of the same layers and see the same sequences (tensor parallel).
    copies : frozenset of str
        Parameters that are whole on each of those ranks, and counted by another one.
    """

    tokens_first: bool = False
    scattered: bool = False
    divisor: float | None = None
    parts: World | None = None
    copies: frozenset[str] = frozenset()


def is_sharded(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether parameters are distributed tensors (FSDP2), whose gradients come reduced over ranks."""
    return any(isinstance(parameter, DTensor) for parameter in parameters)


def local(values: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return values.to_local() if isinstance(values, DTensor) else values


def share(parameter: Tensor) -> float:
    """By what to multiply products over this rank's part of a parameter, so that summing over ranks is right.

    1 for a shard; 1 / copies where ranks hold copies (hybrid sharding).
    """
    copies = 1
    if isinstance(parameter, DTensor):
        for axis, placement in enumerate(parameter.placements):
            copies *= parameter.device_mesh.size(axis) if placement.is_replicate() else 1
    return 1.0 / copies


def scalar(value: float | Tensor) -> float:
    """A number from what `clip_grad_norm_` returns (a DTensor under FSDP2)."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)
