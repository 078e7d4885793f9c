"""The instrument against K + K separate backward passes, and against training without it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import (  # noqa: E402
    LANGUAGES,
    batch,
    loss_of,
    make_model,
    naive_gram,
    relative,
)
from shapleymix_irds import IRDS, Options  # noqa: E402

GROUPS = {
    "equal": (2, 2, 2, 2),
    "unequal": (1, 4, 2, 3),
    "empty": (3, 0, 2, 0),
    "one language": (0, 5, 0, 0),
}
OPTIONS = Options(val_sequences=3, measure_sequences=3)


def tracker_of(model: Any, val: Any, **options: Any) -> IRDS:
    return IRDS(model, LANGUAGES, val=val, every=1, **({"options": OPTIONS} | options))


def plain_gradients(model: Any, loss_fn: Any, x: Any, y: Any) -> list[Any]:
    model.zero_grad()
    (loss_fn(x, y).sum() / (y != -100).sum()).backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    return grads


@pytest.mark.parametrize("engine", ["grouped", "micro"])
@pytest.mark.parametrize("counts", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
def test_products_and_gradients_are_exact(
    engine: str, counts: tuple[int, ...], dtype: Any, tolerance: float, val: Any
) -> None:
    model = make_model().to(dtype)
    loss_fn = loss_of(model)
    x, y, lang = batch(counts)
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    expected = plain_gradients(model, loss_fn, x, y)
    tracker = tracker_of(model, val, engine=engine)
    loss = tracker.backward(loss_fn, x, y, lang, step=0)
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert relative(parameter.grad, grad) < tolerance
    tracker.commit(lr=0.3)
    assert relative(tracker.ledger.phi, 0.3 * truth) < tolerance
    with torch.no_grad():
        assert relative(loss, loss_fn(x, y).sum() / (y != -100).sum()) < 1e-5
    assert tracker.engine is not None
    assert tracker.engine.name == engine
