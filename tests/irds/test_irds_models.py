"""Unmodified and awkward models: Hugging Face Llama, compiled, tied, position tables, frozen parts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import (  # noqa: E402
    LANGUAGES,
    LENGTH,
    VOCAB,
    WIDTH,
    Decoder,
    batch,
    gradient,
    loss_of,
    make_model,
    naive_gram,
    relative,
    validation,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from torch import Tensor, nn  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)
# torch itself uses what it deprecates while it compiles
COMPILES = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def assert_exact(model: Any, loss_fn: Any, tolerance: float = 1e-10, plain: Any = None) -> IRDS:
    """The tracker on a model, against the naive reference on it (or on the same one as it was before, `plain`)."""
    val = validation()
    x, y, lang = batch((1, 4, 0, 3))
    reference, plain_loss = (plain, loss_of(plain)) if plain else (model, loss_fn)
    truth = naive_gram(reference, plain_loss, x, y, lang, val)
    with torch.enable_grad():
        expected = gradient(reference, plain_loss(x, y).sum() / (y != -100).sum())
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="exact", options=OPTIONS)
    model.zero_grad()
    tracker.backward(loss_fn, x, y, lang, step=0)
    live = [p for p in model.parameters() if p.requires_grad]
    for parameter, grad in zip(live, expected, strict=True):
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert relative(got, grad) < tolerance
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < tolerance
    return tracker


@COMPILES
@pytest.mark.parametrize(("backend", "layers"), [("aot_eager", 1), ("inductor", 0)])  # each kernel costs a second
def test_a_compiled_model_in_one_graph(backend: str, layers: int) -> None:
    torch._dynamo.reset()
    model = make_model(layers=layers).double()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert assert_exact(compiled, loss_of(compiled), plain=model).engine.fallback is None


class Tied(Decoder):
    """Input and output embedding are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


class Positions(Decoder):
    """A table of positions without a sequence axis."""

    def __init__(self) -> None:
        super().__init__()
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
        return self.norm(x) @ self.head.weight.T


class Transposed(Decoder):
    """Tokens in front of sequences."""

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids).transpose(0, 1)
        return self.head(self.norm(x)).transpose(0, 1)


@pytest.mark.parametrize(
    ("kind", "passed"),
    [(Tied, None), (Positions, None), (Matmul, None), (Transposed, "head.weight, norm.weight")],
)
def test_tied_and_uncovered_parameters_are_exact(kind: Any, passed: str | None) -> None:
    torch.manual_seed(0)
    model = kind().double()
    tracker = assert_exact(model, loss_of(model))
    words = passed and f"a pass a language for {passed}"
    assert tracker.engine.fallback == words
    assert tracker.provenance().get("fallback") == words


def test_learned_shifts_and_frozen_parameters() -> None:
    class Shifted(Decoder):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH))
            self.scale = nn.Parameter(torch.randn(1, WIDTH))

        def forward(self, ids: Any) -> Any:
            x = (self.embed(ids) + self.positions) * self.scale
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).flatten(0, 1)).unflatten(0, ids.shape)

    torch.manual_seed(0)
    model = Shifted().double()
    model.blocks[0].requires_grad_(False)
    assert assert_exact(model, loss_of(model)).engine.fallback is None


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
    """Each token goes to one of two experts; at first all go to the first one, as if there were no choice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.choosing = False

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids).flatten(0, 1)
        chosen = (h[:, 0] > 0).long() if self.choosing else torch.zeros(len(h), dtype=torch.long)
        out = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            rows = (chosen == k).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(h[rows]))
        return self.head(h + out).view(*ids.shape, -1)


def compared(model: nn.Module, tracker: IRDS, step: int, loss_fn: Any = None) -> tuple[float, float]:
    """Errors of the gradient and of phi on one step, against the naive reference."""
    loss_fn = loss_fn or loss_of(model)
    x, y, lang = batch((3, 2, 4, 1), seed=step)
    before = torch.as_tensor(tracker.ledger.phi).clone()
    truth = naive_gram(model, loss_fn, x, y, lang, validation())
    expected = gradient(model, loss_fn(x, y).sum() / (y != -100).sum())
    model.zero_grad()
    tracker.backward(loss_fn, x, y, lang, step=step)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    tracker.commit(lr=1.0)
    return max(relative(a, b) for a, b in zip(grads, expected, strict=True)), relative(
        torch.as_tensor(tracker.ledger.phi) - before, truth
    )


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_calls_that_are_not_covered_take_passes(late: bool, free: bool) -> None:
    for model, switch in ((Streams().double(), "wide"), (Experts().double(), "choosing")):
        setattr(model, switch, not late)
        tracker = IRDS(model, LANGUAGES, val=None if free else validation(), every=1, engine="exact", options=OPTIONS)
        gradient_error, error = compared(model, tracker, 0)
        assert gradient_error == 0
        assert free or error < 1e-10
        passes = isinstance(model, Streams)
        assert (tracker.engine.fallback is None) == (late or not passes)
        setattr(model, switch, True)
        gradient_error, error = compared(model, tracker, 1)
        assert gradient_error == 0
        assert free or error < 1e-10
        assert ("a pass a language for" in str(tracker.engine.fallback)) == passes


@pytest.mark.parametrize("engine", ["auto", "sketch", "exact"])
def test_a_parameter_that_the_tracker_does_not_know_is_refused(engine: Any) -> None:
    model, other = make_model().double(), nn.Parameter(torch.eye(VOCAB, dtype=torch.float64))
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine=engine, options=OPTIONS)
    with pytest.raises(CoverageError, match=rf"does not know: one of shape \({VOCAB}, {VOCAB}\)"):
        tracker.backward(loss_of(lambda x: model(x) @ other), *batch((3, 2, 4, 1)), step=0)
    assert other.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_a_layer_that_is_unfrozen_later_is_measured(engine: Any) -> None:
    model = make_model().double()
    model.head.weight.requires_grad_(False)
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine=engine, options=OPTIONS)
    tracker.backward(loss_of(model), *batch((3, 2, 4, 1)), step=0)
    tracker.commit(lr=1.0)
    model.head.weight.requires_grad_(True)
    assert compared(model, tracker, 1)[0] == 0
    if engine == "exact":
        assert compared(model, tracker, 2)[1] < 1e-10


def test_validation_of_other_lengths_is_measured() -> None:
    model = make_model().double()
    loss_fn = loss_of(model)
    val = {name: (x[:, : 4 + k], y[:, : 4 + k]) for k, (name, (x, y)) in enumerate(validation().items())}
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="exact", options=OPTIONS)
    x, y, lang = batch((3, 2, 4, 1))
    tracker.backward(loss_fn, x, y, lang, step=0)
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, naive_gram(model, loss_fn, x, y, lang, val)) < 1e-10
