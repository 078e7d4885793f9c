"""What is found by changing one sequence: rows in another order, and sequences that change each other's loss."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import (  # noqa: E402
    LANGUAGES,
    Decoder,
    batch,
    gradient,
    loss_of,
    naive_gram,
    relative,
    validation,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.batch import sample_of  # noqa: E402
from shapleymix_irds.engines.apart import misplaced  # noqa: E402
from shapleymix_irds.errors import CoverageError, TrackerError  # noqa: E402
from torch import Tensor, nn  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)


class Swapped(Decoder):
    """The last layers have tokens in front of sequences, as Megatron has it, and as many rows as ever."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(0, 1).reshape(-1, self.embed.embedding_dim)
        return self.head(self.norm(x)).unflatten(0, (ids.shape[1], ids.shape[0])).transpose(0, 1)


class Centred(Decoder):
    """Takes the mean of the batch off."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.head(self.norm(x - x.mean(0)))


class Dropping(Decoder):
    """A dropout, whose masks differ between passes but not because of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.dropout(self.embed(ids))))


def made(kind: type[Decoder], **options: Any) -> tuple[nn.Module, IRDS]:
    torch.manual_seed(0)
    model = kind().double()
    return model, IRDS(model, LANGUAGES, val=validation(), every=1, options=OPTIONS, **options)


def test_rows_in_another_order_take_passes() -> None:
    """Taken for sequences in front, they gave a training gradient that was wrong by nine tenths."""
    model, tracker = made(Swapped)
    x, y, lang = batch((3, 2, 4, 1))
    truth = naive_gram(model, loss_of(model), x, y, lang, validation())
    expected = gradient(model, loss_of(model)(x, y).sum() / (y != -100).sum())
    tracker.backward(loss_of(model), x, y, lang, step=0)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    assert max(relative(a, b) for a, b in zip(grads, expected, strict=True)) < 1e-10
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < 1e-10
    assert tracker.provenance()["fallback"] == "a pass a language for head.weight, norm.weight"


@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_layers_that_mix_sequences_are_refused(engine: Any) -> None:
    model, tracker = made(Centred, engine=engine)
    with pytest.raises(CoverageError, match="the loss of a sequence changes with the others of its batch"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)


def test_a_loss_that_mixes_sequences_is_refused() -> None:
    model, tracker = made(Decoder)
    loss_fn = loss_of(model)
    with pytest.raises(CoverageError, match="changes with the others"):
        tracker.backward(
            lambda x, y: (loss_fn(x, y) + loss_fn(x, y).std(), loss_fn(x, y)), *batch((3, 2, 4, 1)), step=0
        )


@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_dropout_is_no_mixing_and_its_numbers_are_left_alone(engine: Any) -> None:
    model, tracker = made(Dropping, engine=engine)
    x, y, lang = batch((3, 2, 4, 1))
    before = torch.get_rng_state()
    assert misplaced(model, loss_of(model), sample_of(x, y, -100)) == (set(), False)
    assert torch.equal(torch.get_rng_state(), before)
    tracker.backward(loss_of(model), x, y, lang, step=0)
    tracker.commit(lr=1.0)


def test_one_and_the_same_sequence_everywhere_is_no_fault() -> None:
    model, tracker = made(Decoder, engine="exact")
    x, y, lang = batch((1, 0, 0, 0))
    same = {name: (x.new_ones(3, x.shape[1]), y.new_ones(3, x.shape[1])) for name in LANGUAGES}
    tracker = IRDS(model, LANGUAGES, val=same, every=1, engine="exact", options=OPTIONS)
    tracker.backward(loss_of(model), torch.ones_like(x), torch.ones_like(y), lang, step=0)
    tracker.commit(lr=1.0)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("every", [1, 100])
def test_means_where_sums_are_meant_are_refused(pair: bool, every: int) -> None:
    torch.manual_seed(0)
    model = Decoder().double()
    loss_fn = loss_of(model)
    tracker = IRDS(model, LANGUAGES, val=validation(), every=every, options=OPTIONS)

    def mean(x: Tensor, y: Tensor) -> Any:
        losses = loss_fn(x, y) / (y != -100).sum(1)
        return (losses, losses) if pair else losses

    with pytest.raises(TrackerError, match="loss_fn gives means over tokens"):
        tracker.backward(mean, *batch((3, 2, 4, 1)), step=0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_sums_that_are_small_are_no_means() -> None:
    torch.manual_seed(0)
    model = Decoder().double()
    loss_fn = loss_of(model)
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, options=OPTIONS)
    tracker.backward(lambda x, y: loss_fn(x, y) / 20, *batch((3, 2, 4, 1)), step=0)
