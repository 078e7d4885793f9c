"""Learning rates by parameter group, against the naive reference: each group's products times its own rate."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import (  # noqa: E402
    LANGUAGES,
    batch,
    gradient,
    loss_of,
    make_model,
    mean_losses,
    relative,
    sketched,
    training_parts,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from torch import Tensor, nn  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)
COUNTS = (2, 1, 0, 3)


def groups_of(model: Any) -> list[list[nn.Parameter]]:
    """Three of them: tables, matrices of the blocks, and all that is short."""
    short = [p for p in model.blocks.parameters() if p.ndim < 2] + list(model.norm.parameters())
    return [[model.embed.weight, model.head.weight], [p for p in model.blocks.parameters() if p.ndim == 2], short]


def truth_of(model: Any, lrs: list[float], val: Any, sides: Any = None) -> Tensor:
    """Sum over groups of lr_g <h_j, g_i>_g, brought to a tracker's sides if they are given."""
    model = make_model().double() if model is None else model
    loss_fn, (x, y, lang) = loss_of(model), batch(COUNTS)
    rate = {id(p): lr for group, lr in zip(groups_of(model), lrs, strict=True) for p in group}
    rates = [rate[id(p)] for p in model.parameters()]
    g = training_parts(model, loss_fn, x, y, lang, float((y != -100).sum()), 4)
    h = [gradient(model, loss) for loss in mean_losses(model, loss_fn, val)]
    if sides is not None:
        g, h = ([sketched(each, model, sides) for each in parts] for parts in (g, h))
    return torch.tensor(
        [[sum(r * float((u * v).sum()) for r, u, v in zip(rates, a, b, strict=True)) for b in h] for a in g],
        dtype=torch.float64,
    )


def measured(lrs: list[float], val: Any, **settings: Any) -> IRDS:
    """One step of an optimiser that is followed."""
    model: Any = make_model().double()
    groups = [{"params": group, "lr": lr} for group, lr in zip(groups_of(model), lrs, strict=True)]
    optimizer = torch.optim.SGD(groups, lr=9.0)
    x, y, lang = batch(COUNTS)
    tracker = IRDS(model, LANGUAGES, **({"val": val, "every": 1, "options": OPTIONS} | settings))
    tracker.follow(optimizer)
    tracker.backward(loss_of(model), x, y, lang, step=0)
    optimizer.step()
    return tracker


def by_hand(lr: float, val: Any) -> IRDS:
    """The same with one rate, committed by the loop."""
    model: Any = make_model().double()
    tracker = IRDS(model, LANGUAGES, val=val, every=1, options=OPTIONS)
    tracker.backward(loss_of(model), *batch(COUNTS), step=0)
    tracker.commit(lr=lr)
    return tracker


@pytest.mark.parametrize("lrs", [[0.3, 0.02, 0.9], [0.1, 0.0, 0.1], [0.0, 0.0, 0.0], [0.2, 0.2, 0.2]], ids=str)
def test_each_group_has_its_own_rate(lrs: list[float], val: Any) -> None:
    truth = truth_of(None, lrs, val)
    assert relative(measured(lrs, val).ledger.phi, truth) < 1e-10
    if lrs == [0.2] * 3:
        assert relative(by_hand(0.2, val).ledger.phi, truth) < 1e-10


def test_groups_keep_their_sketches_apart(val: Any) -> None:
    """Right on the average; frozen groups add no noise."""
    for lrs in ([0.3, 0.02, 0.9], [0.0, 0.02, 0.0]):
        truth = truth_of(None, lrs, val)
        drawn = [Options(val_sequences=3, seed=seed, side=2) for seed in range(16)]
        few = [torch.as_tensor(measured(lrs, val, engine="sketch", options=each).ledger.phi) for each in drawn]
        spread = torch.stack(few).std(0) / 16**0.5
        assert ((torch.stack(few).mean(0) - truth).abs() < 4 * spread + 1e-12).all()


def test_rates_of_halves_where_there_is_no_validation_set(val: Any) -> None:
    """Equal rates give what one rate gives; a rate of 0 takes its parameters out."""
    one = by_hand(0.2, None).ledger
    assert relative(measured([0.2, 0.2, 0.2], None).ledger.phi, one.phi) < 1e-12
    parts = [measured(lrs, None).ledger.phi for lrs in ([0.2, 0, 0], [0, 0.2, 0], [0, 0, 0.2])]
    assert relative(sum(parts), one.phi) < 1e-12
