"""Run the model beside training, which does not notice: randomness, buffers and wrappers stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from shapleymix_irds.buffers import Buffers
from shapleymix_irds.wrappers import put_back, replicas, unsynced


@contextmanager
def isolated(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Within, forward passes and `differentiate` leave no trace.

    Random numbers drawn within are not drawn from training's; what a forward pass writes into buffers (balances of
    experts, say) is taken back; DDP neither reduces nor is made ready to, and sharded parameters are sharded again.
    """
    devices = [device] if device.type == "cuda" else []
    buffers = Buffers(model)
    ready = [(replica, replica.require_forward_param_sync) for replica in replicas(model)]
    try:
        with torch.random.fork_rng(devices), unsynced(model):
            yield
    finally:
        buffers.restore()
        for replica, value in ready:
            replica.require_forward_param_sync = value
        put_back(model)


def differentiate(root: Tensor, inputs: list[Tensor], retain: bool = False) -> list[Tensor | None]:
    """`torch.autograd.grad` with modes on: called itself, it runs its handler, and there they are off."""
    engine: Any = torch.autograd.Variable._execution_engine
    ones = (torch.ones_like(root),)
    return list(
        engine.run_backward((root,), ones, retain, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False)
    )
