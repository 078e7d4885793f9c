"""What else a pass may touch, on one process: hooks, recomputed layers, buffers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, VOCAB, Decoder, batch, loss_of, validation  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)


class Reentrant(Decoder):
    """Layers that are recomputed in the old way, in which nobody sees what a parameter goes into."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if torch.is_grad_enabled() else block(x)
        return self.head(self.norm(x))


class Counting(Decoder):
    """Counts tokens."""

    load: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("load", torch.zeros(VOCAB))

    def forward(self, ids: Tensor) -> Tensor:
        self.load += torch.bincount(ids.flatten(), minlength=VOCAB)
        return super().forward(ids)


def made(kind: type[Decoder] = Decoder, **options: Any) -> tuple[Any, IRDS]:
    torch.manual_seed(0)
    model = kind().double()
    return model, IRDS(model, LANGUAGES, **({"val": validation(), "every": 1, "options": OPTIONS} | options))


@pytest.mark.parametrize("free", [False, True])
def test_reentrant_checkpointing_is_refused(free: bool) -> None:
    model, tracker = made(Reentrant, **({"val": None} if free else {}))
    with pytest.raises(CoverageError, match="reentrant checkpointing hides"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("engine", ["sketch", "exact"])
@pytest.mark.parametrize("free", [False, True])
def test_a_counter_counts_the_training_batch_alone(engine: Any, free: bool) -> None:
    model, tracker = made(Counting, engine=engine, **({"val": None} if free else {}))
    x, y, lang = batch((3, 2, 4, 1))
    for step in range(2):
        tracker.backward(loss_of(model), x, y, lang, step=step)
        tracker.commit(lr=0.1)
    if not free:
        tracker.measure(loss_of(model))
    assert torch.equal(model.load, 2 * torch.bincount(x.flatten(), minlength=VOCAB).double())
