"""Values against exact enumeration of the one-step payoff (K = 4, all coalitions, float64)."""

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

from shapleymix.game.exact import exact_shapley  # noqa: E402

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


def test_errors_shrink_with_the_learning_rate() -> None:
    """Values are of first order: ten times less learning rate, ten times less error."""
    model = make_model().double()
    loss_fn, val, found = loss_of(model), validation(), []
    x, y, lang = batch(COUNTS)
    for lr in (0.1, 0.01):
        truth = enumerated(model, loss_fn, x, y, lang, val, lr)
        tracker = IRDS(model, LANGUAGES, val=val, every=1, options=OPTIONS)
        tracker.backward(loss_fn, x, y, lang, step=0)
        tracker.commit(lr=lr)
        found.append(relative(tracker.ledger.phi, truth))
    assert found[1] < 0.05
    assert 7 < found[0] / found[1] < 14
