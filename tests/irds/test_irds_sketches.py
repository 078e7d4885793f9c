"""Sketches: unbiased, the same wherever the same gradient comes from, and as accurate as stated."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, Decoder, batch, loss_of, make_model, naive_gram, relative  # noqa: E402
from shapleymix_irds import IRDS, Options, sketches  # noqa: E402
from shapleymix_irds.sketches import Labels, Units, columns_of, matrix_sketch, near, side_of  # noqa: E402
from torch import Tensor  # noqa: E402


def drawn(shape: tuple[int, int], columns: int, seed: int = 7) -> sketches.Side:
    """The side of a matrix, in double precision."""
    return side_of(shape, columns_of(shape, columns), torch.Generator().manual_seed(seed), torch.float64)


def rows(outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output gradients and inputs of 6 sequences of 5 tokens, and their groups."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(30, outputs, **draw), torch.randn(30, inputs, **draw), torch.tensor([0, 2, 2, 1, 0, 2])


@pytest.mark.parametrize("columns", [0, 4, 8])
@pytest.mark.parametrize("most", [2**22, 16])
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 9), (40, 9), (7, 40), (33, 40)])
@pytest.mark.parametrize("by_token", [False, True])
def test_rows_give_the_sketch_of_the_whole_gradient(
    columns: int, most: int, outputs: int, inputs: int, by_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that passes of whole gradients and rows of layers may be mixed, and ranks agree; on either axis."""
    monkeypatch.setattr(sketches, "ROOM", most)
    delta, x, groups = rows(outputs, inputs)
    each = groups.repeat_interleave(5)
    labels = Labels(each.view(6, 5) if by_token else groups, 4, 5)
    side = drawn((outputs, inputs), columns)
    found = matrix_sketch(delta, x, labels.units(x.view(6, 5, -1)), 4, outputs, side.matrix, side.axis)
    for group in range(4):
        whole = delta[each == group].T @ x[each == group]
        assert torch.allclose(found[group], side.sketch(whole), atol=1e-12)


@pytest.mark.parametrize("columns", [0, 4])
@pytest.mark.parametrize("most", [2**22, 16])
def test_ids_stand_for_unit_vectors(columns: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tied table meets its own projections, as an embedding and as an output layer."""
    monkeypatch.setattr(sketches, "ROOM", most)
    _, x, groups = rows(7, 9)
    ids = torch.arange(30) % 21 - 1
    hot = torch.nn.functional.one_hot(ids.clamp(min=0), 20).double() * (ids >= 0)[:, None]
    side = drawn((20, 9), columns)
    a, b = (matrix_sketch(each, x, Units(groups), 3, 20, side.matrix, side.axis) for each in (ids, hot))
    assert torch.allclose(a, b, atol=1e-12)


def test_products_of_sketches_are_unbiased_and_as_spread_as_stated() -> None:
    """The error of a product is about |G| |H| sqrt(2 / r) for gradients of one token, the worst there are; none is left
    where inputs are within what the sides were drawn near to."""
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator, "dtype": torch.float64}
    inputs, few = torch.randn(20, 120, **draw), torch.randn(2, 20, **draw)
    g, h = (torch.outer(torch.randn(100, **draw), each @ inputs) for each in few)
    h = h / h.norm() + g / g.norm()
    errors: dict[str, list[float]] = {"signs": [], "near": [], "exact": []}
    for seed in range(400):
        given = drawn((100, 120), 32, seed).matrix
        some, all_rows = (near(given, each.T @ torch.randn(len(each), 24, **draw)) for each in (inputs[:10], inputs))
        for name, matrix in zip(errors, (given, some, all_rows), strict=True):
            error = ((g @ matrix) * (h @ matrix)).sum() - (g * h).sum()
            errors[name].append(float(error / (g.norm() * h.norm())))
    spread = {name: torch.tensor(each).std() for name, each in errors.items()}
    assert all(abs(torch.tensor(each).mean()) < 4 * spread[name] / 20 + 1e-12 for name, each in errors.items())
    assert spread["signs"] < 1.5 * (2 / 32) ** 0.5
    assert spread["exact"] < 1e-10


class Tied(Decoder):
    """Input and output embedding are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("kind", [make_model, Tied])
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
