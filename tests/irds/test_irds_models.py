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
    sequence_losses,
    validation,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from shapleymix_irds.state import provenance  # noqa: E402
from shapleymix_irds.train.telemetry import irds_line  # noqa: E402
from torch import nn  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)
# torch itself uses what it deprecates while it compiles
COMPILES = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def assert_exact(model: Any, loss_fn: Any, engine: str, tolerance: float = 1e-10) -> IRDS:
    val = validation()
    x, y, lang = batch((1, 4, 0, 3))
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    with torch.enable_grad():
        expected = gradient(model, loss_fn(x, y).sum() / (y != -100).sum())
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine=engine, options=OPTIONS)  # type: ignore[arg-type]
    model.zero_grad()
    tracker.backward(loss_fn, x, y, lang, step=0)
    live = [p for p in model.parameters() if p.requires_grad]
    for parameter, grad in zip(live, expected, strict=True):
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert relative(got, grad) < tolerance
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < tolerance
    return tracker


@pytest.mark.parametrize("engine", ["grouped", "micro"])
def test_an_unmodified_hugging_face_llama(engine: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=False, attention_bias=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).double()
    assert_exact(model, lambda x, y: sequence_losses(model(input_ids=x).logits, y), engine)


@COMPILES
def test_a_compiled_model_in_one_graph() -> None:
    torch._dynamo.reset()
    model = make_model(layers=1).double()
    compiled = torch.compile(model, fullgraph=True, backend="inductor")
    tracker = assert_exact(compiled, loss_of(compiled), "grouped")
    assert tracker.engine is not None
    assert tracker.engine.name == "grouped"


@COMPILES
def test_compiled_graphs_do_not_depend_on_the_groups() -> None:
    torch._dynamo.reset()
    model = make_model(layers=1)
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    loss_fn = loss_of(compiled)
    tracker = IRDS(compiled, LANGUAGES, val=validation(), every=1, engine="grouped", options=OPTIONS)  # type: ignore[arg-type]
    for step, counts in enumerate([(1, 4, 0, 3), (2, 2, 2, 2), (8, 0, 0, 0), (0, 1, 1, 6)]):
        tracker.backward(loss_fn, *batch(counts), step=step)
        tracker.commit(lr=1.0)
    assert sum("fwd_body" in str(graph) for graph in graphs) == 1


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
    ("kind", "message"),
    [
        (Tied, "parameters tied or used more than once: embed.weight"),
        (Positions, "not covered: positions.weight"),
        (Matmul, "not covered: head.weight"),
        (Transposed, "not covered: norm.weight, head.weight"),
    ],
)
def test_what_cannot_be_split_is_named_or_goes_to_micro_batches(kind: Any, message: str) -> None:
    torch.manual_seed(0)
    model = kind().double()
    loss_fn = loss_of(model)
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine="grouped", options=OPTIONS)
    with pytest.raises(CoverageError, match=message):
        tracker.backward(loss_fn, *batch((1, 4, 0, 3)), step=0)
    tracker = assert_exact(model, loss_fn, "auto")
    assert tracker.engine is not None
    assert tracker.engine.name == "micro"
    assert message in provenance(tracker)["fallback"]
    assert message in irds_line(1, 1, 0.1, [0.1], tracker.fallback)


def test_batches_as_long_as_wide_are_still_told_apart() -> None:
    """B = S must not let a table of positions pass for sequences."""
    torch.manual_seed(0)
    model = Positions().double()
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine="grouped", options=OPTIONS)
    with pytest.raises(CoverageError, match=r"positions\.weight"):
        tracker.backward(loss_of(model), *batch((1, LENGTH - 1, 0, 0)), step=0)


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
    assert_exact(model, loss_of(model), "grouped")
    assert_exact(model, loss_of(model), "micro")


def test_batch_norm_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Embedding(VOCAB, 4), nn.BatchNorm1d(LENGTH))
    with pytest.raises(CoverageError, match="module '1' is a BatchNorm1d"):
        IRDS(model, LANGUAGES, val=validation())
