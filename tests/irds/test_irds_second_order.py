"""First and second order against exact enumeration of the one-step payoff (K = 4, all coalitions, float64)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_models import (  # noqa: E402
    LANGUAGES,
    batch,
    loss_of,
    make_model,
    mean_losses,
    relative,
    training_parts,
    validation,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from torch import nn  # noqa: E402

from shapleymix.game import exact_shapley  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)
COUNTS = (2, 1, 3, 2)


def enumerated(model: Any, loss_fn: Any, x: Any, y: Any, lang: Any, val: Any, lr: float) -> Any:
    """Shapley values (K, K) of `u_j(S) = l_j(w) - l_j(w - lr sum_{r in S} g_r)` over all 16 coalitions."""
    g = training_parts(model, loss_fn, x, y, lang, float((y != -100).sum()), 4)
    before = [p.detach().clone() for p in model.parameters()]

    def losses(coalition: int) -> Any:
        with torch.no_grad():
            for k, (parameter, start) in enumerate(zip(model.parameters(), before, strict=True)):
                moved = sum((g[r][k] for r in range(4) if coalition >> r & 1), torch.zeros_like(start))
                parameter.copy_(start - lr * moved)
            return torch.stack(mean_losses(model, loss_fn, val)).numpy()

    payoffs = np.stack([losses(0) - losses(s) for s in range(16)])
    losses(0)
    return exact_shapley(payoffs)


def measured(model: Any, loss_fn: Any, x: Any, y: Any, lang: Any, val: Any, lr: float, order: Any) -> Any:
    tracker = IRDS(model, LANGUAGES, val=val, every=1, order=order, options=OPTIONS)
    model.zero_grad()
    tracker.backward(loss_fn, x, y, lang, step=0)
    before = [p.detach().clone() for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    tracker.commit(lr=lr)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    return tracker.ledger.phi


@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_the_midpoint_rule_beats_first_order_on_a_decoder(lr: float) -> None:
    model = make_model().double()
    loss_fn, val = loss_of(model), validation()
    x, y, lang = batch(COUNTS)
    truth = enumerated(model, loss_fn, x, y, lang, val, lr)
    first = relative(measured(model, loss_fn, x, y, lang, val, lr, 1), truth)
    second = relative(measured(model, loss_fn, x, y, lang, val, lr, 2), truth)
    assert second < first / 5
    assert second < lr / 5


def test_errors_shrink_with_their_order() -> None:
    """Ten times less learning rate: 10 times less error in first order, 100 times in second."""
    model = make_model().double()
    loss_fn, val = loss_of(model), validation()
    x, y, lang = batch(COUNTS)
    errors = {1: [], 2: []}
    for lr in (0.1, 0.01):
        truth = enumerated(model, loss_fn, x, y, lang, val, lr)
        for order, found in errors.items():
            found.append(relative(measured(model, loss_fn, x, y, lang, val, lr, order), truth))
    assert 7 < errors[1][0] / errors[1][1] < 14
    assert 50 < errors[2][0] / errors[2][1] < 200


class Quadratic(nn.Module):
    """A loss that is quadratic in the weights, where the midpoint rule is the Shapley value itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(23, 6)
        self.embed.requires_grad_(False)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Any, y: Any) -> Any:
        goal = torch.stack([y.double() / 23, (y % 2).double(), (y % 3).double()], -1)
        return (self.head(self.embed(x)) - goal).square().sum((1, 2))


def test_the_midpoint_rule_is_exact_for_a_quadratic_loss() -> None:
    torch.manual_seed(0)
    model = Quadratic().double()
    x, y, lang = batch(COUNTS, masked=False)
    val = {name: (a, b.clamp(min=0)) for name, (a, b) in validation().items()}
    weights = nn.ModuleList([model.head])  # only trainable parameters
    truth = enumerated(weights, model, x, y, lang, val, 0.3)
    assert relative(measured_on(model, x, y, lang, val, 0.3), truth) < 1e-12


def measured_on(model: Any, x: Any, y: Any, lang: Any, val: Any, lr: float) -> Any:
    tracker = IRDS(model, LANGUAGES, val=val, every=1, order=2, options=OPTIONS)
    tracker.backward(model, x, y, lang, step=0)
    tracker.commit(lr=lr)
    return tracker.ledger.phi


def test_clipping_shortens_the_step_that_is_halved() -> None:
    model = make_model().double()
    loss_fn, val = loss_of(model), validation()
    x, y, lang = batch(COUNTS)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, order=2, options=OPTIONS)
    tracker.backward(loss_fn, x, y, lang, step=0)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-1)
    tracker.commit(lr=1.0, grad_norm=norm, max_norm=1e-1)
    shorter = 1e-1 / (float(norm) + 1e-6)
    assert relative(tracker.ledger.phi, measured(model, loss_fn, x, y, lang, val, shorter, 2)) < 1e-12
