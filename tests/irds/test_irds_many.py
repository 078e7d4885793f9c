"""Many languages: the same values, and what is held in a call is for the languages that it has."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_models import VOCAB, dot, gradient, loss_of, make_model  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.engines.observer import Observer  # noqa: E402
from shapleymix_irds.train.data.toy import toy_documents, toy_names  # noqa: E402

MANY, LENGTH = 60, 7
NAMES = tuple(f"l{k}" for k in range(MANY))


def some(count: int, seed: int) -> tuple[Any, Any]:
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.randint(1, VOCAB, (count, LENGTH), generator=draw) for _ in range(2))
    return x, y


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Groups that sketches of a call have room for."""
    seen: list[int] = []
    plain = Observer._book

    def booked(self: Observer, groups: int) -> Any:
        seen.append(groups)
        return plain(self, groups)

    monkeypatch.setattr(Observer, "_book", booked)
    return seen


@pytest.mark.parametrize("by_token", [False, True])
def test_few_of_many_languages_have_the_values_of_naive_gradients(by_token: bool, held: list[int]) -> None:
    model = make_model().double()
    loss_fn, (x, y) = loss_of(model), some(6, 0)
    owners = torch.tensor([59, 3, 17, 3, 59, 40])
    val = {name: some(1, 100 + k) for k, name in enumerate(NAMES)}
    options = Options(val_sequences=1, pass_tokens=8 * LENGTH)
    tracker = IRDS(model, NAMES, val=val, every=1, engine="exact", options=options)
    for turn in range(2):  # two calls of one step
        part = slice(3 * turn, 3 * turn + 3)
        lang = owners[part, None].expand(3, LENGTH) if by_token else owners[part]
        tracker.backward(loss_fn, x[part], y[part], lang, step=0, tokens=y.numel())
    tracker.commit(lr=1.0)
    targets = [gradient(model, loss_fn(*val[name]).sum() / LENGTH) for name in NAMES]
    expected = np.zeros((MANY, MANY))
    for k in owners.unique().tolist():
        own = gradient(model, loss_fn(x[owners == k], y[owners == k]).sum() / y.numel())
        expected[k] = [dot(own, h) for h in targets]
    np.testing.assert_allclose(tracker.ledger.phi, expected, rtol=1e-9, atol=1e-12)
    assert max(held) == 8


def test_there_are_as_many_toy_languages_as_are_asked_for() -> None:
    assert toy_names(4) == ("a", "b", "c", "d")
    assert toy_names(26)[-1] == "z"
    assert toy_names(200)[:2] == ("aa", "ab")
    assert len(set(toy_names(200))) == 200
    first, next_, far = (set(" ".join(toy_documents(k, 0.5, 20_000)).replace(".", "").split()) for k in (198, 199, 0))
    assert len(first & next_) == 32
    assert not first & far
