"""What is not covered: found in the graph of a loss and by changing one sequence, before anything is booked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import Inputs, LossFn, Piece, length, plain, trained
from shapleymix_irds.calls import ParameterUse, leaves
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.first_pass import FirstPass
from shapleymix_irds.probes import Probe, Watching
from shapleymix_irds.sketches import Labels
from shapleymix_irds.world import World, is_sharded, isolated, names_of

FOREIGN = 1e-2  # of the changed sequence's own change: above this, another sequence's is no rounding
FLOOR, LOSS = 1e-4, 1e-5  # of the numbers themselves: the least that is no rounding, of marks and of losses

SequenceMarks = dict[tuple[str, ...], Tensor]  # by the names of a call's parameters


@dataclass
class ModelCoverage:
    """What of one model is not covered.

    Attributes
    ----------
    first_pass : FirstPass
        What is known of it, the parameters that take a pass a language among it.
    found : set of str
        Parameters of calls that are not covered, seen on this rank since the ranks last agreed, with what is not in
        the model.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    world: World
    first_pass: FirstPass
    found: set[str] = field(default_factory=set)

    def look(self, losses: Iterable[Tensor]) -> None:
        """Note the parameters from which a loss gets its gradient otherwise than through probes."""
        leaves = [leaf for leaf in not_probed(losses) if isinstance(leaf, nn.Parameter)]
        if leaves:
            names = names_of(self.model, self.parameters)
            unknown = "one of shape {}".format
            self.found |= {names.get(id(leaf), unknown(tuple(leaf.shape))) for leaf in leaves}
            self.found -= self.first_pass.per_language

    def agree(self) -> bool:
        """Whether more parameters have to be passed than were known; every rank must call.

        Raises
        ------
        CoverageError
            On every rank, if they cannot be: shards, or parameters outside of the model.
        """
        names, known = sorted(self.parameters), self.first_pass.per_language
        outside = sorted(self.found.difference(names))
        flags = [name in self.found for name in names] + [bool(outside)]
        together = self.world.sum(torch.tensor(flags, dtype=torch.float64, device=self.world.device)).cpu() > 0
        fresh = {name for name, flag in zip(names, together.tolist(), strict=False) if flag} - known
        self.found = set()
        if bool(together[-1]):
            listed = ", ".join(sorted(fresh) + outside) or "parameters of another rank"
            raise CoverageError(f"the loss depends on parameters that the tracker does not know: {listed}", hint=_HINT)
        known |= fresh
        if fresh and is_sharded(self.parameters.values()):
            self.refuse()
        return bool(fresh)

    def refuse(self) -> None:
        """Say that the parameters that need passes cannot have them.

        Raises
        ------
        CoverageError
            Always.
        """
        listed, self.first_pass.per_language = self.first_pass.listed, set()
        raise CoverageError(f"parameters used in calls that are not covered: {listed}", hint=_HINT)

    def compare(self, eager: Mapping[str, Tensor], compiled: Mapping[str, Tensor]) -> None:
        """See that a compiled model hands over the same calls as it does uncompiled; every rank must call.

        Raises
        ------
        CoverageError
            On every rank, if a parameter has no sketch, or the sketches of the same sequences differ.
        """
        hidden = sorted(eager.keys() - compiled.keys())
        spread = [(each - compiled.get(name, 0)).norm() for name, each in eager.items()]
        whole = [each.norm() for each in eager.values()]
        error = float(torch.stack(spread).norm() / torch.stack(whole).norm().clamp(min=1e-30)) if whole else 0.0
        if self.world.any(bool(hidden) or error > 0.1):
            hint = "compile its blocks one by one, or measure it uncompiled"
            told = ", ".join(hidden) or f"{error:.0%} off"
            raise CoverageError(f"the compiled model hides parameters from the tracker: {told}", hint=hint)

    def look_apart(self, loss_fn: LossFn, piece: Piece, tokens_first: bool) -> None:
        """Change one sequence, run the model again, and see which rows change with it; every rank must call.

        Two faults are found that nothing else shows. Where the loss of one sequence changes with another one (a layer
        that mixes the batch, experts with a limited room), there is no gradient by language at all. Where a layer has
        the batch's tokens in another order than sequences in front ([s, b]), its rows would be counted for the wrong
        languages, and its parameters are taken by passes.

        Raises
        ------
        CoverageError
            On every rank, if sequences are not apart.
        """
        labels = Labels(piece.languages, 1, length(piece.x), tokens_first)
        losses, marks = self._marked(loss_fn, piece.x, piece.y, labels)
        new_losses, new_marks = self._marked(loss_fn, _changed(piece.x), piece.y, labels)
        if self.world.any(any(_spreads(a, b, LOSS) for a, b in zip(losses, new_losses, strict=True))):
            hint = "train without layers that mix sequences (batch statistics, experts with limited room)"
            raise CoverageError("the loss of a sequence changes with the others of its batch", hint=hint)
        for names, each in marks.items():
            if _spreads(each, new_marks.get(names, torch.zeros_like(each)), FLOOR):
                self.found |= set(names)
                self.first_pass.unordered |= not names

    def _marked(self, loss_fn: LossFn, x: Inputs, y: Tensor, labels: Labels) -> tuple[Tensor, SequenceMarks]:
        """Losses, trained and measured (2, B), and marks by parameters; always with the same random numbers."""
        with isolated(self.model), torch.enable_grad(), torch.compiler.set_stance("force_eager"):
            torch.manual_seed(0)
            with _Marks(labels, self) as marks:
                both = loss_fn(x, y)
        return torch.stack([trained(both).double().cpu(), plain(both).double().cpu()]).detach(), marks.seen


