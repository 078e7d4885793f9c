"""The instrument against K + K separate backward passes, against training without it, and against exact enumeration of
the one-step payoff."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_models import (  # noqa: E402
    batch,
    compared,
    dot,
    gradient,
    loss_of,
    make_model,
    mean_losses,
    naive_gram,
    relative,
    tracker_of,
    training_parts,
)

from shapleymix.game.exact import exact_shapley  # noqa: E402

GROUPS = {"equal": (2, 2, 2, 2), "unequal": (1, 4, 2, 3), "empty": (3, 0, 2, 0), "one language": (0, 5, 0, 0)}


def plain_gradients(model: Any, loss_fn: Any, x: Any, y: Any) -> list[Any]:
    model.zero_grad()
    (loss_fn(x, y).sum() / (y != -100).sum()).backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    return grads


@pytest.mark.parametrize("counts", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["fp64", "fp32"])
def test_products_and_gradients_are_exact(counts: tuple[int, ...], dtype: Any, tolerance: float, val: Any) -> None:
    model = make_model().to(dtype)
    loss_fn = loss_of(model)
    x, y, lang = batch(counts)
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    expected = plain_gradients(model, loss_fn, x, y)
    tracker = tracker_of(model, val, engine="exact")
    loss = tracker.backward(loss_fn, x, y, lang, step=0)
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, grad)
    tracker.commit(lr=0.3)
    assert relative(tracker.ledger.phi, 0.3 * truth) < tolerance
    with torch.no_grad():
        assert relative(loss, loss_fn(x, y).sum() / (y != -100).sum()) < 1e-5


def test_accumulated_and_clipped_steps_are_exact(val: Any) -> None:
    model = make_model().double()
    loss_fn = loss_of(model)
    x, y, lang = batch((3, 4, 1, 2))
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    expected = plain_gradients(model, loss_fn, x, y)
    norm = torch.nn.utils.get_total_norm(expected)
    tracker = tracker_of(model, val, engine="exact")
    total = int((y != -100).sum())
    for part in (slice(0, 4), slice(4, 5), slice(5, 10)):
        tracker.backward(loss_fn, x[part], y[part], lang[part], step=0, tokens=total)
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert relative(parameter.grad, grad) < 1e-10
    limit = float(norm) / 4
    clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    tracker.commit(lr=0.3, grad_norm=clipped, max_norm=limit)
    assert relative(tracker.ledger.phi, 0.3 * truth / 4) < 1e-5  # torch adds 1e-6 to the norm
    coefficient = limit / (float(norm) + 1e-6)
    assert relative(tracker.ledger.phi, 0.3 * truth * coefficient) < 1e-10


def test_activation_checkpointing_is_exact(val: Any) -> None:
    tracker = tracker_of(make_model(checkpointed=True).double(), val, engine="exact")
    assert max(compared(tracker, *batch((1, 4, 0, 3)))) < 1e-10


def test_bf16_autocast_agrees_to_its_precision(val: Any) -> None:
    model = make_model()
    x, y, lang = batch((1, 4, 2, 3))

    def loss_fn(x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss_of(model)(x, y)

    truth = naive_gram(model, loss_fn, x, y, lang, val)
    expected = plain_gradients(model, loss_fn, x, y)
    tracker = tracker_of(model, val, engine="exact")
    loss = tracker.backward(loss_fn, x, y, lang, step=0)
    with torch.no_grad():
        assert relative(loss, loss_fn(x, y).sum() / (y != -100).sum()) < 1e-3
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert parameter.grad.dtype == torch.float32
        assert relative(parameter.grad, grad) < 2e-2
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < 1e-2


def test_a_pair_of_losses_trains_on_one_and_measures_the_other(val: Any) -> None:
    model = make_model().double()
    loss_fn = loss_of(model)
    x, y, lang = batch((1, 4, 2, 3))
    tokens = float((y != -100).sum())
    g = training_parts(model, lambda x, y: 3 * loss_fn(x, y), x, y, lang, tokens, 4)
    h = [gradient(model, loss) for loss in mean_losses(model, loss_fn, val)]
    truth = [[dot(gi, hj) for hj in h] for gi in g]
    tracker = tracker_of(model, val, engine="exact")
    loss = tracker.backward(lambda x, y: (3 * (losses := loss_fn(x, y)), losses), x, y, lang, step=0)
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < 1e-10
    with torch.no_grad():
        assert relative(loss, loss_fn(x, y).sum() / tokens) < 1e-10


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


def test_errors_shrink_with_the_learning_rate(val: Any) -> None:
    """Values are of first order: ten times less learning rate, ten times less error."""
    model = make_model().double()
    loss_fn, found = loss_of(model), []
    x, y, lang = batch((2, 1, 3, 2))
    for lr in (0.1, 0.01):
        truth = enumerated(model, loss_fn, x, y, lang, val, lr)
        tracker = tracker_of(model, val)
        tracker.backward(loss_fn, x, y, lang, step=0)
        tracker.commit(lr=lr)
        found.append(relative(tracker.ledger.phi, truth))
    assert found[1] < 0.05
    assert 7 < found[0] / found[1] < 14
