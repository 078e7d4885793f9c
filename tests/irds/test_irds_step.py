"""A step of several calls: what is summed over its calls, and what is measured once."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_models import LANGUAGES, batch, loss_of, make_model, mean_losses, relative  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.accounts.ledger import Evaluation  # noqa: E402


def evaluated(calls: int, val: Any, monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    """What is booked of a step of so many calls."""
    booked: list[Evaluation] = []
    model = make_model().double()
    tracker = IRDS(model, LANGUAGES, val=val, every=1, options=Options(val_sequences=3, measure_sequences=1))
    monkeypatch.setattr(tracker.ledger, "add", booked.append)
    x, y, lang = batch((2, 1, 3, 2))
    for part in torch.arange(8).chunk(calls):
        tracker.backward(loss_of(model), x[part], y[part], lang[part], step=0, tokens=int((y != -100).sum()))
    tracker.commit(lr=1.0)
    return booked[0]


@pytest.mark.parametrize("calls", [2, 4])
def test_tokens_and_products_are_summed_and_validation_is_passed_once(
    calls: int, val: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, several = evaluated(1, val, monkeypatch), evaluated(calls, val, monkeypatch)
    assert relative(several.gram, one.gram) < 1e-12
    np.testing.assert_array_equal(several.cover, one.cover)
    np.testing.assert_array_equal(several.tokens, one.tokens)
    model = make_model().double()
    with torch.no_grad():
        truth = torch.stack(mean_losses(model, loss_of(model), val))
    assert relative(several.val_losses, truth) < 1e-12


def test_without_a_validation_set_there_are_no_validation_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.isnan(evaluated(2, None, monkeypatch).val_losses).all()
