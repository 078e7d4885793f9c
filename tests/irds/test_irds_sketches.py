"""Sketches: unbiased, the same wherever the same gradient comes from, and as accurate as stated."""

from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, Shifted, Tied, batch, loss_of, make_model, naive_gram, relative  # noqa: E402
from shapleymix_irds import IRDS, Options, sketches  # noqa: E402
from shapleymix_irds.sketches import (  # noqa: E402
    Labels,
    Projection,
    Units,
    basis_columns,
    matrix_sketch,
    projection_of,
    projections_of,
    signs,
    with_basis,
)
from torch import Tensor  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402


def drawn(shape: tuple[int, ...], columns: int, most: float = torch.inf, seed: int = 7) -> Projection:
    """The side of a matrix in double precision, with signs for M."""
    draw = torch.Generator().manual_seed(seed)
    side = projection_of(shape, columns, "matrix", most)
    side.draw(draw, torch.float64)
    if side.matrix is not None:
        side.matrix = signs(tuple(side.matrix.shape), draw, torch.float64) * side.columns**-0.5
    return side


def rows(outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output gradients and inputs of 6 sequences of 5 tokens, and their groups."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(30, outputs, **draw), torch.randn(30, inputs, **draw), torch.tensor([0, 2, 2, 1, 0, 2])


@pytest.mark.parametrize("columns", [0, 4, 8])
@pytest.mark.parametrize("most", [torch.inf, 50])
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 9), (40, 9), (7, 40), (33, 40)])
@pytest.mark.parametrize("by_token", [False, True])
def test_rows_give_the_sketch_of_the_whole_gradient(
    columns: int, most: float, outputs: int, inputs: int, by_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that passes of whole gradients and rows of layers may be mixed, and ranks agree; folded or not."""
    monkeypatch.setattr(sketches, "ROOM", 16)
    delta, x, groups = rows(outputs, inputs)
    each = groups.repeat_interleave(5)
    labels = Labels(each.view(6, 5) if by_token else groups, 4, 5)
    side = drawn((outputs, inputs), columns, most)
    found = matrix_sketch(delta, side.projected(x), labels.units(x.view(6, 5, -1)), 4, side)
    assert found.shape == (4, side.numbers)
    for group in range(4):
        whole = delta[each == group].T @ x[each == group]
        assert torch.allclose(found[group], side.sketch(whole), atol=1e-12)


@pytest.mark.parametrize("columns", [0, 4])
@pytest.mark.parametrize("most", [torch.inf, 40])
def test_ids_stand_for_unit_vectors(columns: int, most: float) -> None:
    """A tied table meets its own projections, as an embedding and as an output layer."""
    _, x, groups = rows(7, 9)
    ids = torch.arange(30) % 21 - 1
    hot = torch.nn.functional.one_hot(ids.clamp(min=0), 20).double() * (ids >= 0)[:, None]
    side = drawn((20, 9), columns, most)
    a, b = (matrix_sketch(e, side.projected(x), Units(groups), 3, side) for e in (ids, hot))
    assert torch.allclose(a, b, atol=1e-12)


def test_products_of_sketches_are_unbiased_and_as_spread_as_stated() -> None:
    """The error of a product is about |G| |H| sqrt(2 / r) for gradients of one token, the worst there are, and as much
    for the rows that they are folded to; none is left where inputs are within what M was drawn near to."""
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator, "dtype": torch.float64}
    inputs, few = torch.randn(20, 120, **draw), torch.randn(2, 20, **draw)
    g, h = (torch.outer(torch.randn(100, **draw), each @ inputs) for each in few)
    h = h / h.norm() + g / g.norm()
    errors: dict[str, list[float]] = {"signs": [], "folded": [], "near": [], "exact": []}
    for seed in range(400):
        side, small = (drawn((100, 120), 32, most, seed) for most in (torch.inf, 25 * 32))
        given = torch.sign(side.matrix)
        some, every = (with_basis(each.T @ torch.randn(len(each), 24, **draw), given) for each in (inputs[:10], inputs))
        for name, one, matrix in zip(errors, (side, small, side, side), (side.matrix, every, some, every), strict=True):
            one.matrix = matrix
            error = (one.sketch(g) * one.sketch(h)).sum() - (g * h).sum()
            errors[name].append(float(error / (g.norm() * h.norm())))
    spread = {name: torch.tensor(each).std() for name, each in errors.items()}
    assert all(abs(torch.tensor(each).mean()) < 4 * spread[name] / 20 + 1e-12 for name, each in errors.items())
    assert spread["signs"] < 1.5 * (2 / 32) ** 0.5
    assert spread["folded"] < 1.5 * (2 / 25) ** 0.5
    assert spread["exact"] < 1e-10


def test_what_an_evaluation_holds_at_3_billion_parameters() -> None:
    """28 layers of 3,072 by 8,192 and two tables of 99,487 words, as the paper's largest model; 20 languages: training
    sketches are met as they are made, so that those of validation and the matrices M are at most .2% of 80 GiB."""
    h, f, vocabulary = 3072, 8192, 99_487
    layer = dict.fromkeys("qkvo", (h, h)) | {"gate": (f, h), "up": (f, h), "down": (h, f), "norm1": (h,), "norm2": (h,)}
    shapes: dict[str, tuple[int, ...]] = {f"{n}.{name}": shape for n in range(28) for name, shape in layer.items()}
    shapes |= {"norm": (h,), "embed": (vocabulary, h), "head": (vocabulary, h)}
    sides = projections_of(shapes, {"embed": "table", "head": "output"}, Options().side, 20).values()
    assert (numbers := sum(side.numbers for side in sides)) <= sketches.NUMBERS
    assert 4 * (20 * numbers + sum(side.shape[-1] * side.columns for side in sides)) <= 0.002 * 80 * 2**30


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_token", [False, True])
def test_an_output_layer_of_many_words_is_taken_in_pieces(by_token: bool, kind: torch.dtype) -> None:
    """Its gradient, as large as the logits, was copied in single precision once, or three times by token."""
    tokens, words, width = 1024, 32_768, 256
    side = projections_of({"head": (words, width), "embed": (words, width)}, {"head": "output", "embed": "table"}, 8, 4)
    head, groups = side["head"], torch.arange(4).repeat_interleave(tokens // 4)
    head.draw(torch.Generator().manual_seed(0), torch.float32)
    head.matrix = signs((width, head.columns), torch.Generator().manual_seed(1), torch.float32)
    labels = Labels(groups.view(4, -1) if by_token else groups[:: tokens // 4], 4, tokens // 4)
    delta, x = (torch.randn(tokens, size).to(kind) for size in (words, width))
    right, met = head.projected(x), torch.randn(4, head.numbers)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        found = matrix_sketch(delta, right, labels.units(x.view(4, -1, width)), 4, head, met)
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    assert 1e6 < max(sizes) < 0.15 * 4 * tokens * words
    grads = torch.stack([delta[groups == k].float().T @ x[groups == k].float() for k in range(4)])
    assert relative(found, head.sketch(grads) @ met.T) < (1e-5 if kind == torch.float32 else 1e-2)


def test_sketches_of_all_languages_have_no_more_numbers_than_the_model() -> None:
    for languages, most in ((1, 800_000), (20, 400 * 128**2 / 20), (200, 2**17)):
        sides = projections_of(dict.fromkeys(map(str, range(400)), (128, 128)), {}, 16, languages).values()
        assert 0.9 * most < sum(side.numbers for side in sides) <= most


def test_an_evaluation_holds_what_is_reckoned(val: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "NUMBERS", 3000)
    model = make_model().double()
    options = Options(val_sequences=3, measure_sequences=1, side=2)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="sketch", options=options)
    tracker.backward(loss_of(model), *batch((1, 4, 2, 3)), step=0)
    engine = tracker.engine
    assert 500 < (numbers := sum(side.numbers for side in engine.projections.values())) < 3000
    assert sum(each.numel() for each in engine.validated.sketches.values()) == 4 * numbers
    assert {tuple(each.shape) for each in engine.train.values()} == {(4, 4)}


@pytest.mark.parametrize("kind", [make_model, Tied, Shifted])
def test_the_mean_over_evaluations_goes_to_the_exact_values(kind: Any, val: Any) -> None:
    torch.manual_seed(0)
    model = kind().double()
    loss_fn = loss_of(model)
    x, y, lang = batch((1, 4, 2, 3))
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    errors = []
    options = Options(val_sequences=3, measure_sequences=1, side=4)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="sketch", options=options)
    for step in range(64):
        tracker.backward(loss_fn, x, y, lang, step=step)
        tracker.commit(lr=1.0)
        errors.append(relative(tracker.ledger.phi / (step + 1), truth))
    assert errors[-1] < 0.15
    assert errors[-1] < errors[0] / 3


def test_each_matrix_has_a_basis_and_layers_of_one_input_share_it(val: Any) -> None:
    """Also where the first of them is trained no longer."""
    model: Any = make_model().double()
    options = Options(val_sequences=3, measure_sequences=1, side=2)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="sketch", options=options, loss_fn=loss_of(model))
    for step, frozen in enumerate(("", "blocks.0.gate.weight")):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name != frozen)
        tracker.backward(loss_of(model), *batch((1, 4, 2, 3)), step=step)
        tracker.commit(lr=0.1)
        matrices = [side.matrix for side in tracker.engine.projections.values() if side.matrix is not None]
        assert len(matrices) - len({id(matrix) for matrix in matrices}) == (1 if frozen else 2)
        bases = [matrix[:, : basis_columns(matrix.shape[1])] for matrix in matrices]
        assert all(torch.allclose(q.T @ q, torch.eye(q.shape[1], dtype=q.dtype)) for q in bases)
