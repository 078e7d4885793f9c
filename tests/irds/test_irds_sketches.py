"""Sketches: unbiased, the same wherever the same gradient comes from, and as accurate as stated."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, Decoder, batch, loss_of, make_model, naive_gram, relative  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.sketches import Form, Labels, gradient_sketch, key_of, matrix_sketch, vector_sketch  # noqa: E402
from torch import Tensor  # noqa: E402

FORMS = [Form(0, 0), Form(256, 4), Form(256, 16), Form(64, 8)]
SEED = torch.tensor(7)


def rows(outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output gradients and inputs of 6 sequences of 5 tokens, and their groups."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(30, outputs, **draw), torch.randn(30, inputs, **draw), torch.tensor([0, 2, 2, 1, 0, 2])


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 9), (40, 9), (7, 40), (33, 40)])
@pytest.mark.parametrize("by_token", [False, True])
def test_rows_give_the_sketch_of_the_whole_gradient(form: Form, outputs: int, inputs: int, by_token: bool) -> None:
    """So that passes of whole gradients and rows of layers may be mixed, and ranks agree."""
    delta, x, groups = rows(outputs, inputs)
    each = groups.repeat_interleave(5)
    labels = Labels(each.view(6, 5) if by_token else groups, 4, 5)
    units, _ = labels.units(torch.Size([6, 5]))
    sizes = [4, key_of("w"), form.width, form.side, outputs]
    found = matrix_sketch(delta, x, units.groups, units.slots, SEED, sizes)
    for group in range(4):
        whole = delta[each == group].T @ x[each == group]
        assert torch.allclose(found[group], gradient_sketch(whole, SEED, "w", form), atol=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_ids_stand_for_unit_vectors(form: Form) -> None:
    """A tied table meets its own projections, as an embedding and as an output layer."""
    _, x, groups = rows(7, 9)
    ids = torch.arange(30) % 21 - 1
    hot = torch.nn.functional.one_hot(ids.clamp(min=0), 20).double() * (ids >= 0)[:, None]
    sizes = [3, 5, form.width, form.side, 20]
    a = matrix_sketch(ids, x, groups, None, SEED, sizes)
    b = matrix_sketch(hot, x, groups, None, SEED, sizes)
    assert torch.allclose(a, b, atol=1e-12)


def test_products_of_sketches_are_unbiased_and_as_spread_as_stated() -> None:
    """The error of a product is about |G| |H| sqrt(2 / r + 1 / d) for gradients of one token, the worst there are."""
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator, "dtype": torch.float64}
    for outputs, inputs in ((100, 120), (40, 300)):
        g, h = (torch.outer(torch.randn(outputs, **draw), torch.randn(inputs, **draw)) for _ in range(2))
        h = h / h.norm() + g / g.norm()
        form = Form(512, 32)
        pairs = [(gradient_sketch(g, torch.tensor(s), "w", form), gradient_sketch(h, torch.tensor(s), "w", form))
                 for s in range(400)]  # fmt: skip
        errors = torch.stack([a @ b - (g * h).sum() for a, b in pairs]) / (g.norm() * h.norm())
        stated = (2 / 32 + 1 / 512) ** 0.5
        assert abs(errors.mean()) < 4 * errors.std() / 20
        assert errors.std() < 1.5 * stated


def test_vectors_are_count_sketched() -> None:
    values, groups = torch.randn(6, 50, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 2, 2])
    exact = vector_sketch(values, groups, SEED, [3, key_of("w"), 0])
    assert torch.allclose(exact[1], values[1] + values[2])
    found = vector_sketch(values, groups, SEED, [3, key_of("w"), 64])
    assert torch.allclose(found[0], gradient_sketch(exact[0], SEED, "w", Form(64, 8)))


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
    options = Options(val_sequences=3, measure_sequences=1, numbers=2048, side=8)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="sketch", options=options)
    for step in range(64):
        tracker.backward(loss_fn, x, y, lang, step=step)
        tracker.commit(lr=1.0)
        errors.append(relative(tracker.ledger.phi / (step + 1), truth))
    assert errors[-1] < 0.15
    assert errors[-1] < errors[0] / 3
