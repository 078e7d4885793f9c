"""A tracker that follows optimisers, one step of it, and what that is worth."""

from typing import Any

import torch
from irds_models import batch, loss_of, tracker_of
from shapleymix_irds import IRDS
from torch import nn

COUNTS = (2, 1, 0, 3)


def groups_of(model: Any) -> list[list[nn.Parameter]]:
    """Three of them: tables, matrices of the blocks, and all that is short."""
    short = [p for p in model.blocks.parameters() if p.ndim < 2] + list(model.norm.parameters())
    return [[model.embed.weight, model.head.weight], [p for p in model.blocks.parameters() if p.ndim == 2], short]


def tracked(model: Any, val: Any, *optimizers: Any, **settings: Any) -> IRDS:
    tracker = tracker_of(model, val, **settings)
    tracker.follow(*optimizers)
    return tracker


def sgd(model: Any, lrs: list[float], **more: Any) -> Any:
    groups = [{"params": group, "lr": lr} for group, lr in zip(groups_of(model), lrs, strict=True)]
    return torch.optim.SGD(groups, lr=9.0, **more)


def step_once(tracker: IRDS, model: Any, step: int = 0, between: Any = None) -> None:
    x, y, lang = batch(COUNTS, seed=1)
    with tracker.watch(lang, step=step, tokens=int((y != -100).sum())):
        (loss_of(model)(x, y).sum() / (y != -100).sum()).backward()
    if between is not None:
        between()
