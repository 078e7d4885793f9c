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
from shapleymix_irds.errors import CoverageError  # noqa: E402
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


@pytest.mark.parametrize(
    ("kind", "match"), [(Swapped, r"head\.weight, norm\.weight"), (Centred, "changes with the others")]
)
@pytest.mark.parametrize("every", [1, 50])
def test_a_first_step_without_validation_is_looked_at(kind: Any, match: str, every: int) -> None:
    model, _ = made(kind)
    tracker = IRDS(model, LANGUAGES, val=None, every=every, options=OPTIONS)
    x, y, lang = batch((3, 2, 4, 1))
    with pytest.raises(CoverageError, match=match), tracker.watch(lang, step=0):
        (loss_of(model)(x, y).sum() / y.numel()).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_passes_are_priced_before_the_first_step() -> None:
    model, tracker = made(Swapped)
    tracker.schedule, tracker.auto = None, True
    with pytest.warns(UserWarning, match=r"a pass a language for head\.weight, norm\.weight: .* about 8"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    assert tracker.schedule is not None
    assert tracker.schedule.every > 80, "it was 27 where passes were not reckoned with"
