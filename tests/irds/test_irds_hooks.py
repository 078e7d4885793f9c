"""What else a pass may touch, on one process: hooks, recomputed layers, buffers, context parallelism."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, VOCAB, Decoder, batch, loss_of, validation  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError, TrackerError  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
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


def test_second_order_needs_gradients_that_are_still_there() -> None:
    model, tracker = made(order=2)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    with pytest.raises(TrackerError, match="second order needs the step's gradients"):
        tracker.commit(lr=0.1)


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


def test_a_counter_that_is_turned_on_later_counts_the_training_batch_alone() -> None:
    model, tracker = made()
    model.register_buffer("seen", torch.zeros((), dtype=torch.float64))
    x, y, lang = batch((3, 2, 4, 1))
    tracker.backward(loss_of(model), x, y, lang, step=0)
    tracker.commit(lr=0.1)

    def count(_: Any, given: tuple[Tensor, ...], __: Tensor) -> None:
        model.seen.add_(len(given[0]))

    model.register_forward_hook(count)
    tracker.backward(loss_of(model), x, y, lang, step=1)
    tracker.commit(lr=0.1)
    assert float(model.seen) == len(x)


def test_context_parallelism_is_refused() -> None:
    model, tracker = made()
    operator = torch.ops.aten._scaled_dot_product_flash_attention.default
    handlers = DTensor._op_dispatcher._custom_op_handlers
    DTensor._op_dispatcher._custom_op_handlers = handlers | {operator: None}
    try:
        with pytest.raises(CoverageError, match="context parallelism splits sequences over ranks"):
            tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    finally:
        DTensor._op_dispatcher._custom_op_handlers = handlers


def test_another_divisor_may_be_meant() -> None:
    x, y, lang = batch((3, 2, 4, 1))
    for options, refused in ((OPTIONS, True), (Options(measure_sequences=1, any_divisor=True), False)):
        model, tracker = made(options=options)
        tracker.backward(loss_of(model), x, y, lang, step=0, tokens=1000)
        if refused:
            with pytest.raises(TrackerError, match="tokens=1000, but its calls have"):
                tracker.commit(lr=0.1)
        else:
            tracker.commit(lr=0.1)
