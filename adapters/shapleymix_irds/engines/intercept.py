"""Find the layers of an unmodified model while it runs: calls of torch functions on trainable parameters.

`Interceptor` replaces linear, embedding, norm, scale and shift calls by their grouped forms. It must stay active
during the backward pass, too, where activation checkpointing runs the forward again. `Probe` replaces nothing: it
finds parameters that would be missed or met twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from shapleymix_irds.engines.weight_gradients import GroupedEmbedding, GroupedLinear, GroupedScale, GroupedShift
from shapleymix_irds.wrappers import tidy

Handler = Callable[..., Any]


def trainable(value: Any) -> bool:
    """Whether a value is a parameter that a grouped function can take (whole, not a distributed shard)."""
    return isinstance(value, nn.Parameter) and value.requires_grad and not isinstance(value, DTensor)


class Layout:
    """The form of the batch: B sequences of S tokens, sorted by group (see `grouped`)."""

    def __init__(self, batch: int, length: int, bounds: Tensor, train: int, gram: Tensor, chunk: int) -> None:
        self.batch, self.length, self.bounds = batch, length, bounds
        self.train, self.gram, self.chunk = train, gram, chunk

    def has_rows(self, x: Tensor) -> bool:
        """Whether the rows of x (..., I) are the batch's sequences or tokens, sequences in front."""
        if x.dim() < 2:
            return False
        return x.shape[0] == self.batch or (x.dim() == 2 and x.shape[0] == self.batch * self.length)

    def by_sequence(self, x: Tensor) -> Tensor:
        """x with the sequences as the first axis."""
        return x if x.shape[0] == self.batch else x.unflatten(0, (self.batch, self.length))


class Interceptor(TorchFunctionMode):
    """Within this context, covered calls give their Gram to `layout.gram`."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        if torch.is_grad_enabled():
            read = READERS.get(func)
            call = None if read is None else read(self.layout, *args, **options)
            if call is not None:
                return self.replace(*call, func, args, options)
        if func is torch.Tensor.unflatten:
            # a method written in Python with super(), which the compiler cannot trace under a mode
            return torch.unflatten(*args, **options)
        return func(*args, **options)

    def replace(
        self,
        form: Handler,
        operands: tuple[Any, ...],
        func: Any,
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Run the grouped form in the place of the call."""
        return form(self.layout, *operands)


