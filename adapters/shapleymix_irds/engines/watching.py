"""The mode under which a model runs while it is watched: covered calls get their probes, and a backward pass is seen.

The mode must be active during the backward pass, too, where activation checkpointing runs the forward again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapleymix_irds.engines.calls import READERS, Use, broadcast_shape
from shapleymix_irds.engines.layout import Layout
from shapleymix_irds.engines.probes import MatrixProbe, VectorProbe
from shapleymix_irds.engines.rows import Labels
from shapleymix_irds.engines.sketches import key_of
from shapleymix_irds.wrappers import tidy, whole_names

OnLoss = Callable[[Sequence[Tensor]], None]


class Place(NamedTuple):
    """Name and key of a parameter, the dummy of its sketch, and d (0: exact)."""

    name: str
    key: int
    dummy: Tensor
    width: int


@dataclass
class Book:
    """Where sketches go, and under which name each parameter is known.

    Attributes
    ----------
    seed : tensor ()
        Seed of the evaluation, int64 on the CPU.
    dummies : dict of str to tensor
        Leaves of zeros whose gradients are the sketches, by the names that the layout has for them.
    places : dict of int to Place
        Of each parameter, by its identity.
    skipped : set of str
        Parameters that are measured otherwise.
    copies : frozenset of str
        Parameters that are measured on another rank.
    """

    model: nn.Module
    layout: Layout
    seed: Tensor
    groups: int
    dtype: torch.dtype
    device: torch.device
    skipped: set[str] = field(default_factory=set)
    copies: frozenset[str] = frozenset()
    dummies: dict[str, Tensor] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dummies = {name: self._zeros(numbers) for name, numbers in self.layout.numbers().items()}
        self.look()

    def look(self) -> None:
        """Learn the parameters by their identities, and by those of the whole ones that sharding swaps in for a block.

        A compiler traces a block while they are in place and cannot look then, so they are learnt before.
        """
        parameters = dict(self.model.named_parameters())
        for name, parameter in parameters.items():
            known = tidy(name)
            if known in self.skipped or known not in self.layout.sizes or id(parameter) in self.places:
                continue
            dummy = self.dummies[self.layout.sketch(known)]
            width = 0 if self.layout.form.exact else dummy.shape[1]
            self.places[id(parameter)] = Place(known, key_of(known), dummy, width)
        sharded = {name: parameter for name, parameter in parameters.items() if id(parameter) in self.places}
        for whole, name in whole_names(self.model, sharded).items():
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
        return name in self.skipped or name in self.copies

    def _zeros(self, numbers: int) -> Tensor:
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return zero.expand(self.groups, numbers).requires_grad_()


class Watching(TorchFunctionMode):
    """Within this context, covered calls are probed; `on_loss` sees what a backward pass begins with."""

    def __init__(self, labels: Labels, book: Book, on_loss: OnLoss | None = None) -> None:
        super().__init__()
        self.labels, self.book, self.on_loss = labels, book, on_loss

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        if func in _BACKWARD:
            return self._backward(*args, **options)
        if torch.is_grad_enabled():
            reader = READERS.get(func)
            if reader is not None:
                self._learn(args)
                uses = reader(self.labels, *args, **options)
                if uses:
                    return self._probed(uses, func, args, options)
        if func is torch.Tensor.unflatten:
            # a method written in Python with super(), which the compiler cannot trace under a mode
            return torch.unflatten(*args, **options)
        return func(*args, **options)

    def _learn(self, args: tuple[Any, ...]) -> None:
        """The length of sequences, from the first layer."""
        if self.labels.length is None and args and isinstance(args[0], Tensor):
            shape = args[0].shape
            self.labels.learn(shape[:-1] if args[0].is_floating_point() else shape)

    def _probed(self, uses: list[Use], func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        first = uses[0]
        if first.kind in ("matrix", "flipped") and first.x is not None:
            cast = _autocast(first.x)
            if cast is not first.x:  # which the call would have done itself, and held
                args = tuple(cast if value is first.x else value for value in args)
                options = {name: cast if value is first.x else value for name, value in options.items()}
                uses = [Use(first.weight, first.kind, cast), *uses[1:]]
        found = [(use, self.book.place(use.weight)) for use in uses]
        y = func(*args, **options)
        whole = y
        for use, place in found:
            if place is not None:
                y = self._probe(use, y, place)
                if not torch.compiler.is_compiling():
                    probe: Any = y.grad_fn
                    probe.silent = partial(self.book.silent, place.name)
        if y is not whole and not torch.compiler.is_compiling():
            covered = {id(use.weight) for use, place in found if place is not None}
            last: Any = y.grad_fn
            last.below = _nodes(value for value in (*args, *options.values()) if id(value) not in covered)
        return y

    def _probe(self, use: Use, y: Tensor, place: Place) -> Tensor:
        labels, book, dummy = self.labels, self.book, place.dummy
        if use.kind in ("matrix", "flipped", "table"):
            assert use.x is not None
            shape = use.x.shape if use.kind == "table" else use.x.shape[:-1]
            units, _ = labels.units(shape, ids=use.kind == "table")
            flipped, side = use.kind == "flipped", book.layout.form.side
            sizes = (flipped, use.padding, labels.count, place.key, place.width, side, use.weight.shape[0])
            saved = use.x.detach()
            return MatrixProbe.apply(y, saved, dummy, units.groups, units.slots, book.seed, *sizes)
        x = None if use.x is None else use.x.detach()
        norm = {"rms": 1, "layer": 2}.get(use.kind, 0)
        shape = use.weight.shape if norm else broadcast_shape(use.weight)
        groups, times = labels.spread(y.shape)
        rest = (shape, norm, use.eps, times, labels.count, place.key, place.width)
        return VectorProbe.apply(y, x, dummy, groups, book.seed, *rest)

    def _backward(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        *rest: Any,
        inputs: Any = None,
        **renamed: Any,
    ) -> None:
        """`backward()` with this mode on: inside of a handler, modes are off."""
        roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        given = renamed.get("gradient", grad_tensors)
        seeds = (given,) * len(roots) if given is None or isinstance(given, Tensor) else tuple(given)
        if self.on_loss is not None:
            self.on_loss(roots)
        limited = inputs if inputs is not None else (rest[-1] if rest else None)
        wanted: tuple[Tensor, ...] = ()
        if limited is not None:
            wanted = (limited,) if isinstance(limited, Tensor) else tuple(limited)
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
