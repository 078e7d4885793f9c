"""`follow` with a `GradScaler`: its scale is taken out, and steps that overflow count once, when they come again."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from following_tools import groups_of, step_once, tracked, truth  # noqa: E402
from irds_models import batch, loss_of, make_model, relative  # noqa: E402
from shapleymix_irds import IRDS  # noqa: E402
from torch import nn  # noqa: E402
from torch.amp.grad_scaler import GradScaler  # noqa: E402


@pytest.mark.parametrize("how", ["unscaled", "by the scaler", "fused", "fused, unscaled"])
def test_a_grad_scaler_is_taken_out(how: str, val: Any) -> None:
    model: Any = make_model().double()
    kind = torch.optim.AdamW if how.startswith("fused") else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.25, **({"fused": True} if how.startswith("fused") else {}))
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    scaler = GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))  # which makes its scale
    step_once(tracker, model, scaler=scaler)
    clip = 1.0
    if how.endswith("unscaled"):
        scaler.unscale_(optimizer)
        clip = 0.1 / (float(nn.utils.clip_grad_norm_(model.parameters(), 0.1)) + 1e-6)
    scaler.step(optimizer)
    assert relative(tracker.ledger.phi, truth(0.25 * clip, val)) < 1e-7


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("number", ["same", "next"])
def test_a_step_that_the_scaler_skips_is_dropped(number: str, fused: bool, val: Any) -> None:
    model: Any = make_model().double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, fused=fused)
    tracker = tracked(model, val, optimizer, loss_fn=loss_of(model))
    scaler = GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))

    def overflow() -> None:
        model.norm.weight.grad[0] = float("inf")

    for attempt in range(2):
        between = overflow if attempt == 0 else None
        step_once(tracker, model, step=attempt if number == "next" else 0, scaler=scaler, between=between)
        scaler.step(optimizer)
        scaler.update()
        tracker.state_dict()
        optimizer.zero_grad()
    assert (tracker.steps, tracker.ledger.count) == (1, 1)
    assert relative(tracker.ledger.phi, truth(0.25, val)) < 1e-7


def optimisers_of(model: Any, how: str) -> list[Any]:
    if not how.startswith("muon"):
        return [torch.optim.AdamW(model.parameters(), lr=0.01, fused=how == "fused")]
    tables, matrices, short = groups_of(model)
    adamw = torch.optim.AdamW(tables + short, lr=0.01, fused=how.endswith("fused"))
    return [torch.optim.Muon(matrices, lr=0.02), adamw]


def scaled_run(how: str, every: int, tokens: bool, none: bool, val: Any, skipping: bool) -> tuple[IRDS, list[Any]]:
    """A loop that counts steps that were taken; with `skipping` some overflow, to numbers that are none."""
    model: Any = make_model().double()
    optimizers = optimisers_of(model, how)
    tracker = tracked(model, val, *optimizers, every=every, loss_fn=loss_of(model))
    scaler = GradScaler("cpu", init_scale=1024.0)
    tries = [(0, True), (0, False), (1, True), (1, True), (1, False), (2, True), (2, False), (3, True)]
    for number, (step, bad) in enumerate(tries):
        if bad and not skipping:
            continue
        parts = [batch(((1, 1, 2, 1), (1, 0, 1, 2))[bad], seed=2 * (10 + number if bad else step) + k) for k in (0, 1)]
        total = sum(int((y != -100).sum()) for _, y, _ in parts)
        for x, y, lang in parts:
            with tracker.watch(lang, step=step, tokens=total if tokens else None):
                own = total if tokens else 2 * int((y != -100).sum())
                loss = loss_of(model)(x, y).sum() / own * (float("inf") if bad else 1.0)
                scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=none)
    tracker.state_dict()
    return tracker, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(("how", "every"), [("plain", 1), ("fused", 3), ("muon, fused", 1), ("muon", 3)])
def test_steps_that_overflow_and_come_again_count_once(how: str, every: int, val: Any) -> None:
    """A batch of another size may come then; the run is that without the steps that were skipped."""
    for tokens, none in ((True, True), (False, False)):
        (one, weights), (other, same) = (scaled_run(how, every, tokens, none, val, bad) for bad in (False, True))
        assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))
        assert every > 1 or (other.steps, other.tokens, other.next_step) == (one.steps, one.tokens, 3)
        assert other.ledger.count == one.ledger.count > 0
        assert relative(other.ledger.phi, one.ledger.phi) < 1e-7
