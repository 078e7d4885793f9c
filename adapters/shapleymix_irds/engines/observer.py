"""The engine: sketches of what each language gives to the gradient, beside a training that it never touches.

Training and validation are apart. Training runs as it is, under a mode that puts probes behind the layers' outputs
(`watching`); their sketches are held until the step is committed. Validation sequences are divided among the ranks and
pass at the same weights, where nothing but sketches is differentiated. Products of the summed sketches are the Gram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapleymix_irds.arrangement import Arrangement
from shapleymix_irds.batch import Piece, length
from shapleymix_irds.distributed import World, local
from shapleymix_irds.engines.apart import MIXED, misplaced
from shapleymix_irds.engines.base import LossFn, plain
from shapleymix_irds.engines.coverage import Coverage
from shapleymix_irds.engines.isolation import differentiate, isolated
from shapleymix_irds.engines.layout import Layout
from shapleymix_irds.engines.rows import Labels
from shapleymix_irds.engines.sketches import Form, gradient_sketch, key_of
from shapleymix_irds.engines.watching import Book, Watching
from shapleymix_irds.wrappers import is_compiled, named_parameters

Sketches = dict[str, Tensor]  # (groups, numbers) by the names of the dummies (see `watching.Book`)


@dataclass(frozen=True)
class Losses:
    """The losses of a call as they are differentiated, by which gradients can be taken language by language.

    Attributes
    ----------
    values : tensor (B,)
        What each sequence adds to the loss that is trained on.
    groups : tensor (B,)
        Their groups.
    """

    values: Tensor
    groups: Tensor


@dataclass
class Validated:
    """What the validation sequences of this rank gave: sums by language, (K,) in float64 on the CPU."""

    sketches: Sketches
    losses: Tensor
    tokens: Tensor


class Observer:
    """The engine of one tracker.

    Attributes
    ----------
    train : dict of str to tensor
        Sketches of this rank's training gradients of the step.
    validated : Validated, optional
        The validation sequences of the step.
    """

    def __init__(
        self,
        model: nn.Module,
        world: World,
        form: Form,
        languages: int,
        arrangement: Arrangement | None = None,
    ) -> None:
        self.model, self.languages, self.arrangement = model, languages, arrangement or Arrangement()
        parameters = named_parameters(model)
        self.coverage = Coverage(model, parameters, world)
        double = any(parameter.dtype == torch.float64 for parameter in parameters.values())
        self.dtype = torch.float64 if double else torch.float32
        self.device = local(next(iter(parameters.values()))).device
        self.layout = Layout(form, {})
        self.open(0)

    @property
    def name(self) -> str:
        return "exact" if self.layout.form.exact else "sketch"

    def open(self, seed: int) -> None:
        """Begin a step: fresh projections, the same on all ranks."""
        self.seed = torch.tensor(seed % 2**62)
        self.parameters = self.coverage.parameters = named_parameters(self.model)
        sizes = {name: parameter.numel() for name, parameter in self.parameters.items()}
        self.layout = Layout(self.layout.form, sizes)
        self.train: Sketches = {}
        self.validated: Validated | None = None

    def labels(self, groups: Tensor, count: int, length: int | None) -> Labels:
        """Labels of a batch, (B,) or (B, S), for activations in this model's order."""
        return Labels(groups, count, length, self.arrangement.tokens_first)

    @contextmanager
    def watch(self, labels: Labels, again: Callable[[], None] | None = None) -> Iterator[Watched]:
        """Within, what a forward and a backward pass give to each parameter is sketched by group.

        Parameters
        ----------
        again : callable, optional
            Validates anew, if it turns out that more parameters have to be passed language by language.

        Raises
        ------
        CoverageError
            On every rank, by `backward()` before anything is differentiated, if a parameter is used in a call that is
            not covered and cannot be passed.
        """
        own, present = labels.dense()
        book = self._book(own.count)
        watched = Watched()
        with Watching(own, book) as mode:
            mode.on_loss = lambda roots: self._before_backward(roots, mode, watched, labels.count, again)
            yield watched
        grads = {name: dummy.grad for name, dummy in book.dummies.items() if dummy.grad is not None}
        add(self.train, grads, present, labels.count)
        watched.seen = bool(grads) or watched.seen

    def validate(self, loss_fn: LossFn, pieces: Iterable[Piece]) -> Validated:
        """Pass this rank's validation sequences at the weights as they are."""
        zeros = torch.zeros(self.languages, dtype=torch.float64)
        found = Validated({}, zeros, zeros.clone())
        for piece in pieces:
            with isolated(self.model, self.device), torch.enable_grad():
                self._pass(loss_fn, piece, found)
        return found

    def rehearse(self, loss_fn: LossFn, piece: Piece) -> None:
        """Pass a few sequences and forget them: what is not covered is known then, be the model compiled or not.

        The number of sequences is one that other axes seldom have, so that none of them passes for the batch.

        Raises
        ------
        CoverageError
            On every rank, if sequences are not apart, or the compiler hands over other calls than Python does.
        """
        names, mixed = misplaced(self.model, loss_fn, piece, self.arrangement.tokens_first)
        if self.coverage.world.any(mixed):
            raise MIXED
        self.coverage.found |= names
        with torch.compiler.set_stance("force_eager"):
            eager = self.flat(self.validate(loss_fn, [piece]).sketches, self.languages)
        if is_compiled(self.model):
            compiled = self.flat(self.validate(loss_fn, [piece]).sketches, self.languages)
            self.coverage.compare(eager, compiled)

    def flat(self, sketches: Sketches, groups: int) -> Tensor:
        """All sketches side by side, (groups, numbers) in float64."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        parts = [
            sketches[name].double() if name in sketches else zero.expand(groups, numbers)
            for name, numbers in self.layout.numbers().items()
        ]
        return torch.cat(parts, 1)

    def _pass(self, loss_fn: LossFn, piece: Piece, found: Validated) -> None:
        labels, present = self.labels(piece.languages, self.languages, length(piece.x)).dense()
        book = self._book(labels.count)
        with Watching(labels, book):
            losses = plain(loss_fn(piece.x, piece.y))
            scale = 0.5 ** int(piece.tokens.sum()).bit_length()  # about a mean; low precisions could overflow in a sum
            losses = losses * (piece.weights * scale).to(losses)
            self.coverage.look([losses])
            grads = differentiate(losses.sum(), list(book.dummies.values()), retain=bool(self.coverage.passed))
            sketches = dict(zip(book.dummies, grads, strict=True))
            own = {name: sketch for name, sketch in sketches.items() if sketch is not None}
            self._pass_by_group(Losses(losses, labels.groups), labels.count, own)
        add(found.sketches, {name: sketch / scale for name, sketch in own.items()}, present, self.languages)
        index = piece.languages.cpu()
        found.losses.index_add_(0, index, losses.detach().double().cpu() / scale)
        found.tokens.index_add_(0, index, piece.tokens * piece.weights)

    def _pass_by_group(self, losses: Losses, count: int, into: Sketches) -> None:
        """Whole gradients of the parameters that are not covered, a pass a group; only one is held."""
        names = sorted(self.coverage.passed - self.arrangement.copies)
        for group in torch.unique(losses.groups).tolist() if names else ():
            own = losses.values[losses.groups == group].sum()
            grads = differentiate(own, [self.parameters[name] for name in names], retain=True)
            for name, grad in zip(names, grads, strict=True):
                if grad is not None:
                    place, form = self.layout.sketch(name), self.layout.form
                    form = form if form.exact else Form(self.layout.numbers()[place], form.side)
                    sketch = gradient_sketch(grad, self.seed, key_of(name), form).to(self.dtype)
                    rows = into.setdefault(place, sketch.new_zeros((count, len(sketch))))
                    into[place] = rows.index_add(0, torch.tensor([group], device=rows.device), sketch[None])

    def _before_backward(
        self,
        roots: Sequence[Tensor],
        mode: Watching,
        watched: Watched,
        groups: int,
        again: Callable[[], None] | None,
    ) -> None:
        """See that no parameter is missed on any rank, then take the gradients that need passes of their own."""
        if watched.first is not None and not watched.seen:
            watched.first()
        watched.seen = True
        if watched.parts is not None and watched.groups is not None:
            watched.losses = weighed(watched.parts, roots[0], watched.groups)
        self.coverage.look(roots)
        if self.coverage.agree(self.device, by_passes=watched.losses is not None) and again is not None:
            again()
        if watched.losses is not None:
            with mode:
                self._pass_by_group(watched.losses, groups, self.train)

    def _book(self, groups: int) -> Book:
        skipped, copies = self.coverage.passed, self.arrangement.copies
        return Book(self.model, self.layout, self.seed, groups, self.dtype, self.device, skipped, copies)


@dataclass
class Watched:
    """What happens while a call is watched.

    Attributes
    ----------
    losses : Losses, optional
        Given by who knows the losses of sequences, before the backward pass.
    parts : tensor, optional
        What the loss is made of, (B,) by sequence or (B, S) by token, given before the backward pass: for parameters
        in calls that are not covered, which take a pass a language.
    groups : tensor, optional
        The labels of the call.
    first : callable, optional
        What is done before the first backward pass.
    seen : bool
        Whether there was a backward pass.
    """

    losses: Losses | None = None
    parts: Tensor | None = None
    groups: Tensor | None = None
    first: Callable[[], None] | None = None
    seen: bool = False


def weighed(parts: Tensor, loss: Tensor, groups: Tensor) -> Losses:
    """What each part adds to the loss; parts (B, S - 1) stand for all tokens but the last."""
    (weights,) = differentiate(loss, [parts], retain=True)
    values = parts * (torch.zeros_like(parts) if weights is None else weights)
    if groups.dim() == 1:
        return Losses(values.flatten(1).sum(1) if values.dim() > 1 else values, groups)
    return Losses(values, groups[:, : values.shape[1]])


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
