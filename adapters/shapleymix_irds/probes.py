"""The probes behind covered calls, and the mode under which a model runs while it is watched.

A probe returns the call's output and passes its gradient on unchanged, so that PyTorch computes every weight gradient
itself; the sketch is the gradient of a *dummy*, a leaf of zeros that no value depends on. Autograd thus sums sketches
over calls; nothing has side effects, and nothing is held but the call's input, which is held for the weight anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from shapleymix_irds.calls import READERS, Routes, Use, View, broadcast_shape, leaves, view_of
from shapleymix_irds.sketches import (
    Form,
    Labels,
    Units,
    call,
    gradient_sketch,
    is_stack,
    key_of,
    matrix_sketch,
    sorted_units,
    vector_sketch,
)
from shapleymix_irds.world import differentiate, tidy, whole_names

if TYPE_CHECKING:
    from shapleymix_irds.engine import Engine

Measure = Callable[[Tensor | None, Tensor], "list[Tensor | None]"]  # of the input and its output's gradient


# -- probes --------------------------------------------------------------------------------------------------------


NORMS = {"rms": 1, "layer": 2}  # by mean square, and by mean and variance


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
        ctx: Any, y: Tensor, x: Tensor | None, dummy: Tensor, groups: Tensor, seed: Tensor, *rest: Any
    ) -> Tensor:
        shape, norm, eps, times, *sizes = rest
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


class Cut(torch.autograd.Function):
    """An output that is made of more than parameters, where nothing is differentiated."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.detach()


class LooseProbe(torch.autograd.Function):
    """The output y of a call whose other operand is no bare parameter; `measure` gives the sketches of all of them."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor | None, measure: Measure, *dummies: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.measure, ctx.dtypes = measure, [dummy.dtype for dummy in dummies]
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            found = ctx.measure(x, grads[0])
        sketches = [None if each is None else each.to(dtype) for each, dtype in zip(found, ctx.dtypes, strict=True)]
        return grads[0], None, None, *sketches


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


# -- operands that are no bare parameters ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """What a call's rows give to a matrix: `left^T right` by group, (O, I) as the matrix is held."""

    left: Tensor
    right: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, use: Use, x: Tensor, delta: Tensor, turned: bool = False) -> Sides:
        """Of a matrix, flipped matrix, table or stack of experts, which may be held transposed."""
        shape = (use.weight.shape[-2], use.weight.shape[-1])
        delta = delta.reshape(-1, delta.shape[-1])
        if use.kind == "table":
            ids = x.reshape(-1)
            return cls(torch.where(ids == use.padding, -1, ids), delta, shape)
        rows = x.reshape(-1, x.shape[-1]).to(delta.dtype)
        left, right = (rows, delta) if use.kind in ("flipped", "experts") else (delta, rows)
        return cls(right, left, (shape[1], shape[0])) if turned else cls(left, right, shape)

    def sketch(self, units: Units, seed: Tensor, name: str, form: Form, count: int) -> Tensor:
        """The sketch by group, as `matrix_sketch` makes it."""
        sizes = [count, key_of(name), form.width, form.side, self.shape[0]]
        return matrix_sketch(self.left, self.right, units.groups, units.slots, seed, sizes)


def expert_sketch(use: Use, view: View, sides: Sides, labels: Labels, seed: Tensor, name: str, form: Form) -> Tensor:
    """The sketch by group of a stack of matrices (E, O, I), each of which has some of the rows, or one has all."""
    experts, groups = view.parameter.shape[0], labels.by_row
    ends = [len(groups)] if use.ends is None else use.ends.tolist()
    first = 0 if view.part is None else view.part
    numbers = math.prod(sides.shape)
    found = groups.new_zeros(
        (labels.count, form.width or experts * numbers), dtype=torch.promote_types(sides.right.dtype, torch.float32)
    )
    begin = 0
    for expert, end in enumerate(ends, first):
        rows, begin = slice(begin, end), end
        if end > rows.start:
            own = Sides(sides.left[rows], sides.right[rows], sides.shape)
            sketch = own.sketch(sorted_units(groups[rows], labels.count), seed, f"{name}.{expert}", form, labels.count)
            place = slice(None) if form.width else slice(expert * numbers, (expert + 1) * numbers)
            found[:, place] += sketch
    return found


