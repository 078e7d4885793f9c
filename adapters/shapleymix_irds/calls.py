"""Which calls of torch functions on trainable parameters are covered, and the probes behind each.

A reader looks at the operands of a call and says for which of them the gradient can be split by group: none, where the
rows of the input are not those of the batch.

A probe returns the call's output and passes its gradient on unchanged, so that PyTorch computes every weight gradient
itself; the sketch is the gradient of a *dummy*, a leaf of zeros that no value depends on. Autograd thus sums sketches
over calls; nothing has side effects, and nothing is held but the call's input, which is held for the weight anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix_irds.sketches import Labels, call, matrix_sketch, vector_sketch

Kind = Literal["matrix", "flipped", "table", "shift", "scale", "rms", "layer"]


@dataclass(frozen=True)
class Use:
    """One parameter of a covered call.

    Attributes
    ----------
    kind : Kind
        What the call does with it: rows times `weight.T` or (flipped) times weight, rows of a table, or a value that
        is added to it or multiplied with it, as it is or normalised.
    x : Tensor, optional
        The other operand.
    padding : int
        Id of a table whose row has no gradient; -1: none.
    eps : float, optional
        Of a norm.
    """

    weight: nn.Parameter
    kind: Kind
    x: Tensor | None
    padding: int = -1
    eps: float | None = None


Reader = Callable[..., "list[Use]"]


def trainable(value: Any) -> bool:
    """Whether a value is a parameter that gets a gradient (whole, not a distributed shard)."""
    return isinstance(value, nn.Parameter) and value.requires_grad and not isinstance(value, DTensor)


def shift(bias: Any) -> list[Use]:
    """The use of a bias, if it is trained."""
    return [Use(bias, "shift", None)] if trainable(bias) else []


def _read_linear(labels: Labels, input: Tensor, weight: Any, bias: Any = None) -> list[Use]:
    if input.dim() < 2 or not labels.lead(input.shape[:-1]):
        return []
    return ([Use(weight, "matrix", input)] if trainable(weight) else []) + shift(bias)


def _read_product(labels: Labels, input: Any, weight: Any) -> list[Use]:
    fits = trainable(weight) and weight.dim() == 2 and isinstance(input, Tensor) and input.dim() >= 2
    return [Use(weight, "flipped", input)] if fits and labels.lead(input.shape[:-1]) else []


def _read_addmm(labels: Labels, bias: Any, input: Any, weight: Any, **scales: Any) -> list[Use]:
    if scales or not isinstance(input, Tensor) or not labels.lead(input.shape[:-1]):
        return []
    fits = trainable(bias) and bias.dim() == 1
    return _read_product(labels, input, weight) + (shift(bias) if fits else [])


def _read_embedding(
    labels: Labels,
    input: Tensor,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> list[Use]:
    alone = input.dim() == 1 and input.shape[0] == labels.batch  # as a list of positions may be, too
    if not trainable(weight) or max_norm is not None or scale_grad_by_freq or sparse or alone:
        return []
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return [Use(weight, "table", input, padding)] if labels.lead(input.shape, ids=True) else []


def _read_norm(
    kind: Kind,
    labels: Labels,
    input: Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float | None = None,
    cudnn_enable: bool = True,
) -> list[Use]:
    if kind == "rms" and isinstance(bias, float):
        bias, eps = None, bias  # rms_norm has no bias: its fourth argument is eps
    before = input.shape[: input.dim() - len(normalized_shape)]
    if not labels.lead(before):
        return []
    return ([Use(weight, kind, input, eps=eps)] if trainable(weight) else []) + shift(bias)


def _read_pointwise(kind: Kind, labels: Labels, input: Any, other: Any, **options: Any) -> list[Use]:
    weight, x = (input, other) if trainable(input) else (other, input)
    if not trainable(weight) or trainable(x) or options or not isinstance(x, Tensor):
        return []
    shape = broadcast_shape(weight)
    fits = all(w in (1, s) for w, s in zip(reversed(weight.shape), reversed(x.shape), strict=False))
    seen = fits and weight.dim() <= x.dim() and labels.lead(x.shape[: x.dim() - len(shape)])
    return [Use(weight, kind, x if kind == "scale" else None)] if seen else []


def broadcast_shape(weight: Tensor) -> torch.Size:
    """The shape without axes of 1 in front, on which a weight is broadcast anyway."""
    first = next((axis for axis, size in enumerate(weight.shape) if size != 1), weight.dim())
    return weight.shape[first:]


READERS: dict[Any, Reader] = {
    F.linear: _read_linear,
    F.embedding: _read_embedding,
    torch.addmm: _read_addmm,
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), _read_product),
    **dict.fromkeys((F.rms_norm, torch.rms_norm), partial(_read_norm, "rms")),
    **dict.fromkeys((F.layer_norm, torch.layer_norm), partial(_read_norm, "layer")),
    **dict.fromkeys(
        (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__), partial(_read_pointwise, "scale")
    ),
    **dict.fromkeys(
        (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__), partial(_read_pointwise, "shift")
    ),
}


# -- probes --------------------------------------------------------------------------------------------------------


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
