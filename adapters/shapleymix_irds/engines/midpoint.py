"""Second order by the midpoint rule: validation at the middle of the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from shapleymix_irds.distributed import local
from shapleymix_irds.errors import TrackerError


@contextmanager
def at_midpoint(parameters: Mapping[str, nn.Parameter], rates: Mapping[str, float]) -> Iterator[None]:
    """Within, the weights are `w - rate / 2 * gradient`; then they are what they were, bit for bit.

    It holds a copy of this rank's weights.

    Raises
    ------
    TrackerError
        If there are no gradients any more.
    """
    listed = {name: parameter for name, parameter in parameters.items() if parameter.grad is not None}
    if not listed:
        hint = "commit before they are moved or used up, or take order=1"
        raise TrackerError("second order needs the step's gradients, and `.grad` is empty", hint=hint)
    before = {name: local(parameter.detach()).clone() for name, parameter in listed.items()}
    try:
        with torch.no_grad():
            for name, parameter in listed.items():
                assert parameter.grad is not None
                local(parameter).sub_(local(parameter.grad).to(parameter.dtype), alpha=rates[name] / 2)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in listed.items():
                local(parameter).copy_(before[name])
