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

from shapleymix_irds.batch import Batch
from shapleymix_irds.buffers import Buffers
from shapleymix_irds.engines.base import LossFn, Task, plain, trained
from shapleymix_irds.engines.intercept import READERS, Layout, Names, trainable
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.wrappers import put_back, unsynced

FOREIGN = 1e-2  # of the changed sequence's own change: above this, another sequence's is no rounding
FLOOR, LOSS = 1e-4, 1e-5  # of the numbers themselves: the least that is no rounding, of marks and of losses


class Marks(TorchFunctionMode):
    """Within this context, one number for each sequence in each call that could be split by language."""

    def __init__(self, layout: Layout, model: nn.Module) -> None:
        super().__init__()
        self.layout, self.names = layout, Names(model)
        self.seen: dict[str, list[Tensor]] = defaultdict(list)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        read = READERS.get(func)
        call = None if read is None else read(self.layout, *args, **options)
        if call is not None:
            values = [value for value in call[1] if isinstance(value, Tensor)]
            name = ", ".join(self.names.of(value) for value in values if trainable(value))
            self.seen[name].append(self._mark(next(value for value in values if not trainable(value))))
        return func(*args, **options)

    def _mark(self, x: Tensor) -> Tensor:
        """A sum with weights that no other order of the rows would give, (B,)."""
        flat = self.layout.by_sequence(x.detach()).flatten(1)
        flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
        return (flat @ torch.cos(torch.arange(flat.shape[1], device=x.device, dtype=flat.dtype) * 1.7)).double().cpu()


def apart(model: nn.Module, task: Task) -> tuple[CoverageError | None, CoverageError | None]:
    """Why sequences have no gradient of their own, and why rows cannot be told apart by sequence; or None.

    Under distributed wrappers every rank must call. Buffers are left as they were.
    """
    x, other, y = _pair(task)
    runs = [_run(model, task.loss_fn, each, y) for each in (x, other)]
    put_back(model)
    (losses, marks), (new_losses, new_marks) = runs
    mixed = any(_spreads(a, b, LOSS) for a, b in zip(losses, new_losses, strict=True))
    names = [
        name
        for name, each in marks.items()
        if any(_spreads(a, b) for a, b in zip(each, new_marks.get(name, ()), strict=False))
    ]
    told = f"layers that have the tokens in another order than sequences in front: {', '.join(names)}"
    return (
        CoverageError("the loss of a sequence changes with the others of its batch", hint=_MIXED) if mixed else None,
        CoverageError(told, hint='use engine="micro", which takes any layer') if names else None,
    )


_MIXED = "train without layers that mix sequences (batch statistics, experts with limited room, a loss of the batch)"


def probe_rows(task: Task) -> tuple[Tensor, Tensor]:
    """A few sequences, of a number that other axes seldom have."""
    source: Batch | None = task.batch if len(task.batch.x) else task.val
    assert source is not None, "an evaluated step has sequences"
    count = 7 if source.x.shape[1] == 5 else 5
    pick = torch.arange(count, device=source.x.device) % len(source.x)
    return source.x[pick], source.y[pick]


def _pair(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences, the same with another one in the first place, and their labels."""
    x, y = probe_rows(task)
    other = x.clone()
    candidates = [x[0].roll(1, 0), *x, *(() if task.val is None else task.val.x)]
    for candidate in candidates:
        if candidate.shape == x[0].shape and not torch.equal(candidate, x[0]):
            other[0] = candidate
            break
    return x, other, y


def _run(model: nn.Module, loss_fn: LossFn, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Losses, trained and measured (2, B), and the marks of each call; always with the same random numbers."""
    buffers = Buffers(model)
    marks = Marks(Layout(len(x), x.shape[1], torch.tensor([0, len(x)]), 1, x.new_zeros((1, 1)), 1), model)
    devices = [x.device] if x.device.type == "cuda" else []
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
