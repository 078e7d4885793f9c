"""The probes behind covered calls, and the mode under which a model runs while it is watched.

A probe returns the call's output and passes its gradient on unchanged, so that PyTorch computes every weight gradient
itself; the sketch is the gradient of a *dummy*, a leaf of zeros that no value depends on. Autograd thus sums sketches
over calls; nothing is held but the call's input, which is held for the weight anyway, and the last product with M.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapleymix_irds.calls import READERS, Kind, ParameterUse, Reader, Routes, View, broadcast_shape, leaves, view_of
from shapleymix_irds.first_pass import FirstPass
from shapleymix_irds.sketches import (
    Labels,
    Projection,
    basis_columns,
    by_group,
    is_stack,
    matrix_sketch,
    products,
    signs,
    sorted_units,
)
from shapleymix_irds.world import Arrangement, World, differentiate, names_of

OnLoss = Callable[["Watching"], None]
Measure = Callable[[Tensor | None, Tensor], "list[Tensor | None]"]  # of the input and its output's gradient


# -- probes --------------------------------------------------------------------------------------------------------


NOTED = 256  # rows of inputs of a call by which a basis is made


class Probe(torch.autograd.Function):
    """The output y of a covered call; `measure` gives the sketch for each dummy, and None for what is silent."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor | None, measure: Measure, *dummies: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.measure = measure
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        # within, calls are none of the model's; a compiler sees that by itself
        with nullcontext() if torch.compiler.is_compiling() else torch._C.DisableTorchFunction():
            return grads[0], None, None, *ctx.measure(x, grads[0])


def vector_gradient(x: Any, delta: Tensor, shape: Any, labels: Labels, kind: Kind, eps: float | None) -> Tensor:
    """By group, (G, *shape), of a weight that is added to rows, or multiplied with them, as they are or normalised."""
    delta = delta.to(torch.promote_types(delta.dtype, torch.float32))
    if x is None or kind == "scale":
        axes = broadcast_shape(shape)
        return summed(delta if x is None else delta * x, labels.whole.groups, labels.count, axes).view(-1, *shape)
    least = (torch.finfo(x.dtype).eps if kind == "rms" else 1e-5) if eps is None else eps
    x = x.to(delta.dtype).flatten(x.dim() - len(shape))
    x = x if kind == "rms" else x - x.mean(-1, keepdim=True)
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # which rows are divided by when they are added up
    parts = (delta.reshape(x.shape) * x).reshape(len(labels.whole.groups), -1, x.shape[-1])
    weights = (size.square() / x.shape[-1] + least).rsqrt().reshape(len(parts), 1, -1)
    return by_group((weights @ parts)[:, 0], labels.whole.groups, labels.count).view(-1, *shape)


