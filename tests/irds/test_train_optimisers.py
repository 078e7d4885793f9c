"""Optimisers of a run: their state is there from the beginning, and is what a checkpoint holds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train.config import TrainConfig  # noqa: E402
from shapleymix_irds.train.model import Decoder, ModelConfig  # noqa: E402
from shapleymix_irds.train.optimisers import Optimiser, make_optimiser  # noqa: E402
from torch import nn  # noqa: E402

SMALL = ModelConfig(layers=1, hidden=8, ffn=12, heads=2, vocab=11)
TOKENS = torch.arange(18).view(2, 9) % 11


def decoder() -> Decoder:
    model = Decoder(SMALL)
    model.initialise(0)
    return model


def trained(model: nn.Module, optimiser: Optimiser | torch.optim.Optimizer, steps: int) -> list[torch.Tensor]:
    """The weights after some steps."""
    for _ in range(steps):
        model(TOKENS).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    return [weight.detach().clone() for weight in model.parameters()]


def test_a_state_made_beforehand_changes_no_weight() -> None:
    plain, ours = decoder(), decoder()
    reference = torch.optim.AdamW(plain.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    config = TrainConfig(lr=0.01, weight_decay=0.1)
    reference.param_groups[0]["params"] = [w for w in plain.parameters() if w.ndim >= 2]
    reference.add_param_group({"params": [w for w in plain.parameters() if w.ndim < 2], "weight_decay": 0.0})
    assert all(map(torch.equal, trained(plain, reference, 3), trained(ours, make_optimiser(ours, config), 3)))


def test_the_state_filled_from_another_continues_it() -> None:
    models = [decoder() for _ in range(2)]
    first, second = (make_optimiser(model, TrainConfig(lr=0.01)) for model in models)
    trained(models[0], first, 2)
    assert set(first.state(models[0])) == {"step", "exp_avg", "exp_avg_sq"}
    for key, tensors in first.state(models[0]).items():
        for name, value in tensors.items():
            second.state(models[1])[key][name].copy_(value)
    models[1].load_state_dict(models[0].state_dict())
    assert all(map(torch.equal, trained(models[0], first, 2), trained(models[1], second, 2)))
