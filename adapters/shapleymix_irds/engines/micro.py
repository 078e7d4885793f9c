"""The fallback engine: language-pure micro-batches, whose gradients are what the optimiser gets anyway.

The validation sequences of an evaluation pass in the first call of its step. It takes any layer, sharded parameters and
second order (validation gradients at the middle of the step). It holds K gradients (of this rank's shards).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shapleymix_irds.batch import Batch
from shapleymix_irds.buffers import Buffers
from shapleymix_irds.distributed import World, local, share
from shapleymix_irds.engines.base import LossFn, Outcome, Task, combine_halves, full_cover, plain, trained
from shapleymix_irds.engines.graph import strangers
from shapleymix_irds.engines.isolated import Grads, Isolation
from shapleymix_irds.errors import CoverageError, TrackerError
from shapleymix_irds.wrappers import put_back, unsynced


class MicroEngine:
    """See the module. `held` are K (or 2K) gradients as one (K, n) matrix for each parameter."""

    name = "micro"

    def __init__(self, isolation: Isolation, world: World, order: int = 1) -> None:
        self.isolation, self.world, self.order = isolation, world, order
        self.parameters, self.sharded = isolation.parameters, isolation.sharded
        self.held: list[Tensor] | None = None
        self.val: tuple[LossFn, Batch] | None = None
        self.wrote = False  # whether a pass has written buffers

    def run(self, task: Task) -> Outcome:
        """See `Engine.run`."""
        self.buffers = Buffers(self.isolation.model)
        few = task.batch.x[:1], task.batch.y[:1]
        self.isolation.collect(lambda: (trained(task.loss_fn(*few)) * 0.0).sum())
        self.buffers.restore()
        if task.val is None:
            return self._without_validation(task)
        if self.order == 2:
            return self._hold_training(task)
        if self.held is None:
            self.val_losses = self._hold_validation(task)
        rows = []
        losses = self._train(task, lambda k, grads: rows.append(self._products(grads)))
        return Outcome(losses, self._reduced(torch.stack(rows)), self._cover(task), self.val_losses)

    def forget(self) -> None:
        """Drop what is held of a step that will not be committed."""
        self.held = self.val = None
        self.isolation.forget()

    def finish(self, lr: float) -> Tensor | None:
        """Second order by the midpoint rule: h_j at `w - lr / 2 * gradient`; then weights are as before."""
        held, self.held = self.held, None
        if self.order == 1 or held is None or self.val is None:
            return None
        if all(parameter.grad is None for parameter in self.parameters):
            hint = "take order=1 with an optimiser that steps in the backward pass, or with main_grad"
            raise TrackerError("second order needs the step's gradients in `.grad` at commit", hint=hint)
        loss_fn, val = self.val
        self.held, self.buffers = held, Buffers(self.isolation.model)
        before = [local(parameter.detach()).clone() for parameter in self.parameters]
        try:
            with torch.no_grad():
                for parameter in self.parameters:
                    if parameter.grad is not None:
                        local(parameter).sub_(local(parameter.grad), alpha=lr / 2)
            columns = [self._products(self._validation(loss_fn, val, j)[0]) for j in range(val.groups)]
        finally:
            with torch.no_grad():
                for parameter, values in zip(self.parameters, before, strict=True):
                    local(parameter).copy_(values)
            self.forget()
        return self._reduced(torch.stack(columns, 1))

    def _train(self, task: Task, use: Callable[[int, Grads], None]) -> Tensor:
        """One backward pass a group; `use` sees each gradient, and their sum is handed over as after one pass."""
        batch, loss_fn = task.batch, task.loss_fn
        total, losses = _Total(len(self.parameters)), []
        for k in range(batch.groups):
            part = batch.part(k)
            empty = part.start == part.stop
            alone = empty and not (k == 0 and len(batch.x) == 0)  # somewhere a rank without sequences takes part
            if alone and not self.sharded:
                use(k, [None] * len(self.parameters))
                continue
            # where gradients are reduced inside backward, a rank without this language takes part with weight 0
            rows = slice(0, 1) if empty else part
            each, grads = self._isolated(loss_fn, batch.x[rows], batch.y[rows], 0.0 if empty else task.scale)
            use(k, [None if grad is None else local(grad) for grad in grads])
            total.add(grads)
            losses.append(each[: 0 if empty else len(each)])
        self._write_buffers(task)
        self.isolation.hand_over(total.grads)
        return torch.cat(losses) if losses else batch.x.new_zeros(0, dtype=torch.float32)

    def _isolated(
        self, loss_fn: LossFn, x: Tensor, y: Tensor, weight: float, measured: bool = False
    ) -> tuple[Tensor, Grads]:
        """Losses (B,) and the gradient of weight times their sum; nothing else notices the pass."""
        losses = []

        def make_loss() -> Tensor:
            both = loss_fn(x, y)
            losses.append(plain(both).detach())
            loss = ((plain(both) if measured else trained(both)) * weight).sum()
            self._check(loss)
            return loss

        grads = self.isolation.gradients(make_loss)
        self.wrote = self.wrote or bool(self.buffers.written())
        self.buffers.restore()
        return losses[0], grads

    def _write_buffers(self, task: Task) -> None:
        """Buffers become what one pass over the batch makes of them."""
        wrote, self.wrote = self.wrote, False
        if self.world.any(wrote) if self.sharded else wrote:
            with torch.no_grad(), unsynced(self.isolation.model):
                task.loss_fn(task.batch.x, task.batch.y)
            put_back(self.isolation.model)

    def _check(self, loss: Tensor) -> None:
        """Refuse parameters that are not known, whose gradients could not be held apart."""
        if not self.sharded and (shapes := strangers(loss, self.parameters)):
            listed = ", ".join(f"one of shape {shape}" for shape in shapes)
            hint = "make the tracker of a module that holds them all, when they are trainable already"
            raise CoverageError(f"the loss depends on parameters that the tracker does not know: {listed}", hint=hint)

    def _validation(self, loss_fn: LossFn, val: Batch, j: int) -> tuple[Grads, Tensor]:
        """This rank's part of the gradient of the mean validation loss of language j; the loss."""
        part, tokens = val.part(j), float(val.tokens[j])
        losses, grads = self._isolated(loss_fn, val.x[part], val.y[part], 1.0 / tokens, measured=True)
        parts: Grads = [None if grad is None else local(grad) for grad in grads]
        return parts, losses.double().sum().cpu() / tokens

    def _hold_validation(self, task: Task) -> Tensor:
        assert task.val is not None
        losses = []
        self.held = self._room(task.val.groups)
        for j in range(task.val.groups):
            grads, loss = self._validation(task.loss_fn, task.val, j)
            self._keep(j, grads)
            losses.append(loss)
        self.isolation.forget()
        return torch.stack(losses)

    def _hold_training(self, task: Task) -> Outcome:
        assert task.val is not None
        if self.held is None:
            self.held = self._room(task.batch.groups)
        self.val = (task.loss_fn, task.val)
        losses = self._train(task, self._keep)
        nothing = torch.zeros((task.languages, task.languages), dtype=torch.float64)
        return Outcome(losses, nothing, self._cover(task), None)

    def _without_validation(self, task: Task) -> Outcome:
        self.held = self._room(task.batch.groups)
        losses = self._train(task, self._keep)
        gram = torch.zeros((task.batch.groups,) * 2, dtype=torch.float64)
        for parameter, held in zip(self.parameters, self.held, strict=True):
            gram += (held @ held.T).double().cpu() * share(parameter)
        self.held = None
        tokens, unscale = batch_tokens(task.batch, self.world, self.sharded), 1.0 / task.scale
        gram = self.world.sum(gram) if self.sharded else gram
        products, cover = combine_halves(gram, tokens, unscale * (self.world.size if self.sharded else 1))
        ranks = self.world.size if self.sharded else 1
        return Outcome(losses, products, cover / ranks, None)

    def _room(self, groups: int) -> list[Tensor]:
        """Zeros for the gradients of all groups: (groups, n) for each parameter (shard)."""
        return [
            torch.zeros((groups, local(parameter).numel()), dtype=_wide(parameter), device=local(parameter).device)
            for parameter in self.parameters
        ]

    def _keep(self, group: int, grads: Grads) -> None:
        assert self.held is not None
        for held, grad in zip(self.held, grads, strict=True):
            if grad is not None:
                held[group] += grad.flatten()

    def _products(self, grads: Grads) -> Tensor:
        """Products of a gradient with each held one, (groups,) float64."""
        assert self.held is not None
        total = torch.zeros(len(self.held[0]), dtype=torch.float64)
        for parameter, held, grad in zip(self.parameters, self.held, grads, strict=True):
            if grad is not None:
                total += (held @ grad.flatten().to(held.dtype)).double().cpu() * share(parameter)
        return total

    def _reduced(self, gram: Tensor) -> Tensor:
        """Products of shards become this rank's share of whole products: the step divides by the ranks."""
        return gram * self.world.size if self.sharded else gram

    def _cover(self, task: Task) -> Tensor:
        return full_cover(task.batch.tokens, task.languages)


class _Total:
    """A sum of gradients."""

    def __init__(self, parameters: int) -> None:
        self.grads: Grads = [None] * parameters

    def add(self, grads: Grads) -> None:
        """Add one."""
        for k, grad in enumerate(grads):
            so_far = self.grads[k]
            if grad is not None:
                self.grads[k] = grad if so_far is None else so_far + grad


def batch_tokens(batch: Batch, world: World, everywhere: bool) -> Tensor:
    """Tokens of each group, over all ranks where gradients are."""
    return world.sum(batch.tokens.clone()) if everywhere else batch.tokens


def _wide(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)
