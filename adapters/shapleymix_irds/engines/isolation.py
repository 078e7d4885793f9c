"""Run the model beside training, which does not notice: randomness, buffers and wrappers stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shapleymix_irds.distributed import put_back, without_sync


@contextmanager
def isolated(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Within, forward passes and `differentiate` leave no trace.

    Random numbers drawn within are not drawn from training's; what a forward pass writes into buffers (balances of
    experts, say) is taken back; DDP neither reduces nor is made ready to, and sharded parameters are sharded again.
    """
    devices = [device] if device.type == "cuda" else []
    kept = [(module, name, value, value.detach().clone()) for module, name, value in _buffers(model)]
    wrapper = getattr(model, "_orig_mod", model)
    ready = isinstance(wrapper, DistributedDataParallel) and wrapper.require_forward_param_sync
    try:
        with torch.random.fork_rng(devices), without_sync(model):
            yield
    finally:
        for module, name, buffer, values in kept:
            with torch.no_grad():
                buffer.copy_(values)
            module._buffers[name] = buffer
        if isinstance(wrapper, DistributedDataParallel):
            wrapper.require_forward_param_sync = ready
        put_back(model)


def _buffers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for module in model.modules():
        for name, value in module._buffers.items():
            if value is not None:
                yield module, name, value


def differentiate(root: Tensor, inputs: list[Tensor], retain: bool = False) -> list[Tensor | None]:
    """`torch.autograd.grad` with modes on: called itself, it runs its handler, and there they are off."""
    engine: Any = torch.autograd.Variable._execution_engine
    ones = (torch.ones_like(root),)
    return list(
        engine.run_backward((root,), ones, retain, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False)
    )
