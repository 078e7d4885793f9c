"""Weight gradients by language, and their products, inside ordinary autograd functions.

A weight's gradient is a sum over rows, so that grouping the rows by language splits it by language at no extra
arithmetic. Each function returns the (t, v) matrix of products <training group, validation group> as the gradient
of a dummy tensor `gram`: autograd then sums it over the layers. There are no hooks and no side effects, so that
this works under compilation, checkpointing, DDP and FSDP2.

Legend: B sequences, sorted by group, the t training groups first; `bounds` (t + v + 1,) are the groups' first
sequences (int64, on the CPU); rows = tokens, a sequence has rows / B of them; O outputs, I inputs.
With v = 0 the products are those of the training groups with each other, (t, t).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def linear_grads(grad: Tensor, x: Tensor, bounds: Tensor, train: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Weight gradient (O, I) of the training rows, and the products (t, v) of the groups' gradients.

    Parameters
    ----------
    grad, x : tensor
        Gradient of the outputs (rows, O) and the inputs (rows, I).
    bounds, train : tensor and int
        First row of each group, and the number t of training groups (see the module).
    chunk : int
        Numbers that may be held at a time: O is worked through in chunks of chunk / ((t + v) I) rows.
    """
    edges = _row_edges(bounds, len(x))
    groups, outputs, inputs = len(edges) - 1, grad.shape[1], x.shape[1]
    step = max(1, min(outputs, chunk // (groups * inputs)))
    exact = torch.promote_types(x.dtype, torch.float32)
    held = _scratch(x, groups * step * inputs)
    weight = x.new_empty((outputs, inputs), dtype=exact)
    gram = x.new_zeros((train, (groups - train) or train), dtype=exact)
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        part = held[: groups * (last - first) * inputs].view(groups, last - first, inputs)
        _grouped_products(grad[:, first:last], x, edges, train, part)
        flat = part.view(groups, -1).to(exact)
        gram += flat[:train] @ flat[train if groups > train else 0 :].T
        torch.sum(flat[:train], 0, out=weight[first:last].view(-1))
    return weight, gram


def _row_edges(bounds: Tensor, rows: int) -> list[int]:
    """First row of each group, and the end."""
    first = bounds.tolist()
    each = rows // first[-1]
    return [each * edge for edge in first]


class _Kept(threading.local):
    """One scratch tensor a dtype, for each thread that runs backward passes."""

    def __init__(self) -> None:
        self.tensors: dict[torch.dtype, Tensor] = {}


_KEPT = _Kept()


def _scratch(like: Tensor, size: int) -> Tensor:
    """Room for `size` numbers; on a CPU always the same, since fresh memory is slow there and cold."""
    if like.device.type != "cpu":
        return like.new_empty(size)
    kept = _KEPT.tensors.get(like.dtype)
    if kept is None or len(kept) < size:
        kept = _KEPT.tensors[like.dtype] = like.new_empty(size)
    return kept[:size]


def _grouped_products(grad: Tensor, x: Tensor, edges: list[int], train: int, out: Tensor) -> None:
    """out[k] = grad[rows of k].T @ x[rows of k]: batched where groups are equal, one by one where not."""
    for start, stop in ((0, train), (train, len(edges) - 1)):
        sizes = {edges[k + 1] - edges[k] for k in range(start, stop)}
        if len(sizes) == 1 and 0 not in sizes:
            rows = slice(edges[start], edges[stop])
            count = stop - start
            a = grad[rows].view(count, -1, grad.shape[1]).transpose(1, 2)
            torch.bmm(a, x[rows].view(count, -1, x.shape[1]), out=out[start:stop])
            continue
        for k in range(start, stop):
            rows = slice(edges[k], edges[k + 1])
            torch.mm(grad[rows].T, x[rows], out=out[k])


def _linear_grads_shapes(grad: Tensor, x: Tensor, bounds: Tensor, train: int, chunk: int) -> tuple[Tensor, Tensor]:
    exact = torch.promote_types(x.dtype, torch.float32)
    other = (bounds.shape[0] - 1 - train) or train
    return x.new_empty((grad.shape[1], x.shape[1]), dtype=exact), x.new_empty((train, other), dtype=exact)


def embedding_grads(
    grad: Tensor, ids: Tensor, bounds: Tensor, train: int, vocab: int, chunk: int
) -> tuple[Tensor, Tensor]:
    """The same for an embedding: grad (rows, I), ids (rows,), id -1 without gradient; -> (vocab, I), (t, v).

    Only tokens that occur are held, for some of the I columns at a time: chunk / ((t + v) tokens).
    """
    edges = _row_edges(bounds, len(ids))
    groups, inputs = len(edges) - 1, grad.shape[1]
    exact = torch.promote_types(grad.dtype, torch.float32)
    grad = torch.where((ids >= 0)[:, None], grad, 0).to(exact)
    ids = ids.clamp(min=0)
    weight = grad.new_zeros((vocab, inputs)).index_add_(0, ids[: edges[train]], grad[: edges[train]])
    tokens, place = torch.unique(ids, return_inverse=True)
    sizes = torch.tensor([edges[k + 1] - edges[k] for k in range(groups)], device=ids.device)
    row = place + len(tokens) * torch.repeat_interleave(torch.arange(groups, device=ids.device), sizes)
    gram = grad.new_zeros((train, (groups - train) or train))
    step = max(1, min(inputs, chunk // (groups * len(tokens))))
    for first in range(0, inputs, step):
        columns = grad[:, first : first + step]
        held = grad.new_zeros((groups * len(tokens), columns.shape[1])).index_add_(0, row, columns)
        flat = held.view(groups, -1)
        gram += flat[:train] @ flat[train if groups > train else 0 :].T
    return weight, gram


def _embedding_grads_shapes(
    grad: Tensor, ids: Tensor, bounds: Tensor, train: int, vocab: int, chunk: int
) -> tuple[Tensor, Tensor]:
    exact = torch.promote_types(grad.dtype, torch.float32)
    other = (bounds.shape[0] - 1 - train) or train
    return grad.new_empty((vocab, grad.shape[1]), dtype=exact), grad.new_empty((train, other), dtype=exact)


def vector_grads(grad: Tensor, bounds: Tensor, train: int) -> tuple[Tensor, Tensor]:
    """The same for a small parameter whose gradient is known by sequence: grad (B, F) -> (F,), (t, v)."""
    edges = bounds.tolist()
    exact = grad.to(torch.promote_types(grad.dtype, torch.float32))
    parts = torch.stack([exact[edges[k] : edges[k + 1]].sum(0) for k in range(len(edges) - 1)])
    return parts[:train].sum(0), parts[:train] @ parts[train if len(parts) > train else 0 :].T


def _vector_grads_shapes(grad: Tensor, bounds: Tensor, train: int) -> tuple[Tensor, Tensor]:
    exact = torch.promote_types(grad.dtype, torch.float32)
    other = (bounds.shape[0] - 1 - train) or train
    return grad.new_empty((grad.shape[1],), dtype=exact), grad.new_empty((train, other), dtype=exact)


def _register(function: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """The function as one opaque operator, for compilers: its graph does not depend on the groups' sizes."""
    operator = torch.library.custom_op(f"shapleymix_irds::{function.__name__}", function, mutates_args=())
    operator.register_fake(shapes)
    return operator


OPERATORS = {
    linear_grads: _register(linear_grads, _linear_grads_shapes),
    embedding_grads: _register(embedding_grads, _embedding_grads_shapes),
    vector_grads: _register(vector_grads, _vector_grads_shapes),
}


def call(function: Callable[..., Any], *operands: Any) -> tuple[Tensor, Tensor]:
    """Run the function, or its operator where a compiler traces (dispatching to an operator costs time)."""
    if torch.compiler.is_compiling():
        return OPERATORS[function](*operands)
    with torch._C.DisableTorchFunction():  # the interceptor need not see what happens inside
        return function(*operands)


class GroupedLinear(torch.autograd.Function):
    """`F.linear(x, weight)`; x (..., I) with sequences in front."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gram: Tensor, bounds: Tensor, train: int, chunk: int) -> Tensor:
        ctx.save_for_backward(x, weight, bounds)
        ctx.train, ctx.chunk, ctx.exact = train, chunk, gram.dtype
        return F.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, bounds = ctx.saved_tensors
        grad = grads[0].to(x.dtype)
        flat = grad.reshape(-1, grad.shape[-1])
        rows = x.reshape(-1, x.shape[-1])
        total, gram = call(linear_grads, flat, rows, bounds, ctx.train, ctx.chunk)
        grad_x = grad @ weight.to(x.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, total.to(weight.dtype), gram.to(ctx.exact), None, None, None


class GroupedEmbedding(torch.autograd.Function):
    """`F.embedding(ids, weight, padding_idx)`; ids (B, ...); padding -1 for none."""

    @staticmethod
    def forward(
        ctx: Any, ids: Tensor, weight: Tensor, gram: Tensor, bounds: Tensor, train: int, chunk: int, pad: int
    ) -> Tensor:
        ctx.save_for_backward(ids, weight, bounds)
        ctx.train, ctx.chunk, ctx.pad, ctx.exact = train, chunk, pad, gram.dtype
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ids, weight, bounds = ctx.saved_tensors
        flat = ids.reshape(-1)
        flat = torch.where(flat == ctx.pad, -1, flat)
        grad = grads[0].reshape(-1, weight.shape[1])
        total, gram = call(embedding_grads, grad, flat, bounds, ctx.train, weight.shape[0], ctx.chunk)
        return None, total.to(weight.dtype), gram.to(ctx.exact), None, None, None, None


class GroupedScale(torch.autograd.Function):
    """`x * weight`; x (B, ...), weight broadcast over the sequences (norm scales)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gram: Tensor, bounds: Tensor, train: int) -> Tensor:
        ctx.save_for_backward(x, weight, bounds)
        ctx.train, ctx.exact = train, gram.dtype
        return x * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, bounds = ctx.saved_tensors
        total, gram = _vector(grads[0] * x, weight, bounds, ctx.train)
        grad_x = (grads[0] * weight).to(x.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, total, gram.to(ctx.exact), None, None


class GroupedShift(torch.autograd.Function):
    """`x + weight`; x (B, ...), weight broadcast over the sequences (biases); rounded as x is if `narrow`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gram: Tensor, bounds: Tensor, train: int, narrow: bool) -> Tensor:
        ctx.save_for_backward(weight, bounds)
        ctx.train, ctx.exact, ctx.dtype = train, gram.dtype, x.dtype
        return x + (weight.to(x.dtype) if narrow else weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        weight, bounds = ctx.saved_tensors
        total, gram = _vector(grads[0], weight, bounds, ctx.train)
        return grads[0].to(ctx.dtype), total, gram.to(ctx.exact), None, None, None


def _vector(grad: Tensor, weight: Tensor, bounds: Tensor, train: int) -> tuple[Tensor, Tensor]:
    """Sum `grad` (B, ..., shape of weight) over a sequence's rows, then group."""
    shape = (1,) * (grad.dim() - 1 - weight.dim()) + tuple(weight.shape)
    spread = [d + 1 for d, size in enumerate(shape) if size == 1 and grad.shape[d + 1] != 1]
    exact = torch.promote_types(grad.dtype, torch.float32)
    each = grad.sum(spread, dtype=exact) if spread else grad.to(exact)
    each = each.reshape(grad.shape[0], -1)
    total, gram = call(vector_grads, each, bounds, train)
    return total.view(weight.shape).to(weight.dtype), gram
