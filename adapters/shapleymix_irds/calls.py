"""Which calls of torch functions on parameters are covered, and what each does with them.

A reader looks at the operands of a call and says for which of them the gradient can be split by group: none, where the
rows of the input are not those of the batch.

An operand may be a parameter, or whatever is made of parameters alone, such as `1 + w`, `w.T`, a table's rows at the
positions, or the matrix of one expert: its gradient by group is pulled back through the graph that it is made by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix_irds.sketches import Labels

Kind = Literal["matrix", "flipped", "table", "shift", "scale", "rms", "layer", "experts", "call"]


class ParameterUse(NamedTuple):
    """One operand of a covered call that is made of parameters alone.

    Attributes
    ----------
    weight : tensor
        A parameter, or a tensor that is made of parameters and of nothing that has an axis of the batch.
    kind : Kind
        What the call does with it: rows times `weight.T` or (flipped) times weight, rows of a table, a value that is
        added to it or multiplied with it, as it is or normalised, rows times one of a stack of matrices (experts), or
        whatever else can be called again for some of the sequences.
    x : Tensor, optional
        The other operand.
    padding : int
        Id of a table whose row has no gradient; -1: none.
    eps : float, optional
        Of a norm.
    ends : tensor (E,), optional
        Where the rows of each expert end.
    again : callable, optional
        The call for some of the sequences, with another weight.
    """

    weight: Tensor
    kind: Kind
    x: Tensor | None
    padding: int = -1
    eps: float | None = None
    ends: Tensor | None = None
    again: Callable[[Tensor, Tensor], Tensor] | None = None


Reader = Callable[..., "list[ParameterUse]"]


def owned(value: Any) -> bool:
    """Whether a value is made of parameters that get a gradient and of nothing else (whole, no distributed shard)."""
    if not isinstance(value, Tensor) or not value.requires_grad or isinstance(value, DTensor) or value.is_complex():
        return False
    return isinstance(value, nn.Parameter) or (not torch.compiler.is_compiling() and leaves(value) is not None)


def leaves(value: Tensor) -> list[Tensor] | None:
    """The parameters that a value is made of; None if there is a layer's output among what it is made of."""
    if isinstance(value, nn.Parameter):
        return [value]
    waiting, seen, found = [value.grad_fn], set(), []
    while waiting:
        node: Any = waiting.pop()
        leaf = getattr(node, "variable", None)
        if node is None or hasattr(node, "below") or not (leaf is None or isinstance(leaf, nn.Parameter)):
            return None
        found += [] if leaf is None else [leaf]
        fresh = [below for below, _ in node.next_functions if below is not None and below not in seen]
        seen.update(fresh)
        waiting += fresh
    return found


class View(NamedTuple):
    """A matrix as a parameter holds it: transposed or not, alone or one of a stack."""

    parameter: nn.Parameter
    turned: bool
    part: int | None


def view_of(value: Tensor) -> View | None:
    """Where a value stands in a parameter, if it is a transpose, a part or a cast of one."""
    if isinstance(value, nn.Parameter):
        return View(value, False, None)
    node, turned, part, axes = value.grad_fn, False, None, value.dim()
    while node is not None and not hasattr(node, "variable"):
        kind = node.name()
        if kind == "TransposeBackward0":
            swapped = {(int(axis) + 2**63) % 2**64 - 2**63 for axis in (node._saved_dim0, node._saved_dim1)}  # type: ignore[attr-defined]
            if {axis % axes for axis in swapped} != {axes - 2, axes - 1}:
                return None
        elif kind == "SelectBackward0" and part is None and node._saved_dim == 0:  # type: ignore[attr-defined]
            part, axes = int(node._saved_index), axes + 1  # type: ignore[attr-defined]
        elif kind not in ("TBackward0", "ToCopyBackward0"):
            return None
        turned ^= kind in ("TBackward0", "TransposeBackward0")
        node = node.next_functions[0][0]
    leaf: Any = getattr(node, "variable", None)
    whole = isinstance(leaf, nn.Parameter) and leaf.dim() - value.dim() == (part is not None)
    return View(leaf, turned, part) if whole else None


def shift(bias: Any) -> list[ParameterUse]:
    """The use of a bias, if it is trained."""
    return [ParameterUse(bias, "shift", None)] if owned(bias) else []


def read_linear(labels: Labels, input: Tensor, weight: Any, bias: Any = None, *_: Any, **__: Any) -> list[ParameterUse]:
    """The uses of a linear layer, whatever else it is given."""
    if input.dim() < 2 or not labels.lead(input.shape[:-1]):
        return []
    return ([ParameterUse(weight, "matrix", input)] if owned(weight) else []) + shift(bias)


