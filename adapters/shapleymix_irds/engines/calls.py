"""Which calls of torch functions on trainable parameters are covered, and the probes behind each.

A reader looks at the operands of a call and says for which of them the gradient can be split by group: none, where the
rows of the input are not those of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix_irds.engines.rows import Labels

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
