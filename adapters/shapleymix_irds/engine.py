"""The engine: sketches of what each language gives to the gradient, beside a training that it never touches.

Training and validation are apart. Training runs as it is, under a mode that puts probes behind the layers' outputs
(`Watching`); their sketches are held until the step is committed. Validation sequences are divided among the ranks and
pass at the same weights, where nothing but sketches is differentiated. Products of the two are the Gram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as compiling

from shapleymix_irds.batch import LossFn, Piece, ValidationSet, halves, length, plain
from shapleymix_irds.coverage import ModelCoverage, not_probed
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.first_pass import FirstPass
from shapleymix_irds.probes import Book, Cut, Watching
from shapleymix_irds.schedule import Options, extra_cost
from shapleymix_irds.sketches import (
    Labels,
    MatrixRole,
    Projection,
    basis_columns,
    products,
    projections_of,
    share_of_step,
    signs,
    with_basis,
)
from shapleymix_irds.world import (
    Arrangement,
    World,
    check_wrappers,
    differentiate,
    hooked,
    is_compiled,
    isolated,
    named_parameters,
    reading,
    word_layers,
)

First = Callable[[], None] | None
Sketches = dict[str, Tensor]  # (groups, numbers) by the names of parameters; products are (groups, languages)


@dataclass
class Watched:
    """What happens while a call is watched.

    Attributes
    ----------
    groups : tensor (B,) or (B, S)
        The labels of the call.
    parts : tensor, optional
        What the loss is made of, (B,) by sequence or (B, S) by token, given before the backward pass: for parameters
        in calls that are not covered, which take a pass a language.
    seen : bool
        Whether there was a backward pass.
    """

    groups: Tensor
    parts: Tensor | None = None
    seen: bool = False


@dataclass
class Validated:
    """What the validation sequences of this rank gave: sketches, and sums of losses and tokens by language, (2, K) in
    float64 on the CPU."""

    sketches: Sketches
    sums: Tensor


class Engine:
    """What a tracker evaluates its steps with.

    Attributes
    ----------
    columns : int
        r of sketches (see `sketches`); 0: exact.
    groups : int
        G: languages, or halves of languages where there is no validation set.
    loss_fn : LossFn, optional
        The loss of validation sequences; `backward` gives its own.
    first_pass : FirstPass
        What it has shown of the model.
    projections : dict of str to Projection
        Of each parameter that is trained, in this evaluation.
    matrices : list of tensor
        Those of the projections, each once.
    projections_drawn : bool
        Whether they are final; before that there is in them what inputs span, as far as seen.
    train : dict of str to tensor
        Of this rank's training gradients of the step: their products with sketches of validation, or sketches where
        there is no validation set.
    validated : Validated, optional
        The validation sequences of the step, whose sketches are summed over ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        world: World,
        languages: Sequence[str],
        validation: ValidationSet | None,
        columns: int,
        arrangement: Arrangement | None = None,
        loss_fn: LossFn | None = None,
    ) -> None:
        self.model, self.world, self.languages = model, world, tuple(languages)
        self.validation = validation
        self.arrangement, self.loss_fn = arrangement or Arrangement(), loss_fn
        self.divisor = world.size if self.arrangement.divisor is None else self.arrangement.divisor
        self.groups = len(languages) * (2 if validation is None else 1)
        self.in_language_pass, self.evaluation, self.first_pass = False, 0, FirstPass()
        self.coverage = ModelCoverage(model, named_parameters(model), world, self.first_pass)
        double = any(parameter.dtype == torch.float64 for parameter in self.coverage.parameters.values())
        self.dtype = torch.float64 if double else torch.float32
        self.columns, self.name = columns, "sketch" if columns else "exact"
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.projections: dict[str, Projection] = {}
        self.open(0)

    @property
    def met(self) -> Sketches:
        """Sketches of validation, with which products are taken; none before there are any."""
        return {} if self.validated is None else self.validated.sketches

    @property
    def fallback(self) -> str | None:
        """Which parameters take a pass a language, since they are used in calls that are not covered."""
        names = self.first_pass.listed
        return f"a pass a language for {names}" if names else None

    def settings(self, options: Options) -> dict[str, Any]:
        """What must not change over a resume."""
        own = {"languages": list(self.languages), "validation": self.validation is not None}
        own |= {"engine": self.name, "side": self.columns}
        return own | {"seed": options.seed, "val_sequences": options.val_sequences}

    def open(self, seed: int) -> None:
        """Fresh projections, the same on all ranks, of the parameters that are trained now."""
        self.check()
        self.draw = torch.Generator(self.world.device).manual_seed(seed % 2**62)
        self.mixing = torch.Generator(self.world.device).manual_seed((seed + self.world.rank + 1) % 2**62)
        shapes = {name: tuple(parameter.shape) for name, parameter in self.parameters.items()}
        if shapes != self.shapes:
            self.shapes, seen = shapes, self.first_pass
            first = next(iter(seen.same_rows.values()), None)
            turned = {name: (*each[:-2], *each[:-3:-1]) for name, each in shapes.items() if seen.turned.get(name)}
            uses: dict[str, MatrixRole] = {name: "first" for name, one in seen.same_rows.items() if one == first}
            uses |= uses_of(self.model, self.parameters)
            self.projections = projections_of(shapes | turned, uses, self.columns, len(self.languages))
            for name in turned:
                self.projections[name].turned = True
        for projection in self.projections.values():
            projection.draw(self.draw, self.dtype)
        shared: dict[tuple[str, int], Tensor | None] = {}
        for name, projection in self.projections.items():
            same = self.first_pass.same_rows.get(name, name), projection.columns
            projection.matrix = shared.setdefault(same, projection.matrix)
        self.matrices = [matrix for matrix in shared.values() if matrix is not None]
        self.projections_drawn = not self.matrices
        self.release()

    def release(self) -> None:
        """Forget what was seen of the step."""
        self.train: Sketches = {}
        self.validated: Validated | None = None

    def begin(self, evaluation: int, seed: int) -> None:
        """An evaluated step begins.

        Raises
        ------
        CoverageError
            If values would be wrong.
        """
        self.evaluation = evaluation
        self.open(seed)
        self.validate()

    def examine(self, sample: Piece) -> None:
        """Before the first step: pass a few sequences and forget them: what is not covered is known then, be the model
        compiled or not.

        The number of sequences is one that other axes seldom have, so that none of them passes for the batch.

        Raises
        ------
        CoverageError
            On every rank, if values would be wrong: sequences are not apart, or the compiler hands over other calls
            than Python does.
        """
        seen, known = self.first_pass, self.first_pass.per_language
        seen.forget()  # a resumed run sees what its first did
        self.open(0)
        if self.loss_fn is not None:
            self.coverage.look_apart(self.loss_fn, sample, self.arrangement.tokens_first)
        with torch.compiler.set_stance("force_eager"):
            eager = self.validation_sketches([sample]).sketches
        self.coverage.agree()
        self.first_pass.per_language |= known
        if is_compiled(self.model):
            self._keep_buffers()
            self.coverage.compare(eager, self.validation_sketches([sample]).sketches)
            self.coverage.agree()
        # where routes differ, ranks have seen other layers together
        seen.same_rows, seen.turned = self.world.told((seen.same_rows, seen.turned))
        seen.is_over, self.shapes = True, {}
        self.open(0)

    def _keep_buffers(self) -> bool:
        """Have compiled layers, which are compiled anew, keep what passes by language need again; whether they did not.

        It costs memory, and changes no number.
        """
        given = bool(self.first_pass.per_language) and is_compiled(self.model) and compiling.donated_buffer
        if given:
            compiling.donated_buffer = False
            torch.compiler.reset()
        return given

    def extra_cost(self, tokens: float) -> float:
        """What an evaluated step of so many tokens takes beside a plain one, in plain ones; every rank must call."""
        ranks = self.world.size
        val_tokens = 0 if self.validation is None else self.validation.tokens(ranks)
        mean = self.world.sum(torch.tensor(tokens / ranks**2, dtype=torch.float64, device=self.world.device))
        passes = self.groups if self.first_pass.per_language else 0
        return extra_cost(float(mean), val_tokens, share_of_step(self.projections.values()), passes)

    def check(self) -> None:
        """Refuse wrappers and hooks under which values would be wrong; before any pass, since ranks pass different
        sequences."""
        self.parameters = self.coverage.parameters = named_parameters(self.model)
        check_wrappers(self.model, self.parameters, self.world, self.divisor)

    @contextmanager
    def watch(self, indices: Tensor, length: int | None, turn: int, first: First = None) -> Iterator[Watched]:
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
        groups = groups.to(self.world.device)
        labels = Labels(groups, self.groups, length, self.arrangement.tokens_first)
        own, present = labels.dense()
        book, watched = Book(self, own.count), Watched(groups)
        on_loss = partial(self._before_backward, watched, present, first)
        with Watching(own, book, on_loss), hooked(self.parameters, reading):
            yield watched
        grads = {name: dummy.grad for name, dummy in book.dummies.items() if dummy.grad is not None}
        add(self.train, grads, present, labels.count)
        watched.seen = bool(grads) or watched.seen

    def validate(self) -> None:
        """Pass this rank's validation sequences of the evaluation at the weights as they are; every rank must call."""
        self.validated = None
        if self.validation is not None:
            found = self.validation_sketches(self.validation.share(self.evaluation, self.world))
            zero = torch.zeros((), dtype=self.dtype, device=self.world.device)
            none = {name: zero.expand(len(self.languages), each.numbers) for name, each in self.projections.items()}
            found.sketches = self.world.sum_all({name: found.sketches.get(name, each) for name, each in none.items()})
            self.validated = found

    def validation_sketches(self, pieces: Iterable[Piece]) -> Validated:
        """What sequences give at the weights as they are.

        Raises
        ------
        TrackerError
            If there is no loss to pass them with.
        """
        if self.loss_fn is None:
            hint = "give the tracker `loss_fn`, which it needs for validation sequences"
            raise TrackerError("`watch` has no loss for validation sequences", hint=hint)
        found = Validated({}, torch.zeros((2, len(self.languages)), dtype=torch.float64))
        for piece in pieces:
            # rows of inputs cannot be seen in a compiled graph
            seen = nullcontext() if self.projections_drawn else torch.compiler.set_stance("force_eager")
            with isolated(self.model, evaluating=True), torch.enable_grad(), seen:
                self._pass(self.loss_fn, piece, found)
        return found

    def draw_projections(self) -> None:
        """Before the first backward pass of an evaluation: make projections of rows of inputs that all ranks have seen.

        Every rank must call. Where a compiler hides the rows of training sequences, signs are left.
        """
        if self.projections_drawn:
            return
        for shape in dict.fromkeys(matrix.shape for matrix in self.matrices):
            same = [matrix for matrix in self.matrices if matrix.shape == shape]
            spanned = self.world.sum(torch.stack([each[:, : basis_columns(shape[1])] for each in same]))
            drawn = with_basis(spanned, signs((len(same), *shape), self.draw, self.dtype))
            for matrix, values in zip(same, drawn, strict=True):
                matrix.data.copy_(values)  # which calls of this pass hold already
        self.projections_drawn = True

    def _pass(self, loss_fn: LossFn, piece: Piece, found: Validated) -> None:
        count = len(self.languages)
        labels = Labels(piece.languages, count, length(piece.x), self.arrangement.tokens_first)
        labels, present = labels.dense()
        labels.join()
        book = Book(self, labels.count)
        with Watching(labels, book) as mode:
            measured = plain(loss_fn(piece.x, piece.y))
            scale = 0.5 ** int(piece.tokens.sum()).bit_length()  # about a mean; low precisions could overflow in a sum
            losses = measured * (piece.weights * scale).to(measured)
        self.coverage.look([losses])
        self.draw_projections()
        with mode:
            ones = torch.ones_like(losses)
            grads = differentiate([losses], list(book.dummies.values()), [ones], bool(self.first_pass.per_language))
            own = {name: grad for name, grad in zip(book.dummies, grads, strict=True) if grad is not None}
            cut = Cut(losses, labels.groups.view(len(losses), -1)[:, 0])
            self._pass_by_language(cut, ones, labels.count, own)
        add(found.sketches, {name: sketch.div_(scale) for name, sketch in own.items()}, present, count)
        piece.add(found.sums, measured)

    def _pass_by_language(self, cut: Cut, delta: Tensor, count: int, into: Sketches) -> None:
        """Sketches of parameters that take a pass a language from a cut, whose gradient is given, or their products
        with those of validation."""
        met, names = self.validated, sorted(self.first_pass.per_language - self.arrangement.copies)
        values = delta.reshape(len(cut.groups), -1)
        for group in torch.unique(cut.groups).tolist() if names else ():
            own = torch.where((cut.groups == group)[:, None], values, 0).view_as(delta)
            grads = self._unmeasured([cut.output], [self.parameters[name] for name in names], [own])
            for name, grad in zip(names, grads, strict=True):
                if grad is not None:
                    sketch = self.projections[name].sketch(grad).to(self.dtype)[None]
                    sketch = products(sketch, None if met is None else met.sketches[name])
                    rows = into.setdefault(name, sketch.new_zeros((count, sketch.shape[1])))
                    into[name] = rows.index_add(0, torch.tensor([group], device=rows.device), sketch)

    def _before_backward(self, watched: Watched, present: Tensor, first: First, mode: Watching) -> None:
        """See that no parameter is missed on any rank, then take the gradients that need passes of their own."""
        if first is not None and not watched.seen:
            first()
        watched.seen = True
        self.coverage.look(mode.roots)
        fresh = self.coverage.agree()
        if fresh and self._keep_buffers():
            self.coverage.refuse()
        if first is not None:
            if fresh:
                self.validate()
            self.draw_projections()
        if self.first_pass.per_language:
            with mode:
                self._pass_by_language(*self._cut(watched, present, mode), self.groups, self.train)

    def _cut(self, watched: Watched, present: Tensor, mode: Watching) -> tuple[Cut, Tensor]:
        """Where passes by language begin, with the loss's gradient there; every rank must call.

        It is what the loss is made of, if that is told, else the output of the last covered call, whose rows are known
        to be those of sequences.

        Raises
        ------
        CoverageError
            On every rank, if the loss depends otherwise, too, on a parameter that takes passes.
        """
        cut, parts = mode.cut, watched.parts
        if parts is not None:  # (B, S - 1) stand for all tokens but the last
            groups = watched.groups if watched.groups.dim() == 1 else watched.groups[:, : parts.shape[1]].flatten()
            cut = Cut(torch.autograd.graph.get_gradient_edge(parts), groups)
        elif cut is not None:
            cut = Cut(cut.output, present[cut.groups])
        passed = {id(self.parameters[name]) for name in self.first_pass.per_language}
        delta: Tensor | None = None
        if cut is not None and not any(id(leaf) in passed for leaf in not_probed(mode.roots, cut.output.node)):
            (delta,) = self._unmeasured(mode.roots, [cut.output], mode.seeds)
        if self.world.any(delta is None):
            self.coverage.refuse()
        assert cut is not None
        assert delta is not None
        return cut, delta

    def _unmeasured(self, roots: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Tensor]) -> list[Tensor | None]:
        """Gradients of a pass in which probes are silent."""
        self.in_language_pass = True
        try:
            with hooked(self.parameters, lambda *_: lambda _: None):
                return differentiate(roots, inputs, seeds)
        finally:
            self.in_language_pass = False


def uses_of(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[str, MatrixRole]:
    """Which matrices have a row for each word of a vocabulary: those of an output layer, and of no other."""
    tables, outputs = word_layers(model)
    uses: dict[int, MatrixRole] = dict.fromkeys((id(table.weight) for table in tables), "table")
    uses |= dict.fromkeys((id(layer.weight) for layer in outputs), "output")
    return {name: uses[id(each)] for name, each in parameters.items() if id(each) in uses}


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