def _read_product(labels: Labels, input: Any, other: Any) -> list[ParameterUse]:
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return []
    if other.dim() == 2 and input.dim() >= 2 and labels.lead(input.shape[:-1]) and owned(other):
        return [ParameterUse(other, "flipped", input)]
    return _read_call(torch.matmul, labels, input, other) if input.dim() == 2 and other.dim() > 2 else []


def _read_addmm(labels: Labels, input: Any, mat1: Any, mat2: Any, **scales: Any) -> list[ParameterUse]:
    if scales or not isinstance(mat1, Tensor) or not labels.lead(mat1.shape[:-1]):
        return []
    return _read_product(labels, mat1, mat2) + (shift(input) if input.dim() == 1 else [])


def _read_embedding(
    labels: Labels,
    input: Tensor,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> list[ParameterUse]:
    # a list of as many ids as sequences may be one of positions, too
    positions = labels.owners is None and tuple(input.shape) == (labels.batch,)
    if not owned(weight) or max_norm is not None or scale_grad_by_freq or sparse or positions:
        return []
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return [ParameterUse(weight, "table", input, padding)] if labels.lead(input.shape, ids=True) else []


def _read_norm(
    kind: Kind,
    labels: Labels,
    input: Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float | None = None,
    cudnn_enable: bool = True,
) -> list[ParameterUse]:
    if kind == "rms" and isinstance(bias, float):
        bias, eps = None, bias  # rms_norm has no bias: its fourth argument is eps
    before = input.shape[: input.dim() - len(normalized_shape)]
    if not labels.lead(before):
        return []
    return ([ParameterUse(weight, kind, input, eps=eps)] if owned(weight) else []) + shift(bias)


def _read_pointwise(kind: Kind, labels: Labels, input: Any, other: Any, **options: Any) -> list[ParameterUse]:
    if options or not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return []
    if input.shape == other.shape and labels.batch > 1:
        return []  # most are, and no weight
    for weight, x in ((input, other), (other, input)):
        if not weight.requires_grad or weight.dim() > x.dim():
            continue
        behind = x.dim() - len(broadcast_shape(weight.shape))
        pairs = zip(reversed(weight.shape), reversed(x.shape), strict=False)
        fits = behind > 0 and not x.is_complex() and all(1 in pair or pair[0] == pair[1] for pair in pairs)
        if fits and labels.lead(x.shape[:behind]) and owned(weight) and not owned(x):
            return [ParameterUse(weight, kind, x if kind == "scale" else None)]
    return []


def _read_expansion(labels: Labels, input: Tensor, *sizes: Any, size: Any = None) -> list[ParameterUse]:
    """A value that is repeated for each sequence is added to zeros."""
    given = tuple(size or (sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes))
    behind = len(given) - len(broadcast_shape(input.shape))
    return shift(input) if behind > 0 and labels.lead(torch.Size(given[:behind])) else []


def _read_index(labels: Labels, input: Any, index: Any) -> list[ParameterUse]:
    """Rows of a table that rows of tokens were sent to, such as the biases of their experts."""
    sent = isinstance(index, Tensor) and hasattr(index, ROWS) and input.dim() == 2
    return [ParameterUse(input, "table", index)] if sent and owned(input) else []


def _read_experts(
    labels: Labels, input: Tensor, weight: Any, *rest: Any, offs: Any = None, **options: Any
) -> list[ParameterUse]:
    fits = not rest and offs is not None and input.dim() == 2 and weight.dim() == 3 and labels.lead(input.shape[:-1])
    return [ParameterUse(weight, "experts", input, ends=offs)] if fits and owned(weight) else []


def _read_call(function: Any, labels: Labels, *args: Any, **options: Any) -> list[ParameterUse]:
    """Any function of sequences whose first axis is that of the batch."""
    values = [value for value in (*args, *options.values()) if isinstance(value, Tensor)]
    batch = [value for value in values if value.shape[:1] == (labels.batch,) and not owned(value)]
    if labels.by_token or labels.tokens_first or len(batch) != 1 or torch.compiler.is_compiling():
        return []
    x = batch[0].detach()

    def again(weight: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
        def place(value: Any) -> Any:
            kept = value.detach() if isinstance(value, Tensor) else value
            return x[chosen] if value is batch[0] else other if value is weight else kept

        return function(*map(place, args), **{name: place(value) for name, value in options.items()})

    return [ParameterUse(value, "call", x, again=partial(again, value)) for value in values if owned(value)]


def broadcast_shape(shape: torch.Size) -> torch.Size:
    """A weight's shape without axes of 1 in front, on which it is broadcast anyway."""
    return shape[next((axis for axis, size in enumerate(shape) if size != 1), len(shape)) :]


def _methods(name: str, *others: Any) -> tuple[Any, ...]:
    return tuple(getattr(torch.Tensor, form) for form in (name, f"__{name}__", f"__r{name}__")) + others


READERS: dict[Any, Reader] = {
    F.linear: read_linear,
    F.embedding: _read_embedding,
    torch.addmm: _read_addmm,
    torch.Tensor.expand: _read_expansion,
    torch.Tensor.__getitem__: _read_index,
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), _read_product),
    **dict.fromkeys((F.rms_norm, torch.rms_norm), partial(_read_norm, "rms")),
    **dict.fromkeys((F.layer_norm, torch.layer_norm), partial(_read_norm, "layer")),
    **dict.fromkeys(_methods("mul", torch.mul), partial(_read_pointwise, "scale")),
    **dict.fromkeys(_methods("add", torch.add), partial(_read_pointwise, "shift")),
    **{function: partial(_read_call, function) for function in (F.conv1d, F.conv2d)},
    # None, which no call is of, where this PyTorch does not have it
    **dict.fromkeys((getattr(F, "grouped_mm", None), getattr(torch, "_grouped_mm", None)), _read_experts),
}


