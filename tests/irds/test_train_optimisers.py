"""Optimisers of a run: their state is there from the beginning, and is what a checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train.config import TrainConfig  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.optimisers import Optimiser, make_optimiser  # noqa: E402
from shapleymix_irds.train.shapes import ModelConfig  # noqa: E402
from torch import nn  # noqa: E402

from shapleymix.errors import UsageError  # noqa: E402
from tests.irds.training import train  # noqa: E402

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


KEYS = {
    "adamw": {"step", "exp_avg", "exp_avg_sq"},
    "sgd": {"momentum_buffer"},
    "muon": {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"},
    "adafactor": {"step", "row_var", "col_var", "variance"},
}


@pytest.mark.parametrize("name", KEYS)
def test_the_state_filled_from_another_continues_it(name: str) -> None:
    models = [decoder() for _ in range(2)]
    config = TrainConfig(optimizer=name, momentum=0.9)
    first, second = (make_optimiser(model, config) for model in models)
    trained(models[0], first, 2)
    assert set(first.state(models[0])) == KEYS[name]
    for key, tensors in first.state(models[0]).items():
        for name, value in tensors.items():
            second.state(models[1])[key][name].copy_(value)
    models[1].load_state_dict(models[0].state_dict())
    assert all(map(torch.equal, trained(models[0], first, 2), trained(models[1], second, 2)))


@pytest.mark.parametrize("name", KEYS)
def test_each_optimiser_steps_as_pytorch_s_own(name: str) -> None:
    plain, ours = decoder(), decoder()
    config = TrainConfig(optimizer=name, lr=0.01, weight_decay=0.0, momentum=0.9)
    weights = list(plain.parameters())
    inner = [w for key, w in plain.named_parameters() if w.ndim == 2 and key.startswith("blocks")]
    others = [w for w in weights if all(w is not each for each in inner)]
    betas = (0.9, 0.95)
    references = {
        "adamw": lambda: [torch.optim.AdamW(weights, lr=0.01, betas=betas, weight_decay=0.0)],
        "sgd": lambda: [torch.optim.SGD(weights, lr=0.01, momentum=0.9)],
        "adafactor": lambda: [torch.optim.Adafactor(weights, lr=0.01)],
        "muon": lambda: [
            torch.optim.Muon(inner, lr=0.01, weight_decay=0.0, momentum=0.9, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=0.01, betas=betas, weight_decay=0.0),
        ],
    }
    optimiser = make_optimiser(ours, config)
    parts = references[name]()
    for _ in range(3):
        plain(TOKENS).square().sum().backward()
        for part in parts:
            part.step()
            part.zero_grad()
    assert all(map(torch.equal, [w.detach() for w in weights], trained(ours, optimiser, 3)))


def test_embeddings_have_a_rate_of_their_own() -> None:
    model = decoder()
    optimiser = make_optimiser(model, TrainConfig(optimizer="sgd", lr_embedding=0.0625, weight_decay=0.0))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model(TOKENS).square().sum().backward()
    steps = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    optimiser.set_rate(0.5)
    optimiser.step()
    for name, weight in model.named_parameters():
        rate = 0.5 * (0.0625 if name in ("embedding.weight", "output.weight") else 1.0)
        assert torch.equal(weight, before[name] - rate * steps[name])


def test_a_pytorch_without_muon_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(UsageError, match=r"needs PyTorch 2\.9 or newer"):
        make_optimiser(decoder(), TrainConfig(optimizer="muon"))


def test_irds_counts_each_group_at_its_own_rate(tmp_path: Path) -> None:
    """Where gradients are plain steps, what is measured is what the loss has lost, at any rates."""
    common = ("--optimizer", "sgd", "--irds-every", "1", "--irds-measure", "8", "--irds-val", "8", "--lr", ".05")
    for name, more in {"one": (), "two": ("--lr-embedding", "4")}.items():
        assert train(tmp_path / name, *common, *more) == 0
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        assert all(0.9 < ratio < 1.1 for ratio in json.loads(lines[-1])["efficiency"].values()), name