class Probe(Interceptor):
    """Counts the covered uses of each parameter and cuts them off, so that only missed uses get a gradient."""

    def __init__(self, layout: Layout, model: nn.Module) -> None:
        super().__init__(layout)
        self.names = Names(model)
        self.uses: Counter[str] = Counter()
        self.counting = True

    def replace(
        self,
        form: Handler,
        operands: tuple[Any, ...],
        func: Any,
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        if self.counting:
            self.uses.update(self.names.of(value) for value in operands if trainable(value))
        cut = [value.detach() if trainable(value) else value for value in args]
        return func(*cut, **{k: v.detach() if trainable(v) else v for k, v in options.items()})


class Names:
    """Names of parameters; FSDP2 swaps whole parameters in while a block runs, so they are looked up at the call."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.known: dict[int, str] = {}

    def of(self, weight: Tensor) -> str:
        """The name of a parameter that is in its place now."""
        if id(weight) not in self.known:
            self.known = {id(p): tidy(n) for n, p in self.model.named_parameters()}
        return self.known.get(id(weight), "a parameter outside the model")


def _read_linear(
    layout: Layout, input: Tensor, weight: Any = None, bias: Any = None
) -> tuple[Handler, tuple[Any, ...]] | None:
    if not (trainable(weight) or trainable(bias)) or not layout.has_rows(input):
        return None
    return _linear, (input, weight, bias)


def _linear(layout: Layout, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    if trainable(weight):
        y = GroupedLinear.apply(x, weight, layout.gram, layout.bounds, layout.train, layout.chunk)
    else:
        y = F.linear(x, weight)
    return y if bias is None else _shift(layout, y, bias, narrow=True)


def _read_embedding(
    layout: Layout,
    input: Tensor,
    weight: Any = None,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[Handler, tuple[Any, ...]] | None:
    whole = input.dim() >= 2 and input.shape[0] == layout.batch
    flat = input.dim() == 1 and input.shape[0] == layout.batch * layout.length
    if not trainable(weight) or not (whole or flat) or max_norm is not None or scale_grad_by_freq or sparse:
        return None
    pad = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return _embedding, (input, weight, pad)


def _embedding(layout: Layout, ids: Tensor, weight: Tensor, pad: int) -> Tensor:
    operands = (layout.gram, layout.bounds, layout.train, layout.chunk, pad)
    return GroupedEmbedding.apply(ids, weight, *operands)  # type: ignore[no-any-return]


def _read_norm(
    func: Any,
    layout: Layout,
    input: Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float | None = None,
    cudnn_enable: bool = True,
) -> tuple[Handler, tuple[Any, ...]] | None:
    if func is F.rms_norm and isinstance(bias, float):
        bias, eps = None, bias  # rms_norm has no bias: its fourth argument is eps
    if not (trainable(weight) or trainable(bias)) or not layout.has_rows(input):
        return None
    if input.dim() - len(normalized_shape) < 1:
        return None
    return _norm, (func, input, normalized_shape, weight, bias, eps)


def _norm(
    layout: Layout,
    func: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> Tensor:
    if func is F.rms_norm:
        return _rms_norm(layout, x, shape, weight, eps)
    y = F.layer_norm(x, shape, None, None, 1e-5 if eps is None else eps)
    if weight is not None:
        y = _scale(layout, y, weight)
    return y if bias is None else _shift(layout, y, bias)


def _rms_norm(layout: Layout, x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Tensor:
    """Low precisions are scaled in float32 and then rounded, as the function itself does."""
    wide = x if eps is None else x.to(torch.promote_types(x.dtype, torch.float32))
    y = F.rms_norm(wide, shape, None, eps)
    return y if weight is None else _scale(layout, y, weight).to(x.dtype)


def _read_pointwise(
    form: Handler, layout: Layout, input: Any, other: Any, **options: Any
) -> tuple[Handler, tuple[Any, ...]] | None:
    weight, x = (input, other) if trainable(input) else (other, input)
    if not trainable(weight) or trainable(x) or options or not isinstance(x, Tensor) or not layout.has_rows(x):
        return None
    seen = layout.by_sequence(x)
    fits = weight.dim() < seen.dim() and all(
        w in (1, s) for w, s in zip(reversed(weight.shape), reversed(seen.shape), strict=False)
    )
    return (form, (x, weight)) if fits else None


def _scale(layout: Layout, x: Tensor, weight: Tensor) -> Tensor:
    if not trainable(weight):
        return x * weight
    y = GroupedScale.apply(layout.by_sequence(x), weight, layout.gram, layout.bounds, layout.train)
    return y.view(*x.shape)


def _shift(layout: Layout, x: Tensor, weight: Tensor, narrow: bool = False) -> Tensor:
    """x + weight; a linear layer's bias takes the type of what it is added to, as autocast has it (`narrow`)."""
    if not trainable(weight):
        return x + (weight.to(x.dtype) if narrow else weight)
    operands = (layout.gram, layout.bounds, layout.train, narrow)
    y = GroupedShift.apply(layout.by_sequence(x), weight, *operands)
    return y.view(*x.shape)


Reader = Callable[..., tuple[Handler, tuple[Any, ...]] | None]
# For each function that may be covered: what gives the grouped form of a call and its operands, or None if the
# call stays as it is.
READERS: dict[Any, Reader] = {
    F.linear: _read_linear,
    F.embedding: _read_embedding,
    **dict.fromkeys((F.rms_norm, torch.rms_norm), partial(_read_norm, F.rms_norm)),
    **dict.fromkeys((F.layer_norm, torch.layer_norm), partial(_read_norm, F.layer_norm)),
    **dict.fromkeys(
        (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__), partial(_read_pointwise, _scale)
    ),
    **dict.fromkeys(
        (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__), partial(_read_pointwise, _shift)
    ),
}
