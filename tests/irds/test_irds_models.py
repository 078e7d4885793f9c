"""Unmodified and awkward models: Hugging Face Llama, compiled, tied, position tables, frozen parts."""

import copy
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import (  # noqa: E402
    LENGTH,
    VOCAB,
    WIDTH,
    Decoder,
    Shifted,
    Tied,
    batch,
    compared,
    loss_of,
    make_model,
    tracker_of,
    validation,
)
from shapleymix_irds import IRDS  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._functorch import config as functorch  # noqa: E402

# torch itself uses what it deprecates while it compiles
COMPILES = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def assert_exact(model: Any, plain: Any = None) -> IRDS:
    """The tracker on a model, against the naive reference on it (or on the same one as it was before, `plain`)."""
    tracker = tracker_of(model, validation(), engine="exact")
    assert max(compared(tracker, *batch((1, 3, 0, 3)), plain=plain)) < 1e-10  # as many sequences as tokens
    return tracker


@COMPILES
def test_a_compiled_model_in_one_graph() -> None:
    torch._dynamo.reset()
    model = make_model(layers=0).double()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")  # kernels take half a minute; runs have some
    assert assert_exact(compiled, plain=model).engine.fallback is None
    with pytest.raises(CoverageError, match=r"positions\.weight"):
        assert_exact(torch.compile(Positions(layers=0).double(), backend="aot_eager"))


class Positions(Decoder):
    """A table of positions without a sequence axis."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__(layers=layers)
        self.positions = nn.Embedding(LENGTH, WIDTH)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Matmul(Decoder):
    """An output layer that multiplies by hand."""

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        return torch.matmul(self.norm(x), other=self.head.weight.T)


class Transposed(Decoder):
    """Tokens in front of sequences."""

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids).transpose(0, 1)
        return self.head(self.norm(x)).transpose(0, 1)


@pytest.mark.parametrize(
    ("kind", "passed"), [(Tied, None), (Positions, None), (Matmul, None), (Transposed, "head.weight, norm.weight")]
)
def test_tied_and_uncovered_parameters_are_exact(kind: Any, passed: str | None) -> None:
    torch.manual_seed(0)
    assert assert_exact(kind().double()).engine.fallback == (passed and f"a pass a language for {passed}")


def test_learned_shifts_and_frozen_parameters() -> None:
    torch.manual_seed(0)
    model = Shifted().double()
    model.blocks[0].requires_grad_(False)
    assert assert_exact(model).engine.fallback is None


class Streams(Decoder):
    """Two streams on a leading axis, which is no axis of sequences; `wide` turns them on."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = True

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        if self.wide:
            h = torch.tanh(self.norm(torch.stack([h, h.roll(1, 1)]))).sum(0) + h
        return self.head(h)


class Experts(nn.Module):
    """Few words share an expert; at first all go to the first one, as if there were no choice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.turns, self.choosing = nn.Parameter(torch.randn(97, WIDTH, WIDTH) / WIDTH), False

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids).flatten(0, 1)
        chosen = (ids * ids.roll(1, 1)).flatten() % 97 * self.choosing
        out = torch.zeros_like(h)
        for k in range(97):
            rows = (chosen == k).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, self.experts[k % 2](h[rows] @ self.turns[k]))
        return self.head(h + out).view(*ids.shape, -1)


class Turned(Decoder):
    """A layer below the blocks is not covered."""

    def __init__(self) -> None:
        super().__init__(layers=1)
        self.odd = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        x = self.blocks[0](x + torch.einsum("bsd,ed->bse", x, self.odd))
        return self.head(self.norm(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whole", [False, True])
def test_passes_go_through_compiled_layers(whole: bool) -> None:
    """PyTorch's compiler gives buffers away that the second pass needs: an error of its own that no user understood."""
    functorch.donated_buffer = True
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Turned().double()
    plain = copy.deepcopy(model)
    (model if whole else model.blocks[0]).compile(backend="aot_eager")
    assert assert_exact(model, plain).engine.fallback == "a pass a language for odd"
    tracker, (x, y, lang) = tracker_of(model, validation(), engine="exact", loss_fn=loss_of(model)), batch((1, 3, 0, 3))
    refused = pytest.raises(CoverageError, match="not covered: odd") if whole else nullcontext()
    with refused, tracker.watch(lang, step=0):
        loss_of(model)(x, y).sum().backward()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_calls_that_are_not_covered_take_passes(late: bool, free: bool) -> None:
    for model, switch in ((Streams().double(), "wide"), (Experts().double(), "choosing")):
        tracker = tracker_of(model, None if free else validation(), engine="exact")
        for step, odd in enumerate((not late, True)):
            setattr(model, switch, odd)
            gradient_error, error = compared(tracker, *batch((3, 2, 4, 1), seed=step), step)
            assert gradient_error == 0
            assert free or error < 1e-10
            assert ("a pass a language for" in str(tracker.engine.fallback)) == (odd and isinstance(model, Streams))


@pytest.mark.parametrize("engine", ["auto", "sketch", "exact"])
def test_a_parameter_that_the_tracker_does_not_know_is_refused(engine: Any) -> None:
    model, other = make_model().double(), nn.Parameter(torch.eye(VOCAB, dtype=torch.float64))
    tracker = tracker_of(model, validation(), engine=engine)
    with pytest.raises(CoverageError, match=rf"does not know: one of shape \({VOCAB}, {VOCAB}\)"):
        tracker.backward(loss_of(lambda x: model(x) @ other), *batch((3, 2, 4, 1)), step=0)
    assert other.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_a_layer_that_is_unfrozen_later_is_measured(engine: Any) -> None:
    model = make_model().double()
    model.head.weight.requires_grad_(False)
    tracker = tracker_of(model, validation(), engine=engine)
    tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    tracker.commit(lr=1.0)
    model.head.weight.requires_grad_(True)
    assert compared(tracker, *batch((3, 2, 4, 1), seed=1), 1)[0] == 0
    assert engine == "sketch" or compared(tracker, *batch((3, 2, 4, 1), seed=2), 2)[1] < 1e-10


def test_validation_of_other_lengths_is_measured() -> None:
    model = make_model().double()
    val = {name: (x[:, : 4 + k], y[:, : 4 + k]) for k, (name, (x, y)) in enumerate(validation().items())}
    assert compared(tracker_of(model, val, engine="exact"), *batch((3, 2, 4, 1)), val=val)[1] < 1e-10