def gradients_by_group(use: Use, labels: Labels, x: Tensor | None, delta: Tensor) -> Tensor:
    """The gradient of a call's other operand by group, (G, *shape of the operand)."""
    shape = use.weight.shape
    if use.again is not None and x is not None:
        found = delta.new_zeros((labels.count, *shape), dtype=torch.promote_types(delta.dtype, torch.float32))
        for group in range(labels.present):
            chosen = (labels.groups == group).nonzero()[:, 0]
            with torch.enable_grad():
                other = use.weight.detach().requires_grad_()
                y = use.again(chosen, other)
            found[group] = torch.autograd.grad(y, other, delta[chosen].to(y.dtype))[0]
        return found
    if use.kind in ("matrix", "flipped", "table"):
        assert x is not None
        units, _ = labels.units(x.shape if use.kind == "table" else x.shape[:-1], ids=use.kind == "table")
        exact = Form(0, 0)
        return Sides.of(use, x, delta).sketch(units, torch.zeros(()), "", exact, labels.count).view(-1, *shape)
    groups, times = labels.spread(delta.shape)
    norm = NORMS.get(use.kind, 0)
    axes = shape if norm else broadcast_shape(use.weight)
    delta = delta.to(torch.promote_types(delta.dtype, torch.float32))
    values = by_unit(delta if x is None else delta * _normalised(x, norm, axes, use.eps), len(groups), axes, times)
    return values.new_zeros((labels.count, values.shape[1])).index_add_(0, groups, values).view(-1, *shape)


def pulled(use: Use, targets: Sequence[Tensor], grads: Tensor, present: int) -> list[list[Tensor | None]]:
    """The gradient of each of the parameters that an operand is made of, by group, from that of the operand."""
    weight = use.weight
    return [
        differentiate(weight, list(targets), retain=True, seed=grads[group].to(weight.dtype))
        for group in range(present)
    ]


# -- the mode under which a model runs ------------------------------------------------------------------------------


class Place(NamedTuple):
    """Name and key of a parameter, the dummy of its sketch, and d (0: exact)."""

    name: str
    key: int
    dummy: Tensor
    width: int


class Book:
    """Where sketches of one pass go, and under which name each parameter is known.

    Attributes
    ----------
    dummies : dict of str to tensor
        Leaves of zeros whose gradients are the sketches, by the names that the layout has for them.
    places : dict of int to Place
        Of each parameter, by its identity.
    """

    def __init__(self, engine: Engine, groups: int) -> None:
        self.engine, self.layout, self.seed = engine, engine.layout, engine.seed
        zero = torch.zeros((), dtype=engine.dtype, device=engine.device)
        numbers = self.layout.numbers().items()
        self.dummies = {name: zero.expand(groups, count).requires_grad_() for name, count in numbers}
        self.places: dict[int, Place] = {}
        self.look()

    def look(self) -> None:
        """Learn the parameters by their identities, and by those of the whole ones that sharding swaps in for a block.

        A compiler traces a block while they are in place and cannot look then, so they are learnt before.
        """
        model, skipped = self.engine.model, self.engine.coverage.passed
        parameters = dict(model.named_parameters())
        for name, parameter in parameters.items():
            known = tidy(name)
            if known not in skipped and known in self.layout.sizes and id(parameter) not in self.places:
                dummy = self.dummies[self.layout.sketch(known)]
                width = 0 if self.layout.form.exact else dummy.shape[1]
                self.places[id(parameter)] = Place(known, key_of(known), dummy, width)
        sharded = {name: parameter for name, parameter in parameters.items() if id(parameter) in self.places}
        for whole, name in whole_names(model, sharded).items():
            self.places.setdefault(whole, self.places[id(sharded[name])])

    def place(self, weight: Tensor) -> Place | None:
        """The place of a parameter; None for one that is not the model's."""
        found = self.places.get(id(weight))
        if found is None and not torch.compiler.is_compiling():
            self.look()
            found = self.places.get(id(weight))
        return found

    def silent(self, name: str) -> bool:
        """Whether nothing is to be measured of a parameter whose calls are covered."""
        engine = self.engine
        return engine.passing or name in engine.coverage.passed or name in engine.arrangement.copies


