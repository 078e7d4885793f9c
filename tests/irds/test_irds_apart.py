"""What is found by changing one sequence: rows in another order, and sequences that change each other's loss;
and layers that are recomputed in a way in which nothing is seen."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import Decoder, batch, compared, loss_of, tracker_of, validation  # noqa: E402
from shapleymix_irds import IRDS  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


class Swapped(Decoder):
    """The last layers have tokens in front of sequences, as Megatron has it, and as many rows as ever."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(0, 1).reshape(-1, self.embed.embedding_dim)
        return self.head(self.norm(x)).unflatten(0, (ids.shape[1], ids.shape[0])).transpose(0, 1)


class Centred(Decoder):
    """Takes the mean of the batch off."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.head(self.norm(x - x.mean((0, 1))))


class Reentrant(Decoder):
    """Layers that are recomputed in the old way, in which nobody sees what a parameter goes into."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if torch.is_grad_enabled() else block(x)
        return self.head(self.norm(x))


def made(kind: type[Decoder], **options: Any) -> tuple[nn.Module, IRDS]:
    torch.manual_seed(0)
    model = kind().double()
    return model, tracker_of(model, **({"val": validation()} | options))


def test_rows_in_another_order_take_passes() -> None:
    """Taken for sequences in front, they gave a training gradient that was wrong by nine tenths."""
    _, tracker = made(Swapped)
    assert max(compared(tracker, *batch((3, 2, 4, 1)))) < 1e-10
    assert tracker.engine.fallback == "a pass a language for head.weight, norm.weight"
    model, free = made(Swapped, val=None)
    free.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    assert free.engine.fallback == tracker.engine.fallback


@pytest.mark.parametrize("options", [{"engine": "sketch"}, {"engine": "exact"}, {"val": None}], ids=str)
def test_layers_that_mix_sequences_are_refused(options: dict[str, Any]) -> None:
    model, tracker = made(Centred, **options)
    with pytest.raises(CoverageError, match="the loss of a sequence changes with the others of its batch"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)


def test_a_loss_that_mixes_sequences_is_refused() -> None:
    model, tracker = made(Decoder)
    loss_fn = loss_of(model)
    with pytest.raises(CoverageError, match="changes with the others"):
        tracker.backward(
            lambda x, y: (loss_fn(x, y) + loss_fn(x, y).std(), loss_fn(x, y)), *batch((3, 2, 4, 1)), step=0
        )


def test_passes_are_priced_before_the_first_step() -> None:
    model, tracker = made(Swapped)
    tracker.schedule, tracker.auto = None, True
    with pytest.warns(UserWarning, match=r"a pass a language for head\.weight, norm\.weight: .* about 8"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    assert tracker.schedule.every > 80, "it was 27 where passes were not reckoned with"


@pytest.mark.parametrize("free", [False, True])
def test_reentrant_checkpointing_is_refused(free: bool) -> None:
    model, tracker = made(Reentrant, **({"val": None} if free else {}))
    with pytest.raises(CoverageError, match="reentrant checkpointing hides"):
        tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    assert all(parameter.grad is None for parameter in model.parameters())
