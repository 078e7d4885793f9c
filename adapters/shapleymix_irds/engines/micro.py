"""The fallback engine: language-pure micro-batches, whose gradients are what the optimiser gets anyway.

The validation sequences of an evaluation pass in the first call of its step. It takes any layer, sharded parameters,
second order (validation gradients at the middle of the step) and preconditioning. It holds K gradients (of this
rank's shards).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import Batch
from shapleymix_irds.distributed import World, is_sharded, local, share, syncs, without_sync
from shapleymix_irds.engines.base import LossFn, Outcome, Task, combine_halves, full_cover, plain, trained
from shapleymix_irds.engines.graph import strangers
from shapleymix_irds.errors import CoverageError


class MicroEngine:
    """See the module. `held` are K (or 2K) gradients as one (K, n) matrix for each parameter."""

    name = "micro"

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[nn.Parameter],
        world: World,
        order: int = 1,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.model, self.world, self.order, self.optimizer = model, world, order, optimizer
        self.parameters = list(parameters)
        self.sharded = is_sharded(self.parameters)
        self.held: list[Tensor] | None = None
        self.val: tuple[LossFn, Batch] | None = None

    def run(self, task: Task) -> Outcome:
        """See `Engine.run`."""
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

    def finish(self, lr: float) -> Tensor | None:
        """Second order by the midpoint rule: h_j at `w - lr / 2 * gradient`; then weights are as before."""
        held, self.held = self.held, None
        if self.order == 1 or held is None or self.val is None:
            return None
        loss_fn, val = self.val
        self.held = held
        before = [local(parameter.detach()).clone() for parameter in self.parameters]
        factors = self._factors()
        try:
            with torch.no_grad():
                for parameter, factor in zip(self.parameters, factors, strict=True):
                    if parameter.grad is not None:
                        step = local(parameter.grad) if factor is None else local(parameter.grad) * factor
                        local(parameter).sub_(step, alpha=lr / 2)
            columns = [self._products(self._validation(loss_fn, val, j)[0]) for j in range(val.groups)]
        finally:
            with torch.no_grad():
                for parameter, values in zip(self.parameters, before, strict=True):
                    local(parameter).copy_(values)
            self.held = self.val = None
        return self._reduced(torch.stack(columns, 1))

    def _train(self, task: Task, use: Callable[[int, list[Tensor | None]], None]) -> Tensor:
        """One backward pass a group; `.grad` ends as after one pass over all; `use` sees each gradient."""
        batch, losses = task.batch, []
        for k in range(batch.groups):
            part = batch.part(k)
            empty = part.start == part.stop
            if empty and not self.sharded:
                use(k, [None] * len(self.parameters))
                continue
            # where gradients are reduced inside backward, a rank without this language takes part with weight 0
            rows = slice(0, 1) if empty else part
            each, grads = self._isolated(task.loss_fn, batch.x[rows], batch.y[rows], 0.0 if empty else task.scale)
            use(k, [None if grad is None else local(grad) for grad in grads])
            self._accumulate(grads)
            losses.append(each[: 0 if empty else len(each)])
        if syncs(self.model):
            self.world.mean_gradients(self.parameters)
        return torch.cat(losses) if losses else batch.x.new_zeros(0, dtype=torch.float32)

    def _isolated(
        self, loss_fn: LossFn, x: Tensor, y: Tensor, weight: float, measured: bool = False
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Losses (B,) and the gradient of weight times their sum, with `.grad` left as it was."""
        saved = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        try:
            with without_sync(self.model):
                both = loss_fn(x, y)
                loss = ((plain(both) if measured else trained(both)) * weight).sum()
                self._check(loss)
                loss.backward()
            grads = [parameter.grad for parameter in self.parameters]
        finally:
            for parameter, grad in zip(self.parameters, saved, strict=True):
                parameter.grad = grad
        return plain(both).detach(), grads

    def _check(self, loss: Tensor) -> None:
        """Refuse parameters that are not known, whose gradients could not be held apart."""
        if not self.sharded and (shapes := strangers(loss, self.parameters)):
            listed = ", ".join(f"one of shape {shape}" for shape in shapes)
            hint = "make the tracker of a module that holds them all, when they are trainable already"
            raise CoverageError(f"the loss depends on parameters that the tracker does not know: {listed}", hint=hint)

    def _accumulate(self, grads: list[Tensor | None]) -> None:
        for parameter, grad in zip(self.parameters, grads, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)

    def _validation(self, loss_fn: LossFn, val: Batch, j: int) -> tuple[list[Tensor | None], Tensor]:
        """Gradient of the mean validation loss of language j, weighted by the preconditioner; the loss."""
        part, tokens = val.part(j), float(val.tokens[j])
        losses, grads = self._isolated(loss_fn, val.x[part], val.y[part], 1.0 / tokens, measured=True)
        weighted = [
            None if grad is None else local(grad) if factor is None else local(grad) * factor
            for grad, factor in zip(grads, self._factors(), strict=True)
        ]
        return weighted, losses.double().sum().cpu() / tokens

    def _hold_validation(self, task: Task) -> Tensor:
        assert task.val is not None
        losses = []
        self.held = self._room(task.val.groups)
        for j in range(task.val.groups):
            grads, loss = self._validation(task.loss_fn, task.val, j)
            self._keep(j, grads)
            losses.append(loss)
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
        factors, gram = self._factors(), torch.zeros((task.batch.groups,) * 2, dtype=torch.float64)
        for parameter, held, factor in zip(self.parameters, self.held, factors, strict=True):
            right = held if factor is None else held * factor.flatten()
            gram += (held @ right.T).double().cpu() * share(parameter)
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

    def _keep(self, group: int, grads: list[Tensor | None]) -> None:
        assert self.held is not None
        for held, grad in zip(self.held, grads, strict=True):
            if grad is not None:
                held[group] += grad.flatten()

    def _products(self, grads: list[Tensor | None]) -> Tensor:
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

    def _factors(self) -> list[Tensor | None]:
        """1 / (sqrt(v) + eps) by AdamW's second moment, for each parameter; 0 before its first step."""
        if self.optimizer is None:
            return [None] * len(self.parameters)
        groups = {id(p): group for group in self.optimizer.param_groups for p in group["params"]}
        return [_factor(self.optimizer, parameter, groups[id(parameter)]) for parameter in self.parameters]


def batch_tokens(batch: Batch, world: World, everywhere: bool) -> Tensor:
    """Tokens of each group, over all ranks where gradients are."""
    return world.sum(batch.tokens.clone()) if everywhere else batch.tokens


def _wide(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)


def _factor(optimizer: torch.optim.Optimizer, parameter: Tensor, group: dict) -> Tensor:
    state = optimizer.state.get(parameter, {})
    if "exp_avg_sq" not in state:
        return torch.zeros_like(local(parameter))
    unbiased = 1.0 - group["betas"][1] ** float(state["step"])
    return 1.0 / ((local(state["exp_avg_sq"]) / unbiased).sqrt() + group["eps"])
