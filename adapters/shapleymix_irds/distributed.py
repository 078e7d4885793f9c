"""The little that the tracker needs to know about ranks and wrappers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
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

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier(self.group)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, in place; every rank must call."""
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of every rank; every rank must call."""
        if self.size == 1:
            return [values]
        parts = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(parts, values, group=self.group)
        return parts

    def table(self, row: Tensor) -> Tensor:
        """Rows of all ranks, (size, n) on the CPU in float64; every rank must call."""
        return torch.stack(self.gather(row.to(self.device, torch.float64).contiguous())).cpu()

    def mean_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """What DDP would have done at the end of a backward pass: `.grad` becomes the mean over ranks."""
        for parameter in parameters:
            if parameter.grad is not None and self.size > 1:
                self.sum(parameter.grad.div_(self.size))


def put_back(model: nn.Module) -> None:
    """Put sharded parameters back into their places.

    After a forward pass without a backward pass FSDP2 may leave whole parameters there, which it frees later.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters, sharded where they are."""
    put_back(model)
    return {tidy(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def tidy(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


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
    if not isinstance(parameter, DTensor):
        return 1.0
    mesh = parameter.device_mesh
    copies = 1
    for axis, placement in enumerate(parameter.placements):
        copies *= mesh.size(axis) if placement.is_replicate() else 1
    return 1.0 / copies


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it runs through `torch.compile`."""
    kind = torch._dynamo.eval_frame.OptimizedModule
    return any(isinstance(m, kind) or m._compiled_call_impl is not None for m in model.modules())


def without_sync(model: nn.Module) -> AbstractContextManager[Any]:
    """DDP's `no_sync`, or nothing."""
    no_sync: Any = getattr(getattr(model, "_orig_mod", model), "no_sync", None)
    return no_sync() if no_sync is not None else nullcontext()


def syncs(model: nn.Module) -> bool:
    """Whether the model is a DDP wrapper that would reduce gradients in the next backward pass."""
    wrapped = getattr(model, "_orig_mod", model)
    return bool(getattr(wrapped, "require_backward_grad_sync", False))


def scalar(value: float | Tensor | None) -> float | None:
    """A number from what `clip_grad_norm_` returns (a DTensor under FSDP2)."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return None if value is None else float(value)