# -- rows that are sent to experts ---------------------------------------------------------------------------------

ROWS = "_shapleymix_rows"  # of a tensor: which row of the batch each of its rows is
ROW_BY_ROW = {  # functions that keep rows in their places
    "add", "sub", "mul", "div", "neg", "pow", "exp", "tanh", "sigmoid", "silu", "gelu", "relu", "relu6", "leaky_relu",
    "softplus", "hardtanh", "dropout", "clamp", "to", "type", "type_as", "float", "bfloat16", "double", "chunk",
    "split", "unsqueeze", "masked_fill", "contiguous", "clone", "detach", "view", "reshape", "flatten", "unflatten",
    "linear", "matmul", "addmm", "grouped_mm", "grouped_mm_fallback", "rms_norm", "layer_norm",
}  # fmt: skip
FOLLOWED = {prefix + name for name in ROW_BY_ROW for prefix in ("", "i", "r")}  # in place, and with sides exchanged
FOLLOWED |= {"getitem", "index_select", "sort"}


class Routes:
    """Follows rows of the batch that a model takes out of it, to send each to the experts of its token."""

    def __init__(self, labels: Labels) -> None:
        self.labels, self.sent = labels, False
        self.last: tuple[Tensor, Labels] | None = None

    def labels_of(self, values: Iterable[Any]) -> Labels:
        """The labels of a call's rows."""
        rows = self._rows(values) if self.sent else None
        if rows is None:
            return self.labels
        if self.last is None or self.last[0] is not rows:
            self.last = rows, self.labels.chosen(rows)
        return self.last[1]

    def follow(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """Tell whose the rows of a result are, where it is known."""
        name = getattr(function, "__name__", "").strip("_")
        if name not in FOLLOWED or not args or not isinstance(args[0], Tensor):
            return
        x, rows = args[0], self._rows(args) if self.sent else None
        if name in ("getitem", "index_select"):
            index = args[-1]
            if isinstance(index, tuple):
                rows = rows if index[:1] == (Ellipsis,) or index[:1] == (slice(None),) else None
            elif isinstance(index, Tensor) and index.dim() == 1 and not index.is_floating_point():
                base = self._base(x)
                rows = None if base is None or len(base) != len(x) else base[index]
            else:
                rows = None
        elif name in ("reshape", "view", "flatten") and isinstance(result, Tensor) and result.dim() == 1:
            base = self._base(x)
            times = 0 if base is None else result.numel() // max(1, len(base))
            rows = base.repeat_interleave(times) if base is not None and times > 1 else rows
        elif name == "sort" and rows is not None:
            rows = rows[result[1]]
        if rows is None:
            return
        for one in result if isinstance(result, tuple) else (result,):
            if isinstance(one, Tensor) and one.shape[:1] == (len(rows),) and len(rows):
                setattr(one, ROWS, rows)
                self.sent = True

    def _rows(self, values: Iterable[Any]) -> Tensor | None:
        return next((found for value in values if (found := getattr(value, ROWS, None)) is not None), None)

    def _base(self, x: Tensor) -> Tensor | None:
        """Which row of the batch each row of x is."""
        known, labels = getattr(x, ROWS, None), self.labels
        if known is not None or labels.length is None or x.dim() < 2:
            return known
        rows = labels.batch * labels.length
        whole = x.shape[0] == rows or (x.shape[:2] == (labels.batch, labels.length) and not labels.tokens_first)
        return torch.arange(rows, device=x.device) if whole else None
