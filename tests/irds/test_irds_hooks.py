"""What else a pass may touch, on one process: hooks, recomputed layers, buffers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, Decoder, batch, loss_of, validation  # noqa: E402
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
