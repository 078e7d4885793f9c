"""Do sequences stay apart? Change one sequence, run the model again, and see which rows change with it.

Two faults are found that nothing else shows. Where the loss of one sequence changes with another one (a layer that
mixes the batch, experts with a limited room), there is no gradient by language at all. Where a layer has the batch's
tokens in another order than sequences in front ([s, b]), its rows would be counted for the wrong languages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapleymix_irds.batch import Inputs, Piece, length
from shapleymix_irds.buffers import Buffers
from shapleymix_irds.engines.base import LossFn, plain, trained
from shapleymix_irds.engines.calls import READERS
from shapleymix_irds.engines.rows import Labels
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.wrappers import put_back, tidy, unsynced

FOREIGN = 1e-2  # of the changed sequence's own change: above this, another sequence's is no rounding
FLOOR, LOSS = 1e-4, 1e-5  # of the numbers themselves: the least that is no rounding, of marks and of losses


class Marks(TorchFunctionMode):
    """Within this context, one number for each sequence in each call that is covered."""

    def __init__(self, labels: Labels, model: nn.Module) -> None:
        super().__init__()
        self.labels, self.model = labels, model
        self.seen: dict[str, list[Tensor]] = defaultdict(list)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        y = func(*args, **options)
        reader = READERS.get(func)
        uses = [] if reader is None else reader(self.labels, *args, **options)
        if uses:
            names = {id(parameter): tidy(name) for name, parameter in self.model.named_parameters()}
            x = y if uses[0].x is None else uses[0].x
            self.seen[", ".join(names.get(id(use.weight), "") for use in uses)].append(
                self._mark(x, uses[0].kind == "table")
            )
        return y

    def _mark(self, x: Tensor, ids: bool) -> Tensor:
        """A sum with weights that no other order of the rows would give, (B,)."""
        flat = self.labels.sequences_first(x.detach(), ids)
        flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
        return (flat @ torch.cos(torch.arange(flat.shape[1], device=x.device, dtype=flat.dtype) * 1.7)).double().cpu()


def misplaced(model: nn.Module, loss_fn: LossFn, piece: Piece, tokens_first: bool = False) -> tuple[set[str], bool]:
    """Parameters of layers that have the tokens in another order, and whether sequences change each other's loss.

    Under distributed wrappers every rank must call. Buffers and random numbers are left as they were.
    """
    labels = Labels(piece.languages, 1, length(piece.x), tokens_first)
    runs = [_run(model, loss_fn, x, piece.y, labels) for x in (piece.x, _changed(piece.x))]
    put_back(model)
    (losses, marks), (new_losses, new_marks) = runs
    mixed = any(_spreads(a, b, LOSS) for a, b in zip(losses, new_losses, strict=True))
    calls = {name for name, each in marks.items() if _differ(each, new_marks.get(name, []))}
    return {name for call in calls for name in call.split(", ")}, mixed


def _differ(before: list[Tensor], after: list[Tensor]) -> bool:
    return any(_spreads(a, b) for a, b in zip(before, after, strict=False))


MIXED = CoverageError(
    "the loss of a sequence changes with the others of its batch",
    hint="train without layers that mix sequences (batch statistics, experts with limited room, a loss of the batch)",
)


def _changed(x: Inputs) -> Inputs:
    """The same sequences with another one in the first place."""
    if not isinstance(x, Tensor):
        return {name: _changed_rows(value) if not value.is_floating_point() else value for name, value in x.items()}
    return _changed_rows(x)


def _changed_rows(x: Tensor) -> Tensor:
    other = x.clone()
    for candidate in (x[0].roll(1, 0), *x) if x.dim() > 1 else ():
        if not torch.equal(candidate, x[0]):
            other[0] = candidate
            break
    return other


def _run(
    model: nn.Module, loss_fn: LossFn, x: Inputs, y: Tensor, labels: Labels
) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Losses, trained and measured (2, B), and the marks of each call; always with the same random numbers."""
    buffers, marks = Buffers(model), Marks(labels, model)
    devices = [y.device] if y.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        torch.manual_seed(0)
        with unsynced(model), marks:
            both = loss_fn(x, y)
    buffers.restore()
    return torch.stack([trained(both).double().cpu(), plain(both).double().cpu()]), dict(marks.seen)


def _spreads(before: Tensor, after: Tensor, floor: float = FLOOR) -> bool:
    """Whether other sequences change with the first one."""
    change = (after - before).abs()
    return bool((change[1:] > max(FOREIGN * float(change[0]), floor * float(before.abs().max()))).any())
