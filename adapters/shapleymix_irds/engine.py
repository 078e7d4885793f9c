"""The engine: sketches of what each language gives to the gradient, beside a training that it never touches.

Training and validation are apart. Training runs as it is, under a mode that puts probes behind the layers' outputs
(`Watching`); their sketches are held until the step is committed. Validation sequences are divided among the ranks and
pass at the same weights, where nothing but sketches is differentiated. Products of the summed sketches are the Gram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapleymix_irds.batch import LossFn, Piece, ValidationSet, halves, length, plain
from shapleymix_irds.calls import READERS, MatrixProbe, Use, VectorProbe, broadcast_shape
from shapleymix_irds.coverage import Coverage
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.sketches import Form, Labels, Layout, gradient_sketch, key_of
from shapleymix_irds.world import (
    Arrangement,
    World,
    check_averaged,
    check_wrappers,
    differentiate,
    is_compiled,
    isolated,
    local,
    named_parameters,
    tidy,
    whole_names,
)

Sketches = dict[str, Tensor]  # (groups, numbers) by the names of the dummies (see `Book`)


@dataclass
class Watched:
    """What happens while a call is watched.

    Attributes
    ----------
    losses : tensors, optional
        What each sequence adds to the loss that is trained on, and their groups, (B,) each: given by who knows them,
        before the backward pass, so that gradients can be taken language by language.
    parts : tensor, optional
        What the loss is made of, (B,) by sequence or (B, S) by token, given before the backward pass: for parameters
        in calls that are not covered, which take a pass a language.
    groups : tensor, optional
        The labels of the call.
    seen : bool
        Whether there was a backward pass.
    """

    losses: tuple[Tensor, Tensor] | None = None
    parts: Tensor | None = None
    groups: Tensor | None = None
    seen: bool = False


@dataclass
class Validated:
    """What the validation sequences of this rank gave: sums by language, (K,) in float64 on the CPU."""

    sketches: Sketches
    losses: Tensor
    tokens: Tensor


class Engine:
    """What a tracker evaluates its steps with.

    Attributes
    ----------
    groups : int
        G: languages, or halves of languages where there is no validation set.
    loss_fn : LossFn, optional
        The loss of validation sequences; `backward` gives its own.
    sample : Piece, optional
        Training sequences on which the model is looked at where there is no validation set.
    train : dict of str to tensor
        Sketches of this rank's training gradients of the step.
    validated : Validated, optional
        The validation sequences of the step.
    """

    def __init__(
        self,
        model: nn.Module,
        world: World,
        languages: Sequence[str],
        validation: ValidationSet | None,
        form: Form,
        order: Literal[1, 2] = 1,
        arrangement: Arrangement | None = None,
        loss_fn: LossFn | None = None,
    ) -> None:
        self.model, self.world, self.languages = model, world, tuple(languages)
        self.validation, self.order = validation, order
        self.arrangement, self.loss_fn = arrangement or Arrangement(), loss_fn
        self.groups = len(languages) * (2 if validation is None else 1)
        self.sample: Piece | None = None
        self.known, self.evaluation = False, 0
        self.coverage = Coverage(model, named_parameters(model), world)
        double = any(parameter.dtype == torch.float64 for parameter in self.coverage.parameters.values())
        self.dtype = torch.float64 if double else torch.float32
        self.device = local(next(iter(self.coverage.parameters.values()))).device
        self.layout = Layout(form, {})
        self.open(0)

    @property
    def name(self) -> str:
        return "exact" if self.layout.form.exact else "sketch"

    def open(self, seed: int) -> None:
        """Fresh projections, the same on all ranks, of the parameters that are trained now."""
        self.seed = torch.tensor(seed % 2**62)
        self.check()
        self.layout = Layout(self.layout.form, {name: p.numel() for name, p in self.parameters.items()})
        self.train: Sketches = {}
        self.validated: Validated | None = None

    def begin(self, evaluation: int, seed: int, kinds: Callable[[], Mapping[str, int]] = dict) -> None:
        """An evaluated step begins; `kinds` tells parameters that may have different learning rates (see `Layout`).

        Raises
        ------
        CoverageError
            If values would be wrong.
        """
        self.evaluation = evaluation
        self.open(seed)
        self.layout = replace(self.layout, kinds=kinds())
        if not self.known:
            sample = self.sample if self.validation is None else self.validation.sample(self.device)
            if sample is not None:
                self.rehearse(sample)
            self.known, self.sample = True, None
        if self.order == 1:
            self.validate()

    def check(self) -> None:
        """Refuse wrappers and hooks under which values would be wrong; before any pass, since ranks pass different
        sequences."""
        self.parameters = self.coverage.parameters = named_parameters(self.model)
        check_wrappers(self.model, self.parameters, self.world, self.arrangement.divisor)

    @contextmanager
    def watch(
        self, indices: Tensor, length: int | None, turn: int, first: Callable[[], None] | None = None
    ) -> Iterator[Watched]:
        """Within, what a forward and a backward pass give to each parameter is sketched by group.

        Parameters
        ----------
        indices : tensor (B,) or (B, S)
            Language of each sequence or token.
        length : int, optional
            S, if known.
        turn : int
            Which half of a language comes first, where there is no validation set.
        first : callable, optional
            What is done before the first backward pass.

        Raises
        ------
        CoverageError
            On every rank, by `backward()` before anything is differentiated, if a parameter is used in a call that is
            not covered and cannot be passed.
        """
        groups = halves(indices, len(self.languages), turn) if self.validation is None else indices
        labels = Labels(groups.to(self.device), self.groups, length, self.arrangement.tokens_first)
        own, present = labels.dense()
        book = Book(self, own.count)
        watched = Watched(groups=labels.groups)
        with Watching(own, book) as mode:
            mode.on_loss = lambda roots: self._before_backward(roots, mode, watched, first)
            yield watched
        grads = {name: dummy.grad for name, dummy in book.dummies.items() if dummy.grad is not None}
        add(self.train, grads, present, labels.count)
        watched.seen = bool(grads) or watched.seen

    def validate(self) -> None:
        """Pass this rank's validation sequences of the evaluation at the weights as they are."""
        if self.validation is not None:
            pieces = self.validation.share(self.evaluation, self.world.rank, self.world.size, self.device)
            self.validated = self.passed(pieces)

    def passed(self, pieces: Iterable[Piece]) -> Validated:
        """What sequences give at the weights as they are.

        Raises
        ------
        TrackerError
            If there is no loss to pass them with.
        """
        if self.loss_fn is None:
            hint = "give the tracker `loss_fn`, which it needs for validation sequences"
            raise TrackerError("`watch` has no loss for validation sequences", hint=hint)
        zeros = torch.zeros(len(self.languages), dtype=torch.float64)
        found = Validated({}, zeros, zeros.clone())
        for piece in pieces:
            with isolated(self.model), torch.enable_grad():
                self._pass(self.loss_fn, piece, found)
        return found

    def rehearse(self, piece: Piece) -> None:
        """Pass a few sequences and forget them: what is not covered is known then, be the model compiled or not.

        The number of sequences is one that other axes seldom have, so that none of them passes for the batch.

        Raises
        ------
        CoverageError
            On every rank, if sequences are not apart, or the compiler hands over other calls than Python does.
        """
        if self.loss_fn is not None:
            self.coverage.look_apart(self.loss_fn, piece, self.arrangement.tokens_first)
        with torch.compiler.set_stance("force_eager"):
            eager = self.flat(self.passed([piece]).sketches, len(self.languages))
        if is_compiled(self.model):
            self.coverage.compare(eager, self.flat(self.passed([piece]).sketches, len(self.languages)))

    def settle(self, moves: Mapping[str, float], step: int) -> None:
        """The step's gradients are in `.grad` as the optimiser gets them, which will move weights by `moves` times."""
        if not self.arrangement.scattered:
            check_averaged(self.parameters, self.world, step)
        if self.order == 2:
            with at_midpoint(self.parameters, moves):
                self.validate()
            self.coverage.agree(self.device, by_passes=False)

    def flat(self, sketches: Sketches, groups: int) -> Tensor:
        """All sketches side by side, (groups, numbers) in float64."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        parts = [
            sketches[name].double() if name in sketches else zero.expand(groups, numbers)
            for name, numbers in self.layout.numbers().items()
        ]
        return torch.cat(parts, 1)

    def _pass(self, loss_fn: LossFn, piece: Piece, found: Validated) -> None:
        count = len(self.languages)
        labels = Labels(piece.languages, count, length(piece.x), self.arrangement.tokens_first)
        labels, present = labels.dense()
        book = Book(self, labels.count)
        with Watching(labels, book):
            losses = plain(loss_fn(piece.x, piece.y))
            scale = 0.5 ** int(piece.tokens.sum()).bit_length()  # about a mean; low precisions could overflow in a sum
            losses = losses * (piece.weights * scale).to(losses)
            self.coverage.look([losses])
            grads = differentiate(losses.sum(), list(book.dummies.values()), retain=bool(self.coverage.passed))
            own = {name: grad for name, grad in zip(book.dummies, grads, strict=True) if grad is not None}
            self._pass_by_group((losses, labels.groups), labels.count, own)
        add(found.sketches, {name: sketch / scale for name, sketch in own.items()}, present, count)
        owners = piece.languages.cpu()
        found.losses.index_add_(0, owners, losses.detach().double().cpu() / scale)
        found.tokens.index_add_(0, owners, piece.tokens * piece.weights)

    def _pass_by_group(self, losses: tuple[Tensor, Tensor], count: int, into: Sketches) -> None:
        """Sketches of parameters that take a pass a language."""
        names = sorted(self.coverage.passed - self.arrangement.copies)
        values, groups = losses
        for group in torch.unique(groups).tolist() if names else ():
            own = values[groups == group].sum()
            grads = differentiate(own, [self.parameters[name] for name in names], retain=True)
            for name, grad in zip(names, grads, strict=True):
                if grad is not None:
                    place, form = self.layout.sketch(name), self.layout.form
                    form = form if form.exact else Form(self.layout.numbers()[place], form.side)
                    sketch = gradient_sketch(grad, self.seed, key_of(name), form).to(self.dtype)
                    rows = into.setdefault(place, sketch.new_zeros((count, len(sketch))))
                    into[place] = rows.index_add(0, torch.tensor([group], device=rows.device), sketch[None])

    def _before_backward(
        self, roots: Sequence[Tensor], mode: Watching, watched: Watched, first: Callable[[], None] | None
    ) -> None:
        """See that no parameter is missed on any rank, then take the gradients that need passes of their own."""
        if first is not None and not watched.seen:
            first()
        watched.seen = True
        if watched.parts is not None and watched.groups is not None:
            watched.losses = weighed(watched.parts, roots[0], watched.groups)
        self.coverage.look(roots)
        if self.coverage.agree(self.device, by_passes=watched.losses is not None):
            self.validate()
        if watched.losses is not None:
            with mode:
                self._pass_by_group(watched.losses, self.groups, self.train)


def weighed(parts: Tensor, loss: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """What each part adds to the loss; parts (B, S - 1) stand for all tokens but the last."""
    (weights,) = differentiate(loss, [parts], retain=True)
    values = parts * (torch.zeros_like(parts) if weights is None else weights)
    if groups.dim() == 1:
        return values.flatten(1).sum(1) if values.dim() > 1 else values, groups
    return values, groups[:, : values.shape[1]]


def add(sums: Sketches, more: Mapping[str, Tensor], present: Tensor, count: int) -> None:
    """Add sketches, whose first rows are those of the groups `present`, to sums with a row for each of `count`.

    What is done for each layer is thus done for the groups that a call has, not for all.
    """
    for name, sketch in more.items():
        if name not in sums and len(present) == count:
            sums[name] = sketch.detach()
            continue
        rows = sums.setdefault(name, sketch.new_zeros((count, sketch.shape[1])))
        rows.index_add_(0, present, sketch[: len(present)].to(rows.dtype))


@contextmanager
def at_midpoint(parameters: Mapping[str, nn.Parameter], rates: Mapping[str, float]) -> Iterator[None]:
    """Within, the weights are `w - rate / 2 * gradient`; then they are what they were, bit for bit.

    It holds a copy of this rank's weights.

    Raises
    ------
    TrackerError
        If there are no gradients any more.
    """
    listed = {name: parameter for name, parameter in parameters.items() if parameter.grad is not None}
    if not listed:
        hint = "commit before they are moved or used up, or take order=1"
        raise TrackerError("second order needs the step's gradients, and `.grad` is empty", hint=hint)
    before = {name: local(parameter.detach()).clone() for name, parameter in listed.items()}
    try:
        with torch.no_grad():
            for name, parameter in listed.items():
                assert parameter.grad is not None
                local(parameter).sub_(local(parameter.grad).to(parameter.dtype), alpha=rates[name] / 2)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in listed.items():
                local(parameter).copy_(before[name])


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
        return name in self.engine.coverage.passed or name in self.engine.arrangement.copies


class Watching(TorchFunctionMode):
    """Within this context, covered calls are probed; `on_loss` sees what a backward pass begins with.

    It must be active during the backward pass, too, where activation checkpointing runs the forward again.
    """

    def __init__(self, labels: Labels, book: Book, on_loss: Callable[[Sequence[Tensor]], None] | None = None) -> None:
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