def summed(delta: Tensor, groups: Tensor, count: int, shape: torch.Size) -> Tensor:
    """Sum (rows..., shape) by group and over axes on which the weight is broadcast: (count, numbers).

    `groups` has the group of each unit of rows.
    """
    behind, units = delta.shape[delta.dim() - len(shape) :], len(groups)
    parts = delta.reshape(units, delta.numel() // (units * math.prod(behind)), *behind).sum(1)
    spread = [k + 1 for k, size in enumerate(shape) if size == 1 and behind[k] != 1]
    return by_group((parts.sum(spread) if spread else parts).reshape(units, -1), groups, count)


def operands(x: Tensor, delta: Tensor, flipped: bool, padding: int) -> tuple[Tensor, Tensor]:
    """The two sides (rows, O) or ids, and (rows, I), of a gradient (O, I) as the matrix is held."""
    delta = delta.reshape(-1, delta.shape[-1])
    if not x.is_floating_point():
        ids = x.reshape(-1)
        return torch.where(ids == padding, -1, ids), delta
    rows = x.reshape(-1, x.shape[-1]).to(delta.dtype)
    return (rows, delta) if flipped else (delta, rows)


def inputs_in_front(use: ParameterUse, view: View, projection: Projection) -> bool:
    """Whether a matrix as its projection takes it is (I, O)."""
    return ((use.kind != "matrix") != view.turned) != projection.turned


# -- operands that are no bare parameters ----------------------------------------------------------------------------


def expert_sketch(use: ParameterUse, view: View, x: Tensor, delta: Tensor, labels: Labels, own: Projection) -> Tensor:
    """The sketch by group of a stack of matrices (E, O, I), each of which has some of the rows, or one has all."""
    experts, groups = view.parameter.shape[0], labels.of_rows(x.numel() // x.shape[-1])
    if use.ends is None:
        owners = torch.full_like(groups, view.part or 0)
    else:
        groups = groups[: int(use.ends[-1])]  # rows behind are of no expert
        owners = torch.searchsorted(use.ends, torch.arange(len(groups), device=groups.device), right=True)
    left, right = operands(x, delta, inputs_in_front(use, view, own), -1)
    units = sorted_units(owners * labels.count + groups, experts * labels.count)
    left, right = left[: len(groups)], own.projected(right[: len(groups)])
    found = matrix_sketch(left, right, units, experts * labels.count, own)
    return found.view(experts, labels.count, -1).transpose(0, 1).flatten(1)


def gradients_by_group(use: ParameterUse, labels: Labels, x: Tensor | None, delta: Tensor) -> Tensor:
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
        units, left, right = labels.units(x), *operands(x, delta, use.kind == "flipped", use.padding)
        return matrix_sketch(left, right, units, labels.count, Projection(tuple(shape))).view(-1, shape[1], shape[0]).mT
    return vector_gradient(x, delta, shape, labels, use.kind, use.eps)


# -- the mode under which a model runs ------------------------------------------------------------------------------


class Place(NamedTuple):
    """Name and projection of a parameter, the dummy of what is measured, and sketches (K, numbers) to multiply with."""

    name: str
    projection: Projection
    dummy: Tensor
    met: Tensor | None


@dataclass
class Rows:
    """Rows of an input that layers take one after another, and the first parameter that does."""

    first: str | None = None


class Evaluating(Protocol):
    """What a book asks of the engine whose pass it keeps; `met` are sketches of validation to take products with."""

    model: nn.Module
    world: World
    arrangement: Arrangement
    dtype: torch.dtype
    parameters: dict[str, nn.Parameter]
    first_pass: FirstPass
    projections: dict[str, Projection]
    projections_drawn: bool
    in_language_pass: bool
    mixing: torch.Generator

    @property
    def met(self) -> dict[str, Tensor]: ...


class Book:
    """Where sketches of one pass go, and under which name each parameter is known.

    Attributes
    ----------
    dummies : dict of str to tensor
        Leaves of zeros whose gradients are the sketches, or their products with those of validation, by the names of
        parameters.
    places : dict of int to Place
        Of each parameter, by its identity.
    """

    def __init__(self, engine: Evaluating, groups: int) -> None:
        self.engine = engine
        zero = torch.zeros((), dtype=engine.dtype, device=engine.world.device)
        self.met, self.first_pass = engine.met, engine.first_pass
        sizes = {n: projection.numbers for n, projection in engine.projections.items()}
        sizes |= {n: len(each) for n, each in self.met.items()}
        self.dummies = {name: zero.expand(groups, size).requires_grad_() for name, size in sizes.items()}
        self.places: dict[int, Place] = {}
        self.mixing = torch.zeros(0, 0)
        self.noted: tuple[Any, Any] = None, None
        self.made: tuple[Rows, Tensor | None, Tensor] | None = None
        self.look()

    def look(self) -> None:
        """Learn the parameters by their identities, and by those of the whole ones that sharding swaps in for a block.

        A compiler traces a block while they are in place and cannot look then, so they are learnt before.
        """
        for identity, name in names_of(self.engine.model, self.engine.parameters).items():
            if name not in self.first_pass.per_language:
                place = Place(name, self.engine.projections[name], self.dummies[name], self.met.get(name))
                self.places.setdefault(identity, place)

    def place(self, weight: Tensor) -> Place | None:
        """The place of a parameter; None for one that is not the model's."""
        if id(weight) not in self.places and not torch.compiler.is_compiling():
            self.look()
        return self.places.get(id(weight))

    def silent(self, name: str) -> bool:
        """Whether nothing is to be measured of a parameter whose calls are covered."""
        engine = self.engine
        known = self.first_pass.per_language | engine.arrangement.copies
        return engine.in_language_pass or name in known

    def meet(self, name: str, rows: Rows | None, flipped: bool) -> None:
        """In the first pass: learn which layers take the same rows, and which matrices have their inputs in front."""
        if rows is not None:
            rows.first = rows.first or name
        self.first_pass.learn(name, None if rows is None else rows.first, flipped)

    def note(self, place: Place, x: Tensor, rows: Rows) -> None:
        """Before projections are drawn: add random sums of rows of inputs to M, which multiplies them."""
        matrix, engine = place.projection.matrix, self.engine
        if matrix is None or engine.projections_drawn or (rows is self.noted[0] and matrix is self.noted[1]):
            return
        self.noted = rows, matrix
        some = x.detach().reshape(-1, x.shape[-1])
        some = some[:: -(-len(some) // NOTED)].to(matrix.dtype)
        some = F.normalize(some)  # a few rows are often a thousand times as long as others
        columns = basis_columns(matrix.shape[1])
        if len(self.mixing) < columns:
            self.mixing = signs((columns, NOTED), engine.mixing, matrix.dtype)
        # a power iteration brings the basis nearer to the directions in which rows differ most
        matrix.data[:, :columns] += (self.mixing[:columns, : len(some)] @ some @ some.mT @ some).mT

    def projected(self, rows: Tensor, projection: Projection, known: Rows | None) -> Tensor:
        """Rows times M, once for all layers that take them one after another."""
        if known is None:
            return projection.projected(rows)
        if self.made is None or self.made[0] is not known or self.made[1] is not projection.matrix:
            self.made = known, projection.matrix, projection.projected(rows)
        return self.made[2]


class Cut(NamedTuple):
    """Where a graph may be cut: an output that has the batch's rows, and the group of each unit of them."""

    output: Any
    groups: Tensor


class Watching(TorchFunctionMode):
    """Within this context, covered calls are probed; `on_loss` is called before a backward pass.

    It must be active during the backward pass, too, where activation checkpointing runs the forward again.
    `cut` is behind the last covered call, or behind a later linear layer that is not trained; `roots` and `seeds` are
    what a backward pass begins with, and its gradients.
    """

    def __init__(self, labels: Labels, book: Book, on_loss: OnLoss | None = None) -> None:
        super().__init__()
        self.labels, self.book, self.on_loss = labels, book, on_loss
        self.routes = Routes(labels)
        self.last: tuple[Callable[[], Tensor | None], Rows] = lambda: None, Rows()
        self.cut: Cut | None = None
        self.roots: tuple[Tensor, ...] = ()
        self.seeds: Any = ()

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        options = dict(kwargs) if kwargs else {}
        if func in _BACKWARD:
            return self._backward(*args, **options)
        if func is torch.Tensor.unflatten:
            # a method written in Python with super(), which the compiler cannot trace under a mode
            func = torch.unflatten
        reader = READERS.get(func) if torch.is_grad_enabled() else None
        y = func(*args, **options) if reader is None else self._called(reader, func, args, options)
        if not torch.compiler.is_compiling():
            self.routes.follow(func, args, y)
        return y

    def _called(self, reader: Reader, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call, with its probes where it is covered."""
        if self.labels.length is None and func in (F.linear, F.embedding) and args and isinstance(args[0], Tensor):
            self.labels.infer_length(args[0])  # the length of sequences, from the first layer
        labels = self.routes.labels_of(args)
        uses = reader(labels, *args, **options)
        if uses:
            return self._probed(uses, labels, func, args, options)
        y = func(*args, **options)
        if func is F.linear and args and labels is self.labels and labels.lead(args[0].shape[:-1]):
            self._frozen(args[0], y)
        return y

    def _frozen(self, x: Tensor, y: Tensor) -> None:
        """A linear layer that is not trained has been called."""
        if not torch.compiler.is_compiling() and y.requires_grad and not self.book.first_pass.unordered:
            self._cut_behind(y)

    def _cut_behind(self, y: Tensor) -> None:
        if torch._C._current_graph_task_id() < 0:  # not where checkpointing runs a layer again
            self.cut = Cut(torch.autograd.graph.get_gradient_edge(y), self.labels.ordered)

    def _probed(self, uses: list[ParameterUse], labels: Labels, func: Any, args: Any, options: Any) -> Any:
        first = uses[0]
        if first.kind in ("matrix", "flipped") and first.x is not None:
            cast = _autocast(first.x)
            if cast is not first.x:  # which the call would have done itself, and held
                args = tuple(cast if value is first.x else value for value in args)
                options = {name: cast if value is first.x else value for name, value in options.items()}
                uses = [first._replace(x=cast), *uses[1:]]
        y = whole = func(*args, **options)
        eager, covered = not torch.compiler.is_compiling(), []
        for use in uses:
            view = view_of(use.weight)
            bare = view is not None and view.part is None and use.kind not in ("experts", "call")
            if view is not None and bare and (not view.turned or use.kind in ("matrix", "flipped")):
                place = self.book.place(view.parameter)
                rows = self.rows_of(first) if eager else None
                known = place is not None and (not eager or self.book.first_pass.has_shown(func, bare, [place.name]))
                probed = self._probe(use, view, y, place, labels, rows) if place is not None and known else None
            else:
                probed = self._loose_probe(use, view, y, labels, func)
            if probed is not None:
                y = probed
                covered.append(use.weight)
        if eager and y is not whole:
            last: Any = y.grad_fn
            last.below = _nodes((*args, *options.values()), covered)
            if labels is self.labels and first.kind != "table":  # of ids, sequences are in front in any model
                self._cut_behind(y)
        return y

    def rows_of(self, use: ParameterUse) -> Rows:
        """The rows of the last input of a matrix, the same for those that take it in turn, norms between or not."""
        if use.kind in ("matrix", "flipped") and use.x is not None and use.x is not self.last[0]():
            self.last = weakref.ref(use.x), Rows()  # the last layer's would be held through the backward pass
        return self.last[1]

    def _probe(
        self, use: ParameterUse, view: View, y: Tensor, place: Place, labels: Labels, rows: Rows | None
    ) -> Tensor:
        """The output behind the probe of a bare parameter; `rows` are None where a compiler hides them."""
        book, projection, x = self.book, place.projection, None if use.x is None else use.x.detach()
        # the numbers alone, since `use` would hold the input longer than autograd does
        padding, eps, kind, shape = use.padding, use.eps, use.kind, view.parameter.shape
        if kind in ("matrix", "flipped", "table"):
            assert x is not None
            table, units = kind == "table", labels.units(x)
            flipped = not table and inputs_in_front(use, view, projection)
            given = None if table or flipped else rows
            if rows is not None:
                book.meet(place.name, None if table else rows, flipped)
            if given is not None:
                book.note(place, x, given)

            def sketch(x: Any, delta: Tensor) -> Tensor:
                left, right = operands(x, delta, flipped, padding)
                right = book.projected(right, projection, given)
                return matrix_sketch(left, right, units, labels.count, projection, place.met)
        else:

            def sketch(x: Any, delta: Tensor) -> Tensor:
                return products(projection.sketch(vector_gradient(x, delta, shape, labels, kind, eps)), place.met)

        def measure(x: Tensor | None, delta: Tensor) -> list[Tensor | None]:
            return [None if rows is not None and book.silent(place.name) else sketch(x, delta)]

        return Probe.apply(y, x, measure, place.dummy)

    def _loose_probe(self, use: ParameterUse, view: View | None, y: Tensor, labels: Labels, func: Any) -> Tensor | None:
        """The output behind the probe of what parameters are made into; None where one of them is not known."""
        stacked = view is not None and is_stack(view.parameter.shape) and use.kind in ("matrix", "flipped", "experts")
        if use.kind == "experts" and not stacked:
            return None
        targets = [view.parameter] if view is not None and stacked else leaves(use.weight) or []
        places = [self.book.place(target) for target in targets]
        known = [place for place in places if place is not None]
        book, eager = self.book, not torch.compiler.is_compiling()
        if not known or len(known) < len(places):
            return None
        if eager and not book.first_pass.has_shown(func, False, [place.name for place in known]):
            return None
        x = None if use.x is None else use.x.detach()
        if eager and view is not None and stacked and x is not None:
            flipped = inputs_in_front(use, view, known[0].projection)
            book.meet(known[0].name, Rows(), flipped)
            if not flipped:
                book.note(known[0], x, Rows())
        use = use._replace(x=None)  # autograd holds the input, and lets go of it earlier

        def measure(x: Tensor | None, delta: Tensor) -> list[Tensor | None]:
            if all(book.silent(place.name) for place in known):
                return [None] * len(known)
            if view is not None and stacked and x is not None:
                return [products(expert_sketch(use, view, x, delta, labels, known[0].projection), known[0].met)]
            found = [place.dummy.new_zeros((labels.count, place.projection.numbers)) for place in known]
            for group, whole in enumerate(gradients_by_group(use, labels, x, delta)[: labels.present]):
                parts = differentiate([use.weight], targets, [whole.to(use.weight.dtype)])
                for place, own, part in zip(known, found, parts, strict=True):
                    if part is not None:
                        own[group] = place.projection.sketch(part)
            return [None if book.silent(p.name) else products(own, p.met) for p, own in zip(known, found, strict=True)]

        return Probe.apply(y, x, measure, *(place.dummy for place in known))

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
        self.roots, self.seeds = roots, torch.autograd._make_grads(roots, seeds, is_grads_batched=False)
        if self.on_loss is not None:
            self.on_loss(self)
        inputs = options.get("inputs")
        wanted = () if inputs is None else (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        if wanted:
            wanted += tuple(self.book.dummies.values())
        keep = create_graph if retain_graph is None else retain_graph
        engine: Any = torch.autograd.Variable._execution_engine
        sums = {"allow_unreachable": True, "accumulate_grad": True}
        with self:
            engine.run_backward(roots, self.seeds, keep, create_graph, wanted, **sums)


_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)


def _autocast(x: Tensor) -> Tensor:
    kind = x.device.type
    eligible = torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype(kind)) if eligible else x


def _nodes(values: Any, covered: list[Tensor]) -> list[Any]:
    """The nodes of the graph that values with a gradient come from, but for those that are covered."""
    graded = [value for value in values if isinstance(value, Tensor) and value.requires_grad]
    left = [value for value in graded if not any(value is each for each in covered)]
    return [value.grad_fn or torch.autograd.graph.get_gradient_edge(value).node for value in left]
