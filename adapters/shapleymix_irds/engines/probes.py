"""Probes: identities in the autograd graph that sketch, by group, what a call gives to a parameter's gradient.

A probe returns the call's output and passes its gradient on unchanged, so that PyTorch computes every weight gradient
itself; the sketch is the gradient of a *dummy*, a leaf of zeros that no value depends on. Autograd thus sums sketches
over calls; nothing has side effects, and nothing is held but the call's input, which is held for the weight anyway.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shapleymix_irds.engines.sketches import call, matrix_sketch, vector_sketch


class MatrixProbe(torch.autograd.Function):
    """The output y (..., O) of a linear layer or (..., I) of an embedding, with its input: rows (..., I) or ids (...).

    `flipped` says that the weight has its inputs in front: an embedding, or a product `x @ W`.
    """

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, dummy: Tensor, groups: Tensor, slots: Tensor | None, seed: Tensor, *sizes: int
    ) -> Tensor:
        ctx.save_for_backward(x, groups, slots, seed)
        ctx.sizes, ctx.dtype = sizes, dummy.dtype
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, groups, slots, seed = ctx.saved_tensors
        flipped, padding, *sizes = ctx.sizes
        if is_silent(ctx):
            return grads[0], *([None] * (5 + len(ctx.sizes)))
        delta = grads[0].reshape(-1, grads[0].shape[-1])
        if x.is_floating_point():
            rows = x.reshape(-1, x.shape[-1]).to(delta.dtype)
            left, right = (rows, delta) if flipped else (delta, rows)
        else:
            ids = x.reshape(-1)
            left, right = torch.where(ids == padding, -1, ids), delta
        sketch = call(matrix_sketch, left, right, groups, slots, seed, sizes)
        return grads[0], None, sketch.to(ctx.dtype), None, None, None, *([None] * len(ctx.sizes))


class VectorProbe(torch.autograd.Function):
    """The output y of a call whose weight is broadcast over the units (U, ...): shifts, scales and norms.

    `x` is None for a shift; otherwise the gradient is multiplied by x, or by x normalised over the axes of the weight
    (`norm` 1: by its mean square, 2: by mean and variance). The rows of all units come `times` times.
    """

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        x: Tensor | None,
        dummy: Tensor,
        groups: Tensor,
        seed: Tensor,
        shape: torch.Size,
        norm: int,
        eps: float | None,
        times: int,
        *sizes: int,
    ) -> Tensor:
        ctx.save_for_backward(x, groups, seed)
        ctx.shape, ctx.norm, ctx.eps, ctx.times, ctx.sizes, ctx.dtype = shape, norm, eps, times, sizes, dummy.dtype
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, groups, seed = ctx.saved_tensors
        if is_silent(ctx):
            return grads[0], *([None] * (8 + len(ctx.sizes)))
        delta = grads[0].to(torch.promote_types(grads[0].dtype, torch.float32))
        if x is not None:
            delta = delta * _normalised(x, ctx.norm, ctx.shape, ctx.eps)
        values = by_unit(delta, len(groups), ctx.shape, ctx.times)
        sketch = call(vector_sketch, values, groups, seed, list(ctx.sizes))
        return grads[0], None, sketch.to(ctx.dtype), *([None] * (6 + len(ctx.sizes)))


def is_silent(ctx: Any) -> bool:
    """Whether the parameter has turned out to be measured otherwise since the call."""
    silent = getattr(ctx, "silent", None)
    return silent is not None and silent()


def _normalised(x: Tensor, norm: int, shape: torch.Size, eps: float | None) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if norm == 1:
        return F.rms_norm(wide if eps is not None else x, list(shape), None, eps)
    if norm == 2:
        return F.layer_norm(wide, list(shape), None, None, 1e-5 if eps is None else eps)
    return x


def by_unit(delta: Tensor, units: int, shape: torch.Size, times: int = 1) -> Tensor:
    """Sum (rows..., shape) over the rows of each unit and over axes on which the weight is broadcast: (U, numbers).

    All units come so many times, one after another.
    """
    behind = delta.shape[delta.dim() - len(shape) :]
    each = delta.numel() // (times * units * math.prod(behind))
    parts = delta.reshape(times, units, each, *behind).sum((0, 2))
    spread = [k + 1 for k, size in enumerate(shape) if size == 1 and behind[k] != 1]
    return (parts.sum(spread) if spread else parts).reshape(units, -1)
