"""The optimiser of a run: AdamW, SGD, Muon or Adafactor, in groups with learning rates of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from shapleymix.errors import UsageError
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.wrappers import put_back, tidy

EMBEDDINGS = ("embedding.weight", "output.weight")
SCALE = "scale"  # of a group: its learning rate as a multiple of the scheduled one

Group = dict[str, Any]  # as PyTorch types them


class Optimiser:
    """One or more optimisers of PyTorch's that step as one; their state is there from the beginning."""

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            _make_state(part)

    def set_rate(self, lr: float) -> None:
        """Give each group its multiple of the scheduled learning rate."""
        for group in self.groups:
            group["lr"] = lr * group[SCALE]

    @property
    def groups(self) -> list[Group]:
        """The parameter groups of all parts."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def rates(self) -> list[float]:
        """The learning rate of each group now."""
        return [group["lr"] for group in self.groups]

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
    """The optimiser of the settings.

    Matrices decay and vectors do not, as Megatron has it. Muon takes the matrices between the embeddings and AdamW the
    rest; Muon's steps are scaled to the size of AdamW's, so that one learning rate serves both (Liu et al. 2025,
    arXiv:2502.16982, section 2.2).

    Raises
    ------
    UsageError
        If this PyTorch does not have the optimiser.
    """
    matrices, embeddings, vectors = _groups(model, config)
    if config.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            message = f"--optimizer muon needs PyTorch 2.9 or newer, this is {torch.__version__}"
            raise UsageError(message, hint="--optimizer adamw")
        options = {"momentum": config.actual_momentum, "adjust_lr_fn": "match_rms_adamw"}
        muon = torch.optim.Muon([matrices], lr=config.peak_lr, **options)
        return Optimiser([muon, _adamw([embeddings, vectors], config)])
    groups = [matrices, embeddings, vectors]
    if config.optimizer == "sgd":
        return Optimiser([torch.optim.SGD(groups, lr=config.peak_lr, momentum=config.actual_momentum)])
    if config.optimizer == "adafactor":
        return Optimiser([torch.optim.Adafactor(groups, lr=config.peak_lr)])
    return Optimiser([_adamw(groups, config)])


def _adamw(groups: list[Group], config: TrainConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, lr=config.peak_lr, betas=(config.beta1, config.beta2))


def _groups(model: nn.Module, config: TrainConfig) -> tuple[Group, Group, Group]:
    """Parameters of matrices, of the input and output embedding, and of vectors."""
    named = [(tidy(name), weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.ndim >= 2 and name not in EMBEDDINGS]
    embeddings = [weight for name, weight in named if name in EMBEDDINGS]
    vectors = [weight for _, weight in named if weight.ndim < 2]
    decay = config.weight_decay
    return (
        {"params": matrices, "weight_decay": decay, SCALE: 1.0},
        {"params": embeddings, "weight_decay": decay, SCALE: config.lr_embedding},
        {"params": vectors, "weight_decay": 0.0, SCALE: 1.0},
    )