class Watching(TorchFunctionMode):
    """Within this context, covered calls are probed; `on_loss` sees what a backward pass begins with.

    It must be active during the backward pass, too, where activation checkpointing runs the forward again.
    """

    def __init__(self, labels: Labels, book: Book, on_loss: Callable[[Sequence[Tensor]], None] | None = None) -> None:
        super().__init__()
        self.labels, self.book, self.on_loss = labels, book, on_loss
        self.routes = Routes(labels)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        if func in _BACKWARD:
            return self._backward(*args, **options)
        if func is torch.Tensor.unflatten:
            # a method written in Python with super(), which the compiler cannot trace under a mode
            func = torch.unflatten
        if torch.compiler.is_compiling():
            return self._called(func, args, options) if torch.is_grad_enabled() else func(*args, **options)
        y = self._called(func, args, options) if torch.is_grad_enabled() else func(*args, **options)
        self.routes.follow(func, args, y)
        return y

    def _called(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call, with its probes where it is covered."""
        reader = READERS.get(func)
        if reader is None:
            return func(*args, **options)
        self._learn(func, args)
        labels = self.routes.labels_of(args)
        uses = reader(labels, *args, **options)
        return self._probed(uses, labels, func, args, options) if uses else func(*args, **options)

    def _learn(self, func: Any, args: tuple[Any, ...]) -> None:
        """The length of sequences, from the first layer."""
        if self.labels.length is None and func in (F.linear, F.embedding) and isinstance(args[0], Tensor):
            shape = args[0].shape
            self.labels.learn(shape[:-1] if args[0].is_floating_point() else shape)

    def _probed(
        self, uses: list[Use], labels: Labels, func: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        first = uses[0]
        if first.kind in ("matrix", "flipped") and first.x is not None:
            cast = _autocast(first.x)
            if cast is not first.x:  # which the call would have done itself, and held
                args = tuple(cast if value is first.x else value for value in args)
                options = {name: cast if value is first.x else value for name, value in options.items()}
                uses = [replace(first, x=cast), *uses[1:]]
        y = whole = func(*args, **options)
        covered = set()
        for use in uses:
            view = view_of(use.weight)
            bare = view is not None and view.part is None and use.kind not in ("experts", "call")
            if view is not None and bare and (not view.turned or use.kind in ("matrix", "flipped")):
                place = self.book.place(view.parameter)
                probed = None if place is None else self._probe(use, view, y, place, labels)
            else:
                probed = self._loose_probe(use, view, y, labels)
            if probed is not None:
                y = probed
                covered.add(id(use.weight))
        if y is not whole and not torch.compiler.is_compiling():
            last: Any = y.grad_fn
            last.below = _nodes(value for value in (*args, *options.values()) if id(value) not in covered)
        return y

    def _probe(self, use: Use, view: View, y: Tensor, place: Place, labels: Labels) -> Tensor:
        """The output behind the probe of a bare parameter."""
        book, dummy, weight = self.book, place.dummy, view.parameter
        if use.kind in ("matrix", "flipped", "table"):
            assert use.x is not None
            shape = use.x.shape if use.kind == "table" else use.x.shape[:-1]
            units, _ = labels.units(shape, ids=use.kind == "table")
            flipped, side = (use.kind == "flipped") != view.turned, book.layout.form.side
            sizes = (flipped, use.padding, labels.count, place.key, place.width, side, weight.shape[0])
            y = MatrixProbe.apply(y, use.x.detach(), dummy, units.groups, units.slots, book.seed, *sizes)
        else:
            x = None if use.x is None else use.x.detach()
            norm = NORMS.get(use.kind, 0)
            shape = weight.shape if norm else broadcast_shape(weight)
            groups, times = labels.spread(y.shape)
            rest = (shape, norm, use.eps, times, labels.count, place.key, place.width)
            y = VectorProbe.apply(y, x, dummy, groups, book.seed, *rest)
        if not torch.compiler.is_compiling():
            probe: Any = y.grad_fn
            probe.silent = partial(book.silent, place.name)
        return y

    def _loose_probe(self, use: Use, view: View | None, y: Tensor, labels: Labels) -> Tensor | None:
        """The output behind the probe of what parameters are made into; None where one of them is not known."""
        stacked = view is not None and is_stack(view.parameter.shape) and use.kind in ("matrix", "flipped", "experts")
        if use.kind == "experts" and not stacked:
            return None
        targets = [view.parameter] if view is not None and stacked else leaves(use.weight) or []
        places = [self.book.place(target) for target in targets]
        known = [place for place in places if place is not None]
        if not known or len(known) < len(places):
            return None
        book, form = self.book, self.book.layout.form

        def measure(x: Tensor | None, delta: Tensor) -> list[Tensor | None]:
            if all(book.silent(place.name) for place in known):
                return [None] * len(known)
            forms = [form if form.exact else Form(place.width, form.side) for place in known]
            if view is not None and stacked and x is not None:
                sides = Sides.of(use, x, delta, view.turned)
                return [expert_sketch(use, view, sides, labels, book.seed, known[0].name, forms[0])]
            grads = gradients_by_group(use, labels, x, delta)
            rows: list[Tensor | None] = []
            by_group = pulled(use, targets, grads, labels.present)
            for number, (place, own) in enumerate(zip(known, forms, strict=True)):
                found = place.dummy.new_zeros(place.dummy.shape)
                for group, each in enumerate(by_group):
                    grad = each[number]
                    if grad is not None:
                        found[group] = gradient_sketch(grad, book.seed, place.name, own)
                rows.append(None if book.silent(place.name) else found)
            return rows

        x = None if use.x is None else use.x.detach()
        y = LooseProbe.apply(y, x, measure, *(place.dummy for place in known))
        probe: Any = y.grad_fn
        probe.silent = lambda: book.engine.passing
        return y

    def _backward(
        self,
        tensors: Any,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        **options: Any,
    ) -> None:
        """`backward()` with this mode on: inside of a handler, modes are off."""
        roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        given = options.get("grad_tensors", gradient)
        seeds = (given,) * len(roots) if given is None or isinstance(given, Tensor) else tuple(given)
        if self.on_loss is not None:
            self.on_loss(roots)
        inputs = options.get("inputs")
        wanted = () if inputs is None else (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        if wanted:
            wanted += tuple(self.book.dummies.values())
        made = torch.autograd._make_grads(roots, seeds, is_grads_batched=False)
        keep = create_graph if retain_graph is None else retain_graph
        engine: Any = torch.autograd.Variable._execution_engine
        with self:
            engine.run_backward(roots, made, keep, create_graph, wanted, allow_unreachable=True, accumulate_grad=True)


_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)


def _autocast(x: Tensor) -> Tensor:
    kind = x.device.type
    eligible = torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype(kind)) if eligible else x


def _nodes(values: Any) -> list[Any]:
    """The nodes of the graph that values with a gradient come from."""
    graded = [value for value in values if isinstance(value, Tensor) and value.requires_grad]
    return [torch.autograd.graph.get_gradient_edge(value).node for value in graded]