class _Marks(Watching):
    """Within this context, one number for each sequence, (B,), of all covered calls of the same parameters."""

    def __init__(self, labels: Labels, coverage: ModelCoverage) -> None:
        super().__init__(labels, None)  # type: ignore[arg-type]  # nothing is booked
        self.coverage = coverage
        self.seen: SequenceMarks = {}

    def _probed(self, uses: list[ParameterUse], labels: Labels, func: Any, args: Any, options: Any) -> Any:
        y, known = func(*args, **options), names_of(self.coverage.model, self.coverage.parameters)
        made = [leaf for use in uses for leaf in leaves(use.weight) or [use.weight]]
        names = tuple(known[id(leaf)] for leaf in made if id(leaf) in known)
        self._mark(names, labels, y if uses[0].x is None else uses[0].x, uses[0].kind == "table")
        cut: Any = Probe.apply(y, None, None)
        cut.grad_fn.below = []
        return cut

    def _frozen(self, x: Tensor, y: Tensor) -> None:
        self._mark((), self.labels, x)

    def _mark(self, names: tuple[str, ...], labels: Labels, x: Tensor, ids: bool = False) -> None:
        marks = labels.marks(x.detach(), ids).double().cpu()
        self.seen[names] = marks + self.seen.get(names, 0.0)  # which expert comes when may change with a sequence


def _changed(x: Inputs) -> Inputs:
    """The same sequences with another one in the first place: of one word alone, by which a batch's means change."""
    if not isinstance(x, Tensor):
        return {name: value if value.is_floating_point() else _changed(value) for name, value in x.items()}  # type: ignore[misc]
    other = x.clone()
    for candidate in (x[0, -1].expand_as(x[0]), *x) if x.dim() > 1 else ():
        if not torch.equal(candidate, x[0]):
            other[0] = candidate
            break
    return other


def _spreads(before: Tensor, after: Tensor, floor: float) -> bool:
    """Whether other sequences change with the first one."""
    change = (after - before).abs()
    return bool((change[1:] > max(FOREIGN * float(change[0]), floor * float(before.abs().max()))).any())


def not_probed(losses: Iterable[Tensor], cut: Any = None) -> list[Tensor]:
    """Leaves of the graph that get a gradient by another way than through probes, or than through a cut, if one is
    given.

    Raises
    ------
    CoverageError
        If a part of the graph is made in the backward pass only.
    """
    waiting: list[Any] = [loss.grad_fn for loss in losses if loss.grad_fn is not cut]
    seen, leaves = {*waiting, cut}, {}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        kind = type(node).__name__
        if kind == "AccumulateGrad":
            leaves[id(node.variable)] = node.variable
            continue
        if kind == "CheckpointFunctionBackward":
            hint = "take the non-reentrant form (use_reentrant=False), as PyTorch advises"
            raise CoverageError("reentrant checkpointing hides what the loss depends on", hint=hint)
        following = getattr(node, "below", None) if cut is None else None
        if following is None:
            following = [edge for edge, _ in node.next_functions]
        if kind.startswith("CompiledFunction"):  # which takes parameters itself
            following = [edge for edge in following if not hasattr(edge, "variable")]
        fresh = [below for below in following if below not in seen]
        waiting += fresh
        seen.update(fresh)
    return list(leaves.values())


_HINT = (
    "unsharded models, uncompiled or compiled by block, take any layer where the loss comes from a linear output layer "
    "alone; otherwise use linear, embedding and norm layers, or do not train these"
)
