"""The optimiser of a run, and its state by parameter name."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.wrappers import put_back, tidy


class Optimiser:
    """One or more optimisers of PyTorch's that step as one; their state is there from the beginning."""

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            _make_state(part)

    def set_rate(self, lr: float) -> None:
        """Give each group the scheduled learning rate."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state(self, model: nn.Module) -> dict[str, dict[str, Tensor]]:
        """The optimiser's own tensors, by what they are and by the parameter's name: whoever fills them sets them."""
        put_back(model)
        held = {weight: state for part in self.parts for weight, state in part.state.items()}
        found: dict[str, dict[str, Tensor]] = {}
        for name, weight in model.named_parameters():
            for key, value in held.get(weight, {}).items():
                found.setdefault(key, {})[tidy(name)] = value
        return found


def _make_state(optimiser: torch.optim.Optimizer) -> None:
    """Make the state that the first step would make: zeros, whatever the optimiser."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    rates = [group["lr"] for group in optimiser.param_groups]
    for group in optimiser.param_groups:
        group["lr"] = 0.0  # with which a step changes no weight
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    for group, lr in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = lr
    for state in optimiser.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def make_optimiser(model: nn.Module, config: TrainConfig) -> Optimiser:
    """AdamW with decay on matrices only, as Megatron has it."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return Optimiser([torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2))])
