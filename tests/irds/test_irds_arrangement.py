"""Models with the tokens' axis in front: labels find their rows, by sequence and by token."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import VOCAB, WIDTH, batch, loss_of, naive_gram, relative, tracker_of  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from shapleymix_irds.world import Arrangement  # noqa: E402
from torch import Tensor, nn  # noqa: E402


class Stack(nn.Module):
    """Every covered layer without attention; `swapped`: in the order (S, B, ...), `flat`: tokens in one row."""

    def __init__(self, swapped: bool, flat: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(7, WIDTH)
        self.norm, self.heads = nn.LayerNorm(WIDTH), nn.RMSNorm(4)
        self.up, self.head = nn.Linear(WIDTH, 16), nn.Linear(16, VOCAB, bias=False)
        self.scale, self.shift = nn.Parameter(torch.rand(16)), nn.Parameter(torch.rand(16))
        self.swapped, self.flat = swapped, flat

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]).expand(ids.shape)
        x = self.embed(ids) + self.place(places)
        x = x.transpose(0, 1).contiguous() if self.swapped else x
        lead = x.shape[:2]
        x = x.flatten(0, 1) if self.flat else x
        h = self.up(self.norm(x))
        h = self.heads(h.unflatten(-1, (4, 4))).flatten(-2) * self.scale + self.shift
        y = self.head(torch.tanh(h)).view(*lead, VOCAB)
        return y.transpose(0, 1) if self.swapped else y


def phi_of(model: Any, val: Any, x: Tensor, y: Tensor, lang: Tensor, **settings: Any) -> Any:
    tracker = tracker_of(model, val, **settings)
    tracker.backward(loss_of(model), x, y, lang, step=0)
    tracker.commit(lr=1.0)
    return tracker.ledger.phi


@pytest.mark.parametrize("counts", [(1, 4, 0, 3), (2, 2, 1, 2)], ids=["8 of 7 tokens", "7 of 7 tokens"])
@pytest.mark.parametrize("flat", [False, True])
def test_sequences_have_their_rows_in_either_order(flat: bool, counts: tuple[int, ...], val: Any) -> None:
    x, y, lang = batch(counts)
    plain, swapped = Stack(False, flat).double(), Stack(True, flat).double()
    truth = naive_gram(plain, loss_of(plain), x, y, lang, val)
    arrangement = Arrangement(tokens_first=True)
    assert relative(phi_of(swapped, val, x, y, lang, engine="exact", arrangement=arrangement), truth) < 1e-10
    sketched = phi_of(plain, val, x, y, lang, engine="sketch")
    assert relative(phi_of(swapped, val, x, y, lang, engine="sketch", arrangement=arrangement), sketched) < 1e-10


@pytest.mark.parametrize("flat", [False, True])
def test_tokens_have_their_rows_in_either_order(flat: bool, val: Any) -> None:
    x, y, _ = batch((8, 0, 0, 0))
    lang = torch.randint(0, 4, (8,), generator=torch.Generator().manual_seed(3)).repeat_interleave(7).view(8, 7)
    lang = lang.roll(3, 1)
    arrangement = Arrangement(tokens_first=True)
    for engine in ("exact", "sketch"):
        truth = phi_of(Stack(False, flat).double(), val, x, y, lang, engine=engine)
        found = phi_of(Stack(True, flat).double(), val, x, y, lang, engine=engine, arrangement=arrangement)
        assert relative(found, truth) < 1e-10


def test_the_other_order_without_a_word_is_found_out(val: Any) -> None:
    """Unless as many sequences as tokens come, it is seen by the shape; and then by changing one sequence."""
    x, y, lang = batch((2, 2, 1, 2))
    model = Stack(True).double()
    tracker = tracker_of(model, val, engine="exact")
    tracker.backward(loss_of(model), x, y, lang, step=0)
    assert "up.weight" in (tracker.engine.fallback or ""), "their gradients take a pass a language"
    tracker = tracker_of(model, val, engine="exact", loss_fn=loss_of(model))
    with pytest.raises(CoverageError, match=r"not covered: .*up\.weight"), tracker.watch(lang, step=0):
        loss_of(model)(x, y).mean().backward()
