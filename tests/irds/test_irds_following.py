"""`follow`: what an optimiser gets is measured, against the naive reference and the step that was really taken;
learning rates are those of parameter groups, each times its own products."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from following_tools import COUNTS, groups_of, sgd, step_once, tracked  # noqa: E402
from irds_models import (  # noqa: E402
    batch,
    gradient,
    loss_of,
    make_model,
    mean_losses,
    relative,
    sketched,
    tracker_of,
    training_parts,
)
from shapleymix_irds import IRDS, Options, sketches  # noqa: E402
from shapleymix_irds.errors import NonFiniteError, TrackerError  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.amp.grad_scaler import GradScaler  # noqa: E402


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
    optimizer = sgd(model, lrs)
    tracker = tracked(model, val, optimizer, **settings)
    tracker.backward(loss_of(model), *batch(COUNTS), step=0)
    optimizer.step()
    return tracker


def by_hand(lr: float, val: Any) -> IRDS:
    """The same with one rate, committed by the loop."""
    model: Any = make_model().double()
    tracker = tracker_of(model, val)
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


@pytest.mark.parametrize("engine", ["exact", "sketch"])
def test_rates_and_clipping_are_read_from_the_optimiser(engine: Any, val: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "NUMBERS", 500)
    lrs = [0.3, 0.02, 0.9]
    model: Any = make_model().double()
    optimizer = sgd(model, lrs)
    options = Options(val_sequences=3, side=2)
    tracker = tracked(model, val, optimizer, engine=engine, options=options, loss_fn=loss_of(model))
    x, y, lang = batch(COUNTS)
    tracker.backward(loss_of(model), x, y, lang, step=0)
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
    before = [p.detach().clone() for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    rate = {id(p): lr for group, lr in zip(groups_of(model), lrs, strict=True) for p in group}
    for p, w, g in zip(model.parameters(), before, grads, strict=True):
        assert torch.equal(p, w.add(g, alpha=-rate[id(p)])), "the step is the one of a run without the tracker"
    clip = 0.1 / (norm + 1e-6)
    truth = truth_of(None, [clip * lr for lr in lrs], val, tracker.engine.projections)
    assert relative(tracker.ledger.phi, truth) < 1e-7
    assert (tracker.engine.projections["blocks.0.qkv.weight"].rows > 0) == (engine == "sketch")
    assert tracker.steps == tracker.ledger.count == 1
    assert tracker.next_step == 1


def by_group(model: Any) -> None:
    for number, group in enumerate(groups_of(model)):
        for parameter in group:
            parameter.grad *= (0.5, 0.25, 1.0)[number]


def test_groups_may_be_clipped_one_by_one(val: Any) -> None:
    model: Any = make_model().double()
    optimizer = sgd(model, [0.3, 0.3, 0.3])
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    step_once(tracker, model, between=lambda: by_group(model))
    optimizer.step()
    assert relative(tracker.ledger.phi, truth_of(None, [0.15, 0.075, 0.3], val)) < 1e-7


def test_several_optimisers_commit_together(val: Any) -> None:
    lrs = [0.3, 0.02, 0.9]
    model: Any = make_model().double()
    optimizers = [torch.optim.SGD(group, lr=lr) for group, lr in zip(groups_of(model), lrs, strict=True)]
    tracker = tracked(model, val, *optimizers, loss_fn=loss_of(model))
    step_once(tracker, model)
    for optimizer in optimizers:
        assert tracker.ledger.count == 0
        optimizer.step()
        optimizer.zero_grad()
    assert tracker.ledger.count == tracker.steps == 1
    assert relative(tracker.ledger.phi, truth_of(None, lrs, val)) < 1e-7
    step_once(tracker, model, step=1)
    optimizers[0].step()
    with pytest.raises(TrackerError, match="step 1 is not committed"):
        step_once(tracker, model, step=2)


def test_accumulation_and_steps_that_are_not_evaluated(val: Any) -> None:
    """phi is that of a loop that commits by itself, and so are weights."""
    found = []
    for follows in (False, True):
        model: Any = make_model().double()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        tracker = tracker_of(model, val, every=3)
        if follows:
            tracker.follow(optimizer)
        for step in range(9):
            x, y, lang = batch((2, 1, 3, 2), seed=step)
            total = int((y != -100).sum())
            for part in torch.arange(8).chunk(2):
                tracker.backward(loss_of(model), x[part], y[part], lang[part], step=step, tokens=total)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (step + 1)
            if not follows:
                tracker.commit(lr=0.01 / (step + 1), grad_norm=norm, max_norm=0.5)
            optimizer.step()
            optimizer.zero_grad()
        found.append((tracker, [p.detach() for p in model.parameters()]))
    (one, weights), (other, same) = found
    assert relative(other.ledger.phi, one.ledger.phi) < 1e-7
    assert (other.steps, other.tokens, other.next_step) == (one.steps, one.tokens, one.next_step)
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


def edited(change: Callable[[Any], object]) -> Callable[[Any], None]:
    def edit(model: Any) -> None:
        with torch.no_grad():
            change(model)

    return edit


@pytest.mark.parametrize(
    "change",
    [
        lambda model: nn.utils.clip_grad_value_(model.parameters(), 1e-3),
        edited(lambda model: model.head.weight.grad.zero_()),
        edited(lambda model: [nn.utils.clip_grad_norm_([p], 1e-3) for p in model.parameters()]),
        edited(lambda model: model.blocks[0].qkv.weight.grad.add_(0.1)),
    ],
    ids=["by value", "zeroed", "parameter by parameter", "noise"],
)
def test_other_changes_of_gradients_are_refused(change: Any, val: Any) -> None:
    model: Any = make_model().double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    step_once(tracker, model, between=lambda: change(model))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(TrackerError, match=r"step 0: gradients were changed between .* not by one factor: that of"):
        optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert tracker.ledger.count == 0


def test_what_follow_refuses(val: Any) -> None:
    model: Any = make_model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    part = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for optimizers, match in (
        ((), "call `follow` once, with all optimisers"),
        ((part,), "'embed.weight' is trained, but is in no parameter group"),
        ((optimizer, part), "'head.weight' is in parameter groups 0 and 1"),
        ((torch.optim.SGD(make_model().parameters()),), "'embed.weight' is trained, but is in no parameter group"),
    ):
        with pytest.raises(TrackerError, match=match):
            tracked(model, val, *optimizers)
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    with pytest.raises(TrackerError, match="call `follow` once"):
        tracker.follow(optimizer)
    with pytest.raises(TrackerError, match="commit without backward"):
        optimizer.step()
    step_once(tracker, model)
    with pytest.raises(TrackerError, match="the tracker follows the optimiser"):
        tracker.commit(lr=0.1)
    tracker.state_dict()  # a checkpoint of the weights before the step
    optimizer.step()
    assert tracker.ledger.count == 1
    with pytest.raises(TrackerError, match="step 1 begins with gradients of an earlier one"):
        step_once(tracker, model, step=1)
    optimizer.zero_grad()
    step_once(tracker, model, step=1, between=lambda: model.norm.weight.grad.fill_(float("nan")))
    with pytest.raises(NonFiniteError, match="step 1: a gradient is not finite"):
        optimizer.step()


@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_that_skips_a_step_is_refused(fused: bool, val: Any) -> None:
    """A fused optimiser looks for an overflow itself; of others the next call tells, unless the step is dropped."""
    model: Any = make_model().double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, fused=fused)
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    scaler = GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))  # which makes its scale
    step_once(tracker, model, between=lambda: model.norm.weight.grad.fill_(float("inf")))
    if fused:
        with pytest.raises(TrackerError, match="step 0: a GradScaler may skip it"):
            scaler.step(optimizer)
        return
    scaler.step(optimizer)
    optimizer.zero_grad()
    with pytest.raises(TrackerError, match="step 0 is not committed"):
        step_once(tracker, model, step=1)
    tracker.drop()
    step_once(tracker, model)
    optimizer.zero_grad()
    with pytest.raises(TrackerError, match="step 0 is begun again"):
        step_once(tracker, model)
    step_once(tracker, model)
    optimizer.step()
    assert tracker.steps == tracker.ledger.count == 1
    assert relative(tracker.ledger.phi, truth_of(None, [0.25] * 3, val)) < 1e-7
