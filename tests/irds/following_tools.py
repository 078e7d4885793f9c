"""A tracker that follows optimisers, one step of it, and what that is worth."""

from __future__ import annotations

from typing import Any

import torch
from irds_models import batch, loss_of, make_model, naive_gram, tracker_of
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


def step_once(tracker: IRDS, model: Any, step: int = 0, scaler: Any = None, between: Any = None) -> None:
    x, y, lang = batch(COUNTS, seed=1)
    scale = 1.0 if scaler is None else scaler.get_scale()
    with tracker.watch(lang, step=step, tokens=int((y != -100).sum())):
        (scale * loss_of(model)(x, y).sum() / (y != -100).sum()).backward()
    if between is not None:
        between()


def truth(lr: float, val: Any) -> Any:
    model: Any = make_model().double()
    return lr * naive_gram(model, loss_of(model), *batch(COUNTS), val)
